"""The reference evaluator, rule by rule (rabbitmq_filters, sections 2.4 and 2.5).

The recorded verdicts are in the tables that tests/scan/test_tables.py runs.
"""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.evaluate import Verdict
from headgate.evaluate.reference import verdict, verdict_of_bytes
from headgate.evaluate.semantics.rabbitmq import like
from headgate.language import bind, parse
from headgate.language.like import compile_like
from headgate.language.tree import Exists, Field, HasSimple, Node
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.fields import FieldReference, Section
from strategies import damaged_messages, encoded_messages, expressions

T, F, U = Verdict.TRUE, Verdict.FALSE, Verdict.UNKNOWN
NOW_MS = 1_767_225_600_000

MESSAGE = Message(
    b"body",
    subject="order.created",
    creation_time=NOW_MS,
    application_properties={
        "i": AmqpValue(AmqpType.INT, 5),
        "big": AmqpValue(AmqpType.ULONG, 2**64 - 1),
        "d": 2.5,
        "single": AmqpValue(AmqpType.FLOAT, 0.10000000149011612),
        "odd": 9007199254740993,
        "char": AmqpValue(AmqpType.CHAR, 97),
        "time": AmqpValue(AmqpType.TIMESTAMP, NOW_MS),
        "s": "abc",
        "sym": AmqpValue(AmqpType.SYMBOL, "abc"),
        "bin": b"abc",
        "uuid": AmqpValue(AmqpType.UUID, uuid.UUID(int=1)),
        "t": True,
        "f": False,
        "nothing": None,
        "no_number": float("nan"),
        "infinite": float("inf"),
        "dec": AmqpValue(AmqpType.DECIMAL32, b"\0\0\0\5"),
        "list": AmqpValue(AmqpType.LIST, ()),
        "lf": "abc\n",
        "raw": b"a\xffc",
    },
)

CASES: list[tuple[str, Verdict]] = [
    # numbers are one kind
    ("i = 5", T), ("i = 5.0", T), ("i <> 5", F), ("big = 18446744073709551615", T), ("big > 9223372036854775808.0", T),
    ("char = 97", T), ("time = 1767225600000", T), ("UTC() = time", T), ("odd = 9007199254740992.0", F),
    ("odd > 9007199254740992.0", T), ("0 = -0.0", T), ("single = 0.1", F), ("single = 0.10000000149011612", T),
    # bytes are one kind, ordered bytewise
    ("s = 'abc' AND sym = 'abc' AND bin = 'abc' AND s = 0x616263", T), ("s > 'ABC' AND s < 'abd' AND s >= 'ab'", T),
    ("uuid = 0x00000000000000000000000000000001", T), ("uuid = '00000000-0000-0000-0000-000000000001'", F),
    # unlike kinds
    ("s = 5", F), ("s <> 5", T), ("s > 5", F), ("NOT s > 5", T), ("1 <> TRUE", T), ("t = 1", F), ("t >= TRUE", F),
    ("NOT t > f", T), ("t = TRUE", T), ("t <> f", T), ("f = 0", F), ("5 IN (TRUE)", F), ("t IN (1)", F),
    # unknown
    ("nothing = 5", U), ("absent <> 5", U), ("no_number > 0", U), ("infinite > 0", U), ("dec = 5", U), ("list = 5", U),
    ("no_number IS NULL AND infinite IS NULL AND dec IS NULL AND list IS NULL", T),
    ("nothing IS NULL", T), ("absent IS NULL", T),
    ("i IS NULL", F), ("i IS NOT NULL", T), ("h.priority = 4", T), ("h.priority IS NULL", F), ("p.to IS NULL", T),
    # three-valued logic
    ("absent = 1 AND i = 5", U), ("absent = 1 AND i = 6", F), ("i = 6 AND absent = 1", F), ("absent = 1 OR i = 5", T),
    ("absent = 1 OR i = 6", U), ("NOT absent = 1", U),
    ("i AND t", U), ("i OR t", T), ("NOT i", U), ("i", U), ("'a'", U),
    ("t", T), ("f", F), ("NOT f", T), ("(i = 5) = TRUE", T), ("(absent = 1) = (absent = 1)", U), ("f AND i", F),
    # arithmetic
    ("i + 1 = 6", T), ("i - 10 < 0", T), ("i * d = 12.5", T), ("i / 2 = 2.5", T), ("6 / 2 = 3", T), ("i / 0 = 0", U),
    ("i / 0.0 = 0", U), ("-7 % 3 = -1", T), ("7 % -3 = 1", T), ("i % 0 = 0", U), ("d % 2 = 0.5", U), ("s + 1 = 1", U),
    ("s + s = 'abcabc'", U), ("t + 1 = 2", U), ("-s = 1", U), ("+t", U), ("-i = -5", T), ("absent + 1 = 1", U),
    ("big * big > big", T), ("big * big = 340282366920938463426481119284349108225", T), ("1.0E308 * 10 > 0", U),
    ("d * 1.7E308 > 0", U), ("d + " + "9" * 400 + " > 0", U), ("i + " + "9" * 400 + " > 0", T), ("i < " + "9" * 400, T),
    ("d < " + "9" * 400, T), ("9" * 400 + " / 3 > 1", U), ("NOT (d * 1.7E308 > 0)", U),
    # IN
    ("i IN (4, 5.0)", T), ("i IN (4, 6)", F), ("i NOT IN (4, 6)", T), ("i IN (absent)", F), ("i NOT IN (absent)", T),
    ("absent IN (5)", U), ("absent NOT IN (5)", U), ("s IN (5, 'abc')", T), ("s IN (5)", F), ("i IN (absent, 5)", T),
    # LIKE
    ("s LIKE 'a%'", T), ("s LIKE '_b_'", T), ("s NOT LIKE 'a%'", F), ("i LIKE '5'", U), ("i NOT LIKE '5'", U),
    ("t LIKE '%'", U), ("absent LIKE '%'", U), ("NOT i LIKE '5'", U), ("lf LIKE 'abc'", F), ("lf LIKE 'a_c'", T),
    ("lf LIKE 'a%'", T), ("raw LIKE 'a%c'", T), ("raw LIKE 'a_c'", U), ("raw LIKE '%a%'", U), ("raw NOT LIKE '%a%'", U),
]  # fmt: skip


def bound(text: str) -> Node:
    return bind(parse(text), "rabbitmq", text)


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text[:60] for text, _ in CASES])
def test_an_expression_has_its_verdict(text: str, expected: Verdict) -> None:
    assert verdict(bound(text), MESSAGE, NOW_MS) is expected


@pytest.mark.parametrize(
    ("key", "exists", "has_simple"),
    [
        ("i", T, T),
        ("nothing", T, T),
        ("absent", F, F),
        ("no_number", T, F),
        ("list", T, F),
        ("dec", T, F),
        ("raw", T, T),
    ],
)
def test_a_key_exists_whatever_it_holds_and_is_simple_with_a_null_or_a_usable_value(
    key: str, exists: Verdict, has_simple: Verdict
) -> None:
    field = Field(FieldReference(Section.APPLICATION_PROPERTIES, key=key.encode()))
    assert verdict(Exists(field), MESSAGE, NOW_MS) is exists
    assert verdict(HasSimple(field), MESSAGE, NOW_MS) is has_simple


def test_the_first_of_equal_keys_counts() -> None:
    data = bytes.fromhex("005374c10b04 a1016e5405 a1016e5406")
    assert verdict_of_bytes(bound("n = 5"), data, NOW_MS) is T


@pytest.mark.parametrize("data", [b"\x01", b"\x00\x53\x74", bytes.fromhex("005374c1030100"), b"\xff" * 40])
def test_bytes_that_are_no_message_are_an_error(data: bytes) -> None:
    assert verdict_of_bytes(bound("TRUE"), data, NOW_MS) is Verdict.ERROR


def test_no_bytes_at_all_are_a_message_without_sections() -> None:
    assert verdict_of_bytes(bound("h.priority = 4"), b"", NOW_MS) is T


@pytest.mark.parametrize(
    ("pattern", "escape", "subject", "expected"),
    [
        ("", None, "", True), ("", None, "a", False), ("%", None, "", True), ("%%", None, "", True),
        ("_", None, "", False), ("_", None, "é", True), ("_", None, "e\u0301", False), ("__", None, "😎x", True),
        ("a%b%c", None, "aXbbYc", True), ("a%b%c", None, "aXc", False), ("%ab%ab%", None, "abab", True),
        ("%ab%ab%", None, "aab", False), ("ab%bc", None, "abc", False), ("ab%bc", None, "abbc", True),
        ("%_", None, "ab\n", True), ("_%", None, "\n", False), ("a__", None, "a\nb", False),
        ("%_", None, "a\n\n", False), ("a_", None, "ab\n\n", False), ("%", None, "a\nb\n", True),
        ("100!%", "!", "100%", True), ("100!%", "!", "1000", False), ("a!!_", "!", "a!x", True),
        ("%%x", "%", "%x", True),
        ("[a]_", None, "[a]b", True), ("a.c_", None, "abcd", False), ("A_C", None, "abc", False),
    ],
)  # fmt: skip
def test_a_pattern_matches_whole_values(pattern: str, escape: str | None, subject: str, expected: bool) -> None:
    assert like(compile_like(pattern, escape), subject.encode()) is expected


def test_many_wildcards_over_a_long_value_take_no_time() -> None:
    pattern = compile_like("%x" * 20 + "%z", None)
    assert like(pattern, b"x" * 5_000) is False, "a matcher that backtracks would not come to this line"


def matches_slowly(steps: str, text: str) -> bool:
    if not steps:
        return not text
    if steps[0] == "%":
        return any(matches_slowly(steps[1:], text[skipped:]) for skipped in range(len(text) + 1))
    return bool(text) and steps[0] in ("_", text[0]) and matches_slowly(steps[1:], text[1:])


@given(st.text(alphabet="ab%_é", max_size=8), st.text(alphabet="abéc", max_size=10))
def test_the_wildcard_matcher_agrees_with_the_definition(pattern: str, subject: str) -> None:
    assert like(compile_like(pattern, None), subject.encode()) is matches_slowly(pattern, subject)


@given(expressions, encoded_messages())
def test_any_expression_decides_any_message(text: str, data: bytes) -> None:
    tree = bound(text)
    found = verdict_of_bytes(tree, data, NOW_MS)
    assert found in (T, F, U)
    negated = verdict_of_bytes(bound(f"NOT ({text})"), data, NOW_MS)
    assert negated == {T: F, F: T, U: U}[found]


@given(expressions, damaged_messages())
def test_any_bytes_have_a_verdict(text: str, data: bytes) -> None:
    assert verdict_of_bytes(bound(text), data, NOW_MS) in Verdict


def test_deep_filters_evaluate() -> None:
    assert verdict(bound("NOT " * 198 + "t"), MESSAGE, NOW_MS) is T
    assert verdict(bound("(" * 99 + "t" + ")" * 99), MESSAGE, NOW_MS) is T
    assert verdict(bound(" + ".join(["i"] * 99) + " > 1"), MESSAGE, NOW_MS) is T
