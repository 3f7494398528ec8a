"""A declared schema of bodies, and the text that a stream keeps of it."""

from __future__ import annotations

import enum
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from headgate.errors import ConfigError
from headgate.message.fields import Section, parse_field
from headgate.message.json_body import MAX_JSON_BYTES, JsonValue

MAX_SCHEMA_TEXT_BYTES = 1 << 18
"""The settings of a stream, which each reader reads, hold the text."""

MAX_SCHEMA_FILES_BYTES = 1 << 22
"""All files of a schema together; they are kept compressed."""

_IDS = range(1 << 32)
_NUMBER = re.compile("[0-9]{1,10}", re.ASCII)
_MAGIC_BYTE = b"\0"
_ID_STOP = 5

Decode = Callable[[bytes], object]
"""A body as Python values that JSON, or base64, can show. Raises anything for a body that breaks the schema."""


class SchemaFormat(enum.Enum):
    """The formats that a schema may be of."""

    AVRO = "avro"
    PROTOBUF = "protobuf"


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a schema. `files` has compressed files: under "", or under the ids of a registry."""

    format: SchemaFormat
    files: dict[str, bytes]
    type: str | None = None


@dataclass(frozen=True, slots=True)
class BodySchema:
    """The schema of a stream's bodies. Picklable, and equal to another with the same content.

    `files` has the content of one file under None: bodies are bare. Or one or more under ids: each body begins as
    Confluent's clients write it, with a byte 0 and the id in four bytes. `message_type` is the full name of a Protobuf
    message.
    """

    format: SchemaFormat
    files: tuple[tuple[int | None, bytes], ...]
    message_type: str | None = None

    @classmethod
    def of_files(cls, format_: SchemaFormat, files: Mapping[str, bytes], message_type: str | None) -> BodySchema:
        """The schema of files, each under its id in decimal, or one under "". Raises ConfigError; see `check`, too."""
        wrong = next((name for name in files if name and not _NUMBER.fullmatch(name)), None)
        if wrong is not None:
            raise ConfigError(f"found the file {wrong!r}, expected the id of a registry as its name, or no name")
        named = [(int(name) if name else None, content) for name, content in files.items()]
        return cls(format_, tuple(named), message_type)

    @classmethod
    def parse(cls, text: str) -> BodySchema:
        """The schema of a text that `text` gave. Raises ConfigError."""
        return _parsed(text)

    @property
    def text(self) -> str:
        """The schema as a text, for the settings of a stream. Raises ConfigError if it is too long."""
        size = self.size_bytes
        if size > MAX_SCHEMA_FILES_BYTES:
            raise ConfigError(f"the files of the schema have {size} bytes; at most {MAX_SCHEMA_FILES_BYTES} are taken")
        files = {"" if number is None else str(number): zlib.compress(content, 9) for number, content in self.files}
        text = msgspec.json.encode(_Text(self.format, files, self.message_type)).decode()
        if len(text) > MAX_SCHEMA_TEXT_BYTES:
            raise ConfigError(
                f"the schema takes {len(text)} bytes when compressed; at most {MAX_SCHEMA_TEXT_BYTES} are kept with a "
                "stream"
            )
        return text

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(len(content) for _, content in self.files)

    def check(self) -> None:
        """Raise ConfigError if bodies cannot be decoded by it.

        A file is no schema, has no such message type or could be misused by a body; the ids are wrong; a library of the
        format is missing here.
        """
        numbers = [number for number, _ in self.files]
        if numbers != [None] and (not numbers or len(set(numbers)) < len(numbers) or not _are_ids(numbers)):
            raise ConfigError("a schema has one file, or one for each id of a registry, 0 to 4294967295")
        if (self.message_type is None) is (self.format is SchemaFormat.PROTOBUF):
            raise ConfigError("a schema of Protobuf needs its message type, package.Message; one of Avro has no types")
        _decoders(self)

    def document(self, body: bytes) -> JsonValue | None:
        """A body as a document of JSON; None for one that the schema does not decode as a whole. Never raises.

        None also for a body of more than `MAX_JSON_BYTES`, or one whose JSON would be longer.
        """
        if len(body) > MAX_JSON_BYTES:
            return None
        number: int | None = None
        if self.files[0][0] is not None:
            if not body.startswith(_MAGIC_BYTE):
                return None
            number, body = int.from_bytes(body[1:_ID_STOP], "big"), body[_ID_STOP:]
        decode = _decoders(self).get(number)
        if decode is None:
            return None
        try:
            text = _encoder.encode(decode(body))
        except Exception:  # The libraries raise errors of many classes for bytes of a foreign schema.
            return None
        return JsonValue(text, 0) if len(text) <= MAX_JSON_BYTES else None

    def __str__(self) -> str:
        parts = [self.format.value]
        if self.message_type is not None:
            parts.append(self.message_type)
        ids = [str(number) for number, _ in self.files if number is not None]
        return " ".join([*parts, "with the ids", ", ".join(ids)] if ids else parts)


def schema_facts(text: str | None) -> dict[str, object]:
    """What is shown of a stream's schema: its name, and the bytes of its files; nothing without a schema."""
    if text is None:
        return {}
    schema = BodySchema.parse(text)
    return {"body_schema": str(schema), "body_schema_bytes": schema.size_bytes}


def check_filter_source(source: str | None, schema: str | None) -> None:
    """Raise ConfigError for filter values from bodies beside a schema: only bodies that are JSON have such values."""
    if schema is not None and source is not None and parse_field(source).section is Section.DATA:
        raise ConfigError(
            f"{source}: a path as filter source leads into JSON bodies, those of a declared schema are none; let "
            "publishers send the value as an application property, too"
        )


def check_body_fields(schema: str | None, *, filter_source: str | None, columns: str | None) -> None:
    """Raise ConfigError if a new stream with a schema declares filter values or columns from bodies, as if of JSON.

    `columns` is the text of their declaration.
    """
    check_filter_source(filter_source, schema)
    if schema is not None and columns is not None:
        # Imported here: it imports pyarrow.
        from headgate.message.arrow import check_bodies, declared_columns

        check_bodies(declared_columns(columns), schema)


_encoder = msgspec.json.Encoder(decimal_format="number")


@lru_cache(maxsize=256)
def _parsed(text: str) -> BodySchema:
    try:
        kept = msgspec.json.decode(text, type=_Text)
        files = {name: _expanded(content) for name, content in kept.files.items()}
    except (msgspec.DecodeError, ValueError, zlib.error) as error:
        raise ConfigError(f"the text is no schema of bodies: {error}") from error
    return BodySchema.of_files(kept.format, files, kept.type)


def _expanded(content: bytes) -> bytes:
    expansion = zlib.decompressobj()
    expanded = expansion.decompress(content, MAX_SCHEMA_FILES_BYTES)
    if expansion.unconsumed_tail or not expansion.eof:
        raise ValueError(f"a file of more than {MAX_SCHEMA_FILES_BYTES} bytes, or one that is cut")
    return expanded


def _are_ids(numbers: list[int | None]) -> bool:
    return all(number is not None and number in _IDS for number in numbers)


@lru_cache(maxsize=64)
def _decoders(schema: BodySchema) -> Mapping[int | None, Decode]:
    """The decoder of each file. Raises ConfigError."""
    if schema.format is SchemaFormat.AVRO:
        # Imported here: an optional library.
        from headgate.message.body_schema.avro import decoder

        return {number: decoder(content) for number, content in schema.files}
    # Imported here: it takes 30 ms.
    from headgate.message.body_schema.protobuf import decoder as protobuf_decoder

    return {
        number: protobuf_decoder(content, schema.message_type or "", has_indexes=number is not None)
        for number, content in schema.files
    }
