"""The fields of an AMQP 1.0 message that a filter, a column or a property map can name, and their standard names.

Source: OASIS AMQP 1.0 part 3 (messaging), section 3.2. Positions are places in the composite lists.
"""

from __future__ import annotations

import enum
import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import ConfigError
from headgate.message.constructors import AmqpType

if TYPE_CHECKING:
    from headgate.message.body_schema import BodySchema


class Section(enum.IntEnum):
    """Message sections by the code of their descriptor."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    AMQP_SEQUENCE = 0x76
    AMQP_VALUE = 0x77
    FOOTER = 0x78


@dataclass(frozen=True, slots=True)
class FieldReference:
    """One field: by `position` in the header or properties list, or by `key` (UTF-8 bytes) in one of the map sections.

    `default` is the value that an absent or null field has; None = unknown. With `only`, a value of any other type
    counts as absent. `ignore_case`: the key in its exact spelling, else the first key of the message that equals it
    without case. `path` leads into the value: bytes are the string or symbol key of a map, an integer is the
    number of an element of a list or array, from 0, or an integer key of a map. `schema`: bodies are decoded by it
    before a path is followed; None for JSON.
    """

    section: Section
    position: int | None = None
    key: bytes | None = None
    default: int | bool | None = None
    only: AmqpType | None = None
    ignore_case: bool = False
    path: tuple[bytes | int, ...] = ()
    schema: BodySchema | None = None


HEADER_TYPES: dict[str, AmqpType] = {
    "durable": AmqpType.BOOLEAN,
    "priority": AmqpType.UBYTE,
    "ttl": AmqpType.UINT,
    "first-acquirer": AmqpType.BOOLEAN,
    "delivery-count": AmqpType.UINT,
}
"""Type of each header field, in the order of the list, as the standard spells the names."""

PROPERTIES_TYPES: dict[str, AmqpType | None] = {
    "message-id": None,
    "user-id": AmqpType.BINARY,
    "to": AmqpType.STRING,
    "subject": AmqpType.STRING,
    "reply-to": AmqpType.STRING,
    "correlation-id": None,
    "content-type": AmqpType.SYMBOL,
    "content-encoding": AmqpType.SYMBOL,
    "absolute-expiry-time": AmqpType.TIMESTAMP,
    "creation-time": AmqpType.TIMESTAMP,
    "group-id": AmqpType.STRING,
    "group-sequence": AmqpType.UINT,
    "reply-to-group-id": AmqpType.STRING,
}
"""Type of each properties field, as for the header; None = an id: ulong, uuid, binary or string."""

HEADER_FIELDS, PROPERTIES_FIELDS = tuple(HEADER_TYPES), tuple(PROPERTIES_TYPES)
"""Field names of both sections by position."""

DEFAULT_PRIORITY = 4
"""Header priority of a message that states none."""


def without_case(key: bytes) -> bytes:
    """The key with its letters as capitals: the same bytes for keys that are equal without case.

    A letter stays as it is if its capital is more than one letter, or if only one of the two is ASCII. Of bytes that
    are not UTF-8 only ASCII letters change.
    """
    if key.isascii():
        return key.upper()
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return key.upper()
    return "".join(map(_capital, text)).encode()


def _capital(character: str) -> str:
    capital = character.upper()
    return capital if len(capital) == 1 and capital.isascii() is character.isascii() else character


_LIST_SECTIONS = {
    "header": (Section.HEADER, HEADER_FIELDS),
    "properties": (Section.PROPERTIES, PROPERTIES_FIELDS),
}
_MAP_SECTIONS = {
    "application_properties": Section.APPLICATION_PROPERTIES,
    "message_annotations": Section.MESSAGE_ANNOTATIONS,
}


_PATH_STEP = re.compile(
    r"""\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\.(?P<quoted>"(?:[^"]|"")*")"""
    r"""|\[(?:(?P<number>[0-9]{1,10})|(?P<key>"(?:[^"]|"")*"|'(?:[^']|'')*'))\]"""
)
_PLAIN_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_PATH_STEPS = 32
"""Limit: steps of a path into a body."""


def parse_field(text: str) -> FieldReference:
    """The field that options and declarations write as `section.name`, such as `application_properties.region`.

    Sections are header, properties, application_properties and message_annotations; the names of the first two take
    underscores or hyphens, behind the others stands any key. `body.` and a path, as filters in `amqp` have it, is a
    value in a JSON body. Raises ConfigError with the reason.
    """
    section, dot, name = text.partition(".")
    if dot and section == "body":
        return FieldReference(Section.DATA, path=_body_path(text))
    if dot and section in _LIST_SECTIONS:
        code, names = _LIST_SECTIONS[section]
        if name.replace("_", "-") not in names:
            known = ", ".join(known.replace("-", "_") for known in names)
            raise ConfigError(f"{text!r}: section {section} has no field {name!r}; it has {known}")
        return FieldReference(code, position=names.index(name.replace("_", "-")))
    if dot and section in _MAP_SECTIONS:
        return FieldReference(_MAP_SECTIONS[section], key=_encoded(name, text))
    raise ConfigError(
        f"{text!r} names no field; expected section.name with one of the sections "
        f"{', '.join([*_LIST_SECTIONS, *_MAP_SECTIONS])} or body"
    )


def _encoded(name: str, text: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{text!r}: half of a surrogate pair is no text that a key may have") from error


@functools.lru_cache(maxsize=1024)
def _body_path(text: str) -> tuple[bytes | int, ...]:
    position = len("body.") if text.startswith("body.[") else len("body")
    steps: list[bytes | int] = []
    while position < len(text) and len(steps) < MAX_PATH_STEPS:
        found = _PATH_STEP.match(text, position)
        if found is None:
            break
        quoted, position = found["quoted"] or found["key"], found.end()
        name = found["name"] if quoted is None else quoted[1:-1].replace(quoted[0] * 2, quoted[0])
        steps.append(int(found["number"]) if name is None else _encoded(name, text))
    if not steps or position < len(text):
        raise ConfigError(
            f"{text!r}: cannot read {text[position:]!r}; expected a path of at most {MAX_PATH_STEPS} steps into a JSON "
            'body, such as body.order.region or body.items[0]."any name"'
        )
    return tuple(steps)


def body_path_text(steps: tuple[bytes | int | None, ...]) -> str:
    """A path into the body as `parse_field` and filters read it; None is `[*]`. `body.` without steps."""
    spelled = steps_text(steps)
    return f"body{spelled}" if spelled.startswith(".") else f"body.{spelled}"


def steps_text(steps: tuple[bytes | int | None, ...]) -> str:
    """Some steps of a path, as they stand behind others."""
    return "".join(map(_step_text, steps))


def _step_text(step: bytes | int | None) -> str:
    if not isinstance(step, bytes):
        return "[*]" if step is None else f"[{step}]"
    name = step.decode()
    return f".{name}" if _PLAIN_STEP.fullmatch(name) else '."' + name.replace('"', '""') + '"'
