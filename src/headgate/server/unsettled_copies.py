"""The unsettled copies of a subscription that a client of RabbitMQ's protocols holds.

As in RabbitMQ the client holds them until it settles them or goes. A subscription has a lock time, so claims are
renewed halfway, for at most `HOLD_LIMIT_MS`: a client that has not settled by then has failed, and its copies are
redelivered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headgate.broker import DeadLetterReason, GivenCopies, Receiver, Session, Settler
from headgate.errors import HeadgateError, ResourceExistsError, UnsupportedError
from headgate.topic import TopicKind

HOLD_LIMIT_MS = 30 * 60_000
"""How long a client may hold an unsettled copy; the same as RabbitMQ's `consumer_timeout`."""

REJECTED = "rejected"
"""The reason of a dead letter without a reason from its client; RabbitMQ's word."""


NOT_DELETED = "a subscription is not deleted as a queue: use `headgate subscription rm`"

QUORUM = "quorum"
"""The queue type of subscriptions for RabbitMQ's clients: with outcomes and a delivery count."""


class Settlement(enum.Enum):
    """The outcome of a copy."""

    COMPLETE = "it is done with"
    RELEASE = "it goes back, as if it had not been given out"
    FAIL = "it goes back, and the attempt counts"
    DEAD_LETTER = "it becomes a dead letter"


@dataclass(slots=True)
class _Held:
    token: bytes
    held_until_ms: int


class UnsettledCopies:
    """The copies of one receiver that its client holds, by the client's numbers for them.

    Clients complete copies one by one: all copies of one turn are completed together, at its end (`call_soon`).
    `failed` gets the error of a settlement that did not reach the disk.
    """

    __slots__ = (
        "_call_soon",
        "_completed",
        "_failed",
        "_held",
        "_is_dead_letter",
        "_renew_at_ms",
        "_settler",
        "_then",
    )

    def __init__(
        self,
        settler: Settler[Receiver],
        failed: Callable[[HeadgateError], None],
        call_soon: Callable[[Callable[[], None]], None],
        *,
        is_dead_letter: bool,
    ) -> None:
        self._settler = settler
        self._failed = failed
        self._call_soon = call_soon
        self._is_dead_letter = is_dead_letter
        self._held: dict[int, _Held] = {}
        self._completed: list[bytes] = []
        self._then: list[Callable[[], None]] = []
        self._renew_at_ms: int | None = None

    def __len__(self) -> int:
        return len(self._held)

    def add(self, numbers: Iterable[int], given: GivenCopies) -> None:
        """The client got copies, which it will settle by these numbers."""
        locked_until_ms = given.locked_until_ms
        lock_ms = self._settler.lock_ms
        until_ms = locked_until_ms - lock_ms + HOLD_LIMIT_MS
        for number, token in zip(numbers, given.packed_tokens(), strict=True):
            self._held[number] = _Held(token, until_ms)
        if self._renew_at_ms is None:
            self._renew_at_ms = locked_until_ms - lock_ms // 2

    def settle(
        self,
        numbers: Iterable[int],
        settlement: Settlement,
        *,
        why: DeadLetterReason | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Settle copies with a settlement; copies that the client does not hold any more are ignored.

        `then` is called when that is on disk. A dead letter that is rejected again is completed, as in a RabbitMQ
        queue without a dead letter exchange.
        """
        held = [self._held.pop(number, None) for number in numbers]
        tokens = [each.token for each in held if each is not None]
        if not tokens:
            then()
            return

        def answered(result: list[bool] | HeadgateError) -> None:
            self._answer(result, [then])

        if settlement is Settlement.COMPLETE or (settlement is Settlement.DEAD_LETTER and self._is_dead_letter):
            if not self._completed:
                self._call_soon(self._complete)
            self._completed += tokens
            self._then.append(then)
        elif settlement is Settlement.DEAD_LETTER:
            self._settler.dead_letter(tokens, answered, why=why or DeadLetterReason(REJECTED))
        else:
            self._settler.release(tokens, answered, counts=settlement is Settlement.FAIL)

    def _complete(self) -> None:
        tokens, self._completed = self._completed, []
        then, self._then = self._then, []
        if tokens:
            self._settler.complete(tokens, lambda result: self._answer(result, then))

    def _answer(self, result: list[bool] | HeadgateError, then: Iterable[Callable[[], None]]) -> None:
        if isinstance(result, HeadgateError):
            self._failed(result)
        else:
            for call in then:
                call()

    def give_back(self, settlement: Settlement) -> None:
        """The client has gone and gets no answers: all copies that it holds go back."""
        self._complete()
        tokens = [each.token for each in self._held.values()]
        self._held.clear()
        if tokens:
            self._settler.release(tokens, counts=settlement is Settlement.FAIL)

    def forget(self) -> None:
        """The subscription was removed."""
        self._held.clear()
        self._completed.clear()
        self._then.clear()

    def tick(self, now_ms: int) -> None:
        """Renew the claims whose lock time is half over. Cost: each held copy is checked once in half a lock time."""
        if self._renew_at_ms is None or now_ms < self._renew_at_ms:
            return
        renewed = [each for each in self._held.values() if now_ms < each.held_until_ms]
        self._renew_at_ms = None
        if renewed:
            until_ms = self._settler.renew([each.token for each in renewed])
            self._renew_at_ms = until_ms - self._settler.lock_ms // 2


def check_subscription_declared(
    queue: str, arguments: Mapping[str, object], *, durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    """Raise ResourceExistsError unless a declaration fits a subscription's queue; arguments have names with `x-`."""
    if arguments != {"x-queue-type": QUORUM} or not durable or exclusive or auto_delete:
        raise ResourceExistsError(
            "it is a subscription: a durable queue with x-queue-type = quorum and no other argument", subject=queue
        )


def refused_queue(
    session: Session, queue: str, stream_argument: str = "x-queue-type = stream"
) -> ResourceExistsError | UnsupportedError:
    """The error for the declaration of a classic or quorum queue; it names the alternative."""
    if session.topic_kind(queue) is TopicKind.QUEUE:
        reason = f"it is a queue of Service Bus: its clients settle its messages, others read it with {stream_argument}"
        return ResourceExistsError(reason, subject=queue)
    if session.topic_kind(queue) is TopicKind.TOPIC:
        reason = f"it is a topic: consume from {queue}/Subscriptions/NAME, or read all of it with {stream_argument}"
        return ResourceExistsError(reason, subject=queue)
    if queue in session.streams():
        return ResourceExistsError(f"it is a stream: declare it with {stream_argument}", subject=queue)
    return UnsupportedError(
        f"no classic or quorum queues here: declare with {stream_argument}, or, for settlement, retries and dead "
        "letters, consume from TOPIC/Subscriptions/NAME, a topic's subscription (headgate subscription create)",
        subject=queue,
    )
