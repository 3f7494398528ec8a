"""Explanations: each clause, the reasons, the traps, the stage."""

from __future__ import annotations

import pytest
from hypothesis import given

from headgate.evaluate import Filter, Verdict
from headgate.evaluate.explanation import Explanation, Stage
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.fields import FieldReference, Section
from strategies import damaged_messages, expressions

REGION = FieldReference(Section.APPLICATION_PROPERTIES, key=b"region")
MESSAGE = Message(
    b"",
    subject="order.created",
    message_annotations={"x-stream-filter-value": "order.created"},
    application_properties={
        "Region": "AMER",
        "quantity": "12",
        "price": 5.0,
        "premium": True,
        "list": AmqpValue(AmqpType.LIST, ()),
        "odd": float("nan"),
        "nothing": None,
    },
)


def explained(text: str, **options: object) -> Explanation:
    return Filter.parse(text).explain(MESSAGE, now_ms=0, **options)  # type: ignore[arg-type]


def test_every_clause_has_its_text_and_verdict() -> None:
    found = explained("p.subject = 'order.created' AND (price > 99.99 OR NOT premium)")
    assert found.clauses is not None
    assert [(clause.text, clause.verdict.name) for clause in found.clauses.walk()] == [
        ("p.subject = 'order.created' AND (price > 99.99 OR NOT premium)", "FALSE"),
        ("p.subject = 'order.created'", "TRUE"),
        ("(price > 99.99 OR NOT premium)", "FALSE"),
        ("price > 99.99", "FALSE"),
        ("NOT premium", "FALSE"),
        ("premium", "TRUE"),
    ]
    assert found.verdict is Verdict.FALSE
    assert found.reasons == (
        "`price > 99.99` is false (price is double 5.0)",
        "`premium` is true (premium is boolean TRUE)",
    )


def test_a_match_has_no_reasons() -> None:
    assert explained("premium AND price = 5").reasons == ()
    assert explained("quantity = '13' OR price = 5").reasons == ()


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("region = 'AMER'", "region is absent (the message has 'Region')"),
        ("nothing = 1", "nothing is null"),
        ("list = 1", "list is of type list, which is unknown to filters"),
        ("odd > 1", "odd is double nan, which is unknown to filters"),
        ("h.priority > 4", "h.priority is absent, its default is 4"),
        ("h.durable", "h.durable is absent, its default is FALSE"),
        ("odd = INF", "odd is double nan"),
        ("list[0] = 5", "list[0] is absent"),
        ("m.[x-stream-filter-value] = 'x'", "m.[x-stream-filter-value] is string 'order.created'"),
        ("p.to = 'x'", "p.to is absent"),
        ("price + 1 > quantity", "price is double 5.0, quantity is string '12'"),
    ],
)
def test_the_note_says_what_the_fields_hold(text: str, note: str) -> None:
    found = explained(text)
    assert found.clauses is not None
    assert found.clauses.note == note


def test_a_priority_of_another_type_than_the_standards_counts_as_absent() -> None:
    odd = Message.decode(bytes.fromhex("005370c00702417100000009"))
    found = Filter.parse("h.priority = 4").explain(odd, now_ms=0)
    assert found.verdict is Verdict.TRUE
    assert found.clauses is not None
    assert found.clauses.note == "h.priority is of type int, which counts as absent, its default is 4"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("quantity > 10", "`quantity` is a string here; `quantity > 10` compares it with a number and is false"),
        ("10 <> quantity", "`quantity` is a string here; `10 <> quantity` compares it with a number and is true"),
        ("premium > TRUE", "`premium` is a boolean here; "
            "`premium > TRUE` asks for an order of booleans and is false"),
        ("price LIKE '5%'", "`price` is a number here; `price LIKE '5%'` is unknown"),
        ("quantity + 1 > 5", "`quantity` is a string here; `quantity + 1` is unknown"),
        ("quantity IN (11, 12)", "`quantity` is a string here; "
            "`quantity IN (11, 12)` lists values of other kinds, none is equal"),
        ("premium AND price", "`price` is a number here; as an operand of AND, OR and NOT it is unknown"),
        ("quantity || price = '125'", "`price` is a number here; `quantity || price` is unknown"),
        ("LOWER(price) = '5'", "`price` is a number here; `LOWER(price)` is unknown"),
        ("LEFT(quantity, price) = '1'", "`price` is no integer here; `LEFT(quantity, price)` is unknown"),
        ("LEFT(quantity, quantity) = '1'", "`quantity` is a string here; `LEFT(quantity, quantity)` is unknown"),
        ("quantity <> INF", "`quantity` is a string here; `quantity <> INF` asks for a number and is true"),
    ],
)  # fmt: skip
def test_a_trap_is_warned_of(text: str, warning: str) -> None:
    assert explained(text).warnings == (warning,)


def test_no_trap_no_warning() -> None:
    assert explained("quantity = '12' AND price < 10 AND premium = TRUE AND region IS NULL").warnings == ()


@pytest.mark.parametrize(
    ("options", "stage"),
    [
        ({}, Stage.MESSAGE),
        ({"filter_values": [b"order.created"]}, Stage.MESSAGE),
        ({"filter_values": [b"cart.add"]}, Stage.CHUNK),
        ({"filter_values": [b"cart.add"], "filter_value": b"cart.add"}, Stage.MESSAGE),
        ({"filter_values": [b"cart.add"], "filter_value": b""}, Stage.CHUNK),
        ({"filter_values": [b"cart.add"], "filter_value": b"", "match_unfiltered": True}, Stage.MESSAGE),
    ],
)
def test_the_deciding_stage_follows_from_the_filter_values(options: dict[str, object], stage: Stage) -> None:
    assert explained("TRUE", **options).stage is stage


def test_filter_values_that_the_expression_does_not_imply_are_warned_of() -> None:
    wanted = {"filter_values": [b"AMER"], "declared_source": REGION}
    assert explained("region = 'AMER'", **wanted).warnings == ()
    assert explained("region IN ('AMER', 'APJ')", **wanted).warnings == (
        "the expression also matches region = 'APJ', which is no wanted filter value",
    )
    assert "names no wanted region" in explained("price > 1", **wanted).warnings[0]


def test_bytes_that_are_no_message_are_explained_by_the_error() -> None:
    found = Filter.parse("TRUE").explain(b"\x01", now_ms=0)
    assert (found.verdict, found.clauses) == (Verdict.ERROR, None)
    assert "malformed AMQP 1.0 message at byte 0" in found.reasons[0]


def test_the_clauses_of_property_filters_are_their_entries() -> None:
    found = Filter.from_properties({"subject": "x"}, {"quantity": 12}).explain(MESSAGE, now_ms=0)
    assert found.clauses is not None
    assert [clause.text for clause in found.clauses.operands] == ["subject: string 'x'", "quantity: long 12"]
    assert len(found.reasons) == 2


@given(expressions, damaged_messages())
def test_an_explanation_has_the_verdict_of_the_filter(text: str, data: bytes) -> None:
    chosen = Filter.parse(text)
    found = chosen.explain(data, now_ms=5)
    assert found.verdict is chosen.verdict(data, now_ms=5)
    assert (found.verdict is Verdict.TRUE) == (not found.reasons)
