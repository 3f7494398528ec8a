"""A message: AMQP 1.0 bytes, decoded section by section on first use.

Source: OASIS AMQP 1.0 part 3 (messaging), section 3.2; when bytes are a message: docs/design/message-validity.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headgate.errors import ConfigError, MessageError
from headgate.message.body_schema import BodySchema
from headgate.message.codec import ValueDecoder
from headgate.message.composition import Body, Entries, encode_sections, list_section, map_section
from headgate.message.constructors import CONSTRUCTOR_WIDTHS, CONSTRUCTORS, DESCRIBED, WIDTH_SIZE8, AmqpType
from headgate.message.description import describe, message_arguments
from headgate.message.edits import Change, changed_bytes
from headgate.message.fields import HEADER_FIELDS, PROPERTIES_FIELDS, FieldReference, Section, without_case
from headgate.message.framing import LIST_SECTIONS, footer_span, is_usable, read_descriptor, section_spans, skip_value
from headgate.message.json_body import JsonKind, JsonScalar, JsonValue, body_text, json_document
from headgate.message.paths import follow
from headgate.message.types import AmqpValue

_NOT_LOOKED_INTO = {
    kind: AmqpValue(kind, None) for kind in (AmqpType.LIST, AmqpType.MAP, AmqpType.ARRAY, AmqpType.DESCRIBED)
}
NO_BODY = "x-headgate-no-body"
"""The annotation, true, of a stored message that came without a body."""

EMPTY_BODY = bytes([0x00, 0x53, Section.DATA, 0xA0, 0])
"""One data section of no bytes: the body that messages without one are stored with."""

_NO_BODY = FieldReference(Section.MESSAGE_ANNOTATIONS, key=NO_BODY.encode())
_STRINGS = frozenset({0xA1, 0xB1})
_STRINGS_AND_SYMBOLS = _STRINGS | {0xA3, 0xB3}
_FIELD_NAMES = {Section.HEADER: HEADER_FIELDS, Section.PROPERTIES: PROPERTIES_FIELDS}
_BODY_TYPES = {Section.DATA: AmqpType.BINARY, Section.AMQP_SEQUENCE: AmqpType.LIST}


class Message:
    """An immutable AMQP 1.0 message over its encoded bytes; two messages are equal if their bytes are.

    Sections come by name as dictionaries of `AmqpValue` (None = the message has no such section), or exactly, as the
    list or map they are, by `section`. `decode` checks the framing up to the body only: looking at a section or the
    body may raise `MessageError`; `value` never does.
    """

    __slots__ = (
        "_body",
        "_body_position",
        "_data",
        "_decoded",
        "_decoder",
        "_json",
        "_json_scalars",
        "_json_values",
        "_positions",
        "_sections",
        "_spans",
    )

    def __init__(
        self,
        body: bytes | Body | None = b"",
        *,
        header: Mapping[str, object] | None = None,
        delivery_annotations: Entries | None = None,
        message_annotations: Entries | None = None,
        properties: Mapping[str, object] | None = None,
        application_properties: Entries | None = None,
        footer: Entries | None = None,
        **fields: object,
    ) -> None:
        """A message from plain Python values (as `amqp_value` takes them), or `AmqpValue` where the exact type matters.

        `fields` are header and properties fields by name: `priority=5, subject="order.created"`. Body bytes are one
        data section, None is no body. Raises `ConfigError` for a wrong name or value.
        """
        if not (body is None or isinstance(body, (bytes, Body))):
            raise ConfigError(f"a body is bytes, a Body or None, found a {type(body).__name__}")
        header_fields = {name: value for name, value in fields.items() if name.replace("_", "-") in HEADER_FIELDS}
        properties_fields = {name: value for name, value in fields.items() if name not in header_fields}
        sections = {
            Section.HEADER: list_section(Section.HEADER, header, header_fields or None),
            Section.PROPERTIES: list_section(Section.PROPERTIES, properties, properties_fields or None),
            Section.DELIVERY_ANNOTATIONS: map_section(Section.DELIVERY_ANNOTATIONS, delivery_annotations),
            Section.MESSAGE_ANNOTATIONS: map_section(Section.MESSAGE_ANNOTATIONS, message_annotations),
            Section.APPLICATION_PROPERTIES: map_section(Section.APPLICATION_PROPERTIES, application_properties),
            Section.FOOTER: map_section(Section.FOOTER, footer),
        }
        given = {section: value for section, value in sections.items() if value is not None}
        self._open(encode_sections(given, Body.data(body) if isinstance(body, bytes) else body))

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Message:
        """The message that the bytes are, copied unless they are `bytes`. Raises `MessageError` as `check` does."""
        message = cls.__new__(cls)
        message._open(bytes(data))
        return message

    @classmethod
    def of_sections(cls, sections: Mapping[Section, AmqpValue], body: Body | None) -> Message:
        """A message of exact sections (lists and maps by code) and body, in the smallest encoding."""
        return cls.decode(encode_sections(sections, body))

    @classmethod
    def of_description(cls, description: Any) -> Message:
        """The message that JSON describes (`headgate.message.description`). Raises `ConfigError`."""
        return cls(**message_arguments(description))

    def describe(self, *, typed: bool = False, sections: Iterable[Section] = Section) -> dict[str, Any]:
        """The message as JSON (`headgate.message.description`), values plain or, `typed`, with their exact types.

        With `sections` only these are in it. Raises `MessageError` if one of them does not decode.
        """
        return describe(self, typed=typed, sections=sections)

    def _open(self, data: bytes) -> None:
        self._data = data
        self._spans, self._body_position = section_spans(data)
        self._sections: dict[Section, AmqpValue] = {}
        self._body: Body | None = None
        self._json: tuple[JsonValue | None] | None = None
        self._decoded: tuple[BodySchema, JsonValue | None] | None = None
        self._json_values: dict[tuple[BodySchema | None, tuple[bytes | int, ...]], JsonValue | None] = {}
        self._json_scalars: dict[tuple[BodySchema | None, tuple[bytes | int, ...]], JsonScalar] = {}
        self._decoder: ValueDecoder | None = None
        self._positions: dict[Section, dict[int | bytes, int]] = {}

    def encode(self) -> bytes:
        """The bytes of the message: as decoded, or the smallest encoding of its parts."""
        return self._data

    def __eq__(self, other: object) -> bool:
        return self._data == other._data if isinstance(other, Message) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._data)

    def __reduce__(self) -> tuple[object, ...]:
        return Message.decode, (self._data,)

    def __repr__(self) -> str:
        names = ", ".join(section.name.lower() for section in self._spans) or "no section before the body"
        return f"<Message of {len(self._data)} bytes: {names}>"

    def value(self, reference: FieldReference) -> AmqpValue | None:
        """The field as a filter sees it: None if absent, type null if it is null. Never raises.

        Of a list, map, array or described value only the type is given, its `value` is None. Keys of application
        properties are strings; of equal keys the first counts that filters can use (`is_usable`), else the first. Keys
        of annotations and footer are symbols and strings; the first counts. The body has no fields.
        """
        position = self.field_position(reference)
        if position is None:
            return None
        located = follow(self._data, position, reference.path)
        if located is None:
            return None
        constructor, content = located
        kind = CONSTRUCTORS.get(constructor, AmqpType.DESCRIBED)
        if kind in _NOT_LOOKED_INTO:
            return _NOT_LOOKED_INTO[kind]
        return self._values().plain(constructor, content, len(self._data))[0]

    def whole_value(self, reference: FieldReference) -> AmqpValue | None:
        """As `value`, but a described value includes its content, if that decodes. Never raises."""
        position = self.field_position(reference)
        if position is not None and not reference.path and self._data[position] == DESCRIBED:
            try:
                return self._values().value(position, len(self._data))[0]
            except MessageError:
                return self.value(reference)
        return self.value(reference)

    def field_position(self, reference: FieldReference) -> int | None:
        """Where the value of a field begins, without the reference's path into it; None if absent."""
        section = reference.section
        if section not in self._positions:
            self._positions[section] = self._field_positions(section)
        name = reference.position if reference.key is None else reference.key
        position = None if name is None else self._positions[section].get(name)
        if position is None and reference.ignore_case and reference.key is not None:
            return self._position_without_case(section, reference.key)
        return position

    def with_changes(self, changes: Sequence[Change]) -> Message:
        """The message with other values of single fields, set in the order given; None takes a field out.

        Fields are in header, properties, annotations and application properties; unchanged fields keep their encoding.
        Of equal keys, a change leaves one. Raises `MessageError` if a section to change is not framed correctly.
        """
        return Message.decode(changed_bytes(self._data, self._spans, self._body_position, changes))

    def with_body(self) -> Message:
        """The message as streams store it: one without a body gets an empty data section, and the annotation `NO_BODY`.

        RabbitMQ ends the connection of a consumer that meets a message without a body.
        """
        position = self._body_position
        if position < len(self._data) and read_descriptor(self._data, position)[0] is not Section.FOOTER:
            return self
        noted = self.with_changes([(_NO_BODY, AmqpValue(AmqpType.BOOLEAN, True))])
        position = noted._body_position
        return Message.decode(noted._data[:position] + EMPTY_BODY + noted._data[position:])

    def _field_positions(self, section: Section) -> dict[int | bytes, int]:
        """Where the values of a section's fields begin, by position in a list, by key in a map."""
        positions: dict[int | bytes, int] = {}
        is_footer = section is Section.FOOTER
        span = footer_span(self._data, self._body_position) if is_footer else self._spans.get(section)
        if span is None:
            return positions
        position = span.elements
        if section in LIST_SECTIONS:
            for number in range(span.count):
                behind = self._behind_value(position, span.stop)
                if behind is None:
                    break
                positions[number] = position
                position = behind
            return positions
        by_use = section is Section.APPLICATION_PROPERTIES
        for _ in range(span.count // 2):
            key_position = position
            value_position = self._behind_value(key_position, span.stop)
            behind = None if value_position is None else self._behind_value(value_position, span.stop)
            if value_position is None or behind is None:
                break
            position = behind
            constructor = self._data[key_position]
            if constructor in (_STRINGS if by_use else _STRINGS_AND_SYMBOLS):
                size_width = 1 if CONSTRUCTOR_WIDTHS[constructor] == WIDTH_SIZE8 else 4
                key = self._data[key_position + 1 + size_width : value_position]
                first = positions.setdefault(key, value_position)
                if by_use and not is_usable(self._data, first) and is_usable(self._data, value_position):
                    positions[key] = value_position
        return positions

    def _position_without_case(self, section: Section, wanted: bytes) -> int | None:
        folded = without_case(wanted)
        for key, position in self._positions[section].items():
            if isinstance(key, bytes) and without_case(key) == folded:
                return position
        return None

    def _behind_value(self, position: int, stop: int) -> int | None:
        """The position after a value; None where the framing breaks: all fields from there on are absent."""
        try:
            return skip_value(self._data, position, stop)
        except MessageError:
            return None

    def _values(self) -> ValueDecoder:
        if self._decoder is None:
            self._decoder = ValueDecoder(self._data)
        return self._decoder

    def section(self, section: Section) -> AmqpValue | None:
        """A list or map section exactly as it is: types, order, equal keys; None if the message has none.

        Raises `MessageError` if a value in it does not decode; for the footer also if the body does not.
        """
        if section is Section.FOOTER:
            self._decode_body()
        elif section not in self._sections and section in self._spans:
            span = self._spans[section]
            value, _ = self._values().value(span.position, span.stop)
            names = _FIELD_NAMES.get(section)
            if names is not None and len(value.value) > len(names):
                raise MessageError(
                    f"{section.name.lower()} has {len(names)} fields, found {len(value.value)}", position=span.position
                )
            self._sections[section] = value
        return self._sections.get(section)

    def section_bytes(self, section: Section) -> int:
        """How many bytes the value of a section before the body takes; 0 if the message has none."""
        span = self._spans.get(section)
        return 0 if span is None else span.stop - span.position

    @property
    def encoded_body(self) -> bytes:
        """The bytes of the body sections and the footer, as they are encoded."""
        return self._data[self._body_position :]

    @property
    def body(self) -> Body | None:
        """The body sections; None if there are none. Raises `MessageError` if they or the footer do not decode."""
        self._decode_body()
        return self._body

    @property
    def json(self) -> JsonValue | None:
        """The body as a document of JSON, where it is one (`headgate.message.json_body`). Never raises.

        Cost: checking the body at first use, at most half a second a megabyte.
        """
        if self._json is None:
            text = body_text(self._data, self._body_position)
            self._json = (None if text is None else json_document(text),)
        return self._json[0]

    def json_value(self, path: tuple[bytes | int, ...], schema: BodySchema | None = None) -> JsonValue | None:
        """The value at a path into the body as JSON (`document`); None if there is none. Never raises.

        Cost: at first use, one walk over each object and array on the way that no other path has led through.
        """
        found = self.document(schema)
        for length in range(1, len(path) + 1):
            if found is None:
                return None
            way = (schema, path[:length])
            if way not in self._json_values:
                self._json_values[way] = found.at(path[length - 1 : length])
            found = self._json_values[way]
        return found

    def json_scalar(self, path: tuple[bytes | int, ...], schema: BodySchema | None = None) -> JsonScalar:
        """What filters compare at a path into the body as JSON (`JsonValue.scalar`); None if there is no such value.

        Cost: as `json_value`, and decoding the value, at first use.
        """
        way = (schema, path)
        if way not in self._json_scalars:
            found = self.json_value(path, schema)
            self._json_scalars[way] = None if found is None else found.scalar()
        return self._json_scalars[way]

    def body_string(self, path: tuple[bytes | int, ...]) -> tuple[int, int] | None:
        """Where the text of a string of the JSON body stands in the encoded message: position and length.

        None for other values, and where it does not stand there as it is: with escapes, or if the body is in pieces.
        """
        document = self.json
        found = self.json_value(path)
        if document is None or found is None or found.kind is not JsonKind.STRING:
            return None
        text = found.scalar()
        _, value = read_descriptor(self._data, self._body_position)
        body = value + (2 if CONSTRUCTOR_WIDTHS[self._data[value]] == WIDTH_SIZE8 else 5)
        start = found.start + 1
        is_whole = self._data[body : body + len(document.text)] == document.text
        is_plain = isinstance(text, bytes) and document.text[start : start + len(text) + 1] == text + b'"'
        return (body + start, len(text)) if isinstance(text, bytes) and is_whole and is_plain else None

    def document(self, schema: BodySchema | None) -> JsonValue | None:
        """The body as a document of JSON, decoded by a schema if one is given. Never raises. Cost: see `json`."""
        if schema is None:
            return self.json
        if self._decoded is None or self._decoded[0] != schema:
            text = body_text(self._data, self._body_position)
            self._decoded = (schema, None if text is None else schema.document(text))
        return self._decoded[1]

    def decode_all(self) -> None:
        """Decode every section: afterwards no access raises. Raises `MessageError`."""
        for section in self._spans:
            self.section(section)
        self._decode_body()

    def _decode_body(self) -> None:
        """Body sections of one kind (one if it is a value), then at most one footer, then the end."""
        if self._body is not None or Section.FOOTER in self._sections:
            return
        kind: Section | None = None
        parts: list[Any] = []
        footer: AmqpValue | None = None
        position = self._body_position
        while position < len(self._data):
            section, value_position = read_descriptor(self._data, position)
            if footer is not None:
                raise MessageError("bytes behind the footer", position=position)
            value, stop = self._values().value(value_position, len(self._data))
            if section is Section.FOOTER:
                _require(value, AmqpType.MAP, section, value_position)
                footer = value
            elif section < Section.DATA or kind not in (None, section) or kind is Section.AMQP_VALUE:
                raise MessageError(f"section {section:#x} does not belong here in the body", position=position)
            else:
                kind = section
                if section in _BODY_TYPES:
                    _require(value, _BODY_TYPES[section], section, value_position)
                parts.append(value.value if section is Section.DATA else value)
            position = stop
        if kind is not None:
            self._body = Body(kind, tuple(parts))
        if footer is not None:
            self._sections[Section.FOOTER] = footer

    @property
    def header(self) -> dict[str, AmqpValue] | None:
        """Header fields that are not null, by standard name (`delivery-count`)."""
        return self._named_fields(Section.HEADER)

    @property
    def delivery_annotations(self) -> dict[str, AmqpValue] | None:
        """Delivery annotations by symbol; of equal keys the first."""
        return self._named_entries(Section.DELIVERY_ANNOTATIONS)

    @property
    def message_annotations(self) -> dict[str, AmqpValue] | None:
        """Message annotations by symbol; of equal keys the first."""
        return self._named_entries(Section.MESSAGE_ANNOTATIONS)

    @property
    def properties(self) -> dict[str, AmqpValue] | None:
        """Properties fields that are not null, by standard name (`creation-time`)."""
        return self._named_fields(Section.PROPERTIES)

    @property
    def application_properties(self) -> dict[str, AmqpValue] | None:
        """Application properties by string key; of equal keys the first."""
        return self._named_entries(Section.APPLICATION_PROPERTIES)

    @property
    def footer(self) -> dict[str, AmqpValue] | None:
        """Footer entries by symbol; of equal keys the first."""
        return self._named_entries(Section.FOOTER)

    def _named_fields(self, section: Section) -> dict[str, AmqpValue] | None:
        fields = self.section(section)
        if fields is None:
            return None
        return {
            name: value
            for name, value in zip(_FIELD_NAMES[section], fields.value, strict=False)
            if value.type is not AmqpType.NULL
        }

    def _named_entries(self, section: Section) -> dict[str, AmqpValue] | None:
        entries = self.section(section)
        if entries is None:
            return None
        key_type = AmqpType.STRING if section is Section.APPLICATION_PROPERTIES else AmqpType.SYMBOL
        named: dict[str, AmqpValue] = {}
        for key, value in entries.value:
            if key.type is key_type:
                named.setdefault(key.value, value)
        return named


def _require(value: AmqpValue, kind: AmqpType, section: Section, position: int) -> None:
    if value.type is not kind:
        raise MessageError(f"section {section:#x} is a {kind.value}, found a {value.type.value}", position=position)
