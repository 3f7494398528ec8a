"""A whole message as JSON, for showing and for writing by hand.

    {"header": {"priority": 5}, "message_annotations": {…}, "properties": {"subject": "order.created"},
     "application_properties": {"region": "AMER"}, "body": {"data": "text"}, "footer": {…}}

Sections the message does not have are missing. The body is `data` (all data sections joined; text if UTF-8, else
`{"hex": …}`), `sequence` (a list of lists) or `value`. Values are plain or typed JSON (`headgate.message.typed_json`);
a map with keys that are not all different texts is a list of [key, value] pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headgate.errors import ConfigError
from headgate.message.composition import Body
from headgate.message.constructors import AmqpType
from headgate.message.fields import Section
from headgate.message.typed_json import Json, from_plain_or_typed, plain_json, to_json
from headgate.message.types import AmqpValue

if TYPE_CHECKING:
    from headgate.message.message import Message

_LISTS = ("header", "properties")
_MAPS = ("delivery_annotations", "message_annotations", "application_properties", "footer")
SECTION_NAMES = (*_LISTS, *_MAPS, "body")
"""The keys of a message as JSON."""


def describe(message: Message, *, typed: bool, sections: Iterable[Section] = Section) -> dict[str, Json]:
    """The message, or some sections of it, as JSON, values plain or typed.

    Raises `MessageError` if a section does not decode; for the footer also if the body does not.
    """
    shown = to_json if typed else plain_json
    description: dict[str, Json] = {}
    for section in sections:
        name = section.name.lower()
        if name in _LISTS:
            fields = message.header if section is Section.HEADER else message.properties
            if fields is not None:
                description[name] = {key: shown(value) for key, value in fields.items()}
        elif name in _MAPS:
            entries = message.section(section)
            if entries is not None:
                description[name] = _described_map(section, entries, typed=typed)
        elif section is Section.DATA and message.body is not None:
            description["body"] = _described_body(message.body, typed=typed)
    return description


def _described_map(section: Section, entries: AmqpValue, *, typed: bool) -> Json:
    if not typed:
        return plain_json(entries)
    natural = AmqpType.STRING if section is Section.APPLICATION_PROPERTIES else AmqpType.SYMBOL
    keys = [plain_json(key) for key, _ in entries.value if key.type is natural]
    if len(keys) == len(entries.value) == len({key for key in keys if isinstance(key, str)}):
        return {key: to_json(value) for key, (_, value) in zip(keys, entries.value, strict=True)}
    return to_json(entries)["v"]


def _described_body(body: Body, *, typed: bool) -> dict[str, Json]:
    shown = to_json if typed else plain_json
    match body.section:
        case Section.DATA:
            octets = body.octets() or b""
            as_text = AmqpValue(AmqpType.STRING, octets.decode("utf-8", "surrogateescape"))
            return {"data": plain_json(as_text)}
        case Section.AMQP_SEQUENCE:
            return {"sequence": [shown(part) for part in body.values()]}
        case _:
            return {"value": shown(body.values()[0])}


def message_arguments(description: Json) -> dict[str, Any]:
    """The arguments of `Message` for a description. Raises `ConfigError` that names the error.

    Plain values take the type of their field in header and properties, and the natural type elsewhere. A null section
    is a missing one.
    """
    if not isinstance(description, Mapping):
        raise ConfigError(
            f"a message is an object with {', '.join(SECTION_NAMES)}, found a {type(description).__name__}"
        )
    unknown = sorted(description.keys() - set(SECTION_NAMES))
    if unknown:
        raise ConfigError(f"a message has no {unknown[0]!r}; it has {', '.join(SECTION_NAMES)}")
    arguments: dict[str, Any] = {"body": None}
    for name, content in description.items():
        if content is None:
            continue
        try:
            arguments[name] = _body(content) if name == "body" else _entries(name, content)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
    return arguments


def _entries(name: str, content: Json) -> Any:
    if isinstance(content, Mapping):
        return {key: from_plain_or_typed(value) for key, value in content.items()}
    if name in _MAPS and isinstance(content, list):
        if all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            return [(from_plain_or_typed(key), from_plain_or_typed(value)) for key, value in content]
        raise ConfigError("[key, value] pairs expected")
    raise ConfigError(f"an object of names and values expected, found a {type(content).__name__}")


def _body(content: Json) -> Body:
    if isinstance(content, str):
        return Body.data(content.encode())
    if isinstance(content, Mapping) and len(content) == 1:
        ((kind, held),) = content.items()
        value = from_plain_or_typed(held)
        if kind == "data" and isinstance(value, (str, bytes)):
            return Body.data(value.encode() if isinstance(value, str) else value)
        if kind == "sequence" and isinstance(value, list):
            return Body.sequence(*value)
        if kind == "value":
            return Body.value(value)
    raise ConfigError('text, {"data": text or {"hex": …}}, {"sequence": [[…]]} or {"value": …} expected')
