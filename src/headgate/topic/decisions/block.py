"""The bytes of a block of postings: the copies that the messages of 65 536 offsets give. All integers are big endian.

    Head, 16 bytes
    +------+------+------+------+
    | HGPB | 0002 | D    | crc  |      magic, u32 format, u32 bytes of the directory, u32 CRC-32 of the directory
    +------+------+------+------+
    directory, D bytes                JSON of `Directory`: stream, offsets, rules, program, and where each area lies
    areas                             plain arrays, each with a CRC-32 per piece of 64 KiB in the directory

    chunks     12 bytes per chunk         i64 chunk id, u32 CRC-32 of its header: the chunks that were decided
    rows       40 bytes per subscription  ten u32, see `ROW_DTYPE`; only subscriptions with postings, by number
    lists       4 bytes per run           runs that subscriptions share: all messages, all bytes that are not a message
    plain       2 bytes per copy          plain copies that stand alone: u16 offset
    runs        4 bytes per run           plain copies in a row: u16 first offset, u16 how many more
    acting      8 bytes per run           copies by a rule with an action: u16 first offset, u16 how many more, u32 rule
    failures    6 bytes per failure       u16 offset, u32 rule: the message is a dead letter of the subscription
    places      2 bytes per entry         u16 offset: the messages with a copy of any subscription that has not all, and
                                          with an entry of their own (not in a sub-batch)
    entries     8 bytes per entry         as in the match index: u32 position of the entry in its segment, u32 CRC-32 of
                                          the entry, head included
    sessions   10 bytes per copy          u16 offset, u32 rule, u32 number of its session id, counted from 0: the copies
                                          that have one; plain copies under subscription 0, once for all
    stops       4 bytes per session id    u32: where it ends among the names
    names                                 the session ids in a row, each once

A block has the offsets n · 65 536 … (n + 1) · 65 536; offsets in areas count from there. Areas of copies have the
copies of the first subscription, then of the second, and so on, as many of each as its row says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptSidecarError
from headgate.log import (
    ENTRY_DTYPE,
    Area,
    AreaParts,
    ChunkType,
    ReadBytes,
    crcs_of_ranges,
    encode_areas,
    read_area,
    read_directory,
)
from headgate.log.format import CHUNK_HEADER_BYTES, HEADER_DTYPE
from headgate.topic.copies import PLAIN
from headgate.topic.decisions.entries import Entries
from headgate.topic.decisions.pairs import NO_PAIRS, Pairs
from headgate.topic.decisions.rule_states import EVALUATOR, RuleState
from headgate.topic.decisions.runs import NOTHING, CopyRuns, Int64Array, run_starts, run_stops
from headgate.topic.decisions.session_ids import OF_MESSAGES, SessionIds, find_places

BLOCK_FORMAT = 2
MAGIC = b"HGPB"
BLOCK_OFFSETS = 1 << 16

CHUNK_DTYPE = np.dtype([("chunk_id", ">i8"), ("crc", ">u4")])
"""A chunk that was decided."""

_COLUMNS = ("number", "copies", "failed", "plain", "runs", "acting", "failures", "sessions", "sound", "malformed")

ROW_DTYPE = np.dtype([(name, ">u4") for name in _COLUMNS])
"""The row of a subscription: its number; how many copies and failures it has in all; how many items of the areas
`plain`, `runs`, `acting`, `failures`, `sessions` are its own; and the number of the list, counted from 1, of messages
that all give it a plain copy, and of bytes that all are failures of it (rule 0: every rule). 0 is no list."""

_RUN_DTYPE = np.dtype([("first", ">u2"), ("more", ">u2")])
_ACTING_DTYPE = np.dtype([("first", ">u2"), ("more", ">u2"), ("rule", ">u4")])
_FAILURE_DTYPE = np.dtype([("offset", ">u2"), ("rule", ">u4")])
_SESSION_DTYPE = np.dtype([("offset", ">u2"), ("rule", ">u4"), ("place", ">u4")])
_SHORTEST_RUN = 3
"""Limit: shortest run that is stored as one; shorter ones take no more bytes as single offsets."""

Shared = tuple[Int64Array, Int64Array, Int64Array]
"""Numbers of subscriptions, and the runs that all of them have: firsts and stops."""


class Directory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The directory of a block: the offsets `start … stop` of the stream with this `identity` are decided in it.

    `rules` are the rules in force, `evaluator` the program that decided. `list_runs` has the length of each list.
    """

    identity: str
    start: int
    stop: int
    evaluator: str
    rules: tuple[RuleState, ...]
    list_runs: tuple[int, ...]
    chunks: Area
    rows: Area
    lists: Area
    plain: Area
    runs: Area
    acting: Area
    failures: Area
    places: Area
    entries: Area
    sessions: Area
    session_stops: Area
    session_names: Area


@dataclass(slots=True)
class BlockContent:
    """Content of a block to write: copies and failures as selected, `sound` and `malformed` shared by subscriptions.

    `chunks` is `(chunks,)` of CHUNK_DTYPE.
    """

    identity: str
    start: int
    stop: int
    rules: tuple[RuleState, ...]
    chunks: NDArray[np.void]
    entries: Entries
    copies: Pairs
    failures: Pairs
    sound: Sequence[Shared]
    malformed: Sequence[Shared]
    sessions: SessionIds


def base_of(offset: int) -> int:
    """The first offset of the block that has an offset."""
    return offset - offset % BLOCK_OFFSETS


def end_of(offset: int) -> int:
    """The offset behind the block that has an offset."""
    return base_of(offset) + BLOCK_OFFSETS


def chunks_of(headers: bytearray) -> NDArray[np.void]:
    """The user chunks with some headers, 48 bytes each, `(chunks,)` of CHUNK_DTYPE."""
    data = np.frombuffer(headers, dtype=np.uint8)
    records = data.view(HEADER_DTYPE)
    kept = np.flatnonzero(records["chunk_type"] == ChunkType.USER)
    found = np.empty(len(kept), dtype=CHUNK_DTYPE)
    found["chunk_id"] = records["chunk_id"][kept]
    sizes = np.full(len(kept), CHUNK_HEADER_BYTES, dtype=np.int64)
    found["crc"] = crcs_of_ranges(data, kept * CHUNK_HEADER_BYTES, sizes)
    return found


def encode_block(content: BlockContent) -> bytes:
    """The bytes of a block."""
    copies, failures, base = content.copies, content.failures, base_of(content.start)
    sessions = content.sessions
    numbers = [each.subscriptions for each in (copies, failures, sessions.copies)]
    numbers += [each[0] for each in (*content.sound, *content.malformed)]
    size = 1 + max(int(each.max(initial=0)) for each in numbers)
    acting = plain = copies
    if copies.rules.any():
        acts = copies.rules != PLAIN
        acting, plain = copies.take(np.flatnonzero(acts)), copies.take(np.flatnonzero(~acts))
    areas = AreaParts()
    lists: list[tuple[Int64Array, Int64Array]] = []
    columns = {name: np.zeros(size, dtype=np.int64) for name in ROW_DTYPE.names or ()}
    columns["number"] = np.arange(size)
    for name, groups, total in (("sound", content.sound, "copies"), ("malformed", content.malformed, "failed")):
        columns[name], columns[total] = _lists_of(groups, size, lists)
    columns["copies"] += copies.counts(size)
    columns["failures"] = failures.counts(size)
    columns["failed"] += columns["failures"]
    begins, lengths = _long_runs(plain)
    within = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
    is_alone = np.ones(len(plain), dtype=np.bool_)
    is_alone[within] = False
    firsts = plain.offsets[begins]
    columns["plain"] = plain.counts(size) - np.bincount(plain.subscriptions[within], minlength=size)
    columns["runs"] = np.bincount(plain.subscriptions[begins], minlength=size)
    acting_runs = np.zeros(0, dtype=_ACTING_DTYPE)
    if acting is not plain:
        by_rule = acting.take(np.lexsort((acting.offsets, acting.rules, acting.subscriptions)))
        begins = run_starts(by_rule.offsets, by_rule.rules, by_rule.subscriptions)
        acting_runs = _runs(by_rule.offsets[begins], run_stops(by_rule.offsets, begins), base, _ACTING_DTYPE)
        acting_runs["rule"] = by_rule.rules[begins]
        columns["acting"] = np.bincount(by_rule.subscriptions[begins], minlength=size)
    failed = np.empty(len(failures), dtype=_FAILURE_DTYPE)
    failed["offset"], failed["rule"] = failures.offsets - base, failures.rules
    columns["sessions"] = sessions.copies.counts(size)
    named = np.empty(len(sessions.copies), dtype=_SESSION_DTYPE)
    named["offset"], named["rule"] = sessions.copies.offsets - base, sessions.copies.rules
    named["place"] = sessions.places
    kept = np.flatnonzero(columns["copies"] + columns["failed"] + columns["sessions"])
    rows = np.empty(len(kept), dtype=ROW_DTYPE)
    for name, column in columns.items():
        rows[name] = column[kept]
    directory = Directory(
        identity=content.identity,
        start=content.start,
        stop=content.stop,
        evaluator=EVALUATOR,
        rules=content.rules,
        list_runs=tuple(len(firsts) for firsts, _ in lists),
        chunks=areas.add(content.chunks.tobytes()),
        rows=areas.add(rows.tobytes()),
        lists=areas.add(b"".join(_runs(*each, base, _RUN_DTYPE).tobytes() for each in lists)),
        plain=areas.add((plain.offsets[is_alone] - base).astype(">u2").tobytes()),
        runs=areas.add(_runs(firsts, firsts + lengths, base, _RUN_DTYPE).tobytes()),
        acting=areas.add(acting_runs.tobytes()),
        failures=areas.add(failed.tobytes()),
        places=areas.add((content.entries.offsets - base).astype(">u2").tobytes()),
        entries=areas.add(content.entries.entries.tobytes()),
        sessions=areas.add(named.tobytes()),
        session_stops=areas.add(np.cumsum([len(each) for each in sessions.names]).astype(">u4").tobytes()),
        session_names=areas.add(b"".join(sessions.names)),
    )
    return encode_areas(MAGIC, BLOCK_FORMAT, directory, areas)


def _long_runs(plain: Pairs) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows where plain copies in a row begin that are written as a run, and how many they are."""
    follows = np.zeros(len(plain) + 1, dtype=np.bool_)
    offsets, subscriptions = plain.offsets, plain.subscriptions
    follows[1:-1] = (offsets[1:] == offsets[:-1] + 1) & (subscriptions[1:] == subscriptions[:-1])
    begins = np.flatnonzero(~follows[:-1] & follows[1:])
    lengths = np.flatnonzero(follows[:-1] & ~follows[1:]) - begins + 1
    is_long = lengths >= _SHORTEST_RUN
    return begins[is_long], lengths[is_long]


def _runs(firsts: Int64Array, stops: Int64Array, base: int, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    made = np.zeros(len(firsts), dtype=dtype)
    made["first"], made["more"] = firsts - base, stops - firsts - 1
    return made


def _lists_of(
    groups: Sequence[Shared], size: int, lists: list[tuple[Int64Array, Int64Array]]
) -> tuple[Int64Array, Int64Array]:
    """For each number the list that it has, counted from 1, and how many offsets that has; new lists are appended.

    Subscriptions in the same groups share a list.
    """
    found, counts = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    groups = [group for group in groups if len(group[0]) and len(group[1])]
    members = np.zeros((size, len(groups)), dtype=np.bool_)
    for place, (numbers, _, _) in enumerate(groups):
        members[numbers, place] = True
    holders = np.flatnonzero(members.any(axis=1))
    if not len(holders):
        return found, counts
    kinds, kind_of = np.unique(members[holders], axis=0, return_inverse=True)
    for kind, taken in enumerate(kinds):
        runs = [groups[place][1:] for place in np.flatnonzero(taken)]
        firsts, stops = (np.concatenate([each[side] for each in runs]) for side in (0, 1))
        lists.append((firsts, stops))
        holding = holders[kind_of.reshape(-1) == kind]
        found[holding], counts[holding] = len(lists), int((stops - firsts).sum())
    return found, counts


@dataclass(frozen=True, slots=True)
class SubscriptionPostings:
    """Postings of one subscription in a block: `failures` are pairs of offset and rule that make dead letters."""

    copies: CopyRuns
    failures: CopyRuns


class Block:
    """A block of postings that is read piece by piece; each piece is checked: CorruptSidecarError for damaged bytes."""

    __slots__ = ("_areas_at", "_read", "copies", "directory", "failed", "numbers", "path")

    def __init__(self, read: ReadBytes, *, path: Path, position: int, size_bytes: int) -> None:
        """The block in `size_bytes` at a position of a file. Raises CorruptSidecarError."""
        self.path = path
        self._read = read
        found = read_directory(read, Directory, MAGIC, BLOCK_FORMAT, path=path, position=position)
        if found is None:
            raise CorruptSidecarError(f"{size_bytes} bytes, shorter than its directory", path=path, position=position)
        self.directory, self._areas_at = found
        _check_directory(self.directory, path, position + size_bytes - self._areas_at)
        rows = self.rows()
        self.numbers, self.copies, self.failed = (
            rows[name].astype(np.uint32) for name in ("number", "copies", "failed")
        )
        if (self.numbers[1:] <= self.numbers[:-1]).any():
            raise CorruptSidecarError("rows of subscriptions are not in order", path=path, position=position)

    @property
    def start(self) -> int:
        """The first offset that was decided."""
        return self.directory.start

    @property
    def stop(self) -> int:
        """The offset behind the last one that was decided."""
        return self.directory.stop

    def row_of(self, subscription: int) -> int | None:
        """The row of a subscription, by its number; None if the block has nothing for it."""
        row = int(np.searchsorted(self.numbers, subscription))
        return row if row < len(self.numbers) and self.numbers[row] == subscription else None

    def rows(self) -> NDArray[np.void]:
        """All rows, `(subscriptions,)` of ROW_DTYPE."""
        return self._array(self.directory.rows, ROW_DTYPE, None)

    def chunks(self) -> NDArray[np.void]:
        """The chunks that were decided, `(chunks,)` of CHUNK_DTYPE."""
        return self._array(self.directory.chunks, CHUNK_DTYPE, None)

    def entries(self, offsets: Int64Array) -> NDArray[np.void]:
        """Where the messages of some offsets, ascending, lie in their segments, `(offsets,)` of ENTRY_DTYPE."""
        places = self._array(self.directory.places, np.dtype(">u2"), None).astype(np.int64) + base_of(self.start)
        first, stop = places.searchsorted((offsets[0], offsets[-1] + 1)).tolist()
        part = slice(first, stop)
        return Entries(places[part], self._array(self.directory.entries, ENTRY_DTYPE, part)).of(offsets)

    def postings(self, rows: NDArray[np.void], row: int) -> SubscriptionPostings:
        """The block's postings for the subscription in a row of `rows`."""
        base = base_of(self.start)
        own = rows[row]

        def part(area: Area, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
            start = int(rows[name][:row].sum(dtype=np.int64))
            return self._array(area, dtype, slice(start, start + int(own[name])))

        directory = self.directory
        alone = part(directory.plain, np.dtype(">u2"), "plain").astype(np.int64) + base
        runs = part(directory.runs, _RUN_DTYPE, "runs")
        acting = part(directory.acting, _ACTING_DTYPE, "acting")
        failures = part(directory.failures, _FAILURE_DTYPE, "failures")
        shared, malformed = (self._list(int(own[name])) for name in ("sound", "malformed"))
        firsts = [alone, *(each["first"].astype(np.int64) + base for each in (runs, shared, acting))]
        counts = [
            np.ones(len(alone), np.int64),
            *(each["more"].astype(np.int64) + 1 for each in (runs, shared, acting)),
        ]
        rules = [np.zeros(len(each), dtype=np.int64) for each in (alone, runs, shared)]
        rules.append(acting["rule"].astype(np.int64))
        first = np.concatenate(firsts)
        copies = CopyRuns.ordered(first, first + np.concatenate(counts), np.concatenate(rules))
        failed = failures["offset"].astype(np.int64) + base
        first = np.append(failed, malformed["first"].astype(np.int64) + base)
        counted = np.append(np.ones(len(failed), np.int64), malformed["more"].astype(np.int64) + 1)
        named = np.append(failures["rule"].astype(np.int64), np.zeros(len(malformed), np.int64))
        found = SubscriptionPostings(copies, CopyRuns.ordered(first, first + counted, named))
        if (found.copies.count, found.failures.count) != (int(own["copies"]), int(own["failed"])):
            raise CorruptSidecarError(f"other counts than items of subscription {own['number']}", path=self.path)
        return found

    def session_ids(
        self, rows: NDArray[np.void], subscription: int, offsets: Int64Array, rules: Int64Array
    ) -> list[bytes | None]:
        """The session ids of copies of a subscription, `(copies,)` by offset and rule, ascending; `rows` are all."""
        directory, base = self.directory, base_of(self.start)
        copies, places = [NO_PAIRS], [NOTHING]
        for number in (OF_MESSAGES, subscription):
            row = self.row_of(number)
            if row is not None:
                start = int(rows["sessions"][:row].sum(dtype=np.int64))
                part = slice(start, start + int(rows["sessions"][row]))
                own = self._array(directory.sessions, _SESSION_DTYPE, part)
                offset, rule, place = (own[name].astype(np.int64) for name in ("offset", "rule", "place"))
                copies.append(Pairs(np.full(len(own), number, dtype=np.int64), offset + base, rule))
                places.append(place)
        found = find_places(Pairs.concatenated(copies), np.concatenate(places), subscription, offsets, rules)
        names = self._array(directory.session_names, np.dtype(np.uint8), None).tobytes()
        bounds = np.append(0, self._array(directory.session_stops, np.dtype(">u4"), None))
        bounded = zip(found.tolist(), bounds[found].tolist(), bounds[found + 1].tolist(), strict=True)
        return [names[start:stop] if place >= 0 else None for place, start, stop in bounded]

    def _list(self, number: int) -> NDArray[np.void]:
        if not number:
            return np.zeros(0, dtype=_RUN_DTYPE)
        lengths = self.directory.list_runs
        if number > len(lengths):
            raise CorruptSidecarError(f"list {number} of {len(lengths)}", path=self.path)
        start = sum(lengths[: number - 1])
        return self._array(self.directory.lists, _RUN_DTYPE, slice(start, start + lengths[number - 1]))

    def _array(self, area: Area, dtype: np.dtype[Any], part: slice | None) -> NDArray[Any]:
        size = dtype.itemsize
        start, stop = (0, area.length) if part is None else (part.start * size, part.stop * size)
        data = (
            read_area(self._read, area, start, stop, path=self.path, areas_at=self._areas_at) if stop > start else b""
        )
        return np.frombuffer(data, dtype=dtype)


def _check_directory(directory: Directory, path: Path, room: int) -> None:
    """Raise CorruptSidecarError unless offsets lie in one block, and areas hold whole items inside the bytes."""
    base = base_of(directory.start)
    if base < 0 or directory.stop != end_of(base):
        raise CorruptSidecarError(f"offsets {directory.start} to {directory.stop} are no block", path=path)
    entries = directory.places.length // 2 * ENTRY_DTYPE.itemsize
    lists = sum(directory.list_runs) * _RUN_DTYPE.itemsize
    sizes = [(directory.entries, entries), (directory.lists, lists)]
    sizes += [
        (area, area.length - area.length % dtype.itemsize)
        for area, dtype in (
            (directory.chunks, CHUNK_DTYPE),
            (directory.rows, ROW_DTYPE),
            (directory.plain, np.dtype(">u2")),
            (directory.places, np.dtype(">u2")),
            (directory.runs, _RUN_DTYPE),
            (directory.acting, _ACTING_DTYPE),
            (directory.failures, _FAILURE_DTYPE),
            (directory.sessions, _SESSION_DTYPE),
            (directory.session_stops, np.dtype(">u4")),
            (directory.session_names, np.dtype(np.uint8)),
        )
    ]
    for area, expected in sizes:
        if not area.fits(expected, room):
            raise CorruptSidecarError(f"an area of {area.length} bytes, expected {expected} in {room}", path=path)
