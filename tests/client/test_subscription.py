"""Reads with an end: that they end, with everything before it, whatever the server leaves out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.client import Client, Retry, SubscriptionOptions
from headgate.errors import ConnectionLostError, CorruptChunkError
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification
from headgate.log.format import ChunkHeader, ChunkType
from headgate.protocols.stream.frames import StreamStats
from headgate.scan import ScanRequest
from waiting import LIMIT_S

from .conftest import SOON
from .fake_server import HEADGATE, RABBITMQ, FakeServer, fake_server
from .test_consumer import body, fill


def read_all(client: Client, options: SubscriptionOptions) -> list[int]:
    """The offsets of a read that ends."""
    subscription = client.subscription(options)
    offsets: list[int] = []
    while (batch := subscription.read(LIMIT_S)) is not None:
        offsets += batch.offsets.tolist()
    assert subscription.is_finished
    subscription.close()
    return offsets


def options(start: int, stop: int, **more: object) -> SubscriptionOptions:
    return SubscriptionOptions("orders", OffsetSpecification.offset(start), stop=stop, **more)  # type: ignore[arg-type]


def test_a_read_ends_before_its_stop(client: Client, server: FakeServer) -> None:
    fill(server, 10)
    assert read_all(client, options(4, 20)) == list(range(4, 20))
    assert read_all(client, options(4, 30)) == list(range(4, 30))
    assert read_all(client, options(4, 5)) == [4]


@pytest.mark.parametrize("properties", [RABBITMQ, HEADGATE], ids=["asked", "told"])
@examples(0.5)
@given(
    values=st.lists(st.sampled_from([b"EMEA", b"AMER", None]), min_size=1, max_size=40),
    credit=st.integers(1, 5),
    cut=st.tuples(st.integers(0, 80), st.integers(0, 80)),
)
def test_a_filtered_read_ends_although_nothing_more_comes(
    properties: dict[str, str], values: list[bytes | None], credit: int, cut: tuple[int, int]
) -> None:
    with fake_server(properties) as server:
        for number, value in enumerate(values):
            server.append("orders", [body(str(2 * number)), body(str(2 * number + 1))], [value] * 2)
        start, stop = (min(each, 2 * len(values)) for each in sorted(cut))
        with Client.connect(server.address, retry=SOON) as client:
            read = read_all(client, options(start, stop, filter_values=(b"AMER",), credit=credit))
    expected = [offset for offset in range(start, stop) if values[offset // 2] == b"AMER"]
    assert read == expected


@pytest.mark.parametrize("properties", [RABBITMQ, HEADGATE], ids=["asked", "told"])
def test_a_read_ends_although_the_last_chunk_has_no_messages_and_is_not_delivered(properties: dict[str, str]) -> None:
    with fake_server(properties) as server, Client.connect(server.address, retry=SOON) as client:
        fill(server, 3)
        server.streams["orders"].append([b"tracking"], [], chunk_type=ChunkType.TRACKING_DELTA)
        assert read_all(client, options(4, 10)) == list(range(4, 9))


def test_chunks_are_handed_out_as_they_were_delivered(client: Client, server: FakeServer) -> None:
    fill(server, 7)
    subscription = client.subscription(options(3, 18, credit=2))
    chunks: list[bytes] = []
    while (taken := subscription.read_chunks(LIMIT_S)) is not None:
        chunks += taken
        server.drop_connections()
    subscription.close()
    headers = [ChunkHeader.decode(chunk, path="", position=0) for chunk in chunks]
    assert headers[:5] == server.streams["orders"].headers[1:6]


def test_a_place_that_no_connection_gets_over_is_given_up(server: FakeServer) -> None:
    fill(server, 3)
    server.streams["orders"].unreadable = 1
    with Client.connect(server.address, retry=Retry(0.001, 0.05, 0.1)) as client:
        subscription = client.subscription(options(0, 9))
        batch = subscription.read(LIMIT_S)
        assert batch is not None and batch.offsets.tolist() == [0, 1, 2]
        with pytest.raises(ConnectionLostError, match="deleted or moved"):
            subscription.read(LIMIT_S)
        assert 2 < server.connections < 20
        subscription.close()


def test_a_chunk_that_says_it_is_empty_although_it_has_data_is_no_end(client: Client, server: FakeServer) -> None:
    fill(server, 3)
    stream = server.streams["orders"]
    damaged = bytearray(stream.chunks[1])
    damaged[4:8] = bytes(4)
    stream.chunks[1] = bytes(damaged)
    subscription = client.subscription(options(0, 9))
    with pytest.raises(CorruptChunkError):
        list(iter(lambda: subscription.read(LIMIT_S), None))
    subscription.close()


def test_a_server_that_is_no_headgate_is_asked_whether_more_comes(client: Client, server: FakeServer) -> None:
    fill(server, 9)
    assert read_all(client, options(0, 27, filter_values=(b"AMER",))) == [*range(3, 6), *range(12, 15), *range(21, 24)]
    assert any(isinstance(frame, StreamStats) for frame in server.seen)


def test_a_filtered_read_survives_a_lost_connection(headgate: FakeServer) -> None:
    fill(headgate, 30)
    with Client.connect(headgate.address, retry=SOON) as client:
        subscription = client.subscription(options(0, 90, filter_values=(b"AMER",), credit=1))
        offsets: list[int] = []
        while (batch := subscription.read(LIMIT_S)) is not None:
            offsets += batch.offsets.tolist()
            if len(offsets) in (6, 15):
                headgate.drop_connections()
        subscription.close()
    assert offsets == [offset for offset in range(90) if offset // 3 % 3 == 1]


def test_a_filter_of_this_side_counts_what_it_decides(client: Client, server: FakeServer) -> None:
    fill(server, 4)
    request = ScanRequest(filter=Filter.parse("p.subject IS NULL AND region = 'x'", "amqp"), exact=True)
    subscription = client.subscription(options(2, 9, request=request))
    while subscription.read(LIMIT_S) is not None:
        pass
    counters = subscription.counters
    assert (counters.messages_evaluated, counters.messages_matched, counters.messages_unknown) == (7, 0, 7)
    assert subscription.position is not None and subscription.position >= 9
    subscription.close()


def test_a_chunk_that_is_none_is_an_error(client: Client, server: FakeServer) -> None:
    fill(server, 1)
    chunk = bytearray(server.streams["orders"].chunks[0])
    chunk[0] = 0x61
    server.streams["orders"].chunks[0] = bytes(chunk)
    subscription = client.subscription(options(0, 3))
    with pytest.raises(CorruptChunkError, match="no chunk here"):
        subscription.read(LIMIT_S)
    subscription.abandon()


def test_batches_stay_as_they_are_while_others_are_read(client: Client, server: FakeServer) -> None:
    fill(server, 20)
    subscription = client.subscription(options(0, 60, credit=2))
    batches = []
    while (batch := subscription.read(LIMIT_S)) is not None:
        batches.append(batch)
    subscription.close()
    assert np.concatenate([batch.offsets for batch in batches]).tolist() == list(range(60))
    for batch in batches:
        for row, offset in enumerate(batch.offsets.tolist()):
            assert batch.messages.message(row) == body(str(offset))
