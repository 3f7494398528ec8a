"""The postings of a topic: which copies each subscription has, as its decider left them.

They lie in a stream of their own inside the topic's folder, a block in each message; a later block of the same offsets
replaces an earlier one. Only the number of copies per block and subscription is in memory; all else is read when
needed. A block is valid if its checksums hold, if it was made by this program and by the rules that are in force, and
if the chunks that it was made from are the stream's; any other is ignored and decided again.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptSidecarError, LogError, StorageFullError, StreamLockedError, StreamReadOnlyError
from headgate.log import ChunkType, DiskFile, OpenFile, SegmentReader, Stream, StreamArguments, Wait, Writer, no_wait
from headgate.log.format import CHUNK_HEADER_BYTES, ENTRY_HEAD_BYTES
from headgate.scan import ScanBatch
from headgate.topic.decisions.block import Block, SubscriptionPostings, base_of, end_of
from headgate.topic.decisions.open_block import OpenBlock
from headgate.topic.decisions.rule_states import EVALUATOR, RuleStates, from_offset
from headgate.topic.decisions.runs import CopyRuns, Int64Array
from headgate.topic.decisions.topic_stream import TopicStream
from headgate.topic.folders import postings_folder
from headgate.topic.rules_in_force import FollowedHistory

_STREAM_NAME = "postings"
_SEGMENT_BYTES = 64 << 20
_KEPT_ROWS = 8


class PostingsWriter:
    """Writes blocks; one at a time for a topic, which its lock sees to."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    @staticmethod
    def open(stream: Stream, *, now_ms: int, wait: Wait = no_wait, open_file: OpenFile = DiskFile) -> PostingsWriter:
        """Take the lock of a topic's postings; unreadable ones are removed.

        Raises StreamLockedError that names the holder, StreamReadOnlyError, StorageFullError, LogError.
        """
        folder = postings_folder(stream)

        def opened() -> PostingsWriter:
            if not folder.exists():
                stream.check_is_there()
                arguments = StreamArguments(max_segment_size_bytes=_SEGMENT_BYTES)
                Stream.create(
                    folder,
                    name=_STREAM_NAME,
                    now_ms=now_ms,
                    arguments=arguments,
                    flushed=False,
                    wait=wait,
                    open_file=open_file,
                )
            return PostingsWriter(Writer.open(Stream.open(folder), now_ms=now_ms, wait=wait, open_file=open_file))

        try:
            return opened()
        except (StreamLockedError, StreamReadOnlyError, StorageFullError):
            raise
        except LogError:
            shutil.rmtree(folder, ignore_errors=True)
            return opened()

    def close(self) -> None:
        """Give the lock back; again is harmless."""
        self._writer.close()

    @property
    def is_broken(self) -> bool:
        """Whether a write failed and could not be taken back: only another writer can go on."""
        return self._writer.is_broken

    def append(self, block: bytes, *, now_ms: int) -> None:
        """Add a block. Raises StorageFullError, StreamReadOnlyError, LogError; then it is not added."""
        self._writer.append([(block, None)], now_ms=now_ms)

    def drop_below(self, place: int) -> None:
        """Delete files in which all blocks lie below a place among the postings."""
        while self._writer.drop_first_below(place):
            pass


class Postings:
    """The copies of each subscription, by its number; not for several threads at once.

    Copies from the first undecided offset on are not included yet (`decided_until`).
    """

    def __init__(self, topic_stream: TopicStream, history: FollowedHistory) -> None:
        """The postings of a stream as its source saw it last, with the history of its rules."""
        self._topic_stream = topic_stream
        self._followed = history
        self.history = history.now()
        self._folder = postings_folder(topic_stream.stream)
        self._blocks: dict[int, Block] = {}
        self._places: dict[int, int] = {}
        self._unverified: set[int] = set()
        self._totals = np.zeros(1, dtype=np.int64)
        self._rows: OrderedDict[int, NDArray[np.void]] = OrderedDict()
        self._readers: dict[int, SegmentReader] = {}
        self._next_place = 0
        self._gap: tuple[int, int] | None = None
        self.open_block: OpenBlock | None = None
        self.states = RuleStates(self.history)
        self.take_over()

    @staticmethod
    def open(stream: Stream) -> Postings:
        """The postings of a topic as they are now. Raises RuleNotFoundError for another stream, LogError."""
        topic_stream = TopicStream(stream)
        topic_stream.refresh()
        return Postings(topic_stream, FollowedHistory(stream.path))

    def recent(self) -> Sequence[ScanBatch]:
        """Messages of the stream that are in memory, because they were decided as they were appended."""
        return self._topic_stream.recent

    def __enter__(self) -> Postings:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close files; again is harmless."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._topic_stream.close()

    # what is there

    @property
    def stream(self) -> Stream:
        """The stream of the topic."""
        return self._topic_stream.stream

    def refresh(self) -> None:
        """Look at stream, rules and postings again, for a reader beside the decider. Raises LogError."""
        self._topic_stream.refresh()
        self.follow_rules()
        self.take_over()

    def take_over(self) -> None:
        """Take over the blocks that were written since."""
        # Postings that cannot be read are not there.
        with contextlib.suppress(LogError):
            segments = Stream.open(self._folder).segments()
            for gone in self._readers.keys() - {segment.first_chunk_id for segment in segments}:
                self._readers.pop(gone).close()
            for segment in segments:
                if segment.stop_offset is not None and segment.stop_offset <= self._next_place:
                    continue
                reader = self._readers.get(segment.first_chunk_id)
                if reader is None:
                    reader = self._readers[segment.first_chunk_id] = segment.open()
                self._take_over(reader)

    def _take_over(self, reader: SegmentReader) -> None:
        table = reader.chunks(refresh=True)
        rows = np.flatnonzero((table.type == ChunkType.USER) & (table.chunk_id >= self._next_place))
        for row in rows.tolist():
            self._next_place = int(table.chunk_id[row]) + 1
            with contextlib.suppress(LogError):
                header = reader.header(row)
                position = int(table.position[row]) + CHUNK_HEADER_BYTES + header.bloom_length + ENTRY_HEAD_BYTES
                size_bytes = header.data_length - ENTRY_HEAD_BYTES

                def read(position: int, count: int) -> bytes:
                    return reader.read(position, position + count)[:count].tobytes()

                block = Block(read, path=reader.path, position=position, size_bytes=size_bytes)
                if self._is_made_of_this(block):
                    self._put(block, self._next_place - 1)

    def _is_made_of_this(self, block: Block) -> bool:
        """Whether a block was decided for this stream, by this program and by the present rules."""
        directory = block.directory
        if directory.identity != self._topic_stream.stream.identity or directory.evaluator != EVALUATOR:
            return False
        start = max(block.start, self.states.pruned_below)
        return start >= block.stop or from_offset(directory.rules, start) == self.states.within(start, block.stop)

    def _put(self, block: Block, place: int) -> None:
        base = base_of(block.start)
        self.drop(base)
        self._blocks[base], self._places[base] = block, place
        self._unverified.add(base)
        self._count(block, 1)

    def drop(self, base: int) -> None:
        """Forget the block that begins at an offset: it is decided again, or no longer needed."""
        block = self._blocks.pop(base, None)
        if block is not None:
            self._gap = None
            del self._places[base]
            self._unverified.discard(base)
            self._rows.pop(base, None)
            self._count(block, -1)

    def _count(self, block: Block, sign: int) -> None:
        if len(block.numbers):
            self._make_room(int(block.numbers[-1]))
            self._totals[block.numbers] += sign * block.copies.astype(np.int64)

    def _make_room(self, number: int) -> None:
        if number >= len(self._totals):
            self._totals = np.append(self._totals, np.zeros(2 * number + 1 - len(self._totals), dtype=np.int64))

    def follow_rules(self) -> None:
        """Go on with the present rules of the history; blocks that were decided by other rules are dropped."""
        history = self._followed.now()
        if history is self.history:
            return
        before, self.states, self.history = self.states, RuleStates(history), history
        start, stop = max(before.pruned_below, self.states.pruned_below), self._decided_stop
        if before.within(start, stop) == self.states.within(start, stop):
            return
        self.open_block = None
        for base, block in list(self._blocks.items()):
            if not self._is_made_of_this(block):
                self.drop(base)

    @property
    def _decided_stop(self) -> int:
        """The offset behind everything that is decided."""
        decided = [block.stop for block in self._blocks.values()]
        return max(decided, default=0) if self.open_block is None else max(self.open_block.next_offset, *decided, 0)

    def forget_below(self, offset: int) -> None:
        """Forget blocks of which all offsets lie below one."""
        for base in [base for base, block in self._blocks.items() if block.stop <= offset]:
            self.drop(base)

    @property
    def first_place(self) -> int:
        """The first place among the written blocks that is in use."""
        return min(self._places.values(), default=self._next_place)

    @property
    def has_unverified(self) -> bool:
        """Whether there are blocks that were not compared with the stream yet."""
        return bool(self._unverified)

    def verify_one(self) -> None:
        """Compare one block with the chunks of the stream, if one is left; other blocks are compared at first use."""
        if self._unverified:
            self._verified(min(self._unverified))

    def _verified(self, base: int) -> Block | None:
        """The block that begins at an offset, None if there is none, or it was made from other chunks."""
        block = self._blocks.get(base)
        if block is None or base not in self._unverified:
            return block
        self._unverified.discard(base)
        start = max(block.start, self._topic_stream.first_offset)
        try:
            known = block.chunks()
        except (LogError, OSError):
            known = None
        if known is None or not is_same(known, self._topic_stream.chunks(start, block.stop)):
            self.drop(base)
            return None
        return block

    # questions

    def decided_until(self, offset: int) -> int:
        """The offset up to which everything from `offset` on is decided; `offset` if it is not itself."""
        base = first = base_of(offset)
        if self._gap is not None and self._gap[0] <= base <= self._gap[1]:
            base = self._gap[1]
        while base in self._blocks:
            base = end_of(base)
        self._gap = first, base
        offset = max(offset, base) if base > first else offset
        if self.open_block is not None and self.open_block.base == base:
            offset = max(offset, self.open_block.next_offset)
        return offset

    def count(self, subscription: int) -> int:
        """How many copies a subscription has, of all that is decided."""
        closed = int(self._totals[subscription]) if subscription < len(self._totals) else 0
        return closed + (0 if self.open_block is None else self.open_block.count(subscription))

    def counts(self) -> NDArray[np.int64]:
        """How many copies each subscription has, `(numbers,)`: all of them, at the cost of a few."""
        if self.open_block is not None:
            self._make_room(self.open_block.largest_number)
        counts = self._totals.copy()
        if self.open_block is not None:
            self.open_block.add_counts(counts)
        return counts

    def count_between(self, subscription: int, start: int, stop: int) -> int:
        """How many copies a subscription has of the offsets `start … stop`, as far as they are decided in a row.

        Cost: a look-up per block; for a block that is counted in part, the cost of `runs`.
        """
        total, base = 0, base_of(start)
        while base < stop and (block := self._blocks.get(base)) is not None:
            row = block.row_of(subscription)
            if row is not None and start <= block.start and block.stop <= stop:
                total += int(block.copies[row])
            elif row is not None:
                total += self._count_in_part(subscription, max(start, base), min(stop, end_of(base)))
            base = end_of(base)
        opened = self.open_block
        if opened is None or opened.base != base or base >= stop:
            return total
        if start <= opened.start and opened.next_offset <= stop:
            return total + opened.count(subscription)
        return total + self._count_in_part(subscription, max(start, base), stop)

    def _count_in_part(self, subscription: int, start: int, stop: int) -> int:
        """The same for offsets of one block."""
        runs = next(self.runs(subscription, start), None)
        if runs is None:
            return 0
        return int(np.maximum(np.minimum(runs.stops, stop) - runs.firsts, 0).sum())

    def first_at_or_after(self, subscription: int, offset: int) -> tuple[int, int] | None:
        """Offset and rule of the first copy of a subscription at or above an offset; None if none is decided yet."""
        for runs in self.runs(subscription, offset):
            return int(runs.firsts[0]), int(runs.rules[0])
        return None

    def runs(self, subscription: int, offset: int, stop: int | None = None) -> Iterator[CopyRuns]:
        """The copies of a subscription at and above an offset, in order, up to the first offset that is not decided.

        Some for each block that has any; with `stop` of offsets below that.
        """
        for found in self._postings(subscription, offset, stop):
            copies = found.copies.from_offset(offset)
            if stop is not None:
                copies = copies.below(stop)
            if len(copies):
                yield copies

    def failures(self, subscription: int, offset: int) -> Iterator[CopyRuns]:
        """The messages that become dead letters of a subscription, as `runs`; rule 0: no message, so every rule failed.

        Several rules of one message make one dead letter together.
        """
        for found in self._postings(subscription, offset):
            failures = found.failures.from_offset(offset)
            if len(failures):
                yield failures

    def session_ids(self, subscription: int, offsets: Int64Array, rules: Int64Array) -> list[str | None]:
        """The session id of each copy of a subscription that gives its copies out by session; None without one.

        `offsets` and `rules` are `(copies,)`, ascending. The result has the first of them, up to the first undecided
        offset. Cost: some 0.2 µs a copy, and reading the session ids of their blocks.
        """
        found: list[bytes | None] = []
        while len(found) < len(offsets):
            offset = int(offsets[len(found)])
            base, opened = base_of(offset), self.open_block
            block = self._verified(base)
            if block is not None:
                part = slice(len(found), int(np.searchsorted(offsets, end_of(offset))))
                try:
                    rows = self._rows_of(base, block)
                    found += block.session_ids(rows, subscription, offsets[part], rules[part])
                except (LogError, OSError):
                    self.drop(base)
                    break
            elif opened is not None and opened.start <= offset < opened.next_offset:
                part = slice(len(found), int(np.searchsorted(offsets, opened.next_offset)))
                found += opened.session_ids(subscription, offsets[part], rules[part])
            else:
                break
        return [None if each is None else each.decode("utf-8", "surrogateescape") for each in found]

    def entries(self, offsets: Int64Array) -> NDArray[np.void]:
        """Where the messages of some offsets of one block, ascending, lie in their segments, and their checksums.

        `(offsets,)` of ENTRY_DTYPE; zeros where there is none (see `block`). Raises CorruptSidecarError.
        """
        start = int(offsets[0])
        block = self._verified(base_of(start))
        if block is not None:
            return block.entries(offsets)
        if self.open_block is not None and self.open_block.base == base_of(start):
            return self.open_block.entries(offsets)
        raise CorruptSidecarError(f"offsets from {start} on are not decided", path=self._folder)

    def _postings(self, subscription: int, offset: int, stop: int | None = None) -> Iterator[SubscriptionPostings]:
        base = base_of(offset)
        while (stop is None or base < stop) and (block := self._verified(base)) is not None:
            row = block.row_of(subscription)
            if row is not None:
                try:
                    found = block.postings(self._rows_of(base, block), row)
                except (LogError, OSError):
                    self.drop(base)
                    return
                yield found
            base = end_of(base)
        if self.open_block is not None and self.open_block.base == base:
            yield self.open_block.postings(subscription)

    def _rows_of(self, base: int, block: Block) -> NDArray[np.void]:
        """The rows of a block, which the next questions are likely to need."""
        rows = self._rows.get(base)
        if rows is None:
            rows = self._rows[base] = block.rows()
            if len(self._rows) > _KEPT_ROWS:
                self._rows.popitem(last=False)
        return rows


def is_same(known: NDArray[np.void], found: NDArray[np.void] | None) -> bool:
    """Whether chunks are the decided ones; retention may have removed the first of these."""
    if found is None or len(found) > len(known):
        return False
    return found.tobytes() == known[len(known) - len(found) :].tobytes()
