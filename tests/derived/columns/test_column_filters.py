"""A filter that is decided by columns says what it says of the messages: of any language, declaration and message."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

import kernel_strategies
import rocketmq_strategies
from amqp_strategies import amqp_expressions, amqp_messages
from body_schemas import order_schema
from body_strategies import body_expressions, body_messages
from column_oracle import assert_same, declaration_of, declared, rows_of
from headgate.derived.columns.declaration import ColumnDeclaration
from headgate.derived.columns.evaluation import decide_rows
from headgate.derived.columns.filter import column_filter
from headgate.errors import FilterError
from headgate.evaluate import Filter
from headgate.message import AmqpType, AmqpValue, Body, EncodedMessages, Message, Section, body_path_text
from headgate.message.arrow import HEADER_TYPES, PROPERTIES_TYPES
from strategies import (
    booleans,
    compound,
    damaged_messages,
    encoded_messages,
    expressions,
    integer_encodings,
    section,
    string,
    symbol,
    values,
)

NOW_MS = 1_767_225_600_000


TYPES = ["string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "timestamp", "binary"]
TYPES += ["decimal(20,0)"]
NAMES_OF_LISTS = {Section.HEADER: tuple(HEADER_TYPES), Section.PROPERTIES: tuple(PROPERTIES_TYPES)}
LETTERS = {Section.APPLICATION_PROPERTIES: "a", Section.MESSAGE_ANNOTATIONS: "m"}


@st.composite
def declarations(draw: st.DrawFn, expression: Filter) -> ColumnDeclaration:
    """Columns of any types for most of the fields that a filter names, and another one."""
    texts = ["a.other string"]
    for number, field in enumerate(sorted(expression.fields, key=repr)):
        if draw(st.integers(0, 9)) == 0:
            continue
        if field.position is not None and field.section in NAMES_OF_LISTS:
            letter = "h" if field.section is Section.HEADER else "p"
            texts.append(f"{letter}.{NAMES_OF_LISTS[field.section][field.position]} as c{number}")
        elif field.section is Section.DATA and field.path:
            kind = draw(st.sampled_from(("string", "bigint", "double", "boolean", "smallint", "float", "decimal(9,1)")))
            texts.append(f"{body_path_text(field.path)} {kind} as c{number}")
        elif field.section in LETTERS and field.key is not None and field.key.decode().isprintable():
            key = field.key.decode()
            if field.ignore_case and draw(st.booleans()):
                key = key.swapcase()
            kind = draw(
                st.one_of(st.sampled_from(("string", "bigint", "double", "string", "boolean")), st.sampled_from(TYPES))
            )
            texts.append(f"{LETTERS[field.section]}.`{key or 'x'}` {kind} as c{number}")
    return declaration_of(draw(st.permutations(declared(", ".join(texts)))))


def of_integers(*values: int) -> st.SearchStrategy[bytes]:
    return st.sampled_from([encoded for value in values for encoded in integer_encodings(value)])


TEXT = st.sampled_from(("", "a", "abc", "AMER", "z", "5", "red", "true", "é", "A")).map(
    lambda text: string(text.encode())
)
SMALL = of_integers(0, 5, -1, 7, 127)
WIDE = of_integers(0, 5, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 16777217)
VALUES = {
    "string": TEXT,
    "boolean": booleans,
    "tinyint": SMALL,
    "smallint": SMALL,
    "int": SMALL,
    "bigint": WIDE,
    "decimal": WIDE,
    "float": st.sampled_from((0.5, 5.0, 0.1, -1.0, 16777216.0)).map(lambda value: b"\x72" + struct.pack(">f", value)),
    "double": st.sampled_from((0.5, 5.0, 0.1, -1.0, 2.0**53, 2.0**53 + 2, 1e300, 0.0)).map(
        lambda value: b"\x82" + struct.pack(">d", value)
    ),
    "timestamp": st.sampled_from((0, NOW_MS, NOW_MS + 1, -1, 2**62)).map(lambda ms: b"\x83" + struct.pack(">q", ms)),
    "binary": st.sampled_from((b"\xa0\x01x", b"\xa0\x03abc", b"\xa0\x00")),
}
OF_LISTS = {
    "smallint": st.sampled_from((b"\x50\x04", b"\x50\x05", b"\x50\x00")),
    "bigint": st.sampled_from((b"\x43", b"\x52\x05")),
}


@st.composite
def fitting_messages(draw: st.DrawFn, declaration: ColumnDeclaration) -> bytes:
    """Messages that hold what columns are declared for; sometimes something else."""
    by_section: dict[Section, dict[str, bytes]] = {}
    for column in declaration.declared:
        if draw(st.integers(0, 3)) == 0:
            continue
        usual = VALUES[column.kind.value]
        if column.section in NAMES_OF_LISTS:
            usual = OF_LISTS.get(column.kind.value, usual)
            if column.field.startswith("content"):
                usual = TEXT.map(lambda text: b"\xa3" + text[1:])
        value = draw(usual if draw(st.integers(0, 7)) else values)
        by_section.setdefault(column.section, {})[column.field] = value
    parts = []
    for code in sorted(by_section):
        held = by_section[code]
        if code in NAMES_OF_LISTS:
            parts.append(section(code, compound(0xC0, [held.get(name, b"\x40") for name in NAMES_OF_LISTS[code]])))
        else:
            spelled = string if code is Section.APPLICATION_PROPERTIES else symbol
            pairs = [part for key, value in held.items() for part in (spelled(key.encode()), value)]
            parts.append(section(code, compound(0xC1, pairs, wide=sum(map(len, pairs)) > 200)))
    return b"".join(parts)


@st.composite
def likely(draw: st.DrawFn, names: Sequence[str], constants: Sequence[str], other: str = "{} LIKE 'a%'") -> str:
    """Texts over columns that decide themselves."""
    name, constant = st.sampled_from(names), st.sampled_from(constants)
    compared = st.builds("{} {} {}".format, name, st.sampled_from(("=", "<>", "<", "<=", ">", ">=")), constant)
    test = st.one_of(
        compared,
        compared,
        compared,
        st.builds("{} {} {}".format, constant, st.sampled_from(("=", "<>", "<", ">=")), name),
        st.builds("{} {}IN ({}, {})".format, name, st.sampled_from(("", "NOT ")), constant, constant),
        st.builds("{} IS {}NULL".format, name, st.sampled_from(("", "NOT "))),
        name,
        st.builds(other.format, name, constant, constant),
    )
    tree = st.recursive(
        test,
        lambda inner: st.one_of(
            st.builds("({}) AND ({})".format, inner, inner),
            st.builds("({}) OR ({})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=5,
    )
    return draw(tree)


NUMBERS = ("0", "5", "-1", "0.5", "127", "9007199254740992", "9007199254740993", "9007199254740993.0", "1e300", "3e9")
NUMBERS += ("9223372036854775807", "1767225600000", "16777217", "1767225600000.5", "9223372036854775.5")
STRINGS = ("'AMER'", "'a'", "''", "'5'", "'abc'", "'z'")
NAMES = ("n", "s", "t", "region", "price", "a", "b", "flag")


def mostly(others: st.SearchStrategy[str], usual: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 4).flatmap(lambda number: usual if number else others)


def filters(dialect: str, texts: st.SearchStrategy[str], **parameters: object) -> st.SearchStrategy[Filter]:
    def parsed(text: str) -> Filter | None:
        try:
            return Filter.parse(text, dialect, parameters=parameters or None)
        except FilterError:
            return None

    return texts.map(parsed).filter(lambda found: found is not None).map(lambda found: found)  # type: ignore[arg-type,return-value]


rabbitmq = filters(
    "rabbitmq",
    mostly(
        expressions,
        likely(
            (*NAMES, "p.subject", "h.priority", "p.message_id", "p.creation_time", "h.durable", "p.group_sequence"),
            (*NUMBERS, *STRINGS, "TRUE", "FALSE", "UTC()", "0x616263"),
        ),
    ),
)
amqp = filters(
    "amqp",
    mostly(
        amqp_expressions,
        likely((*NAMES, "m.s", "h.ttl"), (*NUMBERS, *STRINGS, "TRUE"), "{0} > -INF AND NOT ({0} >= INF) OR {0} <> NAN"),
    ),
)
rocketmq = filters(
    "rocketmq",
    mostly(
        rocketmq_strategies.expressions,
        likely(
            (*rocketmq_strategies.NAMES, "a", "b", "TAGS", "KEYS"),
            (*NUMBERS, *STRINGS, "TRUE", "FALSE"),
            "{} BETWEEN {} AND {}",
        ),
    ),
)
servicebus = filters(
    "servicebus",
    mostly(
        kernel_strategies.servicebus_expressions,
        likely(
            ("a", "price", "COLOR", "b", "sys.Label", "sys.MessageId", "sys.ContentType", "sys.PartitionKey", "[é]"),
            (*(number for number in NUMBERS if number != "9007199254740993.0"), *STRINGS, "TRUE", "FALSE"),
        ),
    ),
)
plain_values = st.sampled_from(("AMER", "a", "", "&p:a", 5, -1, 0.5, 2**53 + 1, True, b"x", None))
property_maps = st.builds(
    lambda properties, maps: Filter.from_properties(properties or None, maps),
    st.dictionaries(st.sampled_from(("subject", "to", "group_id")), st.sampled_from(("a", "&s:c", "AMER")), max_size=2),
    st.dictionaries(st.sampled_from(("n", "s", "region", "price")), plain_values, min_size=1, max_size=3),
)
correlations = st.builds(
    lambda label, properties: Filter.from_correlation(label=label, properties=properties),
    st.one_of(st.none(), st.sampled_from(("a", "abc"))),
    st.dictionaries(
        st.sampled_from(("a", "price", "COLOR", "b")),
        st.sampled_from(("a", "abc", 5, 2**53 + 1, 0.5, 5.0, True)),
        min_size=1,
        max_size=3,
    ),
)
likely_of_bodies = likely(
    ("body.a", "body.b", "body.k[0]", "body.k[0].a", "body.k[1].b[0]", "body.[0]", "a"),
    ("0", "5", "0.5", "0.1", "19.99", "9007199254740993", "'x'", "'abc'", "''", "TRUE", "INF"),
    "EXISTS({0}) OR {0} = {1}",
)
tags = st.lists(st.sampled_from(rocketmq_strategies.TEXTS), min_size=1, max_size=3).map(" || ".join)


def tag_filter(text: str) -> Filter | None:
    try:
        return Filter.from_tags(text)
    except FilterError:
        return None


CASES: dict[str, tuple[st.SearchStrategy[Filter | None], st.SearchStrategy[bytes]]] = {
    "rabbitmq": (rabbitmq, encoded_messages()),
    "amqp": (amqp, st.one_of(amqp_messages(), encoded_messages())),
    "rocketmq": (rocketmq, kernel_strategies.rocketmq_messages),
    "servicebus": (servicebus, kernel_strategies.servicebus_messages),
    "properties": (property_maps, encoded_messages()),
    "correlation": (correlations, kernel_strategies.servicebus_messages),
    "tags": (tags.map(tag_filter), kernel_strategies.rocketmq_messages),
    "bodies": (
        filters("amqp", mostly(body_expressions, likely_of_bodies)),
        body_messages,
    ),
}


EVERY_VALUE = [
    b"",
    *([b"\x40"] + [encoded for value in (0, 5, -1, 2**53 + 1, 2**63 - 1) for encoded in integer_encodings(value)]),
    *(string(text.encode()) for text in ("", "a", "abc", "5", "5.0", "true", "é")),
    *(symbol(text) for text in (b"a", b"abc", b"5")),
    *(
        b"\x82" + struct.pack(">d", value)
        for value in (5.0, 0.5, -0.0, 0.0, 2.0**53, 1e300, float("inf"), float("nan"))
    ),
    *(b"\x72" + struct.pack(">f", value) for value in (5.0, 0.5, 16777216.0, -0.0)),
    *(b"\x41", b"\x42", b"\x56\x01", b"\xa0\x01a", b"\xa0\x00", b"\x73\0\0\0a", string(b"\xff")),
    *(b"\x83" + struct.pack(">q", ms) for ms in (5, NOW_MS, 2**62)),
]
EVERY_MESSAGE = [section(0x74, compound(0xC1, [string(b"a"), each] if each else [])) for each in EVERY_VALUE]
EVERY_MESSAGE += [
    section(0x74, compound(0xC1, [string(b"A"), string(b"a")])),
    section(0x74, compound(0xC1, [string(b"a"), string(b"abc"), string(b"a"), string(b"a")])),
    b"\xff",
]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dialect", ["amqp", "rocketmq", "servicebus"])
def test_every_test_of_a_column_with_every_value(dialect: str, kind: str) -> None:
    declaration = declaration_of(declared(f"a {kind}, other string"))
    batch, rows = EncodedMessages.of(EVERY_MESSAGE), rows_of(EVERY_MESSAGE, declaration)
    constants = ("5", "0.5", "9007199254740993", "16777217.0", "1e300", "'a'", "''", "'5'", "TRUE")
    texts = [f"a {operator} {constant}" for operator in ("=", "<>", "<", "<=", ">", ">=") for constant in constants]
    texts += [f"{constant} {operator} a" for operator in ("=", "<>", "<") for constant in ("5", "'a'", "TRUE")]
    texts += ["a IS NULL", "a IS NOT NULL", "a", "NOT a", "a IN ('a', '5', '')", "a NOT IN ('a', '')", "a IN (5, 0.5)"]
    texts += ["a NOT IN (5, 0)", "a = UTC()", "a < UTC()", "a < INF", "a = NAN", "a <> 'a' AND a <> 'z'"]
    texts += ["NOT (a = 'a' OR other LIKE 'x%')", "a = 'a' AND other LIKE 'x%'"]
    for text in texts:
        try:
            expression = Filter.parse(text, dialect)
        except FilterError:
            continue
        found = column_filter(expression, declaration.declared, now_ms=NOW_MS)
        if found is None:
            continue
        columns = {name: rows[name] for name in found.columns}
        decided = decide_rows(found, columns, {"a": 0, "other": 1}, rows["inexact"])
        may, certain = (each.to_numpy(zero_copy_only=False) for each in decided)
        is_true = expression.mask(batch, now_ms=NOW_MS)
        assert not (is_true & ~may).any(), (text, EVERY_MESSAGE[int(np.argmax(is_true & ~may))].hex())
        assert not (certain & ~is_true).any(), (text, EVERY_MESSAGE[int(np.argmax(certain & ~is_true))].hex())
        exact = ~rows["inexact"].is_valid().to_numpy(zero_copy_only=False)
        assert not found.is_whole or (may == certain)[exact].all(), text


OF_BODIES = r"""
5 -1 0 -0 -0.0 5.0 5e0 0.5 0.1 0.1000000000000000055511151231257827 19.99 19.990000000000002 19.9900000000000001
123456789012.345 1e300 1e-400 1e400 1e9999 1e10000 9007199254740993 9007199254740993.0 9007199254740992.0 16777217
1234567890123456.8e3 1234567890123456768 9223372036854775807 9223372036854775808 1e22 1e23 0.30000001192092896 32768 128
"a" "" "5" "\u0061" "\ud800" "é" "\n" "z" true false null [] {} ["a"] {"x":1}
"""
BODY_VALUES = [*OF_BODIES.split(), "9" * 501]
BODIES = [f'{{"x":1,"a":{value}}}' for value in BODY_VALUES]
BODIES += ["{}", "", "x", '{"a":5', '["a"]', '{"a":{},"a":5}', r'{"a":5,"\u0061":"a"}', '{"a":5}{', "5", '{"A":5}']
BODY_MESSAGES = [Message(Body.data(body.encode()), application_properties={"a": 5}).encode() for body in BODIES]
BODY_MESSAGES += [
    Message(Body.data(b'{"a":', b"5}")).encode(),
    Message(Body.value(AmqpValue(AmqpType.STRING, '{"a":0.1}'))).encode(),
    Message(Body.value(AmqpValue(AmqpType.SYMBOL, '{"a":0.1}'))).encode(),
    Message(Body.data(b'{"a":5}')).encode()[:-1],
    b"\x00\x53\x74\xc1" + Message(Body.data(b'{"a":5}')).encode(),
    Message(b"").encode(),
]
OF_FILTERS = """
5 0 0.1 0.5 19.99 19.990000000000002 1.0E300 1.0E22 1.0E23 9007199254740992 9007199254740993 9007199254740992.0
1234567890123456800 1234567890123456768 16777217 9223372036854775807 0.30000001192092896
'a' '' '5' 'é' TRUE INF -INF NAN
"""
BODY_CONSTANTS = OF_FILTERS.split()


@pytest.mark.parametrize("kind", [*(each for each in TYPES if each not in ("timestamp", "binary")), "decimal(10,2)"])
def test_every_test_of_a_column_with_every_value_of_a_body(kind: str) -> None:
    declaration = declaration_of(declared(f"other string, b.a {kind}, b.x int"))
    rows = rows_of(BODY_MESSAGES, declaration)
    batch = EncodedMessages.of(BODY_MESSAGES)
    operators = ("=", "<>", "<", "<=", ">", ">=")
    texts = [f"body.a {operator} {constant}" for operator in operators for constant in BODY_CONSTANTS]
    texts += ["body.a IS NULL", "body.a IS NOT NULL", "body.a", "NOT body.a", "body.a IN ('a', 5, 0.1)"]
    texts += ["body.a NOT IN ('a', '')", "body.a NOT IN (5, 0.1, 1.0E22)", "EXISTS(body.a) AND body.a IS NULL"]
    texts += ["NOT EXISTS(body.a) AND body.x = 1", "body.a LIKE 'a%' OR body.a = 5", "body.a[*] = 'a' AND body.x > 0"]
    for text in texts:
        expression = Filter.parse(text, "amqp")
        assert_same(expression, rows, declaration, expression.mask(batch, now_ms=NOW_MS).tolist(), NOW_MS)


@pytest.mark.parametrize(
    ("kind", "exact"),
    [
        ("double", "5 0.1 19.99 123456789012.345 9007199254740992.0 1e22 -0.0 null [] true-less"),
        ("bigint", "5 -0 9223372036854775807 null"),
        ("smallint", "128"),
        ("string", '"a" "" "\\u0061" "\\ud800" null'),
        ("boolean", "true false {}"),
        ("float", "0.5 5.0 5"),
    ],
)
def test_usual_values_of_bodies_are_exact(kind: str, exact: str) -> None:
    values = [value for value in exact.split() if value != "true-less"]
    messages = [Message(Body.data(f'{{"a":{value}}}'.encode())).encode() for value in values]
    messages += [Message(b"no JSON").encode(), Message(b"{}").encode()]
    declaration = declaration_of(declared(f"b.a {kind}"))
    assert rows_of(messages, declaration)["inexact"].null_count == len(messages)
    expression = Filter.parse("body.a = 5 OR body.a IS NULL", "amqp")
    found = column_filter(expression, declaration.declared)
    assert found is not None and found.is_whole


def test_columns_do_not_decide_paths_into_bodies_of_a_schema() -> None:
    expression = Filter.parse("body.a = 5", "amqp")
    assert column_filter(expression, declared("b.a int")) is not None
    assert column_filter(expression.over(order_schema().text), declared("b.a int")) is None


def test_what_is_decidable_is_decided() -> None:
    columns = declared("s string, n bigint, d double, f boolean, p.subject, h.priority")
    for dialect, text in (
        ("rabbitmq", "s = 'a' AND n > 5 AND d <= 5 OR NOT (p.subject IN ('a', 'b')) AND h.priority > 4 AND f"),
        ("amqp", "d < INF AND n < UTC() AND s IS NOT NULL AND s < 'b'"),
        ("rocketmq", "s = 'a' AND n BETWEEN 1 AND 7 AND d > 0.5 AND f = TRUE AND s IN ('a', 'b')"),
        ("servicebus", "s = 'a' AND N > 5 AND d <= 5 AND sys.Label <> 'x' AND n IN (1, 2) AND f = TRUE"),
    ):
        found = column_filter(Filter.parse(text, dialect), columns)
        assert found is not None and found.is_whole, text
    found = column_filter(Filter.parse("s LIKE 'a%' AND n > 5", "rabbitmq"), columns)
    assert found is not None and not found.is_whole
    assert found.columns == ("n",)
    assert column_filter(Filter.parse("s LIKE 'a%' OR n > 5", "rabbitmq"), columns) is None
    assert column_filter(Filter.parse("s < 'a'", "servicebus"), columns) is None


def check(data: st.DataObject, kind: str) -> None:
    filter_strategy, messages = CASES[kind]
    expression = data.draw(filter_strategy)
    assume(expression is not None)
    assert expression is not None
    declaration = data.draw(declarations(expression))
    fitting = st.lists(messages if kind == "bodies" else fitting_messages(declaration), min_size=3, max_size=8)
    others = st.lists(st.one_of(messages, damaged_messages()), max_size=1)
    drawn = data.draw(fitting) + data.draw(others)
    verdicts = [expression.matches(message, now_ms=NOW_MS) for message in drawn]
    note([message.hex() for message in drawn])
    assert_same(expression, rows_of(drawn, declaration), declaration, verdicts, NOW_MS)


@pytest.mark.parametrize("kind", CASES)
@given(data=st.data())
@settings(max_examples=12)
def test_by_columns_as_by_bytes(kind: str, data: st.DataObject) -> None:
    check(data, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", CASES)
@given(data=st.data())
@settings(max_examples=20_000, deadline=None)
def test_by_columns_as_by_bytes_of_many_more(kind: str, data: st.DataObject) -> None:
    check(data, kind)
