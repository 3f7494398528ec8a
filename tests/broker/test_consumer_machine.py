"""Consumers of one stream, in any order of calls, against a model: a list of what was published."""

from __future__ import annotations

import zlib
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from brokers import batch, scan
from examples import examples
from headgate.broker.batches import PublishBatch
from headgate.broker.broker import Broker
from headgate.broker.consumers import ChunkConsumer, ConsumerOptions, MessageConsumer
from headgate.evaluate.filter import Filter
from headgate.log import BloomMatcher, OffsetSpecification, bloom_bytes
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader
from headgate.scan.fetch import ChunkColumns
from log_streams import quick_folder
from shared_streams import FILTER_VALUES, FILTERS, REGIONS, body


def publish_batch(bodies: list[bytes], values: list[bytes | None]) -> PublishBatch:
    return batch(bodies, lambda error: None, values=values)


def chunk_messages(batch: ChunkColumns) -> list[tuple[int, bytes]]:
    """Offset and body of each message of the chunks, read as a client does it."""
    found = []
    for row in range(len(batch)):
        at, start = int(batch.header_starts[row]), int(batch.data_starts[row])
        head = batch.data[at : at + CHUNK_HEADER_BYTES].tobytes()
        header = ChunkHeader.decode(head, path="", position=0)
        data = batch.data[start : start + header.data_length].tobytes()
        assert header.data_length == int(batch.data_lengths[row])
        assert zlib.crc32(data) == header.crc
        position = 0
        for number in range(header.num_records):
            length = int.from_bytes(data[position : position + 4], "big")
            found.append((header.chunk_id + number, data[position + 4 : position + 4 + length]))
            position += 4 + length
        assert position == len(data)
    return found


class Model:
    """What one consumer must get: the messages of the chunks that stage 1 leaves, for which the filter is true."""

    def __init__(self, options: ConsumerOptions, start: int, *, whole_chunks: bool) -> None:
        self.options = options
        self.start = start
        self.whole_chunks = whole_chunks
        self.got: list[tuple[int, bytes]] = []

    def expected(self, chunks: list[tuple[int, list[tuple[bytes, bytes | None]]]]) -> list[tuple[int, bytes]]:
        options = self.options
        found = []
        for chunk_id, messages in chunks:
            if options.filter_values:
                matcher = BloomMatcher(options.filter_values, match_unfiltered=options.match_unfiltered)
                if not matcher.matches(bloom_bytes([value for _, value in messages], 16)):
                    continue
            for number, (message, _) in enumerate(messages):
                offset = chunk_id + number
                is_wanted = options.filter is None or options.filter.matches(message, now_ms=0)
                is_late = offset >= self.start
                if options.filter is None and self.whole_chunks:
                    is_late = chunk_id + len(messages) > self.start
                if is_wanted and is_late:
                    found.append((offset, message))
        return found


class ConsumerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = quick_folder()
        self.now_ms = 0
        self.broker = Broker(Path(self.folder.name), now_ms=lambda: self.now_ms)
        self.session = self.broker.open_session("guest", protocol="test", connection="test")
        self.session.declare_stream("s", {"stream-max-segment-size-bytes": 3000})
        self.publisher = self.session.publisher("s")
        self.chunks: list[tuple[int, list[tuple[bytes, bytes | None]]]] = []
        self.next_offset = 0
        self.consumers: list[tuple[MessageConsumer | ChunkConsumer, Model]] = []
        self.woken: set[int] = set()

    def teardown(self) -> None:
        self.session.close()
        assert len(self.broker.consumers) == 0
        self.broker.close()
        self.folder.cleanup()

    @rule(count=st.integers(1, 20), kind=st.sampled_from(["none", "one", "each"]))
    def publish(self, count: int, kind: str) -> None:
        self.woken.clear()
        waiting = {number for number, (each, _) in enumerate(self.consumers) if each.at_end and each.wanted}
        numbers = range(self.next_offset, self.next_offset + count)
        values: list[bytes | None] = [None] * count
        if kind != "none":
            values = [REGIONS[(numbers[0] if kind == "one" else each) % 3].encode() for each in numbers]
        bodies = [body(each) for each in numbers]
        self.publisher.publish(publish_batch(bodies, values))
        self.broker.write_queued()
        self.chunks.append((self.next_offset, list(zip(bodies, values, strict=True))))
        self.next_offset += count
        assert waiting <= self.woken
        for number, (consumer, _) in enumerate(self.consumers):
            if number in waiting:
                assert consumer.scan_due() is None, "it was handed over"
            if number in self.woken:
                assert consumer.wanted

    @rule(
        wanted=st.one_of(st.none(), st.sampled_from(FILTERS)),
        values=FILTER_VALUES,
        unfiltered=st.booleans(),
        start=st.one_of(
            st.just(OffsetSpecification.first()),
            st.just(OffsetSpecification.next()),
            st.integers(0, 100).map(OffsetSpecification.offset),
        ),
        whole_chunks=st.booleans(),
    )
    def attach(
        self,
        wanted: Filter | None,
        values: tuple[bytes, ...],
        unfiltered: bool,
        start: OffsetSpecification,
        whole_chunks: bool,
    ) -> None:
        options = ConsumerOptions(start=start, filter=wanted, filter_values=values, match_unfiltered=unfiltered)
        make = self.session.chunk_consumer if whole_chunks else self.session.message_consumer
        consumer = make("s", options)
        number = len(self.consumers)
        consumer.listen(lambda: self.woken.add(number))
        first = {"first": 0, "next": self.next_offset}.get(start.kind.value, min(start.value, self.next_offset))
        self.consumers.append((consumer, Model(options, first, whole_chunks=whole_chunks)))
        assert consumer.next_offset == first

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), count=st.integers(1, 30))
    def give_credit(self, data: st.DataObject, count: int) -> None:
        consumer, _ = data.draw(st.sampled_from(self.consumers))
        before = consumer.wanted
        consumer.want_more(count)
        assert consumer.wanted == before + count

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), max_messages=st.integers(1, 30), max_bytes=st.sampled_from([1, 200, 1 << 20]))
    def deliver(self, data: st.DataObject, max_messages: int, max_bytes: int) -> None:
        consumer, model = data.draw(st.sampled_from(self.consumers))
        if consumer.scan_due():
            assert consumer.wanted > 0
            # Chunks are read ahead while the last half of what was found is sent.
            assert isinstance(consumer, ChunkConsumer) or not consumer.has_pending
            scan(consumer)
        self._take(consumer, model, max_messages, max_bytes)

    def _take(self, consumer: MessageConsumer | ChunkConsumer, model: Model, max_messages: int, max_bytes: int) -> bool:
        before = consumer.wanted
        if isinstance(consumer, MessageConsumer):
            messages = consumer.take(max_messages, max_bytes)
            if messages is None:
                return False
            rows = [(int(offset), messages.messages.message(row)) for row, offset in enumerate(messages.offsets)]
            assert 1 <= len(rows) <= min(max_messages, before)
            assert consumer.wanted == before - len(rows)
            assert len(rows) == 1 or sum(len(each) for _, each in rows) <= max_bytes
        else:
            chunks = consumer.take(max_bytes)
            if chunks is None:
                return False
            rows = chunk_messages(chunks)
            assert 1 <= len(chunks) <= before
            assert consumer.wanted == before - len(chunks)
            assert consumer.last_chunk_id == self.chunks[-1][0]
        model.got += rows
        return True

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def close_one(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.consumers) - 1))
        consumer, _ = self.consumers[number]
        consumer.close()
        consumer.close()
        assert not consumer.scan_due()
        assert consumer.take(1, 1) is None if isinstance(consumer, MessageConsumer) else consumer.take(1) is None
        del self.consumers[number]
        for later, (other, _) in enumerate(self.consumers):
            other.listen(lambda later=later: self.woken.add(later))

    @rule(passed_ms=st.sampled_from([10, 5_000]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.broker.tick(self.now_ms)

    @precondition(lambda self: self.consumers)
    @rule()
    def read_all(self) -> None:
        for consumer, model in self.consumers:
            consumer.want(10_000)
            while True:
                if consumer.scan_due():
                    scan(consumer)
                elif not self._take(consumer, model, 10_000, 1 << 20):
                    break
            assert consumer.at_end
            assert consumer.lag == 0
            assert model.got == model.expected(self.chunks)

    @invariant()
    def nobody_got_what_is_not_his(self) -> None:
        for _, model in self.consumers:
            expected = model.expected(self.chunks)
            assert model.got == expected[: len(model.got)]


TestConsumers = ConsumerMachine.TestCase
TestConsumers.settings = examples(0.5)
