"""A stream against a model of a few lines: append, roll, store offsets, crash, reopen, attach, retain, move.

The promise: everything confirmed is there once, in order; what a crash interrupted is there from its beginning up to
some message, or not at all; readers beside it see whole chunks of it. That is so wherever its segments lie, object
storage included, and whenever a mover dies.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.log import OffsetSpecification, Pin, Stream, StreamArguments, Writer, read_pin
from headgate.log.crash_points import MoveStep
from headgate.log.format import index_name, segment_name
from headgate.log.inspection import Damage, verify_stream
from headgate.log.remote import cache, catalogue_of, mover
from headgate.log.remote.pending import load_pending
from headgate.log.tracking import read_tracking
from log_streams import FailingFiles, Killed, abandon, chunk_ids, quick_folder, read_messages

BATCHES = st.lists(
    st.tuples(st.binary(max_size=60), st.none() | st.sampled_from([b"", b"AMER", b"EMEA"])), min_size=1, max_size=6
)


class StreamMachine(RuleBasedStateMachine):
    """One named publisher numbers its messages from 0 on; after a crash it sends again from the last known sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = quick_folder()
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("HEADGATE_REMOTE_CACHE", f"{self.folder.name}/cache")
        cache.cache_folder.cache_clear()
        self.now_ms = 0
        self.published: list[bytes] = []
        self.stored: int | None = None
        self.pinned: Pin | None = None
        self.needed_from: int | None = None
        self.files = FailingFiles(Killed())

    @initialize(
        size=st.sampled_from([150, 400, 10_000]),
        chunks=st.sampled_from([2, 5, 1000]),
        drops=st.booleans(),
        moves=st.booleans(),
        local_bytes=st.sampled_from([0, 500]),
    )
    def create(self, size: int, chunks: int, drops: bool, moves: bool, local_bytes: int) -> None:
        arguments = StreamArguments(max_segment_size_bytes=size, max_segment_chunks=chunks, drops_settled=drops)
        if moves:
            place = f"file://{self.folder.name}/remote"
            arguments = msgspec.structs.replace(arguments, remote=place, local_bytes=local_bytes)
        self.arguments = arguments
        self.stream = Stream.create(Path(self.folder.name) / "s", name="s", now_ms=0, arguments=arguments)
        self.open()

    def open(self) -> None:
        self.files = FailingFiles(Killed())
        self.writer = Writer.open(self.stream, now_ms=self.now_ms, open_file=self.files)

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()
        self.patch.undo()
        cache.cache_folder.cache_clear()
        self.folder.cleanup()

    def send(self, messages: list[tuple[bytes, bytes | None]]) -> None:
        first = len(self.published)
        numbered = [(b"%06d" % (first + at) + body, value) for at, (body, value) in enumerate(messages)]
        sequences = range(first, first + len(messages))
        self.attempt = [body for body, _ in numbered]
        self.writer.append(numbered, now_ms=self.now_ms, publisher="p", sequences=sequences)
        self.published += self.attempt

    @rule(messages=BATCHES, later=st.integers(0, 50))
    def append(self, messages: list[tuple[bytes, bytes | None]], later: int) -> None:
        self.now_ms += later
        self.send(messages)

    @rule()
    def append_again_what_is_there(self) -> None:
        before = self.writer.next_offset
        if self.published:
            last = len(self.published) - 1
            again = self.writer.append([(b"twice", None)], now_ms=self.now_ms, publisher="p", sequences=[last])
            assert again.num_duplicates == 1
        assert self.writer.next_offset == before

    @rule(offset=st.integers(0, 1000), flush=st.booleans())
    def store_offset(self, offset: int, flush: bool) -> None:
        self.writer.store_offset("group", offset)
        if flush:
            self.writer.flush_offsets(now_ms=self.now_ms)
        self.stored = offset

    @rule()
    def reopen(self) -> None:
        self.writer.flush_offsets(now_ms=self.now_ms)
        self.writer.close()
        self.open()

    @rule(messages=BATCHES, budget=st.integers(0, 700))
    def crash_in_a_write(self, messages: list[tuple[bytes, bytes | None]], budget: int) -> None:
        self.writer.flush_offsets(now_ms=self.now_ms)
        self.files.budget = self.files.written + budget
        try:
            self.send(messages)
        except Killed:
            abandon(self.writer)
            self.check_readers()
            self.open()
            self.resolve_attempt()
        else:
            self.files.budget = None

    @rule(messages=BATCHES, lost=st.integers(0, 300), lost_records=st.integers(0, 40))
    def crash_that_loses_the_end_of_an_unconfirmed_write(
        self, messages: list[tuple[bytes, bytes | None]], lost: int, lost_records: int
    ) -> None:
        """As a power loss leaves it: segment and index cut anywhere behind what was there before the write."""
        self.writer.flush_offsets(now_ms=self.now_ms)
        newest = self.stream.segments()[-1].first_chunk_id
        segment, index = self.stream.path / segment_name(newest), self.stream.path / index_name(newest)
        floors = segment.stat().st_size, index.stat().st_size
        confirmed = list(self.published)
        self.send(messages)
        abandon(self.writer)
        if self.stream.segments()[-1].first_chunk_id == newest:
            for path, floor, cut in zip((segment, index), floors, (lost, lost_records), strict=True):
                os.truncate(path, max(floor, path.stat().st_size - cut))
        self.published = confirmed
        self.open()
        self.resolve_attempt()

    def resolve_attempt(self) -> None:
        """What the interrupted append left counts as published from now on; it must be a beginning of it."""
        last = self.writer.last_sequence("p")
        arrived = (last + 1 if last is not None else 0) - len(self.published)
        assert 0 <= arrived <= len(self.attempt)
        self.published += self.attempt[:arrived]

    @rule(back=st.none() | st.integers(0, 30), budget=st.none() | st.integers(0, 48))
    def pin(self, back: int | None, budget: int | None) -> None:
        """Keep the last messages, or give the pin up; the process may die while it is written down."""
        wanted = None if back is None else Pin(max(0, self.writer.next_offset - back), 1 << 40)
        before = self.pinned
        self.writer.flush_offsets(now_ms=self.now_ms)
        first_offset = self.writer.first_offset
        # A pin that is raised counts before it is written down.
        kept_from = max(first_offset, 0 if wanted is None else wanted.offset)
        self.files.budget = None if budget is None else self.files.written + budget
        try:
            self.writer.pin(wanted)
        except Killed:
            abandon(self.writer)
            found = read_pin(self.stream.path)
            assert found in (before, wanted, Pin(0, 2**63 - 1))
            self.open()
            wanted = self.writer.pinned
            assert wanted == found
        self.files.budget = None
        assert self.writer.pinned == wanted
        self.pinned = wanted
        self.needed_from = None if wanted is None else max(wanted.offset, kept_from)

    @precondition(lambda self: hasattr(self, "stream") and self.stream.remote is not None)
    @rule(
        later=st.integers(0, 50), dies_at=st.none() | st.integers(1, 6), releases=st.booleans(), forgets=st.booleans()
    )
    def move(self, later: int, dies_at: int | None, releases: bool, forgets: bool) -> None:
        """A mover that may die at one of its steps; the cache may be emptied behind it."""
        before = read_messages(self.stream)
        steps = iter(range(1, 1000))

        def reached(_step: MoveStep) -> None:
            if next(steps) == dies_at:
                raise Killed

        self.writer.flush_offsets(now_ms=self.now_ms)
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
            patch.setattr(mover, "reached", reached)
            mover.move_segments(self.stream, now_ms=self.now_ms - later)
        if releases:
            self.writer.release_local()
        if forgets:
            cache.sweep_cache(cache.cache_folder(), most_bytes=0)
        found = read_messages(self.stream)
        # Settled segments may go, up to the pin.
        assert found == before[len(before) - len(found) :]
        assert len(found) == len(before) or (self.arguments.drops_settled and self.pinned is not None)
        assert self.writer.first_offset == self.stream.first_offset()

    @rule(age=st.integers(1, 100), later=st.sampled_from([0, 50, 150]))
    def retain(self, age: int, later: int) -> None:
        self.now_ms += later
        self.writer.flush_offsets(now_ms=self.now_ms)
        newest = self.stream.segments()[-1].first_chunk_id
        aged = msgspec.structs.replace(self.arguments, max_age_ms=age)
        self.writer.change(now_ms=self.now_ms, arguments=aged)
        if self.stream.remote is not None:
            mover.move_segments(self.stream, now_ms=self.now_ms)
        self.writer.change(now_ms=self.now_ms, arguments=self.arguments)
        assert self.stream.segments()[-1].first_chunk_id == newest

    @precondition(lambda self: hasattr(self, "stream"))
    @rule(offset=st.integers(0, 300))
    def attach(self, offset: int) -> None:
        there = [number for number, _ in read_messages(self.stream)]
        place = self.stream.attach(OffsetSpecification.offset(offset), now_ms=self.now_ms)
        assert place.chunk_id <= place.offset
        assert place.offset == min(max(offset, self.stream.first_offset()), self.stream.next_offset())
        wanted = [number for number in there if number >= offset]
        found = [number for number in there if number >= place.chunk_id and number >= place.offset]
        assert found == wanted
        by_time = self.stream.attach(OffsetSpecification.timestamp(self.now_ms + 1), now_ms=self.now_ms)
        assert by_time.chunk_id == self.stream.next_offset()

    @invariant()
    def check_readers(self) -> None:
        if not hasattr(self, "writer"):
            return
        found = read_messages(self.stream)
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets))
        ids = chunk_ids(self.stream)
        assert ids == sorted(set(ids))
        numbers = [int(body[:6]) for _, body in found]
        if numbers:
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        confirmed = self.published[numbers[0] :] if numbers else []
        assert [body for _, body in found][: len(confirmed)] == confirmed
        if self.stream.first_offset() == 0:
            assert len(found) >= len(self.published)

    @invariant()
    def check_pin(self) -> None:
        if hasattr(self, "writer"):
            assert read_pin(self.stream.path) == self.writer.pinned == self.pinned
            if self.needed_from is not None:
                assert self.stream.first_offset() <= self.needed_from

    @invariant()
    def check_objects(self) -> None:
        """Each segment that the catalogue names is there, and no segment without a name that is not pending."""
        if hasattr(self, "writer") and self.stream.remote is not None:
            there = {int(path.stem) for path in Path(self.folder.name).glob("remote/s/*.segment")}
            named = set(catalogue_of(self.stream.path).rows["first"].tolist())
            assert named <= there <= named | load_pending(self.stream.path).segments

    @invariant()
    def check_damage(self) -> None:
        if hasattr(self, "writer"):
            assert [found for found in verify_stream(self.stream) if isinstance(found, Damage)] == []

    @invariant()
    def check_tracking(self) -> None:
        if not hasattr(self, "writer"):
            return
        if self.published:
            assert self.writer.last_sequence("p") == len(self.published) - 1
            assert read_tracking(self.stream).sequences[b"p"][1] == len(self.published) - 1
        if self.stored is not None and self.stored >= self.stream.first_offset():
            assert self.writer.stored_offset("group") == self.stored


TestStreamMachine = StreamMachine.TestCase
