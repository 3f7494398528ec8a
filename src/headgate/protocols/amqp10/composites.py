"""Described lists of AMQP 1.0 as typed records: one table of fields each serves encoding and decoding.

A record is a dataclass whose annotations carry the kind of each field; a field without default is mandatory:

    @composite(0x1D, "amqp:error:list")
    class Error(Composite):
        condition: Symbol
        description: String | None = None

Encoding writes the smallest forms and leaves trailing nulls out; decoding takes every form of the standard and raises
`RemoteProtocolError` with `amqp:decode-error` for anything else. Cost: some microseconds a record.
Source: OASIS AMQP 1.0 part 1 (types), sections 1.4 and 1.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from dataclasses import field as field_of
from typing import Annotated, Any, ClassVar, TypeVar, cast, dataclass_transform, get_args, get_type_hints

from headgate.errors import ConfigError, MessageError, RemoteProtocolError
from headgate.message import AmqpType, AmqpValue, decode_value, encode_value, read_unsigned, skip_value
from headgate.protocols.amqp10.codes import Condition

_NULL = b"\x40"
_SMALL_CODE = b"\x00\x53"


class _Mismatch(Exception):  # noqa: N818 - becomes a RemoteProtocolError that names the field
    """The value is of another type."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldEncoding:
    """How a field is written: `decode` takes the bytes of exactly one value that is not null.

    Values that most records have are read without it: `widths` has the constructors of unsigned numbers with the bytes
    after them, `constants` constructors that are a value by themselves.
    """

    name: str
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    widths: Mapping[int, int] = field_of(default_factory=dict)
    constants: Mapping[int, Any] = field_of(default_factory=dict)


def _unsigned(name: str, constructors: dict[int, int]) -> FieldEncoding:
    """`constructors` maps constructor bytes to the bytes after them, shortest first."""
    forms = [(256**width, bytes([constructor]), width) for constructor, width in constructors.items()]

    def decode(octets: bytes) -> int:
        raise _Mismatch

    def encode(value: int) -> bytes:
        for limit, constructor, width in forms:
            if value < limit:
                return constructor + value.to_bytes(width, "big")
        raise ConfigError(f"{value} is not {name}")

    return FieldEncoding(name, decode, encode, widths=constructors)


def _decode_boolean(octets: bytes) -> bool:
    if octets[0] != 0x56:
        raise _Mismatch
    return octets[1] != 0


def _typed(name: str, kind: AmqpType, plain: Callable[[Any], Any] = lambda value: value) -> FieldEncoding:
    """A field of one AMQP type with a plain Python value; `plain` takes the value out of an enum."""

    def decode(octets: bytes) -> Any:
        value = decode_value(octets)
        if value.type is not kind:
            raise _Mismatch
        return value.value

    return FieldEncoding(name, decode, lambda value: encode_value(AmqpValue(kind, plain(value))))


def _decode_symbols(octets: bytes) -> tuple[str, ...]:
    value = decode_value(octets)
    if value.type is AmqpType.SYMBOL:
        return (value.value,)
    if value.type is AmqpType.ARRAY and value.value.of is AmqpType.SYMBOL and value.value.descriptor is None:
        return tuple(element.value for element in value.value.elements)
    raise _Mismatch


def _encode_symbols(symbols: Sequence[str]) -> bytes:
    """Symbols, always as an array: clients expect one, even for a single symbol."""
    contents = [symbol.encode("utf-8", "surrogateescape") for symbol in symbols]
    width = 4 if max(map(len, contents), default=0) > 0xFF else 1
    elements = b"".join([len(content).to_bytes(width, "big") + content for content in contents])
    body = bytes([0xB3 if width == 4 else 0xA3]) + elements
    if max(len(body) + 1, len(contents)) > 0xFF:
        return b"\xf0" + (len(body) + 4).to_bytes(4, "big") + len(contents).to_bytes(4, "big") + body
    return b"\xe0" + bytes([len(body) + 1, len(contents)]) + body


def encode_compound(constructor: int, members: Sequence[bytes]) -> bytes:
    """A list (constructor 0xC0) or a map (0xC1) of encoded values, in the longer form where it has to be."""
    content = b"".join(members)
    if max(len(content) + 1, len(members)) > 0xFF:
        sizes = (len(content) + 4).to_bytes(4, "big") + len(members).to_bytes(4, "big")
        return bytes([constructor + 0x10]) + sizes + content
    return bytes([constructor, len(content) + 1, len(members)]) + content


def _decode_map(octets: bytes) -> AmqpValue:
    value = decode_value(octets)
    if value.type is not AmqpType.MAP:
        raise _Mismatch
    return value


BOOLEAN = FieldEncoding(
    "a boolean",
    _decode_boolean,
    lambda value: b"\x41" if value else b"\x42",
    constants={0x41: True, 0x42: False},
)
UBYTE = _unsigned("a ubyte", {0x50: 1})
USHORT = _unsigned("a ushort", {0x60: 2})
UINT = _unsigned("a uint", {0x43: 0, 0x52: 1, 0x70: 4})
ULONG = _unsigned("a ulong", {0x44: 0, 0x53: 1, 0x80: 8})
STRING = _typed("a string", AmqpType.STRING)
SYMBOL = _typed("a symbol", AmqpType.SYMBOL, str)
BINARY = _typed("a binary", AmqpType.BINARY)
SYMBOLS = FieldEncoding("symbols", _decode_symbols, _encode_symbols)
MAP = FieldEncoding("a map", _decode_map, encode_value)
ANY = FieldEncoding("any value", decode_value, encode_value)

Boolean = Annotated[bool, BOOLEAN]
Ubyte = Annotated[int, UBYTE]
Ushort = Annotated[int, USHORT]
Uint = Annotated[int, UINT]
Ulong = Annotated[int, ULONG]
String = Annotated[str, STRING]
Symbol = Annotated[str, SYMBOL]
Binary = Annotated[bytes, BINARY]
Symbols = Annotated[tuple[str, ...], SYMBOLS]
Map = Annotated[AmqpValue, MAP]
Any_ = Annotated[AmqpValue, ANY]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: FieldEncoding
    mandatory: bool
    default: Any


class Composite:
    """A described list; subclasses are made by `composite`."""

    __slots__ = ()
    CODE: ClassVar[int]
    SYMBOL: ClassVar[str]
    FIELDS: ClassVar[tuple[_Field, ...]]

    def encode(self) -> bytes:
        """The bytes of the described list."""
        encoded: list[bytes] = []
        for field in self.FIELDS:
            value = getattr(self, field.name)
            is_default = value is None or (value is False and field.default is False)
            encoded.append(_NULL if is_default else field.kind.encode(value))
        while encoded and encoded[-1] == _NULL:
            encoded.pop()
        return bytes([0x00, 0x53, self.CODE]) + (encode_compound(0xC0, encoded) if encoded else b"\x45")


_BY_CODE: dict[int, type[Composite]] = {}
_BY_SYMBOL: dict[bytes, type[Composite]] = {}
_C = TypeVar("_C", bound=Composite)


@dataclass_transform()
def composite(code: int, symbol: str) -> Callable[[type[_C]], type[_C]]:
    """Turn a class into a dataclass with slots; its fields are the fields of the described list `code`."""

    def decorate(cls: type[_C]) -> type[_C]:
        made = dataclass(slots=True)(cls)
        hints = get_type_hints(made, include_extras=True)
        made.CODE = code
        made.SYMBOL = symbol
        made.FIELDS = tuple(
            _Field(
                field.name,
                _kind(hints[field.name]),
                field.default is MISSING and type(None) not in get_args(hints[field.name]),
                None if field.default is MISSING else field.default,
            )
            for field in fields(cast(Any, made))
        )
        _BY_CODE[code] = made
        _BY_SYMBOL[symbol.encode()] = made
        return made

    return decorate


def _kind(hint: Any) -> FieldEncoding:
    for part in (hint, *get_args(hint)):
        for note in getattr(part, "__metadata__", ()):
            if isinstance(note, FieldEncoding):
                return note
    raise TypeError(f"{hint} says no kind of field")


def one_of(name: str, *choices: type[Composite]) -> FieldEncoding:
    """A field that holds one of some records."""

    def decode(octets: bytes) -> Composite:
        record, _ = decode_composite(octets, 0, len(octets))
        if not isinstance(record, choices):
            raise _Mismatch
        return record

    return FieldEncoding(name, decode, lambda record: record.encode())


def decode_composite(data: bytes, position: int, stop: int) -> tuple[Composite, int]:
    """The record at `position`, and the position after it, at most `stop`. Raises RemoteProtocolError."""
    try:
        cls, position = _class_at(data, position, stop)
        constructor = read_unsigned(data, position, 1, stop)
        if constructor == 0x45:
            return cls(*_left_out(cls, 0)), position + 1
        if constructor not in (0xC0, 0xD0):
            raise _refused(f"{cls.SYMBOL} is a list, found constructor {constructor:#04x}")
        width = 1 if constructor == 0xC0 else 4
        size = read_unsigned(data, position + 1, width, stop)
        position += 1 + width
        if size < width or size > stop - position:
            raise _refused(f"{cls.SYMBOL} announces {size} bytes, {stop - position} are left")
        end = position + size
        count = read_unsigned(data, position, width, end)
        position += width
        if count > len(cls.FIELDS):
            raise _refused(f"{cls.SYMBOL} has {len(cls.FIELDS)} fields, found {count}")
        values: list[Any] = []
        for field in cls.FIELDS[:count]:
            constructor = data[position] if position < end else -1
            width = field.kind.widths.get(constructor, -1)
            if 0 <= width < end - position:
                behind = position + 1 + width
                values.append(int.from_bytes(data[position + 1 : behind], "big"))
            elif constructor in field.kind.constants:
                behind = position + 1
                values.append(field.kind.constants[constructor])
            else:
                behind = skip_value(data, position, end)
                values.append(_decoded(cls, field, data[position:behind]))
            position = behind
        if position != end:
            raise _refused(f"{end - position} bytes behind the fields of {cls.SYMBOL}")
        return cls(*values, *_left_out(cls, count)), end
    except MessageError as error:
        raise _refused(str(error.reason)) from error


def _class_at(data: bytes, position: int, stop: int) -> tuple[type[Composite], int]:
    """The class that a descriptor names, and where the list begins."""
    if data.startswith(_SMALL_CODE, position, stop - 1) and data[position + 2] in _BY_CODE:
        return _BY_CODE[data[position + 2]], position + 3
    if read_unsigned(data, position, 1, stop) != 0x00:
        raise _refused(f"a described list begins with 0x00, found {data[position]:#04x}")
    behind = skip_value(data, position + 1, stop)
    descriptor = data[position + 1 : behind]
    cls: type[Composite] | None = None
    if descriptor[0] in (0x44, 0x53, 0x80):
        cls = _BY_CODE.get(int.from_bytes(descriptor[1:], "big"))
    elif descriptor[0] in (0xA3, 0xB3):
        cls = _BY_SYMBOL.get(descriptor[2:] if descriptor[0] == 0xA3 else descriptor[5:])
    if cls is None:
        raise _refused(f"no described list has the descriptor {descriptor[:40].hex()}")
    return cls, behind


def _decoded(cls: type[Composite], field: _Field, octets: bytes) -> Any:
    if octets == _NULL:
        if field.mandatory:
            raise _refused(f"{cls.SYMBOL} without {field.name}")
        return field.default
    try:
        return field.kind.decode(octets)
    except (_Mismatch, ConfigError):
        raise _refused(f"{field.name} of {cls.SYMBOL} is {field.kind.name}, found {octets[:40].hex()}") from None


def _left_out(cls: type[Composite], count: int) -> list[Any]:
    """The values of the fields from a place on, which a record leaves out."""
    return [_decoded(cls, field, _NULL) if field.mandatory else field.default for field in cls.FIELDS[count:]]


def _refused(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(reason, code=Condition.DECODE_ERROR)
