"""The bytes of copies: those that routing writes, however they are read; what is gone or damaged has its error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chunks import encode_chunk, headers_of
from headgate.errors import CorruptChunkError, OffsetOutOfRangeError, RuleNotFoundError
from headgate.log import Stream, StreamArguments, Writer
from headgate.log.format import Compression
from headgate.message import EncodedMessages, Message
from headgate.scan import message_reader
from headgate.scan.fetch import AppendedChunks
from headgate.scan.message_reader import MessageReader
from headgate.topic import RoutersInForce, Rule, Subscription, TopicEditor, create_topic
from headgate.topic.decisions import CopyBatch, CopyReader, Decider, Postings, block
from log_streams import quick_folder, read_messages
from topic_oracle import NO_MESSAGE
from topic_streams import editing, publish

BLOCK_OFFSETS = 16
DAY_MS = 86_400_000

FILTERS = st.sampled_from(
    ["1=1", "1=0", "color = 'red'", "quantity > 4", "quantity / zero = 1", "quantity % 2 = 0", "color > 5"]
)
ACTIONS = st.sampled_from(
    [
        "SET quantity = quantity / 2",
        "SET bad = 1 / zero",
        "SET id = newid(); SET again = newid(); REMOVE color",
        "SET sys.label = 'changed'; SET tag = sys.label; SET tag = tag + '!'",
    ]
)
RULES = st.one_of(
    st.builds(Rule, st.sampled_from("abc"), FILTERS, st.none() | ACTIONS),
    st.builds(
        lambda name, label: Rule(name, correlation={"label": label}), st.sampled_from("abc"), st.sampled_from("xy")
    ),
)
SUBSCRIPTIONS = st.builds(
    lambda name, rules, keeps_errors: Subscription(name, tuple(rules), dead_letter_on_errors=keeps_errors),
    st.sampled_from("st"),
    st.lists(RULES, min_size=1, max_size=3, unique_by=lambda each: each.name),
    st.booleans(),
)
MESSAGES = st.builds(
    lambda subject, properties: Message(b"b", subject=subject, application_properties=properties).encode(),
    st.sampled_from([None, "x", "y"]),
    st.fixed_dictionaries(
        {}, optional={"color": st.sampled_from(["red", "blue", 7]), "quantity": st.integers(0, 9), "zero": st.just(0)}
    ),
)


@dataclass(frozen=True)
class Published:
    """Messages of one chunk."""

    messages: list[bytes]
    compression: Compression


PUBLISHED = st.builds(
    Published,
    st.lists(MESSAGES | st.just(NO_MESSAGE), min_size=3, max_size=12),
    st.sampled_from([Compression.NONE, Compression.NONE, Compression.GZIP]),
)
STEPS = st.tuples(SUBSCRIPTIONS, PUBLISHED, st.lists(SUBSCRIPTIONS | PUBLISHED, max_size=8)).map(
    lambda parts: [*parts[:2], *parts[2]]
)


@contextlib.contextmanager
def settings(*, live_bytes: int = 0, dense_share: int = 1) -> Iterator[None]:
    """Small blocks; where a stream counts as live, and what share of a chunk is read one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block, "BLOCK_OFFSETS", BLOCK_OFFSETS)
        patch.setattr(message_reader, "_LIVE_BYTES", live_bytes)
        patch.setattr(message_reader, "_DENSE_SHARE", dense_share)
        yield


def decide_all(opened: Decider) -> None:
    while not opened.step(10, now_ms=0).is_done:
        pass


def pairs_of(postings: Postings, subscription: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and rules of all copies."""
    pairs = [pair for runs in postings.runs(subscription, 0) for pair in runs.pairs()]
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def copies_in(batch: CopyBatch) -> list[tuple[int, int, bytes]]:
    rows = zip(batch.offsets.tolist(), batch.rules.tolist(), strict=True)
    return [(offset, rule, batch.messages.message(row)) for row, (offset, rule) in enumerate(rows)]


Routed = tuple[dict[int, list[tuple[int, int, bytes]]], dict[int, list[tuple[int, bytes]]]]


def routed(stream: Stream, times_ms: dict[int, int]) -> Routed:
    """Copies and dead letters by number of the subscription, as routing gives them."""
    copies: dict[int, list[tuple[int, int, bytes]]] = {}
    letters: dict[int, list[tuple[int, bytes]]] = {}
    there = read_messages(stream)
    start = 0
    for stop, router in RoutersInForce.of(stream.path).within(0, len(there)):
        offsets = [offset for offset, _ in there if start <= offset < stop]
        batch = EncodedMessages.of(data for offset, data in there if start <= offset < stop)
        times = np.array([times_ms[offset] for offset in offsets], dtype=np.int64)
        found = router.route(batch, np.array(offsets), times)
        numbers = [each.number for each in found.topic.subscriptions]
        for place, number in enumerate(numbers):
            messages, part = found.messages(place), found.of(place)
            named = zip((found.rows[part] + start).tolist(), found.rules[part].tolist(), strict=True)
            copies.setdefault(number, []).extend((*pair, messages.message(row)) for row, pair in enumerate(named))
        for letter in found.dead_letters:
            letters.setdefault(numbers[letter.subscription], []).append((offsets[letter.row], letter.encoded))
        start = stop
    return copies, letters


@given(STEPS, st.integers(1, 7), st.sampled_from([0, 1 << 20]), st.sampled_from([1, 4]), st.booleans())
def test_copies_are_those_that_routing_writes(
    steps: list[Subscription | Published], at_once: int, live_bytes: int, dense_share: int, fall_through: bool
) -> None:
    with quick_folder() as folder, settings(live_bytes=live_bytes, dense_share=dense_share):
        arguments = StreamArguments(max_segment_size_bytes=2_000)
        stream = create_topic(Path(folder), "orders", now_ms=0, arguments=arguments)
        times_ms: dict[int, int] = {}
        with Writer.open(stream, now_ms=0) as writer:
            editor = TopicEditor(writer)
            if fall_through:
                editor.create_subscription(Subscription("rest", fall_through=True), now_ms=0)
            for number, step in enumerate(steps):
                if isinstance(step, Published):
                    times_ms |= {writer.next_offset + row: number * DAY_MS for row in range(len(step.messages))}
                    bodies = [(each, None) for each in step.messages]
                    writer.append(bodies, now_ms=number * DAY_MS, compression=step.compression)
                elif editor.history.has_subscription(step.name):
                    editor.change_subscription(
                        step.name, {"dead_letter_on_errors": step.dead_letter_on_errors}, now_ms=0
                    )
                else:
                    editor.create_subscription(step, now_ms=0)
        copies, letters = routed(stream, times_ms)
        with Decider.open(stream, now_ms=0) as opened, CopyReader(opened.postings) as reader:
            decide_all(opened)
            for number in range(1, 4):
                offsets, rules = pairs_of(opened.postings, number)
                found = []
                for start in range(0, len(offsets), at_once):
                    part = slice(start, start + at_once)
                    batch = reader.read(number, offsets[part], rules[part])
                    assert batch.timestamps_ms.tolist() == [times_ms[offset] for offset in batch.offsets.tolist()]
                    found += copies_in(batch)
                assert found == copies.get(number, [])
                failed: dict[int, list[int]] = {}
                for runs in opened.postings.failures(number, 0):
                    for offset, rule in runs.pairs():
                        failed.setdefault(offset, []).append(rule)
                made = [(offset, reader.dead_letter(number, offset, rules)[0]) for offset, rules in failed.items()]
                assert made == letters.get(number, [])


RED, BLUE = (Message(b"b" * 40, application_properties={"color": color}).encode() for color in ("red", "blue"))
RULES_OF_RED = (Rule("r", "color = 'red'"), Rule("act", "color = 'red'", "SET seen = newid()"))


@pytest.fixture
def topic() -> Iterator[Stream]:
    """Two chunks of six messages in a segment, and one in the next; red ones are 0, 3, 6, 9, 12."""
    with quick_folder() as folder, settings(dense_share=2):
        arguments = StreamArguments(max_segment_chunks=2)
        stream = create_topic(Path(folder), "orders", now_ms=0, arguments=arguments)
        with editing(stream) as editor:
            editor.create_subscription(Subscription("red", RULES_OF_RED), now_ms=0)
        for time_ms in (5, 6, 7):
            with Writer.open(stream, now_ms=time_ms) as writer:
                writer.append([(each, None) for each in [RED, BLUE, BLUE] * 2], now_ms=time_ms)
        yield stream


@pytest.fixture
def postings(topic: Stream) -> Iterator[Postings]:
    with Decider.open(topic, now_ms=0) as opened:
        decide_all(opened)
        yield opened.postings


def of(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def flip(path: Path, data: bytes, *, number: int = 0) -> None:
    """Change a byte of a message that begins with this data, the one with that number in the file."""
    content = bytearray(path.read_bytes())
    place = -1
    for _ in range(number + 1):
        place = content.index(data, place + 1)
    content[place + len(data) - 1] ^= 1
    path.write_bytes(content)


def test_a_guid_in_an_action_is_that_of_routing(topic: Stream, postings: Postings) -> None:
    copies, _ = routed(topic, {offset: 5 + offset // 6 for offset in range(18)})
    with CopyReader(postings) as reader:
        found = copies_in(reader.read(1, *pairs_of(postings, 1)))
    assert found == copies[1]
    assert len({data for _, rule, data in found if rule == 2}) == 6


def test_a_damaged_message_is_an_error_with_its_place_and_others_of_its_chunk_are_read(
    topic: Stream, postings: Postings
) -> None:
    segment = topic.segments()[0]
    flip(segment.segment_path, RED, number=1)
    with CopyReader(postings) as reader:
        assert copies_in(reader.read(1, of(0), of(0))) == [(0, 0, RED)]
        with pytest.raises(CorruptChunkError, match="checksum of chunk 0") as caught:
            reader.read(1, of(0, 3), of(0, 0))
        assert caught.value.path == segment.segment_path
        with segment.open() as opened:
            assert caught.value.position == opened.chunks().position[0]


def test_an_entry_that_is_noted_wrongly_costs_nothing_but_time(
    postings: Postings, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = Postings.entries
    for shift in ({"crc": 1}, {"position": 1}, {"position": -200}, {"position": 1 << 31}):

        def wrong(self: Postings, start: int, stop: int, shift: dict[str, int] = shift) -> NDArray[np.void]:
            found = entries(self, start, stop).copy()
            for name, by in shift.items():
                found[name] = found[name].astype(np.int64) + by
            return found

        monkeypatch.setattr(Postings, "entries", wrong)
        with CopyReader(postings) as reader:
            assert copies_in(reader.read(1, of(0, 3, 6), of(0, 0, 0))) == [(each, 0, RED) for each in (0, 3, 6)]


def test_messages_that_retention_deleted_are_out_of_range(topic: Stream, postings: Postings) -> None:
    with CopyReader(postings) as reader, Writer.open(topic, now_ms=0) as writer:
        assert writer.drop_first_below(12)
        with pytest.raises(OffsetOutOfRangeError, match="offset 3 of stream 'orders' was deleted by retention"):
            reader.read(1, of(3, 12), of(0, 0))
        assert copies_in(reader.read(1, of(12), of(0))) == [(12, 0, RED)]


def test_a_reader_follows_the_stream_into_later_segments(topic: Stream, postings: Postings) -> None:
    with CopyReader(postings) as reader:
        with pytest.raises(OffsetOutOfRangeError, match="offset 18 of stream 'orders' has no message"):
            reader.read(1, of(18), of(0))
        for offset in range(18, 30):
            publish(topic, RED)
            assert copies_in(reader.read(1, of(offset), of(0))) == [(offset, 0, RED)]
        assert len(topic.segments()) > 4


def test_messages_that_were_taken_back_are_not_read_again(topic: Stream, postings: Postings) -> None:
    """A write that is not confirmed may be taken back, and others stand in its place."""
    with CopyReader(postings) as reader:
        for _ in range(2):
            publish(topic, RED)
        newest = topic.segments()[-1]
        before = newest.index_path.stat().st_size, newest.segment_path.stat().st_size
        publish(topic, RED)
        assert copies_in(reader.read(1, of(20), of(0))) == [(20, 0, RED)]
        for path, size in zip((newest.index_path, newest.segment_path), before, strict=True):
            os.truncate(path, size)
        publish(topic, BLUE + b"longer")
        assert copies_in(reader.read(1, of(20), of(0))) == [(20, 0, BLUE + b"longer")]


def test_a_rule_that_gives_no_such_copy_is_named(postings: Postings) -> None:
    with CopyReader(postings) as reader:
        for rule in (1, 3):
            with pytest.raises(RuleNotFoundError, match=f"rule {rule} of subscription 1 gives no copy .* offset 3"):
                reader.read(1, of(0, 3), of(0, rule))
        assert len(reader.read(1, of(), of())) == 0


def test_messages_of_the_last_appends_are_read_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [Message(b"%d" % number * number).encode() for number in range(4)]
    with quick_folder() as folder:
        stream = create_topic(Path(folder), "orders", now_ms=0)
        with editing(stream) as editor:
            editor.create_subscription(Subscription("all", (Rule("all", "1=1"),)), now_ms=0)
        with (
            Writer.open(stream, now_ms=0) as writer,
            Decider.open(stream, now_ms=0) as opened,
            CopyReader(opened.postings) as reader,
        ):
            opened.step(10, now_ms=0)
            for message in sent:
                data = np.frombuffer(bytearray(encode_chunk([message], [], filter_size_bytes=16)), dtype=np.uint8)
                positions = np.zeros(1, dtype=np.int64)
                stop = writer.append_chunks(data, positions, now_ms=0).next_offset
                opened.step(10, now_ms=0, appended=AppendedChunks(data, headers_of(data), stream.path, stop=stop))
            monkeypatch.delattr(MessageReader, "_read")
            offsets = np.arange(1, 4)
            read = reader.read(1, offsets, np.zeros(3, dtype=np.int64))
            assert copies_in(read) == [(offset, 0, sent[offset]) for offset in offsets.tolist()]
