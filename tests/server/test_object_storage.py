"""Readers of streams whose segments lie in object storage, a real S3 server: what they get, and what they hold up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headgate.broker import consumers
from headgate.client import Client as StreamClient
from headgate.client import Retry, SubscriptionOptions
from headgate.errors import HeadgateError
from headgate.log import OffsetSpecification, stream_folder
from headgate.log.remote.cache import cache_folder
from headgate.message import AmqpType, AmqpValue, Message, amqp_value
from headgate.protocols.amqp10.events import Detached
from headgate.protocols.amqp10.terminus import RawEntry
from headgate.protocols.rocketmq import first_place
from headgate.protocols.rocketmq.remoting import RequestCode, ResponseCode
from headgate.server.rocketmq.remoting import RemotingHandler
from headgate.server.stream import StreamHandler
from s3_proxy import Answer, Fault, S3Proxy, s3_proxy
from s3_server import s3_server
from server.amqp10_client import Management, client_of, rabbitmq_handler
from server.remoting_client import RemotingClient
from server.running import RunningServer, running_server

BATCHES = 6
IN_BATCH = 50
TOTAL = BATCHES * IN_BATCH
LIVE = 3_000
SOON = Retry(first_s=0.01, most_s=0.05, give_up_after_s=0.5)
DENIED = Answer(403, "AccessDenied", "Access Denied.")
"""The library does not try again."""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    """The proxy before a storage whose credentials are in the environment, as its users have them."""
    folder = tmp_path_factory.mktemp("storage")
    with s3_server(folder) as storage, s3_proxy(storage.endpoint) as between, pytest.MonkeyPatch.context() as patch:
        for name, value in storage.environment(between.endpoint).items():
            patch.setenv(name, value)
        patch.setenv("HEADGATE_REMOTE_CACHE", str(folder / "cache"))
        cache_folder.cache_clear()
        # What a stream's readers have in memory goes with the last of them.
        patch.setattr(consumers, "KEPT_MS", 0)
        storage.new_bucket()
        yield between
    cache_folder.cache_clear()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, proxy: S3Proxy) -> Iterator[RunningServer]:
    handlers = {"amqp": rabbitmq_handler, "stream": StreamHandler, "rocketmq_classic": RemotingHandler}
    with running_server(tmp_path_factory.mktemp("server"), handlers=handlers) as running:
        yield running


def offset(value: object) -> RawEntry:
    return RawEntry.of("offset", "rabbitmq:stream-offset-spec", amqp_value(value))


def by_amqp(server: RunningServer, start: AmqpValue | object, count: int) -> list[tuple[int, bytes]]:
    with client_of(server.ports["amqp"]) as client:
        link = client.receiver("/queues/old", filters=(offset(start),), credit=count)
        return [(found.offset, bytes(found.data)) for found in client.receive(link, count)]


def by_streams(server: RunningServer, start: OffsetSpecification) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    address = f"headgate-stream://guest:guest@127.0.0.1:{server.ports['stream']}"
    with StreamClient.connect(address, retry=SOON) as client:
        subscription = client.subscription(SubscriptionOptions("old", start, stop=TOTAL))
        while not subscription.is_finished:
            batch = subscription.read(None)
            if batch is not None:
                rows = zip(batch.offsets.tolist(), range(len(batch.offsets)), strict=True)
                found += [(place, batch.messages.message(row)) for place, row in rows]
        subscription.close()
    return found


def place(server: RunningServer, code: RequestCode, **fields: object) -> dict[str, str]:
    """What RocketMQ's classic protocol answers about the queue."""
    with closing(RemotingClient(server)) as client:
        answer = client.call(code, {"topic": "old", "queueId": 0, **fields})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return dict(answer.fields)


def viewed(server: RunningServer, offset: int) -> bytes:
    with closing(RemotingClient(server)) as client:
        answer = client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "old", "offset": first_place(0, 0) + offset})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return bytes(answer.body)


def fill(server: RunningServer) -> int:
    """Some segments of `old`; gives a time between two of its messages."""
    middle_ms = 0
    with client_of(server.ports["amqp"]) as client:
        assert Management(client).declare("old", stream_max_segment_size_bytes=2_000) == 201
        link = client.sender("/queues/old")
        for batch in range(BATCHES):
            now_ms = server.call(server.context.broker.now_ms)
            server.until(lambda now=now_ms: server.context.broker.now_ms() > now)  # type: ignore[misc]
            middle_ms = server.call(server.context.broker.now_ms) if batch == BATCHES // 2 else middle_ms
            client.send(link, *[Message(b"old %d %s" % (batch, b"x" * 100)) for _ in range(IN_BATCH)])
    return middle_ms


def move(server: RunningServer, tmp_root: Path) -> None:
    """Have `old` moved, all but its last segment."""
    broker = server.context.broker
    server.call(lambda: broker.streams.change("old", {"headgate-remote": "s3://bucket-1/streams"}))
    folder = stream_folder(tmp_root, "old")
    server.until(lambda: len(list(folder.glob("*.segment"))) == 1)


def forget_cache(server: RunningServer) -> None:
    """As on a machine that has not read the stream yet."""
    server.until(lambda: server.context.broker.catalogue.get("old").engine is None)
    shutil.rmtree(cache_folder())
    cache_folder.cache_clear()


@pytest.fixture(scope="module")
def reads(server: RunningServer, proxy: S3Proxy) -> list[tuple[str, Callable[[], object], object]]:
    """Reads of `old`, which has moved since, with what they gave before."""
    middle_ms = fill(server)
    made: list[tuple[str, Callable[[], object]]] = []
    after_middle = TOTAL - IN_BATCH * (BATCHES // 2)
    for name, by, specification, count in (
        ("first", "first", OffsetSpecification.first(), TOTAL),
        ("offset", 57, OffsetSpecification.offset(57), TOTAL - 57),
        (
            "time",
            AmqpValue(AmqpType.TIMESTAMP, middle_ms),
            OffsetSpecification.timestamp(middle_ms),
            after_middle,
        ),
    ):
        made.append((f"AMQP {name}", lambda by=by, count=count: by_amqp(server, by, count)))
        made.append((f"streams {name}", lambda start=specification: by_streams(server, start)))
    by_time = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    others = [
        ("RocketMQ time", lambda: place(server, by_time, timestamp=middle_ms)),
        ("RocketMQ time before", lambda: place(server, by_time, timestamp=middle_ms, boundaryType="UPPER")),
        ("RocketMQ earliest", lambda: place(server, RequestCode.GET_EARLIEST_MSG_STORETIME)),
        ("RocketMQ message", lambda: viewed(server, 57)),
    ]
    found = [(name, read, read()) for name, read in others]
    before = [(name, read, read()) for name, read in made]
    assert [len(found) for _, _, found in before] == [  # type: ignore[arg-type]
        *[TOTAL] * 2,
        *[TOTAL - 57] * 2,
        *[after_middle] * 2,
    ]
    assert found[0][2] == {"offset": str(TOTAL - after_middle)}
    move(server, Path(server.context.settings.root))
    return [*before, *found]


def test_every_reader_gets_the_same_before_and_after_the_move(
    server: RunningServer, proxy: S3Proxy, reads: list[tuple[str, Callable[[], object], object]]
) -> None:
    for name, read, before in reads:
        forget_cache(server)
        proxy.forget()
        assert read() == before, name
        assert proxy.requests["GET"], "it came from there"


def test_a_slow_storage_delays_only_those_who_read_from_it(
    server: RunningServer, proxy: S3Proxy, reads: list[tuple[str, Callable[[], object], object]]
) -> None:
    with client_of(server.ports["amqp"]) as client:
        Management(client).declare("live")
        link = client.sender("/queues/live")
        client.send(link, *[Message(b"live" + b"x" * 100) for _ in range(LIVE)])
    forget_cache(server)

    proxy.forget()
    with (
        client_of(server.ports["amqp"]) as slow,
        client_of(server.ports["amqp"]) as live,
        closing(RemotingClient(server)) as asking,
    ):
        with proxy.fault(Fault(delay_s=4.0, methods=("GET", "HEAD"))):
            starts = "first", AmqpValue(AmqpType.TIMESTAMP, 1), 10, 20
            links = [slow.receiver("/queues/old", filters=(offset(start),), credit=TOTAL) for start in starts]
            number = asking.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "old", "offset": first_place(0, 0) + 30})
            receiver = live.receiver("/queues/live", filters=(offset("first"),), credit=LIVE)
            assert len(live.receive(receiver, LIVE)) == LIVE
            assert live.send(live.sender("/queues/live"), Message(b"confirmed"))
            assert len(proxy.exchanges) >= 1, "they ask"
            assert not any(exchange.status for exchange in proxy.exchanges), "the storage has not answered yet"
        assert asking.answer(number).code == ResponseCode.SUCCESS
        for link, count in zip(links, (TOTAL, TOTAL, TOTAL - 10, TOTAL - 20), strict=True):
            assert len(slow.receive(link, count)) == count


def test_a_storage_that_refuses_is_an_error_of_the_protocol_and_the_next_reader_is_served(
    server: RunningServer, proxy: S3Proxy, reads: list[tuple[str, Callable[[], object], object]]
) -> None:
    forget_cache(server)
    with proxy.fault(Fault(answer=DENIED, methods=("GET", "HEAD"))):
        with client_of(server.ports["amqp"]) as client:
            link = client.receiver("/queues/old", filters=(offset("first"),), credit=TOTAL)
            client.pump(lambda: bool(client.of(Detached, link)))
            _, text = client.detached(link)
            assert "s3://bucket-1/streams/old/" in str(text)
            assert Management(client).declare("other") == 201, "the connection goes on"
        with pytest.raises(HeadgateError):
            by_streams(server, OffsetSpecification.first())
        with closing(RemotingClient(server)) as asking:
            answer = asking.call(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "old", "queueId": 0})
            assert answer.code == ResponseCode.SYSTEM_ERROR and "s3://bucket-1/streams/old/" in answer.remark
    for name, read, before in reads:
        assert read() == before, name
    assert server.call(lambda: server.context.broker.catalogue.troubles.all()) == {}, "that is no damage"
