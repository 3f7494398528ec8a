"""A stream that declares where its filter values come from: filled in at publish, others refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from brokers import START_MS, open_broker, open_session, publish, stored
from headgate.broker.publishers import Publisher
from headgate.errors import PreconditionFailedError
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, stream_folder
from headgate.log.entries import SubBatch
from headgate.log.format import Compression
from headgate.message import Message
from headgate.scan import Cursor, ScanRequest
from log_streams import without_kernels

SOURCE = "application_properties.region"


def message(region: str | None, number: int) -> bytes:
    properties: dict[str, object] = {"number": number}
    if region is not None:
        properties["region"] = region
    return Message(application_properties=properties, body=b"x").encode()


def wanted(root: Path, value: bytes) -> tuple[int, int]:
    """Messages in the chunks that stage 1 leaves for a value, and how many chunks it ruled out."""
    stream = Stream.open(stream_folder(root, "orders"))
    request = ScanRequest(filter_values=(value,))
    with Cursor(stream, request, start=OffsetSpecification.first(), now_ms=START_MS) as cursor:
        count = 0
        while (found := cursor.read(START_MS)) is not None:
            count += len(found.messages)
        return count, cursor.counters.chunks_skipped


@pytest.mark.parametrize("engine", ["kernel", "plain"])
def test_values_come_from_the_declared_field_and_equal_ones_may_be_given(tmp_path: Path, engine: str) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"headgate-filter-source": SOURCE})
    publisher = session.publisher("orders")

    def run() -> None:
        assert publish(broker, publisher, [message("AMER", 1), message("AMER", 2)]) is None
        assert publish(broker, publisher, [message("EMEA", 3)] * 20, values=[b"EMEA", None] * 10) is None
        assert publish(broker, publisher, [message(None, 4)]) is None

    if engine == "plain":
        without_kernels(run)
    else:
        run()
    assert wanted(tmp_path, b"AMER") == (2, 2)
    assert wanted(tmp_path, b"EMEA") == (20, 2)
    assert session.stream_info("orders").arguments == {"headgate-filter-source": SOURCE}
    settings = Stream.open(stream_folder(tmp_path, "orders")).settings
    assert settings is not None and settings.declared[0].field == SOURCE
    broker.close()


@pytest.mark.parametrize(
    ("messages", "values"),
    [
        ([message("AMER", 1)], [b"EMEA"]),
        ([message("AMER", 1)], [b"AME"]),
        ([message("AMER", 1), message(None, 2)], [None, b"AMER"]),
    ],
)
def test_a_differing_value_is_refused_with_its_whole_batch(
    tmp_path: Path, messages: Sequence[bytes], values: Sequence[bytes | None]
) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"headgate-filter-source": SOURCE})
    publisher = session.publisher("orders", reference="p")
    refused = publish(broker, publisher, messages, values=values, sequences=range(len(messages)))
    assert isinstance(refused, PreconditionFailedError)
    assert publish(broker, publisher, messages, sequences=range(len(messages))) is None
    broker.close()
    assert stored(tmp_path, "orders") == messages


def test_what_was_refused_is_no_duplicate_behind_newer_messages(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"headgate-filter-source": SOURCE})
    publisher = session.publisher("orders", reference="p")
    first, second = message("AMER", 1), message("AMER", 2)
    assert isinstance(publish(broker, publisher, [first], values=[b"APAC"], sequences=[1]), PreconditionFailedError)
    assert isinstance(publish(broker, publisher, [second], sequences=[2]), PreconditionFailedError)
    # Declared anew, it gives up what was refused; that is no duplicate all the same.
    publisher.close()
    anew = session.publisher("orders", reference="p")
    assert publish(broker, anew, [second], sequences=[2]) is None
    assert isinstance(publish(broker, anew, [first], sequences=[1]), PreconditionFailedError)
    broker.close()
    assert stored(tmp_path, "orders") == [second]


def sub_batch(messages: Sequence[bytes]) -> bytes:
    return SubBatch.of(messages, Compression.GZIP).encode()


@pytest.mark.parametrize("engine", ["kernel", "plain"])
def test_sub_batches_stay_as_they_came_with_the_values_of_their_members(tmp_path: Path, engine: str) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"headgate-filter-source": SOURCE})
    publisher = session.publisher("orders")
    batches = [[message(region, number) for number in range(20)] for region in ("AMER", "EMEA", "APAC") * 20]
    packed = [sub_batch(messages) for messages in batches]

    def run() -> None:
        for each in packed[:3]:
            assert publish(broker, publisher, [each], records=[20]) is None
        assert publish(broker, publisher, packed, records=[20] * 60) is None

    if engine == "plain":
        without_kernels(run)
    else:
        run()
    broker.close()
    assert stored(tmp_path, "orders") == [body for messages in batches[:3] + batches for body in messages]
    assert wanted(tmp_path, b"AMER") == (20 + 1200, 2) and wanted(tmp_path, b"LATAM") == (0, 4)
    stream = Stream.open(stream_folder(tmp_path, "orders"))
    with stream.segments()[0].open() as reader:
        assert reader.headers(0, 4).num_entries.tolist() == [1, 1, 1, 60]
    with Cursor(
        stream, ScanRequest(filter=Filter.parse("region = 'EMEA'")), start=OffsetSpecification.first(), now_ms=START_MS
    ) as cursor:
        found = 0
        while (batch := cursor.read(START_MS)) is not None:
            found += len(batch.messages)
        # The declaration covers them: a filter skips chunks by itself.
        assert (found, cursor.counters.chunks_skipped) == (20 + 400, 2)


def test_the_sequence_of_a_sub_batch_counts_once(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"headgate-filter-source": SOURCE})
    publisher: Publisher = session.publisher("orders", reference="p")
    packed = [message("AMER", 1), message("AMER", 2), message("APAC", 3)]
    entries = [sub_batch(packed), message("EMEA", 4)]
    assert publish(broker, publisher, entries, records=[3, 0], values=[None, b"EMEA"], sequences=[7, 8]) is None
    assert stored(tmp_path, "orders") == [*packed, message("EMEA", 4)]
    assert wanted(tmp_path, b"APAC") == (3, 1) and wanted(tmp_path, b"LATAM") == (0, 2)
    assert publish(broker, publisher, [sub_batch(packed)], records=[3], sequences=[8]) is None
    assert len(stored(tmp_path, "orders")) == 4 and session.last_sequence("orders", "p") == 8
    broker.close()


@pytest.mark.parametrize(
    "broken",
    [
        sub_batch([b"a", b"b"])[:-3],
        sub_batch([b"a", b"b"])[:7] + (2**31).to_bytes(4, "big") + sub_batch([b"a"])[11:],
        b"\x90\x00\x02" + bytes(8),
        b"\x00\x00\x00\x07" + b"x" * 7,
    ],
)
def test_a_sub_batch_that_cannot_be_unpacked_is_refused(tmp_path: Path, broken: bytes) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"headgate-filter-source": SOURCE})
    publisher = session.publisher("orders")
    assert isinstance(publish(broker, publisher, [broken], records=[2]), PreconditionFailedError)
    assert publish(broker, publisher, [message("AMER", 1)]) is None
    broker.close()
    assert stored(tmp_path, "orders") == [message("AMER", 1)]


def test_a_filter_on_the_declared_field_skips_chunks_that_the_broker_wrote(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"headgate-filter-source": SOURCE})
    publisher = session.publisher("orders")
    for region in ("AMER", "EMEA", "AMER"):
        publish(broker, publisher, [message(region, 1)] * 3)
    request = ScanRequest(filter=Filter.parse("region = 'EMEA'"))
    stream = Stream.open(stream_folder(tmp_path, "orders"))
    with Cursor(stream, request, start=OffsetSpecification.first(), now_ms=START_MS) as cursor:
        while cursor.read(START_MS) is not None:
            pass
        assert (cursor.counters.chunks_skipped, cursor.counters.messages_matched) == (2, 3)
    broker.close()
