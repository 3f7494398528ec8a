"""Readers of streams: filters, stored offsets, connected consumers; and messages that are not there any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate
from brokers import SetClock
from headgate.derived import MATCH_INDEX
from headgate.derived.match_index import FilterRegistry
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification, Stream, StreamArguments, Writer, read_tracking, stream_folder
from headgate.message import Message
from headgate.scan import Cursor, ScanRequest
from headgate.trace import Answer, ConnectedConsumer, ConsumerKind, Facts, Fate, Stage, State
from log_streams import quick_folder
from questions import asked, asked_for
from remote_streams import move, new_stream

REGIONS = ("AMER", "EMEA", "APJ")


@pytest.fixture
def root() -> Iterator[Path]:
    with quick_folder() as folder:
        yield Path(folder)


def message(region: str, size: int) -> bytes:
    annotations = {"x-stream-filter-value": region}
    properties = {"region": region, "size": size}
    return Message(b"b", message_annotations=annotations, application_properties=properties).encode()


@pytest.fixture
def stream(root: Path) -> Stream:
    """Chunks of four messages: of one region each, the last of all."""
    made = Stream.create(stream_folder(root, "orders"), name="orders", now_ms=0)
    with Writer.open(made, now_ms=0) as writer:
        for region in REGIONS:
            writer.append([(message(region, size), region.encode()) for size in range(4)], now_ms=1)
        mixed = [(message(region, size), region.encode()) for size, region in enumerate(REGIONS)]
        writer.append(mixed, now_ms=2, publisher="app-1", sequences=[15, 16, 17])
        writer.store_offset(b"billing", 6)
        writer.flush_offsets(now_ms=3)
    return Stream.open(made.path)


def of_filter(root: Path, offset: int, filter_: str | None, *values: str) -> Answer:
    return headgate.why("orders", offset=offset, filter=filter_, filter_values=values, root=root)


def test_what_a_filter_selects_is_what_a_reader_gets(root: Path, stream: Stream) -> None:
    for text, values in (("size > 1", ()), ("region = 'EMEA' AND size < 3", ("EMEA",)), ("size IS NULL", ())):
        request = ScanRequest(filter=Filter.parse(text), filter_values=tuple(each.encode() for each in values))
        with Cursor(stream, request, start=OffsetSpecification.first(), now_ms=0) as cursor:
            kept: set[int] = set()
            while (batch := cursor.read(0)) is not None:
                kept.update(batch.offsets.tolist())
        told = {
            offset for offset in range(15) if of_filter(root, offset, text, *values).consumers[0].fate is Fate.MATCHES
        }
        assert told == kept


def test_the_stage_that_decided_is_named(root: Path, stream: Stream) -> None:
    def stage(offset: int, text: str | None, *values: str) -> tuple[Fate, Stage | None]:
        (found,) = of_filter(root, offset, text, *values).consumers
        return found.fate, found.stage

    assert stage(0, None, "EMEA") == (Fate.FILTERED_OUT, Stage.BLOOM_FILTER)
    assert stage(12, None, "EMEA") == (Fate.FILTERED_OUT, Stage.FILTER_VALUE)
    assert stage(13, None, "EMEA") == (Fate.MATCHES, Stage.FILTER_VALUE)
    assert stage(0, "size > 1") == (Fate.FILTERED_OUT, Stage.EXPRESSION)
    FilterRegistry(stream).register("small", "size > 1", "amqp", now_ms=0)
    assert list(MATCH_INDEX.build(stream, now_ms=0))
    assert stage(0, "size > 1") == (Fate.FILTERED_OUT, Stage.MATCH_INDEX)


def test_a_message_is_stored_with_the_sequence_of_its_publisher(root: Path, stream: Stream) -> None:
    answer = of_filter(root, 13, "TRUE")
    assert answer.message is not None
    shown = [(each.name, each.sequence) for each in answer.message.publishers]
    assert (shown, answer.message.filter_value, answer.message.place) == ([("app-1", 17)], "EMEA", "local")
    assert (answer.message.chunk, answer.message.chunk_messages) == (12, 3)
    assert "'app-1' up to sequence 17" in answer.consumers[0].steps[1].text


def test_a_stored_offset_says_whether_it_was_passed(root: Path, stream: Stream) -> None:
    assert read_tracking(stream).offsets == {b"billing": 6}
    fates = [headgate.why("orders", offset=offset, consumer="billing", root=root) for offset in (6, 7)]
    assert [each.consumers[0].fate for each in fates] == [Fate.PASSED, Fate.AHEAD]
    assert fates[0].consumers[0].next_offset == 7
    given = headgate.why("orders", offset=0, consumer="billing", filter="size > 1", root=root).consumers[0]
    assert (given.fate, given.kind) == (Fate.FILTERED_OUT, ConsumerKind.STORED_OFFSET)


def test_a_connected_consumer_is_answered_for_with_its_filter_and_place(root: Path, stream: Stream) -> None:
    consumer = ConnectedConsumer(
        "orders",
        "billing",
        tag="t-1",
        user="ada",
        connection="c",
        filter=Filter.parse("size > 1"),
        begun_at=3,
        next_offset=8,
    )
    facts = Facts(is_known=True, consumers=(consumer,), offsets=(("orders", "billing", 7),))
    fates = [asked_for(root, SetClock(), "billing", offset=offset, facts=facts).fate for offset in (0, 2, 7, 10)]
    assert fates == [Fate.FILTERED_OUT, Fate.BEFORE, Fate.PASSED, Fate.AHEAD]
    found = asked_for(root, SetClock(), "t-1", offset=10, facts=facts)
    assert "no credit" in found.summary
    assert found.steps[2].text.startswith("the filter of this consumer, in amqp: size > 1 (user 'ada'")
    (named,) = asked(root, SetClock(), offset=10, facts=facts).consumers
    assert named.kind is ConsumerKind.CONSUMER


def test_offsets_without_a_message_say_why(root: Path) -> None:
    arguments = StreamArguments(max_segment_chunks=1, max_age_ms=60_000, initial_offset=10)
    made = Stream.create(stream_folder(root, "orders"), name="orders", now_ms=0, arguments=arguments)
    with Writer.open(made, now_ms=0) as writer:
        for time_ms in (0, 100_000, 200_000):
            writer.append([(message("EMEA", 1), None)], now_ms=time_ms)
        writer.store_offset(b"billing", 12)
        writer.flush_offsets(now_ms=200_000)
        writer.apply_retention(now_ms=200_000)
    first, behind = Stream.open(made.path).first_offset(), Stream.open(made.path).next_offset()
    assert first > 10
    told = {offset: asked(root, SetClock(), offset=offset) for offset in (5, 10, behind - 1, behind)}
    assert [each.message for each in told.values()] == [None] * 4
    fates = [each.consumers[0].fate for each in told.values()]
    assert fates == [Fate.DELETED, Fate.DELETED, Fate.NO_MESSAGE, Fate.NOT_STORED]
    assert "bookkeeping" in str(told[behind - 1])
    assert "first offset 10" in str(told[5])
    assert "max-age 60s" in str(told[10]) or "max-age 1m" in str(told[10])


def test_a_folder_that_rabbitmq_wrote_is_answered_for_as_far_as_it_knows(rabbitmq_streams: Path) -> None:
    folder = next(rabbitmq_streams.glob("__regional-events_*"))
    answer = headgate.why(folder, offset=100, filter="region = 'EMEA'")
    assert answer.message is not None and answer.topic is None
    (found,) = answer.consumers
    assert found.steps[1].state is State.UNKNOWN
    identity = answer.message.id
    if identity is not None:
        assert headgate.why(folder, id=identity, filter="TRUE").message == answer.message
    kept = headgate.read(folder, columns="offset", filter="region = 'EMEA'", start=100, stop=101).to_arrow()
    assert (found.fate is Fate.MATCHES) == bool(len(kept))
    for name, offset in read_tracking(Stream.open(folder)).offsets.items():
        stored = headgate.why(folder, offset=offset, consumer=name.decode()).consumers[0]
        assert stored.fate is Fate.PASSED


def test_a_message_in_object_storage_says_so(tmp_path: Path, remote_cache: Path) -> None:
    with new_stream(tmp_path / "orders", f"file://{tmp_path}/there") as writer:
        assert move(writer)
        far, near = (headgate.why(writer.stream.path, offset=each, filter="TRUE") for each in (0, 199))
    assert far.message is not None and near.message is not None
    assert (far.message.place, near.message.place) == ("remote", "local")
    assert far.message.file.endswith("there/orders/00000000000000000000.segment")
    assert "in object storage" in far.consumers[0].steps[0].text
