"""Values at paths into bodies without a filter: the kernel beside the reference, message by message."""

from __future__ import annotations

import random
import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_strategies import body_messages
from headgate.errors import MessageError
from headgate.evaluate import layout, locate_values, read_paths, unreadable_bodies
from headgate.message import Body, EncodedMessages, JsonScalar, Message, parse_field
from headgate.message.lookup import locate_bytes
from json_texts import changed

FIELDS = [parse_field(text) for text in ("body.a", "body.b", "body.k[0]", "body.k[1].a", 'body."é"', "body.[0]")]


def _assert_as_the_reference(messages: list[bytes]) -> None:
    batch = EncodedMessages.of(messages)
    found = read_paths(batch, FIELDS)
    assert found is not None
    for row, data in enumerate(messages):
        for field, (kind, payload, length) in zip(FIELDS, found[row].tolist(), strict=True):
            if kind == layout.OPEN:
                continue
            try:
                value = Message.decode(data).json_value(field.path)
            except MessageError:
                value = None
            if value is None:
                assert kind == layout.ABSENT
                continue
            _assert_is(value.scalar(), kind, payload, batch.data[payload : payload + length].tobytes())
    for field in FIELDS:
        (starts, lengths), (places, sizes) = locate_values(batch, field), locate_bytes(batch, field)
        assert np.array_equal(lengths, sizes)
        assert np.array_equal(starts[lengths >= 0], places[lengths >= 0])
        # Also where there is no value: a writer checks that all places lie in the buffer.
        assert np.all((starts >= 0) & (starts <= len(batch.data)))


def _assert_is(scalar: JsonScalar, kind: int, payload: int, text: bytes) -> None:
    match kind:
        case layout.BYTES:
            assert isinstance(scalar, bytes)
            assert payload < 0 or text == scalar
        case layout.BOOLEAN:
            assert scalar is bool(payload)
        case layout.INTEGER:
            assert type(scalar) is int
            assert scalar == payload
        case layout.FLOAT:
            assert isinstance(scalar, Decimal)
            assert float(scalar) == struct.unpack("=d", struct.pack("=q", payload))[0]
        case layout.BETWEEN:
            assert isinstance(scalar, int | Decimal)
        case _:
            assert kind in (layout.NULL, layout.VALUELESS)
            assert scalar is None


@given(st.lists(body_messages, max_size=6), st.booleans())
def test_bodies_that_cannot_be_read_are_those_without_a_document(messages: list[bytes], compiled: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr("headgate.evaluate.body.fields.load", lambda module: None)
        found = unreadable_bodies(EncodedMessages.of(messages), None)
    assert found.tolist() == [row for row, data in enumerate(messages) if Message.decode(data).json is None]


@given(st.lists(body_messages, min_size=1, max_size=4))
def test_values_are_those_of_the_reference(messages: list[bytes]) -> None:
    _assert_as_the_reference(messages)


def test_values_of_damaged_bodies_and_messages(seed: int) -> None:
    chance = random.Random(seed)
    text = b'{"a":"x","b":-1.50,"k":["\\u0041",{"a":true}],"\xc3\xa9":null,"a":["y"],"b":"long enough for a word"}'
    bodies = [Message(Body.data(changed(chance, text))).encode() for _ in range(150)]
    whole = Message(Body.data(text), application_properties={"p": 1}).encode()
    _assert_as_the_reference(
        [*bodies, *(whole[:end] for end in range(len(whole))), *(changed(chance, whole) for _ in range(150))]
    )


def test_no_paths_give_no_values_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    # The walk of a program without paths reads what is not there, and ends the process now and then.
    monkeypatch.setattr("headgate.evaluate.body.fields._program", None)
    found = read_paths(EncodedMessages.of([Message(b"[1]").encode()]), [])
    assert found is not None
    assert found.shape == (1, 0, 3)


def test_messages_outside_of_their_buffer_are_refused() -> None:
    batch = EncodedMessages.of([Message(b'{"a":1}').encode()])
    beyond = EncodedMessages(batch.data, batch.starts, batch.lengths + 1)
    with pytest.raises(ValueError, match="message 0"):
        read_paths(beyond, FIELDS)
