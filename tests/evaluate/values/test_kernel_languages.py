"""The kernel against the oracle in the languages with types and errors: generated messages and filters, and vectors."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cesql_strategies
import kernel_strategies
import rocketmq_strategies
from cesql_events import binary_event
from examples import examples
from headgate.errors import ConfigError, FilterError
from headgate.evaluate.filter import Filter
from headgate.evaluate.program import compile_program
from headgate.evaluate.reference import verdict_of_bytes
from headgate.evaluate.verdict import UNDECIDED, Verdict
from headgate.kernels import load
from headgate.language.tree import Node
from headgate.message import Message
from headgate.message.batch import EncodedMessages
from headgate.message.rocketmq import stored_message

VECTORS = Path(__file__).parents[2] / "vectors"
PARAMETERS = {
    "time": datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC),
    "span": datetime.timedelta(minutes=1),
    "guid": uuid.UUID(bytes=bytes(range(16))),
}

pytestmark = pytest.mark.skipif(load("headgate.evaluate.kernel") is None, reason="kernels cannot be compiled here")


def parsed(text: str, dialect: str) -> Node | None:
    """The bound tree; None for a text that is refused."""
    try:
        if dialect == "servicebus":
            return Filter.parse(text, dialect, parameters=PARAMETERS).tree
        return Filter.parse(text, dialect).tree
    except FilterError:
        return None


def open_rows(tree: Node, messages: list[bytes]) -> int:
    """How many rows the kernel leaves open, in exact mode; all that it decides must be as the oracle says."""
    program = compile_program(tree)
    if program is None:
        return len(messages)
    batch = EncodedMessages.of(messages)
    exact = program.verdicts(batch, 0)
    select = program.verdicts(batch, 0, exact=False)
    for message, of_exact, of_select in zip(messages, exact, select, strict=True):
        expected = verdict_of_bytes(tree, message, 0)
        if of_exact != UNDECIDED:
            assert of_exact == expected, message.hex()
        if of_select != UNDECIDED:
            assert (of_select == Verdict.TRUE) == (expected is Verdict.TRUE), message.hex()
    return int((exact == UNDECIDED).sum())


def check(text: str, dialect: str, messages: list[bytes]) -> None:
    tree = parsed(text, dialect)
    if tree is not None:
        open_rows(tree, messages)


@given(rocketmq_strategies.expressions, st.lists(kernel_strategies.rocketmq_messages, min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_filters_of_rocketmq(text: str, messages: list[bytes]) -> None:
    check(text, "rocketmq", messages)


@given(
    kernel_strategies.servicebus_expressions, st.lists(kernel_strategies.servicebus_messages, min_size=1, max_size=4)
)
def test_kernel_and_oracle_agree_on_filters_of_service_bus(text: str, messages: list[bytes]) -> None:
    check(text, "servicebus", messages)


@given(cesql_strategies.expressions, st.lists(cesql_strategies.messages(), min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_filters_of_events(text: str, messages: list[bytes]) -> None:
    check(text, "cesql", messages)


@pytest.mark.long
@examples(10)
@given(cesql_strategies.expressions, st.lists(cesql_strategies.messages(), min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_many_more_filters_of_events(text: str, messages: list[bytes]) -> None:
    check(text, "cesql", messages)


@pytest.mark.long
@examples(10)
@given(rocketmq_strategies.expressions, st.lists(kernel_strategies.rocketmq_messages, min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_many_more_filters_of_rocketmq(text: str, messages: list[bytes]) -> None:
    check(text, "rocketmq", messages)


@pytest.mark.long
@examples(10)
@given(
    kernel_strategies.servicebus_expressions, st.lists(kernel_strategies.servicebus_messages, min_size=1, max_size=4)
)
def test_kernel_and_oracle_agree_on_many_more_filters_of_service_bus(text: str, messages: list[bytes]) -> None:
    check(text, "servicebus", messages)


def rows(name: str) -> list[dict[str, Any]]:
    with (VECTORS / name).open() as lines:
        return [json.loads(line) for line in lines]


def test_few_rows_of_the_recorded_expressions_of_rocketmq_are_left_open() -> None:
    table = rows("rocketmq_sql.jsonl")
    maps = [row["props"] for row in table if row["kind"] == "map" and "props" in row]
    messages = [stored_message(properties).encode() for properties in maps]
    trees = [parsed(row["expr"], "rocketmq") for row in table if row["kind"] == "expr" and row["compile"] == "ok"]
    left_open = [open_rows(tree, messages) for tree in trees if tree is not None]
    assert len(left_open) > 450
    assert sum(left_open) < 0.01 * len(messages) * len(left_open)


def test_few_of_our_cases_of_events_are_left_open() -> None:
    cases = [row for row in rows("own/cesql_kit.jsonl") if row.get("error") not in ("parse", "missingFunction")]
    without_functions = [row for row in cases if not row["id"].startswith(("string", "integer", "casting"))]
    left_open = [
        row["id"]
        for row in without_functions
        if open_rows(Filter.parse(row["expression"], "cesql").tree, [binary_event(row["event"]).encode()])
    ]
    assert len(without_functions) > 190
    assert len(left_open) < 10, left_open


SIMPLE = ("string", "int", "long", "double", "bool", "null")


def servicebus_rows() -> list[tuple[Node, bytes]]:
    """Filters that compile and their messages, out of the documented cases that need no parameters."""
    found = []
    for row in rows("servicebus_sql.jsonl"):
        try:
            tree = Filter.parse(row["expression"], "servicebus").tree
        except FilterError:
            continue
        properties = {name: value.get("v") for name, value in row["props"].items() if value["t"] in SIMPLE}
        found.append((tree, Message(b"", application_properties=properties).encode()))
    return found


def test_few_rows_of_the_documented_cases_of_service_bus_are_left_open() -> None:
    cases = servicebus_rows()
    assert len(cases) > 120
    assert sum(open_rows(tree, [message]) for tree, message in cases) < 0.1 * len(cases)


_conditions = st.dictionaries(
    st.sampled_from(kernel_strategies.KEYS),
    st.one_of(
        st.sampled_from(kernel_strategies.TEXTS),
        st.sampled_from(kernel_strategies.INTEGERS),
        st.sampled_from(kernel_strategies.DOUBLES),
        st.booleans(),
        st.sampled_from(sorted(PARAMETERS)).map(PARAMETERS.__getitem__),
    ),
    max_size=3,
)


@given(
    _conditions,
    st.dictionaries(st.sampled_from(("message_id", "label", "content_type")), st.sampled_from(kernel_strategies.TEXTS)),
    st.lists(kernel_strategies.servicebus_messages, min_size=1, max_size=4),
)
def test_kernel_and_oracle_agree_on_correlation_filters(
    properties: dict[str, object], system: dict[str, object], messages: list[bytes]
) -> None:
    try:
        tree = Filter.from_correlation(properties=properties, **system).tree
    except (FilterError, ConfigError):
        return
    open_rows(tree, messages)


def decided(text: str, dialect: str, **properties: object) -> int:
    """The kernel's own verdict for one message, in exact mode."""
    program = compile_program(Filter.parse(text, dialect).tree)
    assert program is not None
    message = Message(b"", application_properties=properties).encode()
    return int(program.verdicts(EncodedMessages.of([message]), 0)[0])


_PLAIN_NUMBER = re.compile(r"(?=.*[0-9])[0-9]*\.?[0-9]*")
_near_numbers = st.one_of(
    st.decimals(min_value=0, max_value=99_999_999, places=3).map(lambda number: f"{number:f}".strip("0") or "0"),
    st.text("0123456789", min_size=1, max_size=9).flatmap(
        lambda digits: st.integers(0, len(digits)).map(lambda at: f"{digits[:at]}.{digits[at:]}")
    ),
    st.text("0123456789.+-/:eEdF \x00\x7fé", max_size=9),
)


@given(_near_numbers, _near_numbers)
def test_short_texts_are_the_numbers_that_the_oracle_reads(text: str, other: str) -> None:
    message = [stored_message({"p": text}).encode()]
    for number in (text, other):
        whole, _, fraction = number.partition(".")
        is_literal = _PLAIN_NUMBER.fullmatch(number) and float(number) > 0  # the language refuses 0.0
        literal = f"{int(whole or 0)}.{fraction or 0}" if is_literal else "1.5"
        for order in ("<=", ">="):
            tree = parsed(f"p {order} {literal}", "rocketmq")
            assert tree is not None
            assert open_rows(tree, message) == 0 or not _PLAIN_NUMBER.fullmatch(text)


@pytest.mark.parametrize(
    ("text", "price", "expected"),
    [
        ("price > 10", "19.99", Verdict.ERROR),
        ("price > 10", "19", Verdict.TRUE),
        ("price > 10.0", "19.99", Verdict.TRUE),
        ("price > 10.0", "0.30000000000000004", Verdict.FALSE),
        ("price > 10.0", " 1e1d ", Verdict.FALSE),
        ("price >= 10.0", " 1e1d ", Verdict.TRUE),
        ("price > 10.0", "cheap", Verdict.ERROR),
        ("price = TRUE", "TrUe", Verdict.TRUE),
        ("price > 10", "2147483648", Verdict.ERROR),
        ("price > 2147483648", "2147483649", Verdict.TRUE),
        ("price > 10 OR TRUE", "cheap", Verdict.ERROR),
        ("TRUE OR price > 10", "cheap", Verdict.TRUE),
        ("missing = 5 AND price > 10", "cheap", Verdict.ERROR),
        ("NOT (price > 10)", "cheap", Verdict.ERROR),
        ("price > 10.0", "\u0661", Verdict.ERROR),
        ("price > 10", "\u0661", UNDECIDED),
        ("price > 10.0", "0x1p3", UNDECIDED),
    ],
)
def test_texts_are_read_as_numbers_in_the_kernel(text: str, price: str, expected: int) -> None:
    assert decided(text, "rocketmq", price=price) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("missing = 1 AND size > 'a'", Verdict.ERROR),
        ("size = 1 AND size > 'a'", Verdict.FALSE),
        ("(missing = 1 AND size > 'a') OR size = 5", Verdict.ERROR),
        ("size = 5 OR size > 'a'", Verdict.TRUE),
        ("NOT (missing = 1 OR size / 0 = 1)", Verdict.ERROR),
        ("size / 0.0 = 1", UNDECIDED),
        ("size IN (1, 'a', 5)", Verdict.ERROR),
        ("size IN (1, 5, 'a')", Verdict.TRUE),
        ("size + 9223372036854775807 > 0", Verdict.ERROR),
        ("(-7 - size * 0) / 2 = -3 AND (-7 - size * 0) % 3 = -1", Verdict.TRUE),
    ],
)
def test_errors_of_service_bus_are_found_where_the_language_looks(text: str, expected: int) -> None:
    assert decided(text, "servicebus", size=5) == expected


def test_a_key_in_the_wanted_letter_case_counts_before_others() -> None:
    assert decided("Size = 2", "servicebus", SIZE=1, Size=2, size=3) == Verdict.TRUE
    assert decided("sIZE = 1", "servicebus", SIZE=1, Size=2, size=3) == Verdict.TRUE
    assert decided("A_LONG_Property_name = 2", "servicebus", A_LONG_property_NAME=2) == Verdict.TRUE
    assert decided("A_LONG_Property_name = 2", "servicebus", A_LONG_property_NAMES=2) == Verdict.UNKNOWN
    # Signs that differ from others in the same bit as letters do.
    assert decided("[a@b] = 2", "servicebus", **{"a`b": 2}) == Verdict.UNKNOWN
    assert decided("[a[b] = 2", "servicebus", **{"a{b": 2}) == Verdict.UNKNOWN


def test_of_equal_keys_an_infinite_float_gives_way_as_it_does_elsewhere() -> None:
    infinite, decimal = b"\x72\x7f\x80\x00\x00", b"\x74\x00\x00\x00\x00"
    for first, second in ((decimal, infinite), (infinite, b"\xa1\x015"), (infinite, decimal)):
        pairs = b"\xa1\x01a" + first + b"\xa1\x01a" + second
        message = b"\x00\x53\x74\xc1" + bytes([len(pairs) + 1, 4]) + pairs
        for dialect in ("rocketmq", "servicebus", "rabbitmq"):
            for text in ("a IS NULL", "a = '5'"):
                open_rows(Filter.parse(text, dialect).tree, [message])


def test_a_time_to_live_beyond_what_a_time_span_holds_is_unset() -> None:
    message = b"\x00\x53\x70\xc0\x0c\x03\x40\x40\x80\x00\x20" + bytes(6)
    assert open_rows(Filter.parse("sys.TimeToLive IS NULL", "servicebus").tree, [message]) == 0
    assert Filter.parse("sys.TimeToLive IS NULL", "servicebus").matches(message, now_ms=0)
