"""`Filter`: the same verdicts message by message and batch by batch, with and without the kernel."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError, FilterSyntaxError, FilterTypeError
from headgate.evaluate import Engine, Filter, Verdict
from headgate.language.amqp.filter_set import FilterEntry, read_filter_set
from headgate.message import AmqpType, AmqpValue, EncodedMessages, Message
from headgate.message.fields import FieldReference, Section
from strategies import damaged_messages, encoded_messages, expressions

NOW_MS = 1_767_225_600_000
REGION = FieldReference(Section.APPLICATION_PROPERTIES, key=b"region")

MESSAGES = [
    Message(b"0", subject="order.created", application_properties={"region": "AMER", "price": 120.5}).encode(),
    Message(b"1", subject="order.created", application_properties={"region": "APJ"}).encode(),
    Message(b"2", application_properties={"region": None}).encode(),
    b"no message",
    Message(b"4", subject="cart.add", application_properties={"region": "EMEA", "price": 5}).encode(),
]
BATCH = EncodedMessages.of(MESSAGES)


@pytest.mark.parametrize("engine", Engine)
def test_a_batch_has_the_verdicts_of_its_messages(engine: Engine) -> None:
    chosen = Filter.parse("region IN ('AMER', 'EMEA') AND price > 1")
    expected = [Verdict.TRUE, Verdict.FALSE, Verdict.UNKNOWN, Verdict.ERROR, Verdict.TRUE]
    assert [chosen.verdict(data, now_ms=NOW_MS) for data in MESSAGES] == expected
    assert chosen.verdicts(BATCH, now_ms=NOW_MS, engine=engine).tolist() == expected
    assert chosen.mask(BATCH, now_ms=NOW_MS, engine=engine).tolist() == [True, False, False, False, True]
    assert chosen.mask(BATCH, now_ms=NOW_MS, engine=engine).dtype == np.bool_


@pytest.mark.parametrize("engine", Engine)
def test_an_empty_batch_has_no_verdicts(engine: Engine) -> None:
    chosen = Filter.parse("TRUE")
    empty = EncodedMessages.of([])
    assert chosen.verdicts(empty, now_ms=NOW_MS, engine=engine).tolist() == []
    assert chosen.mask(empty, now_ms=NOW_MS, engine=engine).tolist() == []


def test_only_true_delivers_a_decoded_or_an_encoded_message() -> None:
    chosen = Filter.parse("price > 100")
    assert chosen.matches(MESSAGES[0], now_ms=NOW_MS)
    assert chosen.matches(memoryview(MESSAGES[0]), now_ms=NOW_MS)
    assert chosen.matches(Message.decode(MESSAGES[0]), now_ms=NOW_MS)
    assert not any(chosen.matches(data, now_ms=NOW_MS) for data in MESSAGES[1:])
    assert not Filter.parse("NOT price > 100").matches(MESSAGES[1], now_ms=NOW_MS)


@given(expressions, st.lists(st.one_of(encoded_messages(), damaged_messages()), max_size=5))
def test_kernel_and_reference_agree_on_any_batch(text: str, messages: list[bytes]) -> None:
    chosen = Filter.parse(text)
    batch = EncodedMessages.of(messages)
    expected = chosen.verdicts(batch, now_ms=NOW_MS, engine=Engine.REFERENCE)
    assert chosen.verdicts(batch, now_ms=NOW_MS).tolist() == expected.tolist()
    assert chosen.mask(batch, now_ms=NOW_MS).tolist() == (expected == Verdict.TRUE).tolist()


def test_rows_that_the_kernel_leaves_open_are_decided_all_the_same() -> None:
    beyond = Message(application_properties={"n": AmqpValue(AmqpType.ULONG, 2**64 - 1)}).encode()
    chosen = Filter.parse("n * n = 340282366920938463426481119284349108225")
    assert chosen.program is not None
    assert chosen.mask(EncodedMessages.of([beyond]), now_ms=NOW_MS).tolist() == [True]


def test_utc_is_the_time_that_is_given() -> None:
    chosen = Filter.parse(f"UTC() = {NOW_MS}")
    assert chosen.uses_time
    assert chosen.mask(BATCH, now_ms=NOW_MS).tolist() == [True, True, True, False, True]
    assert not chosen.mask(BATCH, now_ms=NOW_MS + 1).any()
    assert not Filter.parse("price > 5").uses_time


@pytest.mark.parametrize("engine", Engine)
def test_a_filter_that_does_not_ask_for_the_time_needs_none(engine: Engine) -> None:
    chosen = Filter.parse("region = 'AMER'")
    assert chosen.matches(MESSAGES[0]) and chosen.verdict(MESSAGES[3]) is Verdict.ERROR
    assert chosen.mask(BATCH, engine=engine).tolist() == [True, False, False, False, False]
    assert chosen.verdicts(BATCH, engine=engine).tolist() == chosen.verdicts(BATCH, now_ms=1, engine=engine).tolist()
    assert chosen.explain(MESSAGES[0]).verdict is Verdict.TRUE
    asks = Filter.parse("p.creation_time > UTC() AND region = 'AMER'")
    for ask in (asks.matches, asks.verdict, asks.explain):
        with pytest.raises(ConfigError, match="now_ms"):
            ask(MESSAGES[0])
    for ask_many in (asks.mask, asks.verdicts):
        with pytest.raises(ConfigError, match="now_ms"):
            ask_many(BATCH, engine=engine)


def test_a_filter_knows_the_fields_it_reads() -> None:
    chosen = Filter.parse("region = 'AMER' AND h.priority > 4")
    assert chosen.uses(REGION)
    assert not chosen.uses(FieldReference(Section.APPLICATION_PROPERTIES, key=b"price"))
    assert len(chosen.fields) == 2


@pytest.mark.parametrize(
    "chosen",
    [
        Filter.parse("region = 'AMER' OR " + "NOT " * 190 + "(price > 5)"),
        Filter.from_properties({"subject": "&p:order"}, {"region": None, "price": 5}),
    ],
    ids=["text", "properties"],
)
def test_a_filter_survives_pickling(chosen: Filter) -> None:
    chosen.mask(BATCH, now_ms=NOW_MS)
    again = pickle.loads(pickle.dumps(chosen))
    assert again == chosen
    assert hash(again) == hash(chosen)
    assert again.mask(BATCH, now_ms=NOW_MS).tolist() == chosen.mask(BATCH, now_ms=NOW_MS).tolist()


def test_filters_with_another_text_or_dialect_are_not_equal() -> None:
    assert Filter.parse("x = 1") != Filter.parse("x = 2")
    assert Filter.parse("x = 1") != "x = 1"


@pytest.mark.parametrize("engine", Engine)
def test_property_filters_are_all_required(engine: Engine) -> None:
    chosen = Filter.from_properties({"subject": "&p:order."}, {"region": None})
    assert chosen.dialect is None
    assert chosen.mask(BATCH, now_ms=NOW_MS, engine=engine).tolist() == [True, True, False, False, False]
    only_key = Filter.from_properties(application_properties={"region": None})
    assert only_key.mask(BATCH, now_ms=NOW_MS, engine=engine).tolist() == [True, True, True, False, True]


@pytest.mark.parametrize("properties", [None, {"Subject": "x"}, {"subject": 5}])
def test_a_wrong_property_filter_is_refused_by_name(properties: dict[str, object] | None) -> None:
    with pytest.raises(ConfigError, match=r"expected"):
        Filter.from_properties(properties)


@pytest.mark.parametrize(("text", "error"), [("x = ", FilterSyntaxError), ("p.nope = 1", FilterTypeError)])
def test_a_wrong_text_is_refused_with_the_text_shown(text: str, error: type[Exception]) -> None:
    with pytest.raises(error) as refused:
        Filter.parse(text)
    assert f"\n  {text}\n" in str(refused.value)
    assert "^" in str(refused.value)


def test_an_unknown_dialect_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="found dialect 'sql99', expected one of rabbitmq"):
        Filter.parse("x = 1", "sql99")


def test_the_expression_of_a_filter_map_becomes_a_filter() -> None:
    name, descriptor = AmqpValue(AmqpType.SYMBOL, "sql-filter"), AmqpValue(AmqpType.SYMBOL, "amqp:sql-filter")
    entries = [FilterEntry(name, descriptor, AmqpValue(AmqpType.STRING, "price > 100"))]
    assert Filter.from_set(read_filter_set(entries)) == Filter.parse("price > 100")
    assert Filter.from_set(read_filter_set([])) is None
