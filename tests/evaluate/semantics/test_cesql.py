"""What filters of `cesql` decide; the tables of cases are run by `tests/evaluate/test_recordings.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cesql_strategies
from cesql_events import STRUCTURED, binary_event, outcome, structured_event
from headgate.derived.match_index.identity import check_registrable, key_of
from headgate.errors import FilterError
from headgate.evaluate import Engine, Filter, Verdict
from headgate.evaluate.pruning import needed_keys, wanted_values
from headgate.message import AmqpType, AmqpValue, Body, EncodedMessages, Message, Section, parse_field
from headgate.message.json_body import MAX_JSON_BYTES

EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order", "size": 5, "urgent": True}


@pytest.mark.parametrize("message", [binary_event(EVENT), structured_event(EVENT)])
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("type = 'order' AND size > 4", Verdict.TRUE),
        ("type = 'bill'", Verdict.FALSE),
        ("urgent", Verdict.TRUE),
        ("source", Verdict.UNKNOWN),
        ("size + 1", Verdict.UNKNOWN),
        ("subject = 'x' OR TRUE", Verdict.ERROR),
        ("TRUE OR subject = 'x'", Verdict.TRUE),
        ("size / 0 = 0", Verdict.ERROR),
        ("ABS(-2147483648) = 2147483647", Verdict.ERROR),
    ],
)
def test_a_filter_with_an_error_is_an_error_and_one_without_a_truth_is_unknown(
    text: str, verdict: Verdict, message: Message
) -> None:
    filter = Filter.parse(text, "cesql")
    batch = EncodedMessages.of([message.encode()])
    assert filter.verdict(message) is verdict
    for engine in Engine:
        assert filter.verdicts(batch, engine=engine).tolist() == [verdict]
        assert filter.mask(batch, engine=engine).tolist() == [verdict is Verdict.TRUE]


@given(st.one_of(cesql_strategies.expressions, cesql_strategies.token_soups), cesql_strategies.messages())
def test_evaluating_never_raises_and_both_engines_agree(text: str, message: bytes) -> None:
    try:
        filter = Filter.parse(text, "cesql")
    except FilterError:
        return
    verdict = filter.verdict(message)
    assert filter.verdicts(EncodedMessages.of([message])).tolist() == [verdict]
    filter.explain(message)


@pytest.mark.parametrize(
    "body",
    [
        b'{"x": "' + b"a" * MAX_JSON_BYTES + b'"}',
        b"[" * 500_000,
        b'{"x": "\xff"}',
        b'{"x": "a"',
        b'"x"',
        Body(Section.AMQP_VALUE, (AmqpValue(AmqpType.INT, 5),)),
        None,
    ],
)
def test_structured_events_that_cannot_be_read_are_an_error(body: bytes | Body | None) -> None:
    explained = Filter.parse("x = 'a'", "cesql").explain(Message(body, content_type=STRUCTURED))
    assert explained.verdict is Verdict.ERROR
    assert explained.reasons == ("`x = 'a'` is error (the body with the event is no object of JSON)",)


@pytest.mark.parametrize(
    "body",
    [
        Body(Section.DATA, (b'{"x": ', b'"a"}')),
        Body(Section.AMQP_VALUE, (AmqpValue(AmqpType.STRING, '{"x": "a"}'),)),
        Body(Section.AMQP_VALUE, (AmqpValue(AmqpType.BINARY, b'{"x": "a"}'),)),
    ],
)
def test_an_event_may_be_in_several_data_sections_or_one_value(body: Body) -> None:
    assert outcome("x = 'a'", Message(body, content_type=STRUCTURED)) == (True, None)


def test_explanations_name_attributes_and_their_values() -> None:
    explained = Filter.parse("type = 'bill' AND size > 4", "cesql").explain(binary_event(EVENT))
    assert explained.reasons == ("`type = 'bill'` is false (type is 'order')",)
    explained = Filter.parse("subject = 'x' AND size > 4", "cesql").explain(binary_event(EVENT))
    assert explained.reasons == ("`subject = 'x'` is error (the event has no attribute subject)",)
    explained = Filter.parse("NOT (source > 4)", "cesql").explain(binary_event(EVENT))
    assert explained.reasons == ("`(source > 4)` is error (source is '/shop'; '/shop' is no Integer)",)


def test_nothing_is_concluded_from_equalities_since_an_event_may_be_in_the_body() -> None:
    filter = Filter.parse("type = 'order'", "cesql")
    source = parse_field("application_properties.cloudEvents_type")
    assert wanted_values(filter.tree, source) is None
    assert needed_keys(filter.tree, [source]) is None


def test_results_may_be_kept_in_a_match_index() -> None:
    filter = Filter.parse("type = 'order' AND LENGTH(source) > 3", "cesql")
    check_registrable(filter)
    assert key_of(filter) is not None
