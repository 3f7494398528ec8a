"""Values at paths into bodies without a filter: the kernel beside the reference, message by message."""

from __future__ import annotations

import random
import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_strategies import body_messages, rare_messages
from headgate.evaluate import body_values, locate_values, unreadable_bodies
from headgate.evaluate.body import values as room
from headgate.message import (
    Body,
    BodyValues,
    EncodedMessages,
    FieldValues,
    FoundKind,
    JsonScalar,
    Message,
    parse_field,
    reference_body_values,
)
from headgate.message.lookup import locate_bytes
from json_texts import changed

FIELDS = [parse_field(text) for text in ("body.a", "body.b", "body.k[0]", "body.k[1].a", 'body."é"', "body.[0]")]


def _scalars(batch: EncodedMessages, found: FieldValues) -> list[JsonScalar]:
    """The value of each message."""
    others = iter(found.others)

    def scalar(kind: int, payload: int, length: int) -> JsonScalar:
        match kind:
            case FoundKind.INTEGER:
                return payload
            case FoundKind.DECIMAL:
                return Decimal(repr(struct.unpack("=d", struct.pack("=q", payload))[0]))
            case FoundKind.BOOLEAN:
                return payload == 1
            case FoundKind.STRING | FoundKind.UNESCAPED:
                texts = batch.data if kind == FoundKind.STRING else found.texts
                return texts[payload : payload + length].tobytes()
            case FoundKind.OTHER:
                return next(others)
        assert kind == FoundKind.NOTHING
        return None

    columns = (column.tolist() for column in (found.kinds, found.payloads, found.lengths))
    scalars = [scalar(*row) for row in zip(*columns, strict=True)]
    assert next(others, "none") == "none"
    return scalars


def _assert_as_the_reference(messages: list[bytes]) -> None:
    batch = EncodedMessages.of(messages)
    found, expected = body_values(batch, FIELDS), reference_body_values(batch, FIELDS)
    assert found.malformed.tolist() == expected.malformed.tolist()
    for field in FIELDS:
        seen, wanted = (_scalars(batch, each.at_paths[field.path]) for each in (found, expected))
        assert [(type(each), each) for each in seen] == [(type(each), each) for each in wanted]
        (starts, lengths), (places, sizes) = locate_values(batch, field), locate_bytes(batch, field)
        assert np.array_equal(lengths, sizes)
        assert np.array_equal(starts[lengths >= 0], places[lengths >= 0])
        # Also where there is no value: a writer checks that all places lie in the buffer.
        assert np.all((starts >= 0) & (starts <= len(batch.data)))


@given(st.lists(body_messages, max_size=6), st.booleans())
def test_bodies_that_cannot_be_read_are_those_without_a_document(messages: list[bytes], compiled: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(room, "load", lambda module: None)
        found = unreadable_bodies(EncodedMessages.of(messages), None)
    assert found.tolist() == [row for row, data in enumerate(messages) if Message.decode(data).json is None]


@given(st.lists(st.one_of(body_messages, rare_messages), max_size=6))
def test_values_are_those_of_the_reference(messages: list[bytes]) -> None:
    _assert_as_the_reference(messages)


def test_values_of_damaged_bodies_and_messages(seed: int) -> None:
    chance = random.Random(seed)
    text = (
        b'{"a":"x","b":-0.30000000000000004,"k":["\\u0041",{"a":true}],"\xc3\xa9":null,"a":["y"],"b":"\\/ and a word"}'
    )
    bodies = [Message(Body.data(changed(chance, text))).encode() for _ in range(150)]
    whole = Message(Body.data(text), application_properties={"p": 1}).encode()
    _assert_as_the_reference(
        [*bodies, *(whole[:end] for end in range(len(whole))), *(changed(chance, whole) for _ in range(150))]
    )


@given(st.lists(rare_messages, min_size=1, max_size=6))
def test_escapes_and_long_numbers_cost_no_walk_of_the_reference(messages: list[bytes]) -> None:
    walked: list[int] = []

    def reference(batch: EncodedMessages, fields: list[object]) -> BodyValues:
        walked.append(len(batch))
        return reference_body_values(batch, FIELDS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "reference_body_values", reference)
        body_values(EncodedMessages.of(messages), FIELDS)
    assert walked == [0]


def test_unescaped_texts_of_a_batch_stand_side_by_side() -> None:
    # The last is longer than those that filters leave to the reference.
    texts = [*(chr(0x430 + number % 32) * (number % 50) for number in range(1000)), "ж" * 5000]
    body = '{{"a":"{}\\/","b":"{}\\/"}}'
    escaped = [text.encode("ascii", "backslashreplace").decode() for text in texts]
    messages = [Message(body.format(each, each).encode()).encode() for each in escaped]
    batch = EncodedMessages.of(messages)
    for field in FIELDS[:2]:
        found = body_values(batch, FIELDS).at_paths[field.path]
        assert set(found.kinds.tolist()) == {FoundKind.UNESCAPED}
        assert _scalars(batch, found) == [f"{text}/".encode() for text in texts]


def test_no_paths_give_no_values_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    # The walk of a program without paths reads what is not there, and ends the process now and then.
    monkeypatch.setattr(room, "_program", None)
    found = body_values(EncodedMessages.of([b"no message"]), [parse_field("properties.subject")])
    assert (found.at_paths, found.malformed.tolist()) == ({}, [False])


def test_messages_outside_of_their_buffer_are_refused() -> None:
    batch = EncodedMessages.of([Message(b'{"a":1}').encode()])
    beyond = EncodedMessages(batch.data, batch.starts, batch.lengths + 1)
    with pytest.raises(ValueError, match="message 0"):
        body_values(beyond, FIELDS)
