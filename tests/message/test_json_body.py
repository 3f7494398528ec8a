"""Bodies as JSON: the texts that are accepted and refused, against RFC 8259's grammar and Python's parser."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_strategies import json_texts, paths
from headgate.message import (
    AmqpValue,
    Body,
    JsonKind,
    JsonPaths,
    JsonValue,
    Message,
    amqp_value,
    json_document,
    parse_field,
)
from headgate.message.constructors import AmqpType
from headgate.message.json_body import MAX_DIGITS, MAX_JSON_BYTES, MAX_NESTING

ACCEPTED = (
    *("{}", "[]", "[[]]", '""', "0", "-0", "true", "false", "null", " \t\n\r[ ] \t\n\r", "[ 1 , 2 ]", '{ "a" : 1 }'),
    *("-1", "10", "123", "0.0", "-0.0", "0.5", "1.000", "1e5", "1E5", "1e+5", "1e-5", "0e0", "0.1e1", "1.5E-09"),
    *("-0e-0", r'"\""', r'"\\"', r'"\/"', r'"\b\f\n\r\t"', r'"é"', r'"\uD83D\uDE00"', r'"\ud800"', r'"\udc00\ud800"'),
    *(r'"\u0000"', '"\x7f"', '"é日😎\u2028"', r'"\uFFFF"', r'"\uABCD"', '""', '{"":0}', '{"a":1,"a":2}'),
    *(r'{"\u0061":[]}', '[1,"a",null,true,{},[],{"x":[{}]}]', "[" * MAX_NESTING + "]" * MAX_NESTING),
    *("[" + "1," * 300 + "1]", "1" * 5000, '{"a":[],"b":{},"c":"","d":[{"e":null}]}', "[[],[[]],[[[]]]]", "1e99999"),
    *('"' + "\\n" * 500 + '"', '["a\\tb",1]'),
)
REFUSED = (
    *("", " ", "[", "]", "{", "}", "[1", "[1,", "[,", "[,1]", "[1,]", "[1,,2]", "[1 2]", "[1}", "{1}", '{"a"}'),
    *('{"a":}', '{"a":1,}', "{,}", '{"a":1', '{"a"', '{"a" 1}', '{"a":1 "b":2}', "{a:1}", "{'a':1}", '{"a":1]'),
    *('{"a"::1}', "{null:1}", "01", "-01", "00", "-", "+1", ".5", "1.", "1.e5", "1e", "1e+", "0x1", "1_000", "- 1"),
    *("1 2", "--1", "1e1.5", "1E", "-.5", "NaN", "Infinity", "-Infinity", "nan", "inf", "True", "nul", "truex"),
    *("true false", "undefined", "TRUE", "n", "[NaN]", '"', '"a', '"\\"', r'"\x41"', r'"\a"', r'"\u12"', r'"\u12G4"'),
    *(r'"\U0041"', "'a'", '"a\nb"', '"\t"', '"\x00"', '"\x1f"', '"a"b', "[]x", "{}{}", "[],", "1,", "/**/1"),
    *("[1//\n]", "#1", "\ufeff1", "1\x00", "\x0c1", "\u00a01", "[1\x0b]", "\u20281"),
    *("[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1), "[" * 100_000, '{"a":' * 100_000, '[1,"\\'),
    *('"' + "\\n" * 500, '{"a":[1,2}', '[{"a":1]', "[[1]", '{"a":{"b":1}', '{"a" "b"}', '{"a":1,"b"}', '{"a":1,2}'),
    *('["a":1]', "{[]:1}", '"\\'),
)
REFUSED_BYTES = (
    *(b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"', b'"\x80"', b'{"\xff":1}'),
    *(b"\xff\xfe1\x00", b"1\x00", b"\x00\x00\x001", b"\xef\xbb\xbf{}", b'["\xc3', b"[1]\xff"),
)


@pytest.mark.parametrize("text", ACCEPTED)
def test_texts_of_the_grammar_are_documents(text: str) -> None:
    assert json_document(text.encode()) is not None


@pytest.mark.parametrize("text", [*map(str.encode, REFUSED), *REFUSED_BYTES])
def test_other_texts_are_no_documents(text: bytes) -> None:
    assert json_document(text) is None


def plain(value: JsonValue) -> object:
    """A value as Python has it."""
    match value.kind:
        case JsonKind.OBJECT:
            return {json.loads(key): plain(member) for key, member in value._members()}
        case JsonKind.ARRAY:
            return [plain(element) for element in value.elements() or ()]
        case _:
            found = value.scalar()
            return found.decode() if isinstance(found, bytes) else found


_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _texts, st.integers(-999, 999).map(lambda n: Decimal(n) / 8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)),
    max_leaves=12,
)


def spelled(value: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """A text of a value, with blanks and escapes by chance."""
    blank = draw(st.sampled_from(("", "", " ", "\n", "\t \r")))
    match value:
        case dict():
            pairs = (f"{spelled(key, draw)}:{spelled(inner, draw)}" for key, inner in value.items())
            return f"{blank}{{{','.join(pairs) or blank}}}{blank}"
        case list():
            return f"{blank}[{','.join(spelled(inner, draw) for inner in value) or blank}]{blank}"
        case Decimal():
            return f"{blank}{value:.3f}{blank}"
        case _:
            return blank + json.dumps(value, ensure_ascii=draw(st.booleans())) + blank


@given(st.data(), _values)
def test_every_value_is_found_where_it_is(data: st.DataObject, value: Any) -> None:
    document = json_document(spelled(value, data.draw).encode())
    assert document is not None
    assert plain(document) == value


@given(json_texts, st.lists(paths.map(lambda text: parse_field(text).path), max_size=5))
def test_several_paths_lead_together_where_each_leads_alone(text: str, wanted: list[tuple[bytes | int, ...]]) -> None:
    document = json_document(text.encode())
    assert JsonPaths(wanted).values(document) == [document and document.at(path) for path in wanted]


@given(st.text('[]{},:"\\ 1e.-tru', max_size=12))
def test_texts_by_chance_are_documents_where_python_reads_them(text: str) -> None:
    def refuse(_: str) -> None:
        raise ValueError

    try:
        json.loads(text, parse_constant=refuse)
        accepted = True
    except ValueError:
        accepted = False
    assert (json_document(text.encode()) is not None) is accepted


@pytest.mark.parametrize(
    "text", ['{"a":[1,{"b":"x\\u00e9"}],"c":-1.5e3,"d":"\\\\"}', '[true,[null,"\\ud83d\\ude00"],{}]']
)
def test_no_beginning_of_a_document_is_one(text: str) -> None:
    whole = text.encode()
    assert json_document(whole) is not None
    assert all(json_document(whole[:stop]) is None for stop in range(len(whole)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993", 9007199254740993),
        ("-0", 0),
        ("1" * MAX_DIGITS, int("1" * MAX_DIGITS)),
        ("1" * (MAX_DIGITS + 1), None),
        ("0." + "1" * MAX_DIGITS, None),
        ("0.1", Decimal("0.1")),
        ("1e0009999", Decimal("1e9999")),
        ("1e10000", None),
        ("1e-10000", None),
        ("0e10000", None),
        (r'"\ud83d\ude00\u0000"', "😀\0".encode()),
        (r'"a\ud800"', None),
        ("{}", None),
        ("null", None),
        ("true", True),
    ],
)
def test_values_of_scalars(text: str, value: object) -> None:
    document = json_document(text.encode())
    assert document is not None
    found = document.scalar()
    assert found == value
    assert type(found) is type(value)


def test_a_longer_text_is_no_document() -> None:
    assert json_document(b" " * (MAX_JSON_BYTES - 1) + b"1") is not None
    assert json_document(b" " * MAX_JSON_BYTES + b"1") is None


def _value(kind: AmqpType, value: object) -> Body:
    return Body.value(AmqpValue(kind, value))


@pytest.mark.parametrize(
    ("message", "is_json"),
    [
        (Message(b"[1]"), True),
        (Message(Body.data(b"[", b"1", b"]")), True),
        (Message(_value(AmqpType.STRING, "[1]")), True),
        (Message(_value(AmqpType.BINARY, b"[1]")), True),
        (Message(_value(AmqpType.SYMBOL, "[1]")), False),
        (Message(_value(AmqpType.LONG, 1)), False),
        (Message(Body.value(amqp_value({"a": 1}))), False),
        (Message(None), False),
        (Message(b""), False),
        (Message(b"[1]", footer={"f": 1}), True),
        (Message.decode(b"\x00\x53\x75\xa0\x03[1]" + b"\x00\x53\x78\xff"), True),
        (Message.decode(b"\x00\x53\x75\xa0\x03[1]" + b"\x00\x53\x77\x40"), False),
        (Message.decode(b"\x00\x53\x75\xa0\x03[1]" + b"\x00\x53\x70\x45"), False),
        (Message.decode(b"\x00\x53\x75\xa0\x03[1]" + b"x"), False),
        (Message.decode(b"\x00\x53\x75\xa0\x04[1]"), False),
        (Message.decode(b"\x00\x53\x75\xb0\x00\x00\x00\x03[1]"), True),
        (Message.decode(b"\x00\x53\x75\xa1\x03[1]"), False),
        (Message.decode(b"\x00\x53\x77\xa1\x03[1]" + b"\x00\x53\x77\xa1\x01 "), False),
        (Message.decode(b"\x00\x53\x77\x00\x53\x01\xa1\x03[1]"), False),
    ],
)
def test_which_bodies_may_be_json(message: Message, is_json: bool) -> None:
    assert (message.json is not None) is is_json
