"""rstream, the Python client of the stream protocol, unmodified."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rstream import (
    AMQPMessage,
    CompressionType,
    ConfirmationStatus,
    Consumer,
    ConsumerOffsetSpecification,
    EventContext,
    FilterConfiguration,
    MessageContext,
    OffsetNotFound,
    OffsetSpecification,
    OffsetType,
    Producer,
    Properties,
    RouteType,
    StreamDoesNotExist,
    SuperStreamConsumer,
    SuperStreamCreationOption,
    SuperStreamProducer,
    amqp_decoder,
)
from rstream.exceptions import AuthenticationFailure, PreconditionFailed
from rstream.recovery import BackOffRecoveryStrategy

from interop.servers import Served, ServerProcess
from waiting import LIMIT_S

pytestmark = [
    # The client leaves sockets and tasks behind when it closes.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

LOGIN = {"username": "guest", "password": "guest"}


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, within a time."""

    async def bounded() -> None:
        await asyncio.wait_for(test, LIMIT_S)

    try:
        asyncio.run(bounded())
    finally:
        # What the client leaves behind complains now, while that is ignored.
        gc.collect()


class Inbox:
    """Messages that a consumer was called with; `take` waits for so many."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[tuple[str, int, Any]] = asyncio.Queue()

    async def __call__(self, message: Any, context: MessageContext) -> None:
        self._messages.put_nowait((context.stream, context.offset, message))

    async def take(self, count: int) -> list[tuple[str, int, Any]]:
        return [await self._messages.get() for _ in range(count)]

    async def bodies(self, count: int) -> list[bytes]:
        return [message if isinstance(message, bytes) else message.body for _, _, message in await self.take(count)]

    @property
    def is_empty(self) -> bool:
        return self._messages.empty()


class Confirms:
    """Confirmations of a producer; `take` waits for so many."""

    def __init__(self) -> None:
        self._statuses: asyncio.Queue[ConfirmationStatus] = asyncio.Queue()

    async def __call__(self, status: ConfirmationStatus) -> None:
        self._statuses.put_nowait(status)

    async def take(self, count: int) -> list[ConfirmationStatus]:
        return [await self._statuses.get() for _ in range(count)]


@asynccontextmanager
async def producing(served: Served, **options: Any) -> AsyncIterator[Producer]:
    async with Producer(served.host, served.stream, **LOGIN, **options) as producer:
        yield producer


@asynccontextmanager
async def consuming(served: Served, **options: Any) -> AsyncIterator[Consumer]:
    """A consumer until the end; its stream must live as long: rstream's own clean-up would race with its closing."""
    consumer = Consumer(served.host, served.stream, **LOGIN, **options)
    await consumer.start()
    yield consumer
    await consumer.close()


def message(body: bytes, **properties: str) -> AMQPMessage:
    return AMQPMessage(body=body, application_properties=properties)


async def region_of(given: AMQPMessage) -> str:
    return str(given.application_properties["region"])


def of_region(*regions: str) -> Callable[[AMQPMessage], bool]:
    """What the client filters behind the server."""
    wanted = {region.encode() for region in regions}
    return lambda received: received.application_properties[b"region"] in wanted


def test_messages_come_back_in_order_with_offsets_and_properties(served: Served, name: str) -> None:
    async def test() -> None:
        async with producing(served) as producer, consuming(served) as consumer:
            await producer.create_stream(name, arguments={"max-age": "1h", "stream-filter-size-bytes": 32})
            given = [
                AMQPMessage(
                    body=b"%d" % n, properties=Properties(subject=f"Order {n}"), application_properties={"n": n}
                )
                for n in range(500)
            ]
            await producer.send_batch(name, given)
            inbox = Inbox()
            await consumer.subscribe(name, inbox, decoder=amqp_decoder)
            received = await inbox.take(500)
            assert [offset for _, offset, _ in received] == list(range(500))
            assert [found.body for _, _, found in received] == [b"%d" % n for n in range(500)]
            assert received[7][2].application_properties == {b"n": 7}
            assert received[7][2].properties.subject == b"Order 7"

    run(test())


def test_each_message_is_confirmed_to_its_callback(served: Served, name: str) -> None:
    async def test() -> None:
        async with producing(served) as producer:
            await producer.create_stream(name)
            confirms = Confirms()
            for number in range(100):
                await producer.send(name, b"%d" % number, on_publish_confirm=confirms)
            statuses = await confirms.take(100)
            assert all(status.is_confirmed for status in statuses)
            assert len({status.message_id for status in statuses}) == 100
            assert await producer.send_wait(name, b"the last") > 0

    run(test())


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (ConsumerOffsetSpecification(OffsetType.FIRST), 0),
        (ConsumerOffsetSpecification(OffsetType.LAST), 20),
        (ConsumerOffsetSpecification(OffsetType.OFFSET, 13), 13),
        (ConsumerOffsetSpecification(OffsetType.TIMESTAMP, 1), 0),
    ],
    ids=lambda value: value.offset_type.name if isinstance(value, ConsumerOffsetSpecification) else "",
)
def test_a_consumer_starts_where_it_says(
    served: Served, name: str, start: ConsumerOffsetSpecification, first: int
) -> None:
    async def test() -> None:
        async with producing(served) as producer, consuming(served) as consumer:
            await producer.create_stream(name)
            for chunk in range(3):
                for number in range(10):
                    await producer.send_wait(name, b"%d" % (10 * chunk + number))
            inbox = Inbox()
            # Each message was alone in its chunk.
            expected = 29 if start.offset_type is OffsetType.LAST else first
            await consumer.subscribe(name, inbox, offset_specification=start)
            assert [offset for _, offset, _ in await inbox.take(30 - expected)] == list(range(expected, 30))

    run(test())


def test_new_messages_are_pushed_to_a_consumer_at_the_end(served: Served, name: str) -> None:
    async def test() -> None:
        async with producing(served) as producer, consuming(served) as consumer:
            await producer.create_stream(name)
            await producer.send_wait(name, b"before")
            inbox = Inbox()
            await consumer.subscribe(name, inbox, offset_specification=ConsumerOffsetSpecification(OffsetType.NEXT))
            for number in range(5):
                await producer.send_wait(name, b"%d" % number)
                assert await inbox.bodies(1) == [b"%d" % number]

    run(test())


@pytest.mark.parametrize("match_unfiltered", [False, True])
def test_filter_values_skip_chunks_and_the_client_drops_the_rest(
    served: Served, name: str, match_unfiltered: bool
) -> None:
    """The example of rstream's and RabbitMQ's documentation: filter by region, then again in the client."""

    async def test() -> None:
        async with (
            producing(served, filter_value_extractor=region_of) as producer,
            producing(served) as plain,
            consuming(served) as consumer,
        ):
            await producer.create_stream(name)
            await producer.send_batch(name, [message(b"%d" % n, region="amer") for n in range(100)])
            await producer.send_wait(name, message(b"wanted", region="emea"))
            await plain.send_wait(name, message(b"unfiltered", region="emea"))
            mixed = [message(b"mixed %d" % n, region="emea" if n % 2 else "amer") for n in range(10)]
            await producer.send_batch(name, mixed)
            inbox = Inbox()
            await consumer.subscribe(
                name,
                inbox,
                decoder=amqp_decoder,
                filter_input=FilterConfiguration(["emea"], of_region("emea"), match_unfiltered),
            )
            expected = [b"wanted"] + [b"unfiltered"] * match_unfiltered + [b"mixed %d" % n for n in range(1, 10, 2)]
            assert await inbox.bodies(len(expected)) == expected

    run(test())


def test_any_of_several_filter_values_is_enough(served: Served, name: str) -> None:
    async def test() -> None:
        async with producing(served, filter_value_extractor=region_of) as producer, consuming(served) as consumer:
            await producer.create_stream(name)
            for region in ("amer", "emea", "apac", "amer"):
                await producer.send_wait(name, message(region.encode(), region=region))
            inbox = Inbox()
            wanted = FilterConfiguration(["emea", "apac"], None, False)
            await consumer.subscribe(name, inbox, decoder=amqp_decoder, filter_input=wanted)
            assert await inbox.bodies(2) == [b"emea", b"apac"]

    run(test())


def test_an_sql_filter_of_ours_is_evaluated_by_the_server(served: Served, name: str) -> None:
    if served.is_original:
        pytest.skip("the original has no expression filters in this protocol")

    async def test() -> None:
        async with producing(served) as producer, consuming(served) as consumer:
            await producer.create_stream(name)
            given = [message(b"%d" % n, region="emea" if n % 3 else "amer") for n in range(30)]
            await producer.send_batch(name, given)
            inbox = Inbox()
            await consumer.subscribe(
                name, inbox, decoder=amqp_decoder, properties={"x-headgate-sql": "region = 'amer'"}
            )
            received = await inbox.take(10)
            assert [offset for _, offset, _ in received] == list(range(0, 30, 3))
            assert [found.body for _, _, found in received] == [b"%d" % n for n in range(0, 30, 3)]
        async with consuming(served) as consumer:
            with pytest.raises(PreconditionFailed):
                await consumer.subscribe(name, Inbox(), properties={"x-headgate-sql": "region = "})

    run(test())


def test_a_named_producer_that_sends_again_writes_nothing_twice(served: Served, name: str) -> None:
    async def send(first: int, last: int) -> None:
        async with producing(served) as producer:
            given = [message(b"%d" % n) for n in range(first, last)]
            for number, one in enumerate(given, first):
                one.publishing_id = number
            confirms = Confirms()
            await producer.send_batch(name, given, publisher_name="anna", on_publish_confirm=confirms)
            assert all(status.is_confirmed for status in await confirms.take(last - first))

    async def test() -> None:
        async with producing(served) as producer:
            await producer.create_stream(name)
        await send(1, 11)
        await send(6, 16)
        async with producing(served) as producer, consuming(served) as consumer:
            # It asks for its sequence and goes on behind it.
            await producer.send_wait(name, message(b"16"), publisher_name="anna")
            inbox = Inbox()
            await consumer.subscribe(name, inbox, decoder=amqp_decoder)
            assert await inbox.bodies(16) == [b"%d" % n for n in range(1, 17)]

    run(test())


def test_a_consumer_goes_on_behind_its_stored_offset(served: Served, name: str) -> None:
    async def test() -> None:
        async with producing(served) as producer:
            await producer.create_stream(name)
            await producer.send_batch(name, [b"%d" % n for n in range(20)])
            async with consuming(served) as consumer:
                with pytest.raises(OffsetNotFound):
                    await consumer.query_offset(name, "anna")
                await consumer.store_offset(name, "anna", 12)
                assert await consumer.query_offset(name, "anna") == 12
            async with consuming(served) as consumer:
                stored = await consumer.query_offset(name, "anna")
                inbox = Inbox()
                start = ConsumerOffsetSpecification(OffsetType.OFFSET, stored + 1)
                await consumer.subscribe(name, inbox, offset_specification=start, subscriber_name="anna")
                assert await inbox.bodies(7) == [b"%d" % n for n in range(13, 20)]

    run(test())


@pytest.mark.parametrize("compression", [CompressionType.No, CompressionType.Gzip])
def test_sub_batches_come_back_as_messages(served: Served, name: str, compression: CompressionType) -> None:
    async def test() -> None:
        async with producing(served) as producer, consuming(served) as consumer:
            await producer.create_stream(name)
            confirms = Confirms()
            given = [message(b"%d" % n) for n in range(100)]
            await producer.send_sub_entry(name, given, compression_type=compression, on_publish_confirm=confirms)
            assert [status.is_confirmed for status in await confirms.take(1)] == [True]
            await producer.send_wait(name, message(b"alone"))
            inbox = Inbox()
            await consumer.subscribe(name, inbox, decoder=amqp_decoder)
            assert await inbox.bodies(101) == [b"%d" % n for n in range(100)] + [b"alone"]

    run(test())


@pytest.mark.parametrize("routing", [RouteType.Hash, RouteType.Key])
def test_a_super_stream_takes_each_message_to_one_partition(served: Served, name: str, routing: RouteType) -> None:
    async def key_of(given: AMQPMessage) -> str:
        # This client keeps the first route that it was given by key.
        return str(given.application_properties["n"]) if routing is RouteType.Hash else "two"

    async def test() -> None:
        option = (
            SuperStreamCreationOption(n_partitions=3)
            if routing is RouteType.Hash
            else SuperStreamCreationOption(n_partitions=0, binding_keys=["one", "two", "three"])
        )
        inbox = Inbox()
        async with SuperStreamProducer(
            served.host,
            served.stream,
            **LOGIN,
            super_stream=name,
            super_stream_creation_option=option,
            routing=routing,
            routing_extractor=key_of,
        ) as producer:
            for number in range(60):
                await producer.send(message(b"%d" % number, n=str(number)))
        async with SuperStreamConsumer(served.host, served.stream, **LOGIN, super_stream=name) as consumer:
            await consumer.subscribe(inbox, decoder=amqp_decoder)
            received = await inbox.take(60)
            assert sorted(int(found.body) for _, _, found in received) == list(range(60))
            partitions = {stream for stream, _, _ in received}
            expected = {f"{name}-{number}" for number in range(3)} if routing is RouteType.Hash else {f"{name}-two"}
            assert partitions == expected
            for partition in partitions:
                numbers = [int(found.body) for stream, _, found in received if stream == partition]
                assert numbers == sorted(numbers)
            await consumer.unsubscribe()

    run(test())


def test_of_consumers_with_one_name_one_is_active_and_the_next_takes_over(served: Served, name: str) -> None:
    properties = {"single-active-consumer": "true", "name": "group"}

    async def test() -> None:
        turns: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()

        def listener(who: str) -> Callable[[bool, EventContext], Awaitable[OffsetSpecification]]:
            async def on_update(active: bool, context: EventContext) -> OffsetSpecification:
                turns.put_nowait((who, active))
                return OffsetSpecification(OffsetType.FIRST, 0)

            return on_update

        async with producing(served) as producer, consuming(served) as second:
            await producer.create_stream(name)
            await producer.send_batch(name, [b"%d" % n for n in range(10)])
            inboxes = Inbox(), Inbox()
            async with consuming(served) as first:
                await first.subscribe(
                    name, inboxes[0], properties=dict(properties), consumer_update_listener=listener("first")
                )
                assert await turns.get() == ("first", True)
                await second.subscribe(
                    name, inboxes[1], properties=dict(properties), consumer_update_listener=listener("second")
                )
                assert await inboxes[0].bodies(10) == [b"%d" % n for n in range(10)]
                assert inboxes[1].is_empty and turns.empty()
            assert await turns.get() == ("second", True)
            assert await inboxes[1].bodies(10) == [b"%d" % n for n in range(10)]

    run(test())


def test_what_is_not_there_is_an_error_by_name(served: Served, name: str) -> None:
    async def test() -> None:
        async with producing(served) as producer, consuming(served) as consumer:
            assert not await producer.stream_exists(name)
            with pytest.raises(StreamDoesNotExist):
                await producer.delete_stream(name)
            with pytest.raises(StreamDoesNotExist):
                await producer.send_wait(name, b"to nobody")
            with pytest.raises(StreamDoesNotExist):
                await consumer.subscribe(name, Inbox())
            await producer.create_stream(name)
            assert await producer.stream_exists(name)
            await producer.create_stream(name, exists_ok=True)
            with pytest.raises(PreconditionFailed):
                await producer.create_stream(name, arguments={"max-age": "1h"}, exists_ok=True)
            await producer.delete_stream(name)

    run(test())


def test_a_deleted_stream_is_told_to_its_consumer(served: Served, name: str) -> None:
    async def test() -> None:
        told: asyncio.Queue[list[str]] = asyncio.Queue()

        async def on_close(information: Any) -> None:
            told.put_nowait(information.streams)

        async with producing(served) as producer, consuming(served, on_close_handler=on_close) as consumer:
            await producer.create_stream(name)
            await consumer.subscribe(name, Inbox())
            await producer.delete_stream(name)
            assert await told.get() == [name]

    run(test())


def test_a_wrong_password_does_not_connect(served: Served) -> None:
    async def test() -> None:
        producer = Producer(served.host, served.stream, username="guest", password="wrong")
        with pytest.raises(AuthenticationFailure):
            await producer.start()
        await producer.close()

    run(test())


def test_a_consumer_goes_on_when_the_server_comes_back(tmp_path: Path) -> None:
    """The server is killed and starts again on the same port; the client finds its way by itself."""
    process = ServerProcess(tmp_path)

    async def test(served: Served) -> None:
        inbox = Inbox()
        async with producing(served) as producer:
            await producer.create_stream("s")
            await producer.send_batch("s", [b"%d" % n for n in range(10)])
            await producer.send_wait("s", b"10")
        async with consuming(served, recovery_strategy=BackOffRecoveryStrategy(True)) as consumer:
            await consumer.subscribe("s", inbox)
            assert await inbox.bodies(11) == [b"%d" % n for n in range(11)]
            again = await asyncio.to_thread(restart, process)
            assert again.stream == served.stream
            async with producing(again) as producer:
                await producer.send_wait("s", b"11")
            assert await inbox.bodies(1) == [b"11"]

    try:
        run(test(process.start()))
    finally:
        process.close()


def restart(process: ServerProcess) -> Served:
    process.kill()
    return process.start()
