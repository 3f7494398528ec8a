"""The kernel against the oracle in the languages with types and errors: generated messages and filters, and vectors."""

from __future__ import annotations

import datetime
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernel_strategies
import rocketmq_strategies
from headgate.errors import FilterError
from headgate.evaluate.filter import Filter
from headgate.evaluate.program import compile_program
from headgate.evaluate.reference import verdict_of_bytes
from headgate.evaluate.verdict import UNDECIDED, Verdict
from headgate.kernels import load
from headgate.language.tree import Node
from headgate.message.batch import EncodedMessages
from headgate.message.rocketmq import stored_message

VECTORS = Path(__file__).parent.parent / "vectors"
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
    select = program.select(batch, 0)
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


@settings(deadline=None, max_examples=500)
@given(rocketmq_strategies.expressions, st.lists(kernel_strategies.rocketmq_messages, min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_filters_of_rocketmq(text: str, messages: list[bytes]) -> None:
    check(text, "rocketmq", messages)


@settings(deadline=None, max_examples=500)
@given(
    kernel_strategies.servicebus_expressions, st.lists(kernel_strategies.servicebus_messages, min_size=1, max_size=4)
)
def test_kernel_and_oracle_agree_on_filters_of_service_bus(text: str, messages: list[bytes]) -> None:
    check(text, "servicebus", messages)


@pytest.mark.long
@settings(deadline=None, max_examples=20_000)
@given(rocketmq_strategies.expressions, st.lists(kernel_strategies.rocketmq_messages, min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_many_more_filters_of_rocketmq(text: str, messages: list[bytes]) -> None:
    check(text, "rocketmq", messages)


@pytest.mark.long
@settings(deadline=None, max_examples=20_000)
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
