"""The records of a ledger: one message per commit, records one after the other.

    message   u8  format, 1
              records

    record    u8  kind (`Kind`)
              fields in the order of the class, as its annotations say:
                int      i64
                bytes    u32 length, bytes
                column   u32 count, u8 width, i64 base
                         width 0: i64 step, if the count is above 1; value i = base + i · step
                         width 1, 2, 4, 8: count unsigned numbers of that width; value i = base + number i

All numbers are little-endian. A view is named by its number, which no other view of the ledger ever has. A record gives
the new state, never a difference: it may be applied twice, or to a state that lacks earlier records, with the same
result (`state.py`, `snapshot.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import msgspec
import numpy as np

from headgate.errors import LogError
from headgate.ledger.copy_numbers import Int64Array

FORMAT = 1
MAX_ROWS = 1 << 20
"""Limit: rows of a column, so that a malformed count allocates no more."""

_FORMAT_BYTE = bytes((FORMAT,))
_I64 = struct.Struct("<q")
_U32 = struct.Struct("<I")
_COLUMN = struct.Struct("<IBq")
_WIDTHS = (1, 2, 4, 8)
_WIDEST = (1 << 63) - 1


class Kind(IntEnum):
    """First byte of a record."""

    VIEW = 1
    DROPPED = 2
    SEEN = 3
    SETTLED = 4
    CLAIMED = 5
    ROWS = 6
    RENEWED = 7
    MOVED = 8
    MOVE_KEPT = 9
    MOVE_DONE = 10
    SESSION_LOCKED = 11
    SESSION_STATE = 12
    SNAPSHOT_BEGUN = 13
    SNAPSHOT_COMPLETE = 14
    NOTED = 15


Column = Annotated[Int64Array, "column"]
Copies = Annotated[Int64Array, "copies"]
"""A column of ascending values, each once, 0 or more."""


class Record(msgspec.Struct, eq=False):
    """One record; `kind` is its first byte."""

    kind: ClassVar[Kind]


class ViewOpened(Record):
    """A view was opened: `key` is UTF-8; it gets no copy below `from_copy`."""

    kind: ClassVar[Kind] = Kind.VIEW
    view: int
    from_copy: int
    key: bytes


class ViewDropped(Record):
    """A view was removed, with everything that belongs to it except its pending moves."""

    kind: ClassVar[Kind] = Kind.DROPPED
    view: int


class Seen(Record):
    """Every copy of the view in the ranges `starts[i] … stops[i]` is known: it has a row, or is settled."""

    kind: ClassVar[Kind] = Kind.SEEN
    view: int
    starts: Column
    stops: Column


class Settled(Record):
    """Every copy of the view in the ranges `starts[i] … stops[i]` is settled."""

    kind: ClassVar[Kind] = Kind.SETTLED
    view: int
    starts: Column
    stops: Column


class Claimed(Record):
    """Copies belong to claim number `claim`, with attempt number `attempts[i]`, until `until_ms`.

    With a `session` that is not empty: as long as it stays locked; then `until_ms` is IN_SESSION.
    """

    kind: ClassVar[Kind] = Kind.CLAIMED
    view: int
    claim: int
    until_ms: int
    session: bytes
    copies: Copies
    attempts: Column


class RowsKept(Record):
    """Rows of the table (`table.py`) as they are: released, postponed, or part of a snapshot."""

    kind: ClassVar[Kind] = Kind.ROWS
    view: int
    copies: Copies
    claims: Column
    attempts: Column
    untils: Column


class Renewed(Record):
    """Claimed copies stay claimed until `until_ms`."""

    kind: ClassVar[Kind] = Kind.RENEWED
    view: int
    until_ms: int
    copies: Copies


class Moved(Record):
    """Copies are settled, and each is to be appended to `target` once, with the change `change`.

    Sequences: the ledger offset of this record's message · 2^20 + number of the move in the message, from 0.
    """

    kind: ClassVar[Kind] = Kind.MOVED
    view: int
    target: bytes
    change: bytes
    copies: Copies
    attempts: Column


class MoveKept(Record):
    """In a snapshot: pending moves of one view, target and change."""

    kind: ClassVar[Kind] = Kind.MOVE_KEPT
    view: int
    target: bytes
    change: bytes
    copies: Column
    attempts: Column
    sequences: Copies


class MoveDone(Record):
    """The moves to `target` up to `sequence` are in the target."""

    kind: ClassVar[Kind] = Kind.MOVE_DONE
    target: bytes
    sequence: int


class SessionLocked(Record):
    """A session is locked by lock number `lock` until `until_ms`; lock 0: it is not locked."""

    kind: ClassVar[Kind] = Kind.SESSION_LOCKED
    view: int
    session: bytes
    lock: int
    until_ms: int


class SessionState(Record):
    """The state of a session, set at `set_ms`; `is_set` 0: it has no state."""

    kind: ClassVar[Kind] = Kind.SESSION_STATE
    view: int
    session: bytes
    is_set: int
    set_ms: int
    state: bytes


class Noted(Record):
    """An unsettled copy has a note of the caller until it is settled."""

    kind: ClassVar[Kind] = Kind.NOTED
    view: int
    copy: int
    note: bytes


class SnapshotBegun(Record):
    """A snapshot begins: the whole state at this place follows; the next claim and view have these numbers."""

    kind: ClassVar[Kind] = Kind.SNAPSHOT_BEGUN
    next_claim: int
    next_view: int


class SnapshotComplete(Record):
    """The last snapshot is complete: no message before the one with its beginning is needed."""

    kind: ClassVar[Kind] = Kind.SNAPSHOT_COMPLETE


_CLASSES: dict[int, type[Record]] = {each.kind: each for each in Record.__subclasses__()}


def encode_message(records: list[bytes]) -> bytes:
    """The message of a commit, of records from `encode_record`."""
    return _FORMAT_BYTE + b"".join(records)


def encode_record(record: Record) -> bytes:
    """The bytes of a record."""
    parts = [encode(getattr(record, name)) for name, encode, _ in _FIELDS[record.kind]]
    return _KIND_BYTES[record.kind] + b"".join(parts)


def decode_message(data: bytes | memoryview, *, path: str | Path, position: int) -> Iterator[Record]:
    """The records of a message, which is at `position` of the file `path`; both are for errors.

    Raises LogError for malformed bytes, before it allocates more than MAX_ROWS rows.
    """
    reader = _Reader(memoryview(data), path, position)
    if not len(data) or data[0] != FORMAT:
        raise reader.error(f"ledger format {data[0] if len(data) else 'missing'}, expected {FORMAT}")
    reader.at = 1
    while reader.at < len(data):
        kind = data[reader.at]
        if kind not in _CLASSES:
            raise reader.error(f"no record of a ledger has kind {kind}")
        reader.begin = reader.at
        reader.at += 1
        values = [decode(reader) for _, _, decode in _FIELDS[kind]]
        if len({len(value) for value in values if isinstance(value, np.ndarray)}) > 1:
            raise reader.error(f"columns of different lengths in a record of kind {kind}", at_record=True)
        yield _CLASSES[kind](*values)


class _Reader:
    """The position of a decoder in a message."""

    __slots__ = ("at", "begin", "data", "path", "position")

    def __init__(self, data: memoryview, path: str | Path, position: int) -> None:
        self.data, self.path, self.position = data, path, position
        self.at = self.begin = 0

    def error(self, reason: str, *, at_record: bool = False) -> LogError:
        place = self.begin if at_record else self.at
        return LogError(f"damaged ledger: {reason}", path=self.path, position=self.position + place)

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        if count > len(self.data) - self.at:
            raise self.error(f"a record needs {count} more bytes, {len(self.data) - self.at} are left")
        self.at += count
        return self.data[self.at - count : self.at]

    def integer(self) -> int:
        value: int = _I64.unpack(self.take(8))[0]
        if value < 0:
            self.at -= 8
            raise self.error(f"a negative number, {value}")
        return value

    def text(self) -> bytes:
        return bytes(self.take(_U32.unpack(self.take(4))[0]))

    def column(self) -> Int64Array:
        count, width, base = _COLUMN.unpack(self.take(_COLUMN.size))
        if count > MAX_ROWS:
            raise self.error(f"a column of {count} rows; at most {MAX_ROWS}")
        if width == 0:
            step = _I64.unpack(self.take(8))[0] if count > 1 else 0
            last = base + step * max(0, count - 1)
            if not (base >= 0 and 0 <= last <= _WIDEST):
                raise self.error(f"a column from {base} in steps of {step}")
            column: Int64Array = base + step * np.arange(count, dtype=np.int64)
            return column
        if width not in _WIDTHS:
            raise self.error(f"a column of width {width}")
        numbers = np.frombuffer(self.take(count * width), dtype=f"<u{width}")
        if base < 0 or (count and int(numbers.max()) > _WIDEST - base):
            raise self.error(f"a column from {base} leaves 63 bits")
        widened: Int64Array = numbers.astype(np.int64) + base
        return widened

    def copies(self) -> Int64Array:
        begin = self.at
        column = self.column()
        if len(column) > 1 and bool((np.diff(column) <= 0).any()):
            self.at = begin
            raise self.error("copies that do not ascend")
        return column


def _encode_text(value: bytes) -> bytes:
    return _U32.pack(len(value)) + value


def _encode_column(column: Int64Array) -> bytes:
    count = len(column)
    if count > MAX_ROWS:
        raise ValueError(f"{count} copies in one call; at most {MAX_ROWS}")
    if count < 2:
        return _COLUMN.pack(count, 0, int(column[0]) if count else 0)
    steps = np.diff(column)
    step = int(steps[0])
    if bool((steps == step).all()):
        return _COLUMN.pack(count, 0, int(column[0])) + _I64.pack(step)
    base = int(column.min())
    numbers = column - base
    width = next(each for each in _WIDTHS if int(numbers.max()) >> 8 * each == 0)
    return _COLUMN.pack(count, width, base) + numbers.astype(f"<u{width}").tobytes()


_CODECS: dict[object, tuple[Callable[[Any], bytes], Callable[[_Reader], Any]]] = {
    int: (_I64.pack, _Reader.integer),
    bytes: (_encode_text, _Reader.text),
    "column": (_encode_column, _Reader.column),
    "copies": (_encode_column, _Reader.copies),
}


def _fields(record: type[Record]) -> list[tuple[str, Callable[[Any], bytes], Callable[[_Reader], Any]]]:
    hints = get_type_hints(record, include_extras=True)
    kinds = ((name, (get_args(hints[name])[-1:] or (hints[name],))[0]) for name in record.__struct_fields__)
    return [(name, *_CODECS[kind]) for name, kind in kinds]


_FIELDS = {kind: _fields(record) for kind, record in _CLASSES.items()}
_KIND_BYTES = {kind: bytes((kind,)) for kind in _CLASSES}
