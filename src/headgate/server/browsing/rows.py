"""A message as JSON for people and browsers: its sections, their types, and the beginning of its body.

    {"offset": 7, "timestamp_ms": …, "filter_value": "emea",
     "message": {"properties": {"subject": "order"}, "application_properties": {"id": "9007199254740993"}},
     "typed": {"properties": {"subject": {"type": "string", "value": "order"}}, …},
     "body": {"kind": "data", "type": null, "size_bytes": 5, "text": "hello", "base64": "aGVsbG8=",
              "is_truncated": false}}

Integers that JavaScript's numbers do not hold exactly are texts. A map whose keys are not all different texts is a
list of [key, value] pairs. Bytes that are no message have the `kind` "malformed", and the reason in `message`.
"""

from __future__ import annotations

import base64
import codecs
from typing import Any

import msgspec

from headgate.errors import MessageError
from headgate.log import StreamSettings
from headgate.message import AmqpType, Message, Section, plain_json, read_descriptor
from headgate.scan import written_filter_value

Row = dict[str, Any]

SHOWN_BODY_BYTES = 65_536
"""Limit: bytes of a body that are shown."""

_DECODED_BYTES = 1 << 18
"""Limit: bytes of sections that are shown as values. Each byte of them may become a Python object."""

_LARGEST_EXACT = 2**53 - 1
_KINDS = {Section.DATA: "data", Section.AMQP_VALUE: "value", Section.AMQP_SEQUENCE: "sequence"}


def message_row(encoded: bytes, *, offset: int, timestamp_ms: int, settings: StreamSettings | None) -> Row:
    """The row of a stored message; `settings` are those of its stream, None of a foreign one."""
    value = None
    sections: Row
    typed: Row = {}
    try:
        message = Message.decode(encoded)
        value = written_filter_value(settings, message, offset, offset + 1)
        sections, typed = _sections(message)
        body = _body(message)
    except MessageError as error:
        sections, body = {"malformed": str(error)}, _octets("malformed", encoded)
    return {
        "offset": offset,
        "timestamp_ms": timestamp_ms,
        "filter_value": None if value is None else value.decode(errors="backslashreplace"),
        "message": sections,
        "typed": typed,
        "body": body,
    }


def _sections(message: Message) -> tuple[Row, Row]:
    """The sections beside the body, and the same with types. Those that are too large are told by their size."""
    shown = []
    sections: Row = {}
    for section in Section:
        size = message.section_bytes(section)
        if section in _KINDS or (section is Section.FOOTER and not _is_decoded(message)):
            continue
        if size > _DECODED_BYTES:
            sections[section.name.lower()] = {"left_out_bytes": size}
        else:
            shown.append(section)
    plain = message.describe(sections=shown)
    typed = message.describe(typed=True, sections=shown)
    for name, values in plain.items():
        sections[name] = exact(values)
    return sections, {name: _with_types(sections[name], values) for name, values in typed.items()}


def _with_types(plain: Any, typed: Any) -> Any:
    """The entries of a section as `{"type", "value"}`."""
    values = typed.values() if isinstance(typed, dict) else [value for _, value in typed]
    types = [value["t"] for value in values]
    if isinstance(plain, dict):
        return {key: {"type": kind, "value": value} for (key, value), kind in zip(plain.items(), types, strict=True)}
    return [[key, {"type": kind, "value": value}] for (key, value), kind in zip(plain, types, strict=True)]


def exact(plain: Any) -> Any:
    """JSON in which integers that JavaScript's numbers do not hold exactly are texts."""
    match plain:
        case bool():
            return plain
        case int():
            return plain if abs(plain) <= _LARGEST_EXACT else str(plain)
        case dict():
            return {key: exact(value) for key, value in plain.items()}
        case list():
            return [exact(member) for member in plain]
    return plain


def _is_decoded(message: Message) -> bool:
    """Whether the body is taken apart: data is cheap, values are not."""
    body = message.encoded_body
    return not body or len(body) <= _DECODED_BYTES or read_descriptor(body, 0)[0] is Section.DATA


def _body(message: Message) -> Row:
    encoded = message.encoded_body
    section = read_descriptor(encoded, 0)[0] if encoded else Section.FOOTER
    if section is Section.FOOTER:
        return _octets("none", b"")
    kind = _KINDS[Section(section)]
    if not _is_decoded(message):
        return _octets(kind, encoded, text=None, is_truncated=True)
    body = message.body
    assert body is not None
    octets = body.octets()
    if section == Section.DATA:
        return _octets(kind, octets or b"")
    values = body.values()
    only = values[0].type if section == Section.AMQP_VALUE else None
    if octets is not None:
        return _octets(kind, octets, of=only)
    plain = plain_json(values[0]) if only is not None else [plain_json(part) for part in values]
    text = msgspec.json.encode(exact(plain)).decode()
    return _octets(kind, encoded, text=text, of=only, is_truncated=len(text) > SHOWN_BODY_BYTES)


def _octets(
    kind: str,
    octets: bytes,
    *,
    text: str | None = "",
    of: AmqpType | None = None,
    is_truncated: bool = False,
) -> Row:
    """A body of some bytes; `text` is that of a value which is no text, None where it is not decoded."""
    shown = octets[:SHOWN_BODY_BYTES]
    is_cut = len(octets) > len(shown)
    if text == "":
        text = _text(shown, is_cut=is_cut)
    return {
        "kind": kind,
        "type": None if of is None else of.value,
        "size_bytes": len(octets),
        "text": None if text is None else text[:SHOWN_BODY_BYTES],
        "base64": base64.b64encode(shown).decode(),
        "is_truncated": is_cut or is_truncated,
    }


def _text(octets: bytes, *, is_cut: bool) -> str | None:
    """The bytes as text, without a character that was cut; None if they are not UTF-8."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(octets, final=not is_cut)
    except UnicodeDecodeError:
        return None
