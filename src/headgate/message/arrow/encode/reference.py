"""From the columns of one row to a message: the oracle of the encoding kernel, and the encoder of rare rows."""

from __future__ import annotations

from headgate.errors import ConfigError
from headgate.message.arrow.encode.inputs import (
    FieldsInput,
    MapInput,
    MessageInputs,
    SectionInput,
    StructInput,
    VariantInput,
)
from headgate.message.composition import Body, encode_sections
from headgate.message.constructors import AmqpType
from headgate.message.fields import Section
from headgate.message.types import NULL, AmqpValue
from headgate.message.variant import decode_variant


def encoded_row(inputs: MessageInputs, row: int) -> bytes:
    """The bytes of the message of one row. Raises ConfigError for a VARIANT that no section can be made from."""
    raw = None if inputs.message is None else inputs.message.amqp(row)
    if raw is not None:
        return bytes(raw.value)
    sections = {section.section: _section(section, row) for section in inputs.sections}
    body = None if inputs.body is None else inputs.body.amqp(row)
    return encode_sections(
        {section: value for section, value in sections.items() if value is not None},
        Body.value(None) if body is None else Body.data(body.value),
    )


def _section(given: SectionInput, row: int) -> AmqpValue | None:
    if given.valid is not None and given.valid[row] == 0:
        return None
    if isinstance(given, FieldsInput):
        cells = (None if values is None else values.amqp(row) for values in given.fields)
        return AmqpValue(AmqpType.LIST, tuple(NULL if cell is None else cell for cell in cells))
    return AmqpValue(AmqpType.MAP, tuple(_entries(given, row)))


def _entries(given: StructInput | MapInput | VariantInput, row: int) -> list[tuple[AmqpValue, AmqpValue]]:
    key_type = AmqpType.STRING if given.section is Section.APPLICATION_PROPERTIES else AmqpType.SYMBOL
    if isinstance(given, StructInput):
        cells = ((name, values.amqp(row)) for name, values in zip(given.names, given.fields, strict=True))
        return [(AmqpValue(key_type, name), cell) for name, cell in cells if cell is not None]
    if isinstance(given, MapInput):
        entries = range(int(given.offsets[row]), int(given.offsets[row + 1]))
        return [(_key(given, entry), given.items.amqp(entry) or NULL) for entry in entries]
    try:
        decoded = decode_variant(given.value.bytes(row), given.metadata.bytes(row), exact=given.exact)
    except ConfigError as error:
        raise ConfigError(f"column {given.section.name.lower()}, row {row}: {error}") from None
    if decoded.type is not AmqpType.MAP:
        raise ConfigError(
            f"column {given.section.name.lower()}, row {row}: found a VARIANT that holds a {decoded.type.value}, "
            "expected an object"
        )
    return [(AmqpValue(key_type, key.value), value) for key, value in decoded.value]


def _key(given: MapInput, entry: int) -> AmqpValue:
    key = given.keys.amqp(entry)
    if key is None:
        raise ConfigError(f"column {given.section.name.lower()}: a MAP with a null key")
    return key
