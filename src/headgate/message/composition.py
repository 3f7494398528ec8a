"""Plain Python values into the sections of a message, and sections into bytes."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headgate.errors import ConfigError
from headgate.message.codec import encode_value
from headgate.message.constructors import AmqpType
from headgate.message.fields import HEADER_TYPES, PROPERTIES_TYPES, Section
from headgate.message.framing import LIST_SECTIONS
from headgate.message.types import NULL, AmqpValue, amqp_value, timestamp_ms

Entries: TypeAlias = Mapping[Any, object] | Iterable[tuple[object, object]]
"""The entries of a map section: a mapping, or pairs where order and equal keys matter."""


@dataclass(frozen=True, slots=True)
class Body:
    """The body sections of a message, of one kind: `parts` are bytes (data), lists (sequences) or the one value."""

    section: Section
    parts: tuple[bytes, ...] | tuple[AmqpValue, ...]

    def __post_init__(self) -> None:
        if self.section not in (Section.DATA, Section.AMQP_SEQUENCE, Section.AMQP_VALUE):
            raise ConfigError(f"{self.section.name.lower()} is no body section")
        if not self.parts or (self.section is Section.AMQP_VALUE and len(self.parts) > 1):
            raise ConfigError(f"a body of {len(self.parts)} {self.section.name.lower()} sections")
        for part in self.parts:
            if isinstance(part, bytes) is not (self.section is Section.DATA) or (
                self.section is Section.AMQP_SEQUENCE
                and not (isinstance(part, AmqpValue) and part.type is AmqpType.LIST)
            ):
                raise ConfigError(f"{self.section.name.lower()} cannot hold a {type(part).__name__}")

    @staticmethod
    def data(*parts: bytes) -> Body:
        """One data section for each part."""
        return Body(Section.DATA, tuple(bytes(part) for part in parts))

    @staticmethod
    def sequence(*parts: object) -> Body:
        """One AMQP sequence section for each part, which is a list, its members as `amqp_value` takes them."""
        return Body(Section.AMQP_SEQUENCE, tuple(amqp_value(part) for part in parts))

    @staticmethod
    def value(value: object) -> Body:
        """An AMQP value section, the value as `amqp_value` takes it."""
        return Body(Section.AMQP_VALUE, (amqp_value(value),))

    def values(self) -> list[AmqpValue]:
        """The parts as values: data sections are binaries."""
        return [part if isinstance(part, AmqpValue) else AmqpValue(AmqpType.BINARY, part) for part in self.parts]

    def octets(self) -> bytes | None:
        """The data sections joined, or the bytes of a string, symbol or binary value; None for any other body."""
        if self.section is Section.DATA:
            return b"".join(part.value for part in self.values())
        only = self.values()[0]
        return only.octets() if self.section is Section.AMQP_VALUE and only.type is not AmqpType.UUID else None


def encode_sections(sections: Mapping[Section, AmqpValue], body: Body | None) -> bytes:
    """The sections in standard order, each in its smallest encoding, lists without trailing nulls."""
    encoded = [
        _descriptor(section) + _encoded_section(section, sections[section])
        for section in sorted(sections)
        if section is not Section.FOOTER
    ]
    if body is not None:
        encoded += [_descriptor(body.section) + encode_value(value) for value in body.values()]
    if Section.FOOTER in sections:
        encoded.append(_descriptor(Section.FOOTER) + _encoded_section(Section.FOOTER, sections[Section.FOOTER]))
    return b"".join(encoded)


def _descriptor(section: Section) -> bytes:
    return bytes([0x00, 0x53, section])


def _encoded_section(section: Section, value: AmqpValue) -> bytes:
    if section not in LIST_SECTIONS:
        return encode_value(value)
    fields = list(value.value)
    while fields and fields[-1].type is AmqpType.NULL:
        fields.pop()
    return encode_value(AmqpValue(AmqpType.LIST, tuple(fields)))


def list_section(section: Section, *given: Mapping[str, object] | None) -> AmqpValue | None:
    """Header or properties from fields by name, `-` or `_` between words; None if all of `given` are None.

    Plain values take the type of the field; an AmqpValue stays as it is, for any type of the field. Raises ConfigError.
    """
    types = HEADER_TYPES if section is Section.HEADER else PROPERTIES_TYPES
    values: dict[str, AmqpValue] = {}
    for name, plain in (item for fields in given if fields is not None for item in fields.items()):
        standard_name = name.replace("_", "-")
        if standard_name not in types:
            raise ConfigError(f"no field {name!r} in {section.name.lower()}; it has {', '.join(types)}")
        if standard_name in values:
            raise ConfigError(f"{standard_name} is given twice")
        values[standard_name] = _field_value(standard_name, types[standard_name], plain)
    if all(fields is None for fields in given):
        return None
    return AmqpValue(AmqpType.LIST, tuple(values.get(name, NULL) for name in types))


def map_section(section: Section, entries: Entries | None) -> AmqpValue | None:
    """Application properties, annotations or footer; str keys become strings there, symbols in the others."""
    if entries is None:
        return None
    key_type = AmqpType.STRING if section is Section.APPLICATION_PROPERTIES else AmqpType.SYMBOL
    pairs = entries.items() if isinstance(entries, Mapping) else entries
    return AmqpValue(
        AmqpType.MAP,
        tuple(
            (AmqpValue(key_type, key) if isinstance(key, str) else amqp_value(key), amqp_value(value))
            for key, value in pairs
        ),
    )


def _field_value(name: str, kind: AmqpType | None, plain: object) -> AmqpValue:
    if plain is None or isinstance(plain, AmqpValue):
        return amqp_value(plain)
    if kind is None:
        if isinstance(plain, int):
            return AmqpValue(AmqpType.ULONG, plain)
        if isinstance(plain, (str, bytes, uuid.UUID)):
            return amqp_value(plain)
        raise ConfigError(f"{name} takes an int, str, bytes or UUID, found a {type(plain).__name__}")
    if kind is AmqpType.BINARY and isinstance(plain, str):
        plain = plain.encode()
    if kind is AmqpType.TIMESTAMP and isinstance(plain, datetime.datetime):
        plain = timestamp_ms(plain)
    try:
        return AmqpValue(kind, plain)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
