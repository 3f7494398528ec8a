"""The rule engine against every filter alone: the same pairs, whatever the filters share."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.evaluate import Filter, Verdict
from headgate.evaluate.rules import Matches, RuleSet
from headgate.message.batch import EncodedMessages
from strategies import damaged_messages, encoded_messages, expressions

NOW_MS = 1_767_225_600_000

Pairs = set[tuple[int, int]]


def pairs(matches: Matches) -> tuple[Pairs, Pairs]:
    """Matches and errors as sets, after a look at their order."""
    for rows, rules in ((matches.rows, matches.rules), (matches.error_rows, matches.error_rules)):
        keys = list(zip(rows.tolist(), rules.tolist(), strict=True))
        assert keys == sorted(set(keys))
    return (
        set(zip(matches.rows.tolist(), matches.rules.tolist(), strict=True)),
        set(zip(matches.error_rows.tolist(), matches.error_rules.tolist(), strict=True)),
    )


def alone(filters: dict[int, Filter], exact_errors: set[int], batch: EncodedMessages) -> tuple[Pairs, Pairs]:
    """The same by the reference evaluator, one filter after the other."""
    matching: Pairs = set()
    failing: Pairs = set()
    messages = [batch.message(row) for row in range(len(batch))]
    for number, given_filter in filters.items():
        for row, message in enumerate(messages):
            verdict = given_filter.verdict(message, now_ms=NOW_MS)
            if verdict is Verdict.TRUE:
                matching.add((row, number))
            elif verdict is Verdict.ERROR and number in exact_errors:
                failing.add((row, number))
    return matching, failing


def assert_as_alone(filters: list[Filter], messages: list[bytes], exact_errors: set[int]) -> None:
    batch = EncodedMessages.of(messages)
    rules = RuleSet(filters, exact_errors=exact_errors)
    assert pairs(rules.match(batch, now_ms=NOW_MS)) == alone(dict(enumerate(filters)), exact_errors, batch)


texts = st.lists(expressions, min_size=4, max_size=14)


@settings(deadline=None, max_examples=150)
@given(texts, st.lists(st.one_of(encoded_messages(), damaged_messages()), min_size=1, max_size=6), st.data())
def test_a_rule_set_says_of_generated_messages_what_every_filter_says_alone(
    given_texts: list[str], messages: list[bytes], data: st.DataObject
) -> None:
    filters = [Filter.parse(text, "rabbitmq") for text in given_texts]
    exact = data.draw(st.sets(st.integers(0, len(filters) - 1)))
    assert_as_alone(filters, messages, exact)
