"""Deciding a topic behind its writer: every message once, for all subscriptions together.

Work is done in steps, each of as many messages as the caller allows, beginning with the first undecided offset. The
postings of a block stay in memory until the block is full; then it is written. After a restart, and where postings are
not valid, blocks are decided again: the same messages and the same rules give the same postings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from headgate.errors import CorruptChunkError, LogError, OffsetOutOfRangeError
from headgate.log import DiskFile, OpenFile, Stream, Wait, no_wait
from headgate.scan.fetch import AppendedChunks
from headgate.topic.decisions.block import base_of, encode_block, end_of
from headgate.topic.decisions.open_block import OpenBlock
from headgate.topic.decisions.postings import Postings, PostingsWriter, is_same
from headgate.topic.decisions.rule_counts import RuleCounts
from headgate.topic.decisions.selection import Selected, Selector
from headgate.topic.decisions.topic_stream import TopicBatch, TopicStream
from headgate.topic.rule import Rule
from headgate.topic.rules_in_force import FollowedHistory


@dataclass(slots=True)
class Step:
    """The result of a step: offsets `start … stop` are decided, `selected` has the copies of their messages, in order.

    `next_offset` is the first one that is not decided after it. `is_done`: there is nothing to do until more messages
    arrive.
    """

    start: int
    stop: int
    selected: list[Selected] = field(default_factory=list)
    next_offset: int = 0
    is_done: bool = False


class Decider:
    """Decides one topic; holds the lock of its postings from `open` to `close`. Not for several threads at once.

    `postings` are its results; they belong to the same thread.
    """

    def __init__(self, stream: Stream, writer: PostingsWriter, history: FollowedHistory, *, floor: int) -> None:
        self._stream = stream
        self._writer = writer
        self._floor = base_of(floor)
        self._topic_stream = TopicStream(stream)
        self._topic_stream.refresh()
        self._forgotten_below = 0
        self._damaged_from: int | None = None
        """The offset at which the last step met damage; None where it met none."""
        self._selector: Selector | None = None
        self._selector_state = ""
        self.postings = Postings(self._topic_stream, history)

    @staticmethod
    def open(
        stream: Stream, *, now_ms: int, floor: int = 0, wait: Wait = no_wait, open_file: OpenFile = DiskFile
    ) -> Decider:
        """Take the lock of a topic's postings. Copies below the offset `floor` are not needed.

        Raises RuleNotFoundError for a stream that is not a topic, StreamLockedError that names the other decider,
        StreamReadOnlyError, StorageFullError, LogError.
        """
        history = FollowedHistory(stream.path)
        history.now()
        writer = PostingsWriter.open(stream, now_ms=now_ms, wait=wait, open_file=open_file)
        try:
            return Decider(stream, writer, history, floor=floor)
        except BaseException:
            writer.close()
            raise

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close files and release the lock; closing again is harmless. The postings of the open block are lost."""
        self.postings.close()
        self._writer.close()

    @property
    def first_offset(self) -> int:
        """The first offset to decide: copies below it are not needed, or their messages or rules were deleted."""
        return max(self._floor, self._topic_stream.first_offset, self.postings.states.pruned_below)

    @property
    def next_offset(self) -> int:
        """The first offset that is not decided."""
        return self.postings.decided_until(self.first_offset)

    def counts(self, subscription: int) -> dict[int, RuleCounts]:
        """The counts of each rule of a subscription over the messages that were decided since `open`.

        By the numbers of both; see `Selector.counts`. A rule without an entry was not evaluated yet. Any thread may
        call this.
        """
        selector = self._selector
        return {} if selector is None else selector.counts(subscription)

    def first_failures(self) -> dict[tuple[int, int], Rule]:
        """The rules in force that failed for the first time since this was asked last; see `Selector`."""
        return {} if self._selector is None else self._selector.first_failures()

    def move_floor(self, floor: int) -> None:
        """Set the offset below which copies are no longer needed; it may be lower than before."""
        self._floor = base_of(floor)

    def step(self, max_messages: int, *, now_ms: int, appended: AppendedChunks | None = None) -> Step:
        """Decide at most `max_messages` more messages; if there are none, verify one block against the stream.

        `appended` are the newest chunks of the stream, given by their writer: they are not read back if all messages
        before them are decided. `now_ms` becomes the time of written blocks. Raises StreamNotFoundError and its kinds
        for a deleted stream, CorruptChunkError for one that is damaged where the step begins, RuleNotFoundError or
        LogError for a damaged history, StorageFullError or LogError if a block cannot be written; the step may then be
        repeated.
        """
        # The end first and the rules second: so all rules for the messages before the end are known.
        if appended is None or not self._topic_stream.take(appended):
            self._topic_stream.refresh()
        self.postings.follow_rules()
        self._forget()
        self._write_full_block(now_ms)
        begin = self.next_offset
        step = Step(begin, begin)
        stop = min(begin + max_messages, self._topic_stream.next_offset)
        if begin == self._damaged_from:
            self._topic_stream.check(begin, begin + 1)
            self._damaged_from = None
        # Retention may be faster: then the next step begins behind the deleted messages.
        with contextlib.suppress(OffsetOutOfRangeError):
            while step.stop < stop and (step.stop == begin or step.stop == self.next_offset):
                try:
                    self._decide(step, stop)
                except CorruptChunkError:
                    self._decide_before_damage(step, stop)
                    break
                try:
                    self._write_full_block(now_ms)
                except LogError:
                    # What is decided is told first; the next step begins with writing it.
                    step.next_offset = self.next_offset
                    return step
        if step.stop == begin:
            self.postings.verify_one()
        step.next_offset = self.next_offset
        step.is_done = step.next_offset >= self._topic_stream.next_offset and not self.postings.has_unverified
        return step

    def _forget(self) -> None:
        """Forget postings below the floor or of deleted messages, and an open block whose messages were taken back."""
        postings, topic_stream = self.postings, self._topic_stream
        if postings.open_block is not None and postings.open_block.next_offset > topic_stream.next_offset:
            postings.open_block = None
        first = max(self._floor, topic_stream.first_offset)
        if first > self._forgotten_below:
            self._forgotten_below = first
            postings.forget_below(first)
            self._writer.drop_below(postings.first_place)

    def _decide(self, step: Step, stop: int) -> None:
        """Decide from `step.stop` on, at most to the end of its block."""
        block = self.postings.open_block
        if block is None or not block.base <= step.stop < block.stop:
            block = self.postings.open_block = OpenBlock(step.stop)
        block.next_offset = step.stop
        stop = min(stop, block.stop)
        selected: list[Selected] = []
        try:
            for found in self._topic_stream.read(step.stop, stop):
                if isinstance(found, TopicBatch):
                    selected += self._select(block, found)
                else:
                    block.add_chunks(found)
        except BaseException:
            # A part of the messages may be in it.
            self.postings.open_block = None
            raise
        step.selected += selected
        block.next_offset = step.stop = stop

    def _decide_before_damage(self, step: Step, stop: int) -> None:
        """Decide the messages before a damaged chunk, keeping the postings of its block; raises if there are none."""
        begin = step.stop
        sound = self._topic_stream.sound_until(begin, min(stop, end_of(begin)))
        # The failure lost the block: its messages are decided again, without reporting them in the step.
        start = self.next_offset
        if start < begin:
            self._decide(Step(start, start), begin)
        self._damaged_from = sound
        if sound == begin:
            self._topic_stream.check(begin, begin + 1)
        self._decide(step, sound)

    def _select(self, block: OpenBlock, batch: TopicBatch) -> Iterator[Selected]:
        """The copies that messages give, in pieces with the same rules."""
        first, stop = int(batch.offsets[0]), int(batch.offsets[-1]) + 1
        for piece in self.postings.history.ranges(first, stop):
            part = batch
            if piece.stop < stop or piece.start > first:
                part = batch.take(slice(*np.searchsorted(batch.offsets, (piece.start, piece.stop)).tolist()))
            selected = self._selector_at(piece.start).select(part.messages, part.offsets, part.timestamps_ms)
            block.add(selected, int(part.offsets[-1]) + 1, part.entries(selected.copies.offsets))
            yield selected

    def _selector_at(self, offset: int) -> Selector:
        (state,) = self.postings.states.within(offset, offset + 1)
        if self._selector is None or self._selector_state != state.name:
            topic = self.postings.history.at(offset)
            self._selector = Selector(topic, stream=self._stream.name, before=self._selector)
            self._selector_state = state.name
        return self._selector

    def _write_full_block(self, now_ms: int) -> None:
        """Write the open block if it is full, and the stream still has the chunks that it was made from."""
        postings = self.postings
        block = postings.open_block
        if block is None or not block.is_full:
            return
        start = max(block.start, self._topic_stream.first_offset)
        if is_same(block.chunks(), self._topic_stream.chunks(start, block.stop)):
            rules = postings.states.within(block.start, block.stop)
            self._writer.append(encode_block(block.content(identity=self._stream.identity, rules=rules)), now_ms=now_ms)
        postings.open_block = None
        postings.take_over()
