"""Paths into JSON bodies: the table of cases and generated ones, by every evaluator and by a second oracle."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, reject

from body_oracle import judged
from body_strategies import body_expressions, body_messages
from headgate.errors import FilterError
from headgate.evaluate import Filter, Verdict
from headgate.evaluate.rules import RuleSet, rule_set
from headgate.language import print_tree
from headgate.message import EncodedMessages, Message
from recordings import lines_of
from spans import without_spans

MESSAGES = [bytes.fromhex(row["encoded_hex"]) for row in lines_of("own/body_messages")]
ROWS = lines_of("own/body_paths")
VERDICTS = {True: Verdict.TRUE, False: Verdict.FALSE, None: Verdict.UNKNOWN}


@functools.cache
def cases() -> list[tuple[str, Filter, list[Verdict]]]:
    found = []
    for row in ROWS:
        if row["accepted"]:
            verdicts = [Verdict.FALSE] * len(MESSAGES)
            for name, verdict in (("matches", Verdict.TRUE), ("unknown", Verdict.UNKNOWN)):
                for number in row[name]:
                    verdicts[number] = verdict
            found.append((row["id"], Filter.parse(row["sql"], row["dialect"]), verdicts))
    return found


def test_the_table_is_large_and_says_each_thing_once() -> None:
    assert len({row["sql"] for row in ROWS}) == len(ROWS) > 500


def test_the_reference_gives_the_verdicts_of_the_table() -> None:
    messages = [Message.decode(message) for message in MESSAGES]
    for name, filter, verdicts in cases():
        assert [filter.verdict(message, now_ms=0) for message in messages] == verdicts, name


def test_the_kernel_gives_the_verdicts_of_the_table() -> None:
    batch = EncodedMessages.of(MESSAGES)
    for name, filter, verdicts in cases():
        assert filter.verdicts(batch, now_ms=0).tolist() == verdicts, name


def test_the_second_evaluator_gives_the_verdicts_of_the_table() -> None:
    for name, filter, verdicts in cases():
        assert [VERDICTS[judged(filter.tree, message)] for message in MESSAGES] == verdicts, name


def test_rules_together_give_the_verdicts_of_the_table() -> None:
    with mock.patch.object(rule_set, "_MOST_ALONE", 0):
        rules = RuleSet([filter for _, filter, _ in cases()])
    found = rules.match(EncodedMessages.of(MESSAGES), now_ms=0)
    pairs = set(zip(found.rules.tolist(), found.rows.tolist(), strict=True))
    verdicts = np.array([[verdict is Verdict.TRUE for verdict in verdicts] for _, _, verdicts in cases()])
    assert pairs == set(map(tuple, np.argwhere(verdicts).tolist()))


def test_what_is_refused_is_refused() -> None:
    for row in ROWS:
        if not row["accepted"]:
            with pytest.raises(FilterError):
                Filter.parse(row["sql"], row["dialect"])


def parsed(text: str) -> Any:
    try:
        return Filter.parse(text)
    except FilterError:
        return reject()


@given(body_expressions, body_messages)
def test_all_evaluators_agree_on_generated_filters_and_messages(text: str, message: bytes) -> None:
    filter = parsed(text)
    expected = VERDICTS[judged(filter.tree, message)]
    assert filter.verdict(message, now_ms=0) is expected
    assert filter.verdicts(EncodedMessages.of([message]), now_ms=0).tolist() == [expected]


@given(body_expressions)
def test_generated_filters_are_printed_as_what_they_are(text: str) -> None:
    tree = parsed(text).tree
    assert without_spans(parsed(print_tree(tree)).tree) == without_spans(tree)
