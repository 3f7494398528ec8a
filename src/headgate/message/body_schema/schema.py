"""A declared schema of bodies, and the text that a stream keeps of it."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from headgate.errors import ConfigError
from headgate.message.json_body import MAX_JSON_BYTES, JsonValue

MAX_SCHEMA_TEXT_BYTES = 1 << 18
"""The settings of a stream, which each reader reads, hold the text."""

_MAX_FILES_BYTES = 1 << 24
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
    def parse(cls, text: str) -> BodySchema:
        """The schema of a text that `text` gave. Raises ConfigError."""
        return _parsed(text)

    @property
    def text(self) -> str:
        """The schema as a text, for the settings of a stream. Raises ConfigError if it is too long."""
        files = {"" if number is None else str(number): zlib.compress(content, 9) for number, content in self.files}
        text = msgspec.json.encode(_Text(self.format, files, self.message_type)).decode()
        if len(text) > MAX_SCHEMA_TEXT_BYTES:
            raise ConfigError(
                f"the schema takes {len(text)} bytes when compressed; at most {MAX_SCHEMA_TEXT_BYTES} are kept with a "
                "stream"
            )
        return text

    def check(self) -> None:
        """Raise ConfigError if a file is no schema, has no such message type, or cannot be decoded by safely."""
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


_encoder = msgspec.json.Encoder(decimal_format="number")


@lru_cache(maxsize=256)
def _parsed(text: str) -> BodySchema:
    try:
        kept = msgspec.json.decode(text, type=_Text)
        files = [(int(number) if number else None, _expanded(content)) for number, content in kept.files.items()]
    except (msgspec.DecodeError, ValueError, zlib.error) as error:
        raise ConfigError(f"the text is no schema of bodies: {error}") from error
    return BodySchema(kept.format, tuple(files), kept.type)


def _expanded(content: bytes) -> bytes:
    return zlib.decompressobj().decompress(content, _MAX_FILES_BYTES)


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
