"""Streams whose damage is given up: exactly what is said is gone, everything else keeps its offset."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.errors import StreamLockedError, StreamReadOnlyError
from headgate.log import (
    Damage,
    GivenUp,
    MessageCounts,
    Offer,
    Stream,
    StreamArguments,
    Writer,
    given_up_offsets,
    read_tracking,
    repair_stream,
    verify_stream,
)
from log_streams import damage_chunk, quick_folder, read_messages

Change = Callable[[bytearray, random.Random], None]


def _bit(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _bits(data: bytearray, chance: random.Random) -> None:
    for _ in range(5):
        _bit(data, chance)


def _zeros(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    stop = min(len(data), start + chance.randrange(1, 600))
    data[start:stop] = bytes(stop - start)


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(8, len(data)) :]


def _insert(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(chance.randrange(1, 100))


def _remove(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.randrange(1, 100)]


CHANGES: tuple[Change, ...] = (_bit, _bits, _zeros, _cut, _insert, _remove)


@pytest.fixture(scope="module")
def original() -> Iterator[Path]:
    """A stream of several segments, with sequences, stored offsets, filter values and snapshots."""
    with quick_folder() as name:
        folder = Path(name) / "original"
        stream = Stream.create(
            folder, name="s", now_ms=1, arguments=StreamArguments(max_segment_size_bytes=3000), flushed=False
        )
        chance, number = random.Random(3), 0
        with Writer.open(stream, now_ms=1) as writer:
            for turn in range(60):
                count = chance.choice([1, 1, 3, 20])
                messages = [
                    (b"m%d" % (number + row) + b"x" * chance.randrange(60), chance.choice([b"a", b"b", None]))
                    for row in range(count)
                ]
                if turn % 3:
                    writer.append(messages, now_ms=1000 + turn)
                else:
                    sequences = list(range(number + 1, number + count + 1))
                    writer.append(messages, now_ms=1000 + turn, publisher="p", sequences=sequences)
                number += count
                if turn % 7 == 0:
                    writer.store_offset(b"c", number)
                    writer.flush_offsets(now_ms=1000 + turn)
        yield folder


@pytest.fixture
def folder(original: Path) -> Iterator[Path]:
    copy = original.with_name("copy")
    shutil.copytree(original, copy)
    yield copy
    shutil.rmtree(copy)


def given_up(folder: Path) -> list[GivenUp]:
    """Give up what is damaged; nothing damaged is left."""
    done = list(repair_stream(Stream.open(folder), now_ms=5, skip_damaged=True))
    assert not [each for each in done if isinstance(each, Damage | Offer)]
    assert not [each for each in verify_stream(Stream.open(folder)) if isinstance(each, Damage)]
    return [each for each in done if isinstance(each, GivenUp)]


def check(original: Path, change: Change, draw: str, *, with_index: bool) -> None:
    """Damage one segment, give up what is damaged, and compare what is left."""
    before, next_offset = read_messages(Stream.open(original)), Stream.open(original).next_offset()
    chance = random.Random(draw)
    folder = original.with_name("damaged")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    segment = chance.choice(sorted(folder.glob("*.segment")))
    for path, how in [(segment, change), *([(segment.with_suffix(".index"), _bit)] if with_index else [])]:
        data = bytearray(path.read_bytes())
        how(data, chance)
        path.write_bytes(data)
    offered = [str(each.given_up) for each in repair_stream(Stream.open(folder), now_ms=5) if isinstance(each, Offer)]
    found = given_up(folder)
    assert offered in ([], [str(each) for each in found]), draw
    gone = {offset for each in found for offset in range(each.first_offset, each.next_offset)}
    stream = Stream.open(folder)
    assert read_messages(stream) == [each for each in before if each[0] not in gone], draw
    assert stream.next_offset() >= next_offset, "no offset is given out twice"
    assert MessageCounts().between(stream, 0, stream.next_offset()) == len(read_messages(stream))
    with Writer.open(stream, now_ms=9) as writer:
        writer.append([(b"after", None)], now_ms=10)
    assert read_messages(Stream.open(folder))[-1][1] == b"after"
    assert not list(repair_stream(Stream.open(folder), now_ms=5, skip_damaged=True))


@pytest.mark.parametrize("rounds", [4, pytest.param(150, marks=pytest.mark.long)])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__[1:])
@pytest.mark.parametrize("with_index", [False, True], ids=["segment", "segment-and-index"])
def test_what_was_not_given_up_is_there_at_its_offset(
    original: Path, change: Change, rounds: int, with_index: bool, seed: int
) -> None:
    for number in range(rounds):
        check(original, change, f"{seed}/{number}", with_index=with_index)


@pytest.mark.parametrize(
    ("change", "draw"),
    [
        pytest.param(_insert, "1/126", id="a record points at the chunk before"),
        pytest.param(_remove, "1/126", id="a record points at the chunk behind"),
        pytest.param(_insert, "2/54", id="a record points at bookkeeping"),
        pytest.param(_insert, "2/89", id="the last record points before its chunk"),
        pytest.param(_zeros, "2/145", id="a record points behind the file"),
        pytest.param(_bits, "3/141", id="a record has another id"),
        pytest.param(_bits, "1/126", id="a header has another id and time"),
        pytest.param(_insert, "524676633/5", id="a record has an epoch that no chunk may have"),
        pytest.param(_bits, "2462501188/3", id="a header has a longer trailer, and the record behind another id"),
        pytest.param(_zeros, "20261129/75", id="a record has another id, and the header's first byte is gone"),
    ],
)
def test_index_and_segment_that_contradict_each_other_move_no_message(
    original: Path, change: Change, draw: str
) -> None:
    check(original, change, draw, with_index=True)


@pytest.mark.parametrize("with_index", [False, True])
def test_a_cut_at_the_end_of_a_chunk_is_no_power_loss(original: Path, with_index: bool) -> None:
    check(original, _cut, "2/121", with_index=with_index)


@pytest.mark.parametrize("draw", ["3/40", "4/78"])
def test_a_damaged_id_in_the_last_record_behind_a_cut_hides_no_offset(original: Path, draw: str) -> None:
    check(original, _cut, draw, with_index=True)


def test_it_says_what_is_lost_and_keeps_the_bytes(folder: Path) -> None:
    stream = Stream.open(folder)
    segment = stream.segments()[0]
    with segment.open() as reader:
        table, stops = reader.chunks(), reader.stop_positions()
        ids = [*table.chunk_id.tolist(), reader.next_chunk_id]
        first, stop = int(table.position[4]), int(stops[4])
        trailer = reader.header(4).trailer_length
    damage_chunk(stream, 4, stop - first - 1 - trailer)
    damaged = segment.segment_path.read_bytes()[first:stop]
    (found,) = given_up(folder)
    assert (found.position, found.size_bytes, found.first_offset, found.next_offset, found.is_exact) == (
        first, stop - first, ids[4], ids[5], True,
    )  # fmt: skip
    assert given_up_offsets(folder) == [(ids[4], ids[5])]
    assert (folder / "damaged" / found.kept_name).read_bytes() == damaged


def test_a_header_that_its_neighbours_know_is_written_again_and_nothing_is_lost(folder: Path, original: Path) -> None:
    before = {path.name: path.read_bytes() for path in original.iterdir() if path.name != "writer.lock"}
    for at in (0, 1, 5, 7, 12, 20, 31, 38, 46):
        damage_chunk(Stream.open(folder), 3, at)
        assert given_up(folder) == [], at
        assert {name: (folder / name).read_bytes() for name in before} == before, at


def test_a_snapshot_is_made_again_from_the_segment_before(folder: Path) -> None:
    stream = Stream.open(folder)
    state, newest = read_tracking(stream), stream.segments()[-1].segment_path
    data = bytearray(newest.read_bytes())
    data[8 + 60] ^= 1
    newest.write_bytes(data)
    assert given_up(folder) == []
    found = read_tracking(Stream.open(folder))
    assert found.sequences == state.sequences
    # The last one was stored while the segment began, and lay in the snapshot only.
    assert found.offsets.keys() == state.offsets.keys() and found.offsets[b"c"] < state.offsets[b"c"]


def test_who_has_a_stream_beside_it_open_keeps_it_from_being_repaired(folder: Path) -> None:
    beside = Stream.create(folder / "ledger", name="l", now_ms=1, flushed=False)
    with Writer.open(beside, now_ms=1), pytest.raises(StreamLockedError):
        list(repair_stream(Stream.open(folder), now_ms=5, skip_damaged=True))
    (folder / "stream.json").unlink()
    with pytest.raises(StreamReadOnlyError):
        list(repair_stream(Stream.open(folder), now_ms=5, skip_damaged=True))
