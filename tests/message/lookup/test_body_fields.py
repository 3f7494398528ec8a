"""Fields in JSON bodies as declarations name them, and where their strings stand in encoded messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_strategies import body_messages
from headgate.errors import ConfigError
from headgate.message import Body, EncodedMessages, FieldReference, Message, Section, parse_field
from headgate.message.lookup import field_bytes, locate_bytes


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("body.order.region", (b"order", b"region")),
        ('body.items[0]."odd ""name""".x_1', (b"items", 0, b'odd "name"', b"x_1")),
        ("body.[7]['it''s'][\"k\"]", (7, b"it's", b"k")),
        ("body." + ".".join("x" * 32), (b"x",) * 32),
    ],
)
def test_a_path_is_declared_as_filters_write_it(text: str, path: tuple[bytes | int, ...]) -> None:
    assert parse_field(text) == FieldReference(Section.DATA, path=path)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("body.", "'.'"),
        ("body.5", "'.5'"),
        ("body.x.", "'.'"),
        ("body.x[*]", "'[*]'"),
        ("body.x[-1]", "'[-1]'"),
        ("body.é", "'.é'"),
        ("body." + ".".join("x" * 33), "'.x'"),
    ],
)
def test_what_is_no_path_is_refused_where_it_ends(text: str, rest: str) -> None:
    with pytest.raises(ConfigError, match="expected a path of at most 32 steps") as error:
        parse_field(text)
    assert f"cannot read {rest}" in str(error.value)


PATHS = st.sampled_from(("body.a", "body.b", "body.k[0]", "body.k[1].a", 'body."é"', "body.[0]"))


@given(st.lists(body_messages, min_size=1, max_size=4), PATHS)
def test_a_string_is_found_where_it_stands_as_it_is(messages: list[bytes], text: str) -> None:
    field = parse_field(text)
    batch = EncodedMessages.of(messages)
    starts, lengths = locate_bytes(batch, field)
    for row, data in enumerate(messages):
        document = Message.decode(data).json
        found = None if document is None else document.at(field.path)
        value = None if found is None else found.scalar()
        start, length = int(starts[row]), int(lengths[row])
        located = None if length < 0 else batch.data[start : start + length].tobytes()
        assert located == field_bytes(data, field)
        assert located in (None, value)
        # No text of JSON holds the beginning of a section; a body in pieces may have the value or not.
        if isinstance(value, bytes) and document is not None and data.count(b"\x00Su") <= 1:
            assert (located is None) is (b'"' + value + b'"' != document.text[found.start :][: len(value) + 2])  # type: ignore[union-attr]


def test_a_body_in_pieces_has_no_field() -> None:
    field = parse_field("body.a")
    assert field_bytes(Message(Body.data(b'{"a":"x', b'y"}')).encode(), field) is None
    assert field_bytes(Message(Body.data(b'{"a":"xy"}', b"")).encode(), field) == b"xy"
    assert field_bytes(Message(Body.value('{"a":"xy"}')).encode(), field) == b"xy"
    assert field_bytes(b"\x00\x53", field) is None
