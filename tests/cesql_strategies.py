"""Hypothesis strategies for the language `cesql`: expressions, and messages that are events, or nearly so."""

from __future__ import annotations

import datetime
import json

from hypothesis import strategies as st

from headgate.language.cesql import FUNCTIONS
from headgate.message import AmqpType, AmqpValue, Body, Message, Section

NAMES = ("a", "b", "n", "flag", "time", "datacontenttype", "missing")
TEXTS = (
    "", "a", "red", "5", "05", "+5", "-5", "5.0", " 5", "true", "TRUE", "False", "2147483647", "2147483648",
    "-2147483648", "-2147483649", "00000000000000000007", "9999999999", "it's", 'say "x"', "a%b", "a_b", "a\\b", "a\\",
    "日本", "\U0001f600", "é", "\n", "application/json", "application/cloudevents+json", "\xa0x\u2003", "a" * 40,
)  # fmt: skip
"""Texts of attributes and literals: numbers and truths in many spellings, things that are nearly so, other texts."""

INTEGERS = (0, 1, -1, 5, 7, 10, 2**31 - 1, -(2**31), 65536)

texts = st.one_of(st.sampled_from(TEXTS), st.text(alphabet="05+-aA%_\\'tТ", max_size=6))


def quoted(text: str) -> str:
    """A string constant, for texts that have one."""
    quote = '"' if "'" in text else "'"
    escaped = text.replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}" if not escaped.endswith("\\") else f"{quote}{escaped}.{quote}"


names = st.sampled_from(NAMES)
strings = texts.map(quoted)
literals = st.one_of(strings, st.sampled_from(INTEGERS).map(str), st.sampled_from(("TRUE", "false")))
patterns = st.text(alphabet="ab5%_\\日.", max_size=6).map(quoted)
_operands = st.one_of(names, names, literals)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=1, max_size=3).map(", ".join)
    return st.one_of(
        st.builds("({}) {} ({})".format, inner, st.sampled_from(("AND", "OR", "XOR", "and", "or")), inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">=")), inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from("+-*/%"), inner),
        st.builds("({}) {}IN ({})".format, inner, st.sampled_from(("", "NOT ")), several),
        st.builds("({}) {}LIKE {}".format, inner, st.sampled_from(("", "NOT ")), patterns),
        st.builds("NOT ({})".format, inner),
        st.builds("-({})".format, inner),
        st.builds("{}({})".format, st.sampled_from(sorted(FUNCTIONS)), several),
        names.map("EXISTS {}".format),
    )


_simple = st.one_of(
    st.builds("{} {} {}".format, _operands, st.sampled_from(("=", "<>", "<", "<=", ">", ">=")), _operands),
    st.builds(
        "{} {}IN ({})".format, names, st.sampled_from(("", "NOT ")), st.lists(literals, min_size=1).map(", ".join)
    ),
    st.builds("{} {}LIKE {}".format, names, st.sampled_from(("", "NOT ")), patterns),
    names.map("EXISTS {}".format),
    _operands,
)
expressions = st.recursive(_simple, _combined, max_leaves=6)
"""Texts most of which the language accepts; they reach every operator and function, and mix types freely."""

_TOKENS = (
    *NAMES, "5", "-5", "2147483648", "=", "<>", "!=", "<", "(", ")", ",", "+", "-", "*", "/", "%", "NOT", "AND", "or",
    "XOR", "LIKE", "IN", "EXISTS", "TRUE", "'x'", '"y"', "'", '"', "\\", "INT", "CONCAT_WS", "foo", "_", ".", "\n", "é",
    "[", "\ud800",
)  # fmt: skip
token_soups = st.lists(st.sampled_from(_TOKENS), max_size=10).flatmap(
    lambda tokens: st.sampled_from(("", " ")).map(lambda blank: blank.join(tokens))
)
"""Tokens of the language and of none, in any order."""

_values = st.one_of(
    texts,
    st.booleans(),
    st.sampled_from((*INTEGERS, 2**31, -(2**31) - 1, 2**63 - 1)),
    st.sampled_from((None, 1.5, float("nan"), b"\x00\xff", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), [1])),
    st.sampled_from((
        AmqpValue(AmqpType.SYMBOL, "red"), AmqpValue(AmqpType.ULONG, 2**64 - 1), AmqpValue(AmqpType.INT, 5),
        AmqpValue(AmqpType.UBYTE, 5), AmqpValue(AmqpType.CHAR, 97), AmqpValue(AmqpType.TIMESTAMP, 2**62),
    )),
)  # fmt: skip
_keys = st.builds("{}{}".format, st.sampled_from(("cloudEvents_", "cloudEvents:", "")), names)
_content_types = st.sampled_from((
    "application/json", "a", "APPLICATION/CLOUDEVENTS+json", "application/cloudevents+json; charset=utf-8",
    "application/cloudevents", "application/cloudevents+avro", "application/cloudevent",
))  # fmt: skip
_json_bodies = st.one_of(
    st.dictionaries(names, st.one_of(texts, st.booleans(), st.sampled_from((5, 2**31, 1.5, None, []))), max_size=4).map(
        lambda members: json.dumps(members).encode()
    ),
    st.sampled_from((b"", b"[1]", b'{"a": ', b"\xff", b'{"a": "\\ud800"}', b'{"n": ' + b"9" * 5000 + b"}")),
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Encoded messages: most are events in binary mode."""
    fields = {}
    if draw(st.integers(0, 2)) == 0:
        fields["content_type"] = draw(_content_types)
    body: bytes | Body | None = draw(_json_bodies)
    if isinstance(body, bytes) and draw(st.integers(0, 4)) == 0:
        body = Body(Section.AMQP_VALUE, (AmqpValue(AmqpType.BINARY, body),))
    properties = draw(st.dictionaries(_keys, _values, max_size=6))
    return Message(body, application_properties=properties, **fields).encode()
