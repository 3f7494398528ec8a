"""What a stream's pin keeps from retention, when it makes the stream full, and what a crash leaves of it."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headgate.errors import ConfigError, StorageFullError, StreamFullError
from headgate.log import OffsetSpecification, Pin, Stream, StreamArguments, Writer, read_pin, stream_info
from headgate.log.pin import KEEP_EVERYTHING
from log_streams import FailingFiles, Killed, abandon, quick_folder, read_messages

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NO_LIMIT = 1 << 40
BODY = bytes(100)
CHUNK = 152
"""Bytes of a chunk with one such message."""


def small(folder: Path, **arguments: int | bool) -> Stream:
    """A stream with two messages a segment."""
    made = StreamArguments(max_segment_chunks=2, **arguments)  # type: ignore[arg-type]
    return Stream.create(folder / "s", name="s", now_ms=0, arguments=made)


def fill(writer: Writer, count: int) -> None:
    for _ in range(count):
        writer.append([(BODY, None)], now_ms=0)


def firsts(stream: Stream) -> list[int]:
    return [segment.first_chunk_id for segment in stream.segments()]


# retention


@pytest.mark.parametrize("limit", [{"max_length_bytes": 700}, {"max_age_ms": 10}], ids=["bytes", "age"])
def test_retention_waits_for_the_pin_in_every_writer(tmp_path: Path, limit: dict[str, int]) -> None:
    stream = small(tmp_path, **limit)
    with Writer.open(stream, now_ms=0) as writer:
        fill(writer, 1)
        writer.pin(Pin(3, NO_LIMIT))
        fill(writer, 11)
        writer.apply_retention(now_ms=100)
        # The segment of offsets 2 and 3 stays, the one before it is needed by nobody.
        assert firsts(stream) == [2, 4, 6, 8, 10]
    with Writer.open(stream, now_ms=100) as writer:
        assert writer.pinned == Pin(3, NO_LIMIT)
        fill(writer, 2)
        assert firsts(stream) == [2, 4, 6, 8, 10, 12]
        writer.pin(Pin(9, NO_LIMIT))
        writer.apply_retention(now_ms=100)
        assert firsts(stream) == [8, 10, 12]
        writer.pin(None)
        writer.apply_retention(now_ms=100)
        assert firsts(stream) == ([10, 12] if "max_length_bytes" in limit else [12])
        assert writer.pinned is None
    assert read_pin(stream.path) is None


def test_a_pin_that_is_lowered_keeps_what_is_left(tmp_path: Path) -> None:
    stream = small(tmp_path, max_age_ms=1)
    with Writer.open(stream, now_ms=0) as writer:
        fill(writer, 6)
        writer.pin(Pin(6, NO_LIMIT))
        writer.apply_retention(now_ms=2)
        assert firsts(stream) == [4]
        writer.pin(Pin(1, NO_LIMIT))
        fill(writer, 4)
        writer.apply_retention(now_ms=2)
        assert firsts(stream) == [4, 6, 8]


CHILD = """
import sys
from headgate.log import Stream, Writer

with Writer.open(Stream.open(sys.argv[1]), now_ms=0) as writer:
    for _ in range(10):
        writer.append([(bytes(100), None)], now_ms=0)
"""


def test_another_process_keeps_what_is_pinned(tmp_path: Path) -> None:
    stream = small(tmp_path, max_length_bytes=1)
    with Writer.open(stream, now_ms=0) as writer:
        writer.pin(Pin(5, NO_LIMIT))
        fill(writer, 4)
    subprocess.run([sys.executable, "-c", CHILD, str(stream.path)], check=True)
    assert firsts(stream) == [4, 6, 8, 10, 12]


# a full stream


def test_a_stream_is_full_when_what_is_pinned_has_the_quota(tmp_path: Path) -> None:
    """Each append is refused if, and only if, the files say so; rolling and reopening make no difference."""
    stream = small(tmp_path)
    pin = Pin(0, 5 * CHUNK)
    writer = Writer.open(stream, now_ms=0)
    fill(writer, 3)
    writer.pin(pin)
    refused = 0
    for number in range(40):
        if number % 3 == 0:
            writer.close()
            writer = Writer.open(stream, now_ms=0)
        held_bytes = stream_info(stream).pinned_bytes
        if held_bytes < pin.quota_bytes:
            fill(writer, 1)
            continue
        refused += 1
        with pytest.raises(StreamFullError, match=f"{held_bytes} bytes from offset {pin.offset} on wait"):
            fill(writer, 1)
        pin = Pin(min(pin.offset + 1 + number % 4, writer.next_offset), pin.quota_bytes)
        writer.pin(pin)
    assert refused > 5
    assert len(read_messages(stream)) == writer.next_offset
    writer.close()


def test_a_full_stream_is_read_and_keeps_stored_offsets(tmp_path: Path) -> None:
    stream = small(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        fill(writer, 3)
        writer.pin(Pin(2, 10))
        for entries in ([(b"m", None)], [(b"m", None)] * 5000):
            with pytest.raises(StreamFullError):
                writer.append(entries, now_ms=0)
        assert writer.next_offset == 3
        writer.store_offset("reader", 3)
        writer.flush_offsets(now_ms=0)
        assert stream.attach(OffsetSpecification.last(), now_ms=0).chunk_id == 2
        # A publisher hears that what it sent before is there.
        writer.pin(Pin(4, 10))
        writer.append([(BODY, None)], now_ms=0, publisher="p", sequences=[1])
        again = writer.append([(BODY, None)], now_ms=0, publisher="p", sequences=[1])
        assert again.num_duplicates == 1
        with pytest.raises(StreamFullError):
            fill(writer, 1)
        writer.pin(Pin(4, 1000))
        fill(writer, 1)
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.stored_offset("reader") == 3


def test_wrong_pins_are_refused() -> None:
    for offset, quota_bytes in ((-1, 0), (0, -1), (2**63, 0), (0, 2**63)):
        with pytest.raises(ConfigError, match="expected 0 to"):
            Pin(offset, quota_bytes)


# dropping what is settled


def test_segments_are_dropped_when_they_are_settled_where_the_stream_wants_it(tmp_path: Path) -> None:
    stream = small(tmp_path, drops_settled=True)
    with Writer.open(stream, now_ms=0) as writer:
        fill(writer, 8)
        assert firsts(stream) == [0, 2, 4, 6]
        writer.pin(Pin(1, NO_LIMIT))
        assert firsts(stream) == [0, 2, 4, 6]
        # One for each call, also one that changes nothing; the newest stays.
        for left in ([2, 4, 6], [4, 6], [6], [6]):
            writer.pin(Pin(8, NO_LIMIT))
            assert firsts(stream) == left
        fill(writer, 1)
        assert firsts(stream) == [8]
        fill(writer, 4)
        assert firsts(stream) == [8, 10, 12]
        writer.pin(Pin(12, NO_LIMIT))
        fill(writer, 3)
        assert firsts(stream) == [12, 14]
    plain = small(tmp_path / "other")
    with Writer.open(plain, now_ms=0) as writer:
        fill(writer, 8)
        writer.pin(Pin(8, NO_LIMIT))
        fill(writer, 3)
        assert firsts(plain) == [0, 2, 4, 6, 8, 10]


def test_nothing_that_is_tracked_goes_with_a_settled_segment(tmp_path: Path) -> None:
    stream = small(tmp_path, drops_settled=True)
    files = FailingFiles(FULL)
    with Writer.open(stream, now_ms=0, open_file=files) as writer:
        for number in range(4):
            writer.append([(BODY, None)], now_ms=0, publisher="p", sequences=[number])
        # A new pair is begun, and its snapshot does not fit: the last sequence stands in the segment before.
        files.budget = files.written + 16
        with pytest.raises(StorageFullError):
            fill(writer, 1)
        files.budget = None
        assert firsts(stream) == [0, 2, 4, 6]
        for _ in range(3):
            writer.pin(Pin(6, NO_LIMIT))
        assert firsts(stream) == [0, 2, 4, 6]
        fill(writer, 1)
        for _ in range(3):
            writer.pin(Pin(6, NO_LIMIT))
        assert firsts(stream) == [6]
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.last_sequence("p") == 3


# the file


def test_a_damaged_pin_keeps_everything_and_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = small(tmp_path, max_length_bytes=1, drops_settled=True)
    with Writer.open(stream, now_ms=0) as writer:
        writer.pin(Pin(0, 300))
        fill(writer, 2)
    path = stream.path / "pin"
    good = path.read_bytes()
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 0x01
        path.write_bytes(damaged)
        assert read_pin(stream.path) == KEEP_EVERYTHING
    for cut in range(len(good)):
        path.write_bytes(good[:cut])
        assert read_pin(stream.path) == KEEP_EVERYTHING
    with caplog.at_level(logging.WARNING, logger="headgate.log"), Writer.open(stream, now_ms=0) as writer:
        fill(writer, 10)
        assert writer.first_offset == 0
        assert str(path) in caplog.text
        writer.pin(Pin(11, 300))
    assert read_pin(stream.path) == Pin(11, 300)


def test_a_pin_that_cannot_be_read_keeps_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = small(tmp_path)
    (stream.path / "pin").mkdir()
    assert stream_info(stream).pin == KEEP_EVERYTHING
    assert "Is a directory" in caplog.text


CHANGES = [(None, Pin(7, 5000)), (Pin(1, 5000), Pin(7, 3000)), (Pin(7, 5000), Pin(1, 5000)), (Pin(7, 3000), None)]


@pytest.mark.parametrize(("before", "after"), CHANGES, ids=["first", "raised", "lowered", "removed"])
@pytest.mark.parametrize("error", [Killed(), FULL], ids=["killed", "full"])
def test_a_write_of_the_pin_that_ends_at_any_byte_gives_up_nothing_that_is_needed(
    tmp_path: Path, before: Pin | None, after: Pin | None, error: BaseException
) -> None:
    stream = small(tmp_path, max_length_bytes=1)
    with Writer.open(stream, now_ms=0) as writer:
        writer.pin(Pin(1, NO_LIMIT))
        fill(writer, 10)
        writer.pin(before)
    budgets = range(49) if after is not None else [0]
    with quick_folder() as folder:
        for budget in budgets:
            copy = Stream.open(shutil.copytree(stream.path, Path(folder) / f"copy{budget}"))
            files = FailingFiles(error)
            writer = Writer.open(copy, now_ms=0, open_file=files)
            files.budget, first_offset = budget, writer.first_offset
            if after is None:
                writer.pin(after)
            else:
                with pytest.raises(Killed if isinstance(error, Killed) else StorageFullError):
                    writer.pin(after)
            is_raised = after is not None and before is not None and after.offset > before.offset
            assert writer.pinned == (after if after is None or is_raised else before)
            abandon(writer)
            found = read_pin(copy.path)
            assert found in (before, after, KEEP_EVERYTHING)
            if error is FULL and before is None:
                assert found is None
            with Writer.open(copy, now_ms=0) as writer:
                if found is not None:
                    assert writer.first_offset <= max(found.offset, first_offset)
                writer.pin(after)
            assert read_pin(copy.path) == after


def test_a_raised_pin_counts_where_it_cannot_be_written_down(tmp_path: Path) -> None:
    stream = small(tmp_path, drops_settled=True)
    files = FailingFiles(FULL)
    with Writer.open(stream, now_ms=0, open_file=files) as writer:
        fill(writer, 4)
        writer.pin(Pin(1, 200))
        with pytest.raises(StreamFullError):
            fill(writer, 1)
        files.budget = files.written
        with pytest.raises(StorageFullError):
            writer.pin(Pin(4, 200))
        # Room is made where there is none.
        assert firsts(stream) == [2]
        files.budget = None
        fill(writer, 1)
        writer.pin(Pin(5, 200))
    assert read_pin(stream.path) == Pin(5, 200)


def test_a_pin_that_is_lowered_is_flushed_and_a_raised_one_is_not(tmp_path: Path) -> None:
    stream = small(tmp_path)
    files = FailingFiles(FULL)
    with Writer.open(stream, now_ms=0, open_file=files) as writer:
        files.fail_sync = True
        with pytest.raises(StorageFullError):
            writer.pin(Pin(3, 1))
        assert (writer.pinned, read_pin(stream.path)) == (None, None)
        files.fail_sync = False
        writer.pin(Pin(3, 1))
        files.fail_sync = True
        writer.pin(Pin(4, 1))
        with pytest.raises(StorageFullError):
            writer.pin(Pin(2, 1))
        assert writer.pinned == Pin(4, 1)


# what is shown


def test_the_numbers_of_a_stream_say_what_is_pinned(tmp_path: Path) -> None:
    stream = small(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        fill(writer, 5)
        facts = stream_info(stream).facts()
        assert (facts["pin_offset"], facts["pin_quota_bytes"], facts["pinned_bytes"]) == (None, None, 0)
        sizes = {}
        for offset in (0, 1, 2, 3, 4, 5, 9):
            writer.pin(Pin(offset, NO_LIMIT))
            sizes[offset] = stream_info(stream).pinned_bytes
        ends = [segment.segment_path.stat().st_size for segment in stream.segments()]
        assert sizes == {
            0: sum(ends) - 8,
            1: sum(ends) - 8 - CHUNK,
            2: sum(ends[1:]) - 8,
            3: CHUNK + ends[2],
            4: CHUNK,
            5: 0,
            9: 0,
        }
        facts = stream_info(stream).facts()
        assert (facts["pin_offset"], facts["pin_quota_bytes"], facts["pinned_bytes"]) == (9, NO_LIMIT, 0)
        # A chunk of several messages is kept whole.
        writer.append([(b"a", None), (b"b", None), (b"c", None)], now_ms=0)
        writer.pin(Pin(7, NO_LIMIT))
        assert stream_info(stream).pinned_bytes == np.ptp([ends[2], stream.segments()[2].size_bytes() - 8 - 2 * 29])
