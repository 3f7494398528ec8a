"""Frames: a command with its header, in JSON or binary, and its body, as bytes; both directions.

     0       4       8              8 + H            4 + total
     ┌───────┬───┬───┬──────────────┬────────────────┐
     │ total │ S │ H │ header       │ body           │        integers are big endian
     └───────┴───┴───┴──────────────┴────────────────┘
     total   uint32: the bytes behind it                S  uint8: 0 JSON, 1 binary       H  uint24: bytes of the header

A header in JSON is an object with `code`, `language`, `version`, `opaque`, `flag`, `remark`, `extFields` (string →
string). A binary one:

     code i16 · language u8 · version i16 · opaque i32 · flag i32 · remark: length i32, text
     length i32 of the fields · per field: length i16, name · length i32, value

Source: rocketmq_wire B1; `RemotingCommand` and `RocketMQSerializable` of the original's module `remoting`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq.remoting.codes import VERSION, Flag, Language, Serialization

Buffer = bytes | bytearray | memoryview

MAX_FRAME_BYTES = 16 << 20
"""The largest frame that the original takes."""

MAX_HEADER_BYTES = 256 << 10
"""Properties have at most 32 767 characters, each of them up to six bytes in JSON, and there is little beside them."""

# Numbers: bits of enumerations are looked at in Python.
_RESPONSE, _ONE_WAY = int(Flag.RESPONSE), int(Flag.ONE_WAY)
_SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">II")
_BINARY = struct.Struct(">hBhii")
_SHORT = struct.Struct(">H")
_HEADER_MASK = 0xFFFFFF


Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class Command(msgspec.Struct, kw_only=True):
    """A request, or the answer to one; `opaque` says which. `fields` are the header's own (`extFields`).

    `language` is a number of `Language`, or one that is not known.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    fields: dict[str, str] = {}
    body: Buffer | Sequence[Buffer] = b""
    remark: str | None = None
    language: int = Language.PYTHON
    version: int = VERSION
    serialization: Serialization = Serialization.JSON

    @property
    def is_response(self) -> bool:
        """Whether it answers a request."""
        return bool(self.flag & _RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether the sender waits for no answer."""
        return bool(self.flag & _ONE_WAY)

    def answer(
        self,
        code: int,
        *,
        fields: Mapping[str, str] | None = None,
        remark: str | None = None,
        body: Buffer | Sequence[Buffer] = b"",
    ) -> Command:
        """The answer to this request."""
        return Command(
            code=code,
            opaque=self.opaque,
            flag=_RESPONSE,
            fields=dict(fields) if fields else {},
            remark=remark,
            body=body,
            serialization=self.serialization,
        )


class _JsonHeader(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A header in JSON; unknown fields are ignored."""

    code: Int32
    language: str | Int32 | None = None
    version: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None


class _LooseHeader(_JsonHeader, rename="camel"):
    """A header with values that are no texts, which some peers write; the original accepts them, too."""

    ext_fields: dict[str, str | int | float | bool | None] | None = None  # type: ignore[assignment]


class _JsonAnswer(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A header as it is written; `extFields` comes last because only it differs."""

    code: int
    flag: int
    language: str
    opaque: int
    version: int
    serialize_type: str = msgspec.field(name="serializeTypeCurrentRPC")
    remark: str | None = None
    ext_fields: dict[str, str] | None = None


_decode_json = msgspec.json.Decoder(_JsonHeader).decode
_decode_loose_json = msgspec.json.Decoder(_LooseHeader).decode
_encode_json = msgspec.json.Encoder().encode
_LANGUAGES = {language.name: int(language) for language in Language}
_LANGUAGE_NAMES = {int(language): language.name for language in Language}


def encode_frame(command: Command) -> list[Buffer]:
    """A frame in pieces: its head, then the body, not copied. Raises ValueError for values that no frame can hold."""
    body = command.body
    pieces: list[Buffer] = [body] if isinstance(body, bytes | bytearray | memoryview) else list(body)
    length = sum(map(len, pieces))
    header = _encode_json_header(command) if command.serialization is Serialization.JSON else _encode_binary(command)
    if len(header) > _HEADER_MASK:
        raise ValueError(f"a header of {len(header)} bytes; at most {_HEADER_MASK} can be written")
    head = _HEAD.pack(4 + len(header) + length, command.serialization << 24 | len(header)) + header
    return [head, *pieces] if length else [head]


def decode_frame(frame: memoryview) -> Command:
    """The command of a whole frame without its first four bytes; the body is a copy.

    Raises RemoteProtocolError for anything that is no frame; nothing is allocated by a length that lies.
    """
    if len(frame) < 4:
        raise malformed(f"a frame of {len(frame)} bytes; expected 4 at least")
    (word,) = _SIZE.unpack_from(frame)
    length, kind = word & _HEADER_MASK, word >> 24
    if length > len(frame) - 4:
        raise malformed(f"a header of {length} bytes in a frame of {len(frame)}")
    if length > MAX_HEADER_BYTES:
        raise malformed(f"a header of {length} bytes; at most {MAX_HEADER_BYTES} are taken")
    header = frame[4 : 4 + length]
    if kind == Serialization.JSON:
        command = _decode_json_header(header)
    elif kind == Serialization.BINARY:
        command = _decode_binary(header)
    else:
        raise malformed(f"header of kind {kind}; expected 0 (JSON) or 1 (binary)")
    command.body = bytes(frame[4 + length :])
    return command


def malformed(what: str) -> RemoteProtocolError:
    """The error for bytes that are no frame of this protocol."""
    return RemoteProtocolError(what, code="malformed frame")


# JSON


def _encode_json_header(command: Command) -> bytes:
    return _encode_json(
        _JsonAnswer(
            code=command.code,
            flag=command.flag,
            language=_LANGUAGE_NAMES.get(command.language, Language.OTHER.name),
            opaque=command.opaque,
            version=command.version,
            serialize_type="JSON",
            remark=command.remark,
            ext_fields=command.fields or None,
        )
    )


def _decode_json_header(header: memoryview) -> Command:
    try:
        read = _decode_json(header)
        fields = read.ext_fields or {}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        read, fields = _loose(header)
    language = read.language
    return Command(
        code=read.code,
        opaque=read.opaque,
        flag=read.flag,
        fields=fields,
        remark=read.remark,
        language=language if isinstance(language, int) else _LANGUAGES.get(language or "", Language.OTHER),
        version=read.version,
    )


def _loose(header: memoryview) -> tuple[_JsonHeader, dict[str, str]]:
    try:
        read = _decode_loose_json(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise malformed(f"a header that is no JSON of a command: {str(error)[:200]}") from error
    given: Mapping[str, object] = read.ext_fields or {}
    return read, {name: _text(value) for name, value in given.items() if value is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# binary


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    pieces = []
    for name, value in command.fields.items():
        name_bytes, value_bytes = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        pieces += [_SHORT.pack(len(name_bytes)), name_bytes, _SIZE.pack(len(value_bytes)), value_bytes]
    fields = b"".join(pieces)
    try:
        head = _BINARY.pack(command.code, command.language, command.version, command.opaque, command.flag)
    except struct.error as error:
        raise ValueError(f"a number that no binary header holds: {error}") from error
    return b"".join((head, _SIZE.pack(len(remark)), remark, _SIZE.pack(len(fields)), fields))


def _decode_binary(header: memoryview) -> Command:
    try:
        code, language, version, opaque, flag = _BINARY.unpack_from(header)
        remark, position = _read(header, _BINARY.size, _SIZE)
        (length,) = _SIZE.unpack_from(header, position)
        position += 4
        stop = position + length
        if stop > len(header):
            raise malformed(f"fields of {length} bytes in a header of {len(header)}")
        fields: dict[str, str] = {}
        while position < stop:
            name, position = _read(header, position, _SHORT)
            value, position = _read(header, position, _SIZE)
            if name is not None and value is not None:
                fields[name] = value
        if position > stop:
            raise malformed("a field that goes on behind the fields")
    except struct.error as error:
        raise malformed(f"a binary header of {len(header)} bytes that ends too early") from error
    except UnicodeDecodeError as error:
        raise malformed("a text that is no UTF-8") from error
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        fields=fields,
        remark=remark,
        language=language,
        version=version,
        serialization=Serialization.BINARY,
    )


def _read(header: memoryview, position: int, size: struct.Struct) -> tuple[str | None, int]:
    """A text and the position behind it; an empty one is none, as in the original."""
    (length,) = size.unpack_from(header, position)
    start = position + size.size
    if length > len(header) - start:
        raise malformed(f"a text of {length} bytes in a header of {len(header)}")
    return str(header[start : start + length], "utf-8") if length else None, start + length
