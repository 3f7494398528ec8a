"""Waiting for later answers of the broker: copies of a subscription, and settlements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from headgate.broker import Delivery, ReceiverCalls, Session
from headgate.errors import HeadgateError
from headgate.topic import SubscriptionName

Then = Callable[[object], None]
"""Called once, with an answer or a HeadgateError."""


async def told(begin: Callable[[Then], None]) -> Any:
    """Wait for the answer that `begin` gives to its callback. Raises a HeadgateError that it gives."""
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def then(result: object) -> None:
        if not answer.done():
            answer.set_result(result)

    begin(then)
    result = await answer
    if isinstance(result, HeadgateError):
        raise result
    return result


async def received(session: Session, name: SubscriptionName, count: int, wait_s: float) -> list[Delivery]:
    """At most `count` copies: the copies available now, or else the first ones that come within `wait_s`.

    They stay claimed until their locks end; the receiver ends with the session. Raises ResourceNotFoundError, also
    if the subscription is removed meanwhile, AccessRefusedError, PreconditionFailedError, LogError.
    """
    found: list[Delivery] = []
    ended: list[HeadgateError] = []
    came = asyncio.Event()

    def deliver(deliveries: Sequence[Delivery]) -> None:
        found.extend(deliveries)
        came.set()

    def end(error: HeadgateError) -> None:
        ended.append(error)
        came.set()

    receiver = session.receiver(name, ReceiverCalls(deliver=deliver, ended=end, tag="HTTP"))
    receiver.want(count)
    loop = asyncio.get_running_loop()
    limit_s = loop.time() + wait_s
    while len(found) < count and not ended:
        before = len(found)
        # The broker's turn, which is scheduled already, comes first.
        await asyncio.sleep(0)
        if len(found) > before:
            continue
        if found or loop.time() >= limit_s:
            break
        try:
            await asyncio.wait_for(came.wait(), limit_s - loop.time())
        except TimeoutError:
            break
    if ended and not found:
        raise ended[0]
    return found
