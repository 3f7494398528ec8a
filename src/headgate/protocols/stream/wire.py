"""Values of the stream protocol on the wire (stream_protocol.md section 1), as types that frames are declared with.

Big endian everywhere. A `WireType` appends a value to a buffer and reads it back; the names in capitals are those
types, the aliases under them (`U8`, `Text`, …) are what a field of a frame is annotated with.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NoReturn, TypeVar

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.log import OffsetKind, OffsetSpecification
from headgate.protocols.stream.codes import ResponseCode

T = TypeVar("T")

_MAX_OFFSET = 2**63 - 1
_MAX_TEXT_BYTES = 2**15 - 1


class Reader:
    """A place in the bytes of one frame; every read is checked against their end."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)

    def number(self, layout: struct.Struct) -> int:
        """The next number, of that layout. Raises RemoteProtocolError if it is cut short."""
        at = self.at
        self.at = at + layout.size
        if self.at > self.end:
            malformed("it ends inside a number")
        value: int = layout.unpack_from(self.data, at)[0]
        return value

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises RemoteProtocolError if there are fewer."""
        at = self.at
        self.at = at + count
        if count < 0 or self.at > self.end:
            malformed(f"{count} bytes announced, {self.end - at} are left")
        return self.data[at : self.at]

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self.at == self.end


def malformed(reason: str) -> NoReturn:
    """The peer sent a frame that cannot be read. Raises RemoteProtocolError."""
    raise RemoteProtocolError(f"malformed frame: {reason}", code=ResponseCode.UNKNOWN_FRAME)


@dataclass(frozen=True, slots=True)
class WireType(Generic[T]):
    """How values of one type are written and read."""

    write: Callable[[bytearray, T], None]
    read: Callable[[Reader], T]


def _number(code: str) -> WireType[int]:
    layout = struct.Struct(f">{code}")

    def write(target: bytearray, value: int) -> None:
        try:
            target += layout.pack(value)
        except struct.error as error:
            raise LocalProtocolError(f"{value} does not fit: {error}") from None

    return WireType(write, lambda reader: reader.number(layout))


_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_U16 = struct.Struct(">H")
_U64 = struct.Struct(">Q")
_I64 = struct.Struct(">q")

U8_TYPE, U16_TYPE, U32_TYPE, U64_TYPE = (_number(code) for code in "BHIQ")
I16_TYPE, I64_TYPE = (_number(code) for code in "hq")


def _write_text_bytes(target: bytearray, data: bytes) -> None:
    if len(data) > _MAX_TEXT_BYTES:
        raise LocalProtocolError(f"a text of {len(data)} bytes; the protocol has room for {_MAX_TEXT_BYTES}")
    target += _I16.pack(len(data))
    target += data


def _write_text(target: bytearray, value: str | None) -> None:
    # Nothing is an empty text: the original takes no null where a client has nothing to say.
    _write_text_bytes(target, (value or "").encode())


def _read_nullable_text(reader: Reader) -> str | None:
    length = reader.number(_I16)
    if length == -1:
        return None
    try:
        return reader.take(length).decode()
    except UnicodeDecodeError:
        malformed("a text that is not UTF-8")


def _read_text(reader: Reader) -> str:
    text = _read_nullable_text(reader)
    return malformed("a text is null") if text is None else text


def _write_loose_text(target: bytearray, value: str) -> None:
    _write_text_bytes(target, value.encode(errors="surrogateescape"))


def _read_loose_text(reader: Reader) -> str:
    length = reader.number(_I16)
    return reader.take(length).decode(errors="surrogateescape") if length != -1 else malformed("a text is null")


def _write_binary(target: bytearray, value: bytes | None) -> None:
    target += _I32.pack(-1 if value is None else len(value))
    target += value or b""


def _read_binary(reader: Reader) -> bytes | None:
    length = reader.number(_I32)
    return None if length == -1 else reader.take(length)


TEXT: WireType[str] = WireType(_write_text, _read_text)
OPTIONAL_TEXT: WireType[str | None] = WireType(_write_text, lambda reader: _read_nullable_text(reader) or None)
"""Null and the empty text are both None."""
LOOSE_TEXT: WireType[str] = WireType(_write_loose_text, _read_loose_text)
"""Text of any bytes: bytes that are not UTF-8 become lone surrogates, and the same bytes again when written."""
BINARY: WireType[bytes | None] = WireType(_write_binary, _read_binary)


def list_of(element: WireType[T]) -> WireType[Sequence[T]]:
    """A count, then the elements; read as a tuple."""

    def write(target: bytearray, values: Sequence[T]) -> None:
        target += _U32.pack(len(values))
        for value in values:
            element.write(target, value)

    # Elements are read one by one, so a count that lies allocates nothing.
    return WireType(write, lambda reader: tuple([element.read(reader) for _ in range(reader.number(_U32))]))


def record_of(*parts: WireType[Any]) -> WireType[tuple[Any, ...]]:
    """Values of several types one after another; read as a tuple."""

    def write(target: bytearray, values: tuple[Any, ...]) -> None:
        for part, value in zip(parts, values, strict=True):
            part.write(target, value)

    return WireType(write, lambda reader: tuple([part.read(reader) for part in parts]))


_PAIRS = list_of(record_of(TEXT, LOOSE_TEXT))

PROPERTIES: WireType[Mapping[str, str]] = WireType(
    lambda target, value: _PAIRS.write(target, tuple(value.items())), lambda reader: dict(_PAIRS.read(reader))
)
"""A map of texts; of a key that comes twice the last value counts."""

_OFFSET_TYPES = {
    1: OffsetKind.FIRST,
    2: OffsetKind.LAST,
    3: OffsetKind.NEXT,
    4: OffsetKind.OFFSET,
    5: OffsetKind.TIMESTAMP,
}
_NUMBERS_OF_KINDS = {kind: number for number, kind in _OFFSET_TYPES.items()}


def _write_offset(target: bytearray, value: OffsetSpecification | None) -> None:
    if value is None:
        target += b"\0\0"
        return
    if value.kind not in _NUMBERS_OF_KINDS:
        raise LocalProtocolError(f"offset specification {value}: the protocol has none of this kind; resolve it first")
    target += _U16.pack(_NUMBERS_OF_KINDS[value.kind])
    if value.kind is OffsetKind.OFFSET:
        U64_TYPE.write(target, value.value)
    elif value.kind is OffsetKind.TIMESTAMP:
        I64_TYPE.write(target, value.value)


def _read_nullable_offset(reader: Reader) -> OffsetSpecification | None:
    number = reader.number(_U16)
    if number == 0:
        return None
    kind = _OFFSET_TYPES.get(number)
    if kind is None:
        malformed(f"offset specification of type {number}")
    if kind is OffsetKind.OFFSET:
        # No stream reaches offsets of 64 bits, so such a place is after its end anyway.
        return OffsetSpecification(kind, min(reader.number(_U64), _MAX_OFFSET))
    return OffsetSpecification(kind, reader.number(_I64) if kind is OffsetKind.TIMESTAMP else 0)


def _read_offset(reader: Reader) -> OffsetSpecification:
    found = _read_nullable_offset(reader)
    return malformed("offset specification of type 0") if found is None else found


OFFSET: WireType[OffsetSpecification] = WireType(_write_offset, _read_offset)
NULLABLE_OFFSET: WireType[OffsetSpecification | None] = WireType(_write_offset, _read_nullable_offset)

U8 = Annotated[int, U8_TYPE]
U16 = Annotated[int, U16_TYPE]
U32 = Annotated[int, U32_TYPE]
U64 = Annotated[int, U64_TYPE]
I16 = Annotated[int, I16_TYPE]
Text = Annotated[str, TEXT]
OptionalText = Annotated[str | None, OPTIONAL_TEXT]
Texts = Annotated[Sequence[str], list_of(TEXT)]
Binary = Annotated[bytes | None, BINARY]
Properties = Annotated[Mapping[str, str], PROPERTIES]
Offset = Annotated[OffsetSpecification, OFFSET]
NullableOffset = Annotated[OffsetSpecification | None, NULLABLE_OFFSET]
Versions = Annotated[Sequence[tuple[int, int, int]], list_of(record_of(U16_TYPE, U16_TYPE, U16_TYPE))]
Statistics = Annotated[Sequence[tuple[str, int]], list_of(record_of(TEXT, I64_TYPE))]
Brokers = Annotated[Sequence[tuple[int, str, int]], list_of(record_of(U16_TYPE, TEXT, U32_TYPE))]
StreamReferences = Annotated[
    Sequence[tuple[str, int, int, Sequence[int]]], list_of(record_of(TEXT, U16_TYPE, U16_TYPE, list_of(U16_TYPE)))
]
