"""Correlation filters: the tree that rule sets look up, the text that shows it, and what is refused."""

from __future__ import annotations

import datetime
import math
import pickle
import uuid
from typing import Any

import pytest

from headgate.errors import ConfigError, FilterError
from headgate.evaluate.filter import Filter
from headgate.evaluate.verdict import Verdict
from headgate.language.servicebus.system_properties import CORRELATION_FIELDS, system_property
from headgate.language.tree import And, Compare, CompareOperator, Constant, Field, ValueRules, walk
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.fields import FieldReference, Section


def test_a_condition_is_an_equality_of_a_field_and_a_constant() -> None:
    filter = Filter.from_correlation(properties={"Size": 5})
    reference = FieldReference(Section.APPLICATION_PROPERTIES, key=b"Size", ignore_case=True)
    assert filter.tree == Compare(
        CompareOperator.EQUAL,
        Field(reference, ValueRules.SERVICE_BUS, (0, 4)),
        Constant(5, (7, 8)),
        ValueRules.CORRELATION,
        (0, 8),
    )
    assert (filter.text, filter.dialect) == ("Size = 5", None)


def test_conditions_are_anded_in_the_order_given_and_spans_are_places_in_the_text() -> None:
    filter = Filter.from_correlation(
        label="it's", to=None, properties={"x y": 1.5, "like": True, "s": "a"}, correlation_id="c"
    )
    assert filter.text == (
        "sys.Label = 'it''s' AND [x y] = 1.5 AND [like] = TRUE AND s = 'a' AND sys.CorrelationId = 'c'"
    )
    assert isinstance(filter.tree, And)
    shown = [filter.text[slice(*node.span)] for node in walk(filter.tree) if isinstance(node, Compare)]
    assert shown == filter.text.split(" AND ")


def test_a_correlation_filter_survives_pickling() -> None:
    filter = Filter.from_correlation(label="x", properties={"a": uuid.UUID(int=1)})
    assert pickle.loads(pickle.dumps(filter)) == filter


@pytest.mark.parametrize(
    ("conditions", "kind", "reason"),
    [
        ({}, FilterError, "found no condition, a correlation filter has at least one"),
        ({"label": None, "properties": {}}, FilterError, "found no condition"),
        ({"lable": "x"}, ConfigError, "a correlation filter has no condition 'lable'; it has correlation_id, "),
        ({"label": 5}, ConfigError, "label of a correlation filter takes a string, found 5"),
        ({"properties": [1]}, ConfigError, "properties of a correlation filter are a mapping"),
        ({"properties": {5: 1}}, ConfigError, "the name of a property is a string, found 5"),
        ({"properties": {"a": [1]}}, ConfigError, "a list is no value of Service Bus"),
        ({"properties": {"a": None}}, FilterError, "null and NaN equal nothing"),
        ({"properties": {"a": math.nan}}, FilterError, "null and NaN equal nothing"),
    ],
)
def test_a_correlation_filter_that_cannot_be_meant_is_refused(
    conditions: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind) as refused:
        Filter.from_correlation(**conditions)
    assert reason in str(refused.value)


@pytest.mark.parametrize("name", CORRELATION_FIELDS)
def test_every_system_condition_reads_its_property(name: str) -> None:
    found = system_property(CORRELATION_FIELDS[name])
    assert found is not None and found.reference is not None
    message = Message(b"").with_changes([(found.reference, AmqpValue(AmqpType.STRING, "Value"))])
    assert Filter.from_correlation(**{name: "Value"}).matches(message, now_ms=0)
    assert Filter.from_correlation(**{name: "value"}).verdict(message, now_ms=0) is Verdict.FALSE
    assert Filter.from_correlation(**{name: "Value"}).verdict(Message(b""), now_ms=0) is Verdict.FALSE


MOMENT = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("wanted", "held", "matches"),
    [
        (2, AmqpValue(AmqpType.INT, 2), True),
        (2, AmqpValue(AmqpType.UBYTE, 2), True),
        (2, 2.0, True),
        (2, AmqpValue(AmqpType.FLOAT, 2.0), True),
        (2.5, 2.5, True),
        (0.1, AmqpValue(AmqpType.FLOAT, 0.1), False),
        (2**53 + 1, 2.0**53, False),
        (2, "2", False),
        ("2", 2, False),
        (True, 1, False),
        (True, "true", False),
        (True, True, True),
        ("red", AmqpValue(AmqpType.SYMBOL, "red"), True),
        ("red*", "redish", False),
        ("", "", True),
        ("", None, False),
        (b"x", b"x", True),
        (b"x", "x", False),
        (uuid.UUID(int=1), uuid.UUID(int=1), True),
        (MOMENT, MOMENT, True),
        (MOMENT, 5, False),
        (2, [2], False),
    ],
)
def test_a_property_has_to_equal_the_condition_with_its_type(wanted: object, held: object, matches: bool) -> None:
    filter = Filter.from_correlation(properties={"P": wanted})
    expected = Verdict.TRUE if matches else Verdict.FALSE
    assert filter.verdict(Message(b"", application_properties={"p": held}), now_ms=0) is expected
    assert filter.verdict(Message(b""), now_ms=0) is Verdict.FALSE
