"""Columns of values in JSON bodies: the kernel fills them as the reference does, value for value and bit for bit."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_strategies import body_messages, rare_messages
from column_oracle import declared
from headgate.derived.columns.exactness import inexact_bits
from headgate.evaluate import body_values
from headgate.evaluate.body import values as values_in_bodies
from headgate.message import Body, EncodedMessages, Message, reference_body_values
from headgate.message.arrow import DeclaredColumn, fields_of
from json_texts import changed

TYPES = ("string", "boolean", "tinyint", "int", "bigint", "decimal(9,2)", "decimal(38,30)", "double", "float")
PATHS = ("a", "b", "k[0]", "k[1].a", '"é"', "[0]")
KINDS = [(place, path, number, kind) for place, path in enumerate(PATHS) for number, kind in enumerate(TYPES)]
COLUMNS = declared(", ".join(f"body.{path} {kind} as c{place}_{number}" for place, path, number, kind in KINDS))


def assert_as_the_reference(messages: list[bytes], columns: list[DeclaredColumn]) -> None:
    batch = EncodedMessages.of(messages)
    values, wanted = body_values(batch, columns), reference_body_values(batch, columns)
    arrays, expected = (list(fields_of(batch, columns, each).values()) for each in (values, wanted))
    for column, array, other in zip(columns, arrays, expected, strict=True):
        array.validate(full=True)
        # By their texts: 0.0 equals -0.0.
        assert repr(array.to_pylist()) == repr(other.to_pylist()), column
    assert inexact_bits(batch, columns, arrays).tolist() == inexact_bits(batch, columns, expected, wanted).tolist()


@given(st.lists(st.one_of(body_messages, rare_messages), min_size=1, max_size=4))
def test_the_kernel_fills_columns_as_the_reference(messages: list[bytes]) -> None:
    assert_as_the_reference(messages, COLUMNS)


def test_values_of_damaged_bodies_and_messages(seed: int) -> None:
    chance = random.Random(seed)
    text = b'{"a":"x","b":-1.50,"k":["\\u0041",{"a":true}],"\xc3\xa9":null,"a":["y"],"b":9007199254740993.0}'
    messages = [Message(Body.data(changed(chance, text))).encode() for _ in range(100)]
    whole = Message(Body.data(text), application_properties={"p": 1}).encode()
    messages += [whole[:end] for end in range(len(whole))] + [changed(chance, whole) for _ in range(100)]
    assert_as_the_reference(messages, COLUMNS)


def test_numbers_of_every_size(seed: int) -> None:
    chance = random.Random(seed)

    def number() -> str:
        digits = "".join(chance.choices("0123456789", k=chance.randint(1, 20))).lstrip("0") or "0"
        point = f".{chance.randint(0, 10 ** chance.randint(1, 9))}" if chance.random() < 0.5 else ""
        power = f"e{chance.randint(-25, 25)}" if chance.random() < 0.3 else ""
        return f"{chance.choice(('', '-'))}{digits}{point}{power}"

    near = [2**power + step for power in (24, 31, 53, 62, 63) for step in (-1, 0, 1)]
    # The last is the greatest integer that the kernel reads; its double is 2^63.
    texts = ["-0.0", "-0", "9223372036854775799"] + [number() for _ in range(300)]
    texts += [str(sign * each) for each in near for sign in (1, -1)]
    assert_as_the_reference([Message(f'{{"a":{text}}}'.encode()).encode() for text in texts], COLUMNS[: len(TYPES)])


def test_as_many_columns_as_a_stream_may_have() -> None:
    columns = declared(", ".join(f"b.x.k{number} int as c{number}" for number in range(63)))
    body = ",".join(f'"k{number}":{number}' for number in range(63))
    batch = EncodedMessages.of([Message(f'{{"x":{{{body}}}}}'.encode()).encode()])
    values = body_values(batch, columns)
    assert [array.to_pylist() for array in fields_of(batch, columns, values).values()] == [[each] for each in range(63)]


def test_without_kernels_the_reference_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = EncodedMessages.of([Message(b'{"a":"x"}').encode()])
    monkeypatch.setattr(values_in_bodies, "load", lambda _name: None)
    assert fields_of(batch, COLUMNS[:1], body_values(batch, COLUMNS[:1]))["c0_0"].to_pylist() == ["x"]
