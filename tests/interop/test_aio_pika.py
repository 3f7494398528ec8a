"""aio-pika with streams: the asyncio Python client of AMQP 0.9.1, unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interop.servers import Served
from waiting import LIMIT_S

aio_pika = pytest.importorskip("aio_pika", reason="the Python clients are not installed: `make clients`")

STREAM = {"x-queue-type": "stream"}


def run(served: Served, work: Callable[[Any], Awaitable[None]]) -> None:
    """Does the work with a channel of its own, within the limit of time."""

    async def inside() -> None:
        async with await aio_pika.connect(host=served.host, port=served.amqp) as connection:
            await work(await connection.channel(on_return_raises=True))

    asyncio.run(asyncio.wait_for(inside(), LIMIT_S))


async def declare(channel: Any, stream: str) -> Any:
    return await channel.declare_queue(stream, durable=True, arguments=STREAM)


async def publish(channel: Any, stream: str, *bodies: str, **properties: Any) -> None:
    for body in bodies:
        message = aio_pika.Message(body.encode(), **properties)
        await channel.default_exchange.publish(message, stream)


async def consume(channel: Any, queue: Any, count: int, **arguments: Any) -> list[Any]:
    await channel.set_qos(prefetch_count=10)
    given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    received = []
    async with queue.iterator(arguments=given) as messages:
        async for message in messages:
            received.append(message)
            await message.ack()
            if len(received) == count:
                break
    return received


async def ignore(message: Any) -> None:
    """A callback for a consumer that never gets anything."""


def bodies(received: list[Any]) -> list[str]:
    return [message.body.decode() for message in received]


def test_aio_pika_publishes_and_consumes_with_offsets(served, stream):
    async def work(channel: Any) -> None:
        queue = await declare(channel, stream)
        await publish(channel, stream, *(f"m{number}" for number in range(50)), headers={"n": 7, "region": "emea"})
        received = await consume(channel, queue, 50, stream_offset="first")
        assert bodies(received) == [f"m{number}" for number in range(50)]
        assert received[9].headers == {"n": 7, "region": "emea", "x-stream-offset": 9}
        assert (received[9].routing_key, received[9].redelivered) == (stream, False)
        assert bodies(await consume(channel, queue, 2, stream_offset=48)) == ["m48", "m49"]

    run(served, work)


def test_aio_pika_publishes_many_at_once_and_hears_of_each(served, stream):
    async def work(channel: Any) -> None:
        await declare(channel, stream)
        exchange = channel.default_exchange
        confirms = await asyncio.gather(
            *(exchange.publish(aio_pika.Message(b"m%d" % number), stream) for number in range(500))
        )
        assert len(confirms) == 500
        assert {type(confirm).__name__ for confirm in confirms} == {"Ack"}
        queue = await channel.get_queue(stream)
        assert queue.declaration_result.message_count in (0, 500)

    run(served, work)


def test_aio_pika_filters_by_values_and_expressions(served, stream):
    async def work(channel: Any) -> None:
        queue = await declare(channel, stream)
        for value in ("AMER", "EMEA", "AMER"):
            await publish(channel, stream, value, headers={"x-stream-filter-value": value, "region": value.lower()})
        assert bodies(await consume(channel, queue, 1, stream_offset="first", stream_filter="EMEA")) == ["EMEA"]
        if not served.is_original:
            wanted = {"stream_offset": "first", "headgate_sql": "region LIKE 'am%'"}
            assert bodies(await consume(channel, queue, 2, **wanted)) == ["AMER", "AMER"]

    run(served, work)


def test_aio_pika_raises_the_errors_of_their_codes(served, stream):
    errors = aio_pika.exceptions

    async def passive(channel: Any) -> None:
        with pytest.raises(errors.ChannelNotFoundEntity):
            await channel.declare_queue("nowhere", passive=True)

    async def other_arguments(channel: Any) -> None:
        with pytest.raises(errors.ChannelPreconditionFailed):
            await channel.declare_queue(stream, durable=True, arguments={**STREAM, "x-max-age": "1h"})

    async def without_prefetch(channel: Any) -> None:
        queue = await channel.get_queue(stream, ensure=False)
        with pytest.raises(errors.ChannelPreconditionFailed):
            await queue.consume(ignore)

    async def returned(channel: Any) -> None:
        with pytest.raises(errors.DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b""), "nowhere", mandatory=True)

    for work in (passive, other_arguments, without_prefetch, returned):
        run(served, work)


def test_aio_pika_declares_exchanges_and_bindings(served, name):
    async def work(channel: Any) -> None:
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.DIRECT, durable=True)
        queue = await declare(channel, name)
        await queue.bind(exchange, "key")
        await exchange.publish(aio_pika.Message(b"routed"), "key")
        [message] = await consume(channel, queue, 1, stream_offset="first")
        assert (message.body, message.exchange, message.routing_key) == (b"routed", name, "key")
        await queue.unbind(exchange, "key")
        await queue.delete()
        await exchange.delete()

    run(served, work)


def test_a_robust_connection_comes_back(served, stream):
    """What aio-pika recommends: it declares and consumes again after the connection was lost."""

    async def inside() -> None:
        async with await aio_pika.connect_robust(
            host=served.host, port=served.amqp, reconnect_interval=0.1
        ) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=10)
            queue = await declare(channel, stream)
            received: asyncio.Queue[bytes] = asyncio.Queue()

            async def take(message: Any) -> None:
                await message.ack()
                await received.put(message.body)

            await queue.consume(take, arguments={"x-stream-offset": "next"})
            await publish(channel, stream, "before")
            assert await received.get() == b"before"
            back = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_: back.set())
            await connection.transport.connection.close(ConnectionError("cut by the test"))
            await back.wait()
            await publish(await connection.channel(), stream, "after")
            assert await received.get() == b"after"

    asyncio.run(asyncio.wait_for(inside(), LIMIT_S))
