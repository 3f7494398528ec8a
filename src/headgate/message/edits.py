"""Changes of single fields in encoded bytes: all other fields keep their exact encoding.

A list or map section is taken apart into its encoded elements, some are replaced, added or left out, and the section is
put together again around them; the other sections, the body and the footer are copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from headgate.errors import MessageError
from headgate.message.codec import encode_compound, encode_value
from headgate.message.constructors import CONSTRUCTOR_WIDTHS, CONSTRUCTORS, WIDTH_SIZE8, AmqpType
from headgate.message.fields import FieldReference, Section, without_case
from headgate.message.framing import LIST_SECTIONS, SectionSpan, value_bounds
from headgate.message.types import NULL, AmqpValue

_NULL = encode_value(NULL)
_TEXTS = (AmqpType.STRING, AmqpType.SYMBOL)

Change = tuple[FieldReference, AmqpValue | None]
"""A field and its new value; None takes the field out."""


def changed_bytes(
    data: bytes, spans: Mapping[Section, SectionSpan], body_position: int, changes: Sequence[Change]
) -> bytes:
    """The message `data` with changes made one after the other; `spans` are its sections before the body.

    A section that is missing is made where a field is set. Raises `MessageError` if the elements of a section that has
    to change do not fill it exactly.
    """
    by_section: dict[Section, list[Change]] = {}
    for change in changes:
        by_section.setdefault(change[0].section, []).append(change)
    pieces: list[bytes] = []
    position = 0
    for section in sorted({*spans, *by_section}):
        span = spans.get(section)
        wanted = by_section.get(section)
        if wanted is None:
            assert span is not None
            pieces.append(data[position : span.stop])
        else:
            elements = [] if span is None else _elements(data, span)
            changed = _changed_list(elements, wanted) if section in LIST_SECTIONS else _changed_map(elements, wanted)
            if span is not None or changed:
                before = data[position : span.position] if span is not None else bytes([0x00, 0x53, section])
                kind = AmqpType.LIST if section in LIST_SECTIONS else AmqpType.MAP
                pieces.append(before + encode_compound(kind, changed))
        position = position if span is None else span.stop
    pieces.append(data[body_position:])
    return b"".join(pieces)


def _elements(data: bytes, span: SectionSpan) -> list[bytes]:
    """The encoded elements of a section: fields of a list; keys and values of a map, in turn."""
    bounds = value_bounds(data, span.elements, span.stop, span.count)
    is_map = span.section not in LIST_SECTIONS
    if bounds[-1] != span.stop or (is_map and span.count % 2):
        reason = f"section {span.section:#x} announces {span.count} elements and holds others"
        raise MessageError(reason, position=span.position)
    return [data[begin:end] for begin, end in itertools.pairwise(bounds)]


def _changed_list(fields: list[bytes], changes: Sequence[Change]) -> list[bytes]:
    for reference, value in changes:
        position = reference.position or 0
        fields += [_NULL] * (position + 1 - len(fields))
        fields[position] = _NULL if value is None else encode_value(value)
    while fields and fields[-1] == _NULL:
        fields.pop()
    return fields


def _changed_map(elements: list[bytes], changes: Sequence[Change]) -> list[bytes]:
    pairs = list(zip(elements[::2], elements[1::2], strict=True))
    for reference, value in changes:
        found = _key_in(pairs, reference)
        if value is None:
            pairs = [pair for pair in pairs if found is None or _text_of(pair[0]) != found]
        elif found is None:
            natural = AmqpType.STRING if reference.section is Section.APPLICATION_PROPERTIES else AmqpType.SYMBOL
            key = AmqpValue(natural, (reference.key or b"").decode("utf-8", "surrogateescape"))
            pairs.append((encode_value(key), encode_value(value)))
        else:
            # Of keys that are spelled alike only one is left, so that there is one value to be seen.
            first = next(number for number, pair in enumerate(pairs) if _text_of(pair[0]) == found)
            kept = [pair for pair in pairs[first + 1 :] if _text_of(pair[0]) != found]
            pairs = [*pairs[:first], (pairs[first][0], encode_value(value)), *kept]
    return [element for pair in pairs for element in pair]


def _key_in(pairs: Sequence[tuple[bytes, bytes]], reference: FieldReference) -> bytes | None:
    """The key in a map, as spelled there, that a reference names; None if it is missing."""
    wanted = reference.key or b""
    keys = [key for pair in pairs if (key := _text_of(pair[0])) is not None]
    if wanted in keys:
        return wanted
    if reference.ignore_case:
        folded = without_case(wanted)
        return next((key for key in keys if without_case(key) == folded), None)
    return None


def _text_of(key: bytes) -> bytes | None:
    """The bytes of an encoded string or symbol; None for keys of other types."""
    if CONSTRUCTORS.get(key[0]) not in _TEXTS:
        return None
    return key[2:] if CONSTRUCTOR_WIDTHS[key[0]] == WIDTH_SIZE8 else key[5:]
