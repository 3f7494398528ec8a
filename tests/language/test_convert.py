"""Filters in other languages: what converts, what is refused and where, and that no conversion changes a delivery."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketmq_strategies
import servicebus_filters
import strategies
from amqp_strategies import amqp_expressions, amqp_messages
from examples import examples
from headgate.errors import ConfigError, FilterConversionError, FilterError
from headgate.evaluate.filter import Filter
from headgate.evaluate.verdict import Verdict
from headgate.language import dialect_named
from headgate.language.convert import Assumption, Conversion
from headgate.language.translation import FieldKind, Refused, translated
from headgate.language.tree import Field, walk
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.rocketmq import stored_message

LANGUAGES = ("rabbitmq", "amqp", "rocketmq", "servicebus")
EVERYTHING = tuple(Assumption)
NOW_MS = 1_767_225_600_000


def refusal(filter: Filter, target: str, assume: tuple[Assumption, ...] = ()) -> FilterConversionError:
    with pytest.raises(FilterConversionError) as refused:
        filter.convert(target, assume=assume)
    return refused.value


@pytest.mark.parametrize(
    ("text", "source", "target", "expected"),
    [
        ("region = 'EMEA'  AND p.subject LIKE 'o%'", "rabbitmq", "amqp", "region = 'EMEA'  AND p.subject LIKE 'o%'"),
        ("region='EMEA' AND [x y] IN (1, 2.0)", "amqp", "rabbitmq", "region='EMEA' AND [x y] IN (1, 2.0)"),
        ("region = LEFT('EMEA', 2)", "amqp", "rabbitmq", "region = 'EM'"),
        ("p.user_id = 0xFF OR -5 < x", "amqp", "rabbitmq", "p.user_id = 0xFF OR -5 < x"),
        ("TRUE", "rabbitmq", "servicebus", "1 = 1"),
        ("FALSE", "rabbitmq", "rocketmq", "FALSE"),
        ("NULL", "rocketmq", "amqp", "FALSE"),
        ("5", "rabbitmq", "servicebus", "1 = 0"),
        ("1 = 1", "servicebus", "rocketmq", "TRUE"),
        ("a = 5 this is ignored", "rocketmq", "rocketmq", "a = 5 this is ignored"),
    ],
)
def test_conversion_without_assumptions_has_the_same_tree(text: str, source: str, target: str, expected: str) -> None:
    found = Filter.parse(text, source).convert(target)
    assert (found.text, found.dialect, found.assumed) == (expected, target, ())


@pytest.mark.parametrize(
    ("text", "source", "target", "expected"),
    [
        ("region = 'EMEA'", "rabbitmq", "rocketmq", "region = 'EMEA'"),
        ("'EMEA' = region", "rabbitmq", "servicebus", "region = 'EMEA'"),
        ("NOT (a LIKE 'x%' OR b IN ('y', 'z'))", "amqp", "servicebus", "a NOT LIKE 'x%' AND b NOT IN ('y', 'z')"),
        ("a LIKE 'x%' AND b LIKE '%y'", "amqp", "rocketmq", "a STARTSWITH 'x' AND b ENDSWITH 'y'"),
        ("a LIKE 'x' AND NOT flag", "amqp", "rocketmq", "a = 'x' AND flag = FALSE"),
        ("5 < price AND NOT price >= 9.5", "amqp", "servicebus", "price > 5 AND price < 9.5"),
        ("p.subject = 'red' AND p.group_id IS NOT NULL", "rabbitmq", "servicebus",
         "sys.Label = 'red' AND sys.SessionId IS NOT NULL"),
        ("Label = 'x' OR sys.Label = 'y'", "servicebus", "rabbitmq", "Label = 'x' OR p.subject = 'y'"),
        ("a LIKE '%x%'", "servicebus", "rocketmq", "a CONTAINS 'x'"),
        ("a CONTAINS 'x_'", "rocketmq", "servicebus", "a LIKE '%x!_%' ESCAPE '!'"),
        ("NOT (a STARTSWITH 'x')", "rocketmq", "amqp", "a IS NULL OR a NOT LIKE 'x%'"),
        ("a NOT STARTSWITH 'x'", "rocketmq", "amqp", "a NOT LIKE 'x%'"),
        ("'x' <> a", "rocketmq", "servicebus", "a IS NULL OR a <> 'x'"),
        ("NOT ('x' = a)", "rocketmq", "servicebus", "a IS NULL OR a <> 'x'"),
        ("TAGS = 'x' OR UNIQ_KEY IS NULL", "rocketmq", "amqp",
         "m.[x-opt-rocketmq-tag] = 'x' OR p.message_id IS NULL"),
        ("m.[x-opt-rocketmq-tag] = 'x'", "amqp", "rocketmq", "TAGS = 'x'"),
        ("flag", "rocketmq", "rabbitmq", "flag = TRUE"),
    ],
)  # fmt: skip
def test_filters_in_common_use_convert_where_kinds_and_spelling_are_known(
    text: str, source: str, target: str, expected: str
) -> None:
    found = Filter.parse(text, source).convert(target, assume=EVERYTHING)
    assert found.text == expected
    assert found.assumed and not found.is_exact


def test_maps_and_tags_convert_to_text() -> None:
    properties = Filter.from_properties({"subject": "&p:or_der."}, {"size": 5, "key": b"\xff", "suffix": "&s:"})
    assert properties.convert("rabbitmq") == Conversion(
        "p.subject LIKE 'or!_der.%' ESCAPE '!' AND (size = 5 AND key = 0xFF AND suffix LIKE '%')",
        "rabbitmq",
        is_exact=True,
    )
    correlation = Filter.from_correlation(label="red", properties={"x y": 5, "or": "o'n"})
    assert correlation.convert("servicebus").text == "sys.Label = 'red' AND [x y] = 5 AND [or] = 'o''n'"
    assert Filter.from_tags("a || b").convert("rocketmq").text == "TAGS IN ('a', 'b')"
    assert [Filter.from_tags("*").convert(target).text for target in LANGUAGES] == ["TRUE", "TRUE", "TRUE", "1 = 1"]
    tags = Filter.from_tags("a").convert("amqp", assume=["kinds"])
    assert tags.text == "m.[x-opt-rocketmq-tag] IN ('a')"
    assert tags.assumed == ("m.[x-opt-rocketmq-tag] holds a string that is not empty, or nothing",)


@pytest.mark.parametrize(
    ("text", "source", "target", "part", "reason"),
    [
        ("a = 1 AND LEFT(b, 2) = 'x'", "amqp", "rabbitmq", "LEFT(b, 2)", "LEFT is reserved"),
        ("a = 1 OR m.tag = 'x'", "amqp", "rabbitmq", "m.tag", "section"),
        ("a = 1 OR x = INF", "amqp", "rabbitmq", "x = INF", "INF"),
        ("a = 'x'", "rabbitmq", "servicebus", "a", "assume kinds and spelling"),
        ("a = 'x'", "rabbitmq", "rocketmq", "a", "assume kinds"),
        ("sys.Label = 'x'", "servicebus", "amqp", "sys.Label", "assume kinds"),
        ("a = 'x' AND b = c", "rabbitmq", "servicebus", "b = c", "one field with constants"),
        ("a = 'x' AND b > 'y'", "rabbitmq", "servicebus", "b > 'y'", "order of a text"),
        ("a LIKE '_x'", "rabbitmq", "servicebus", "a LIKE '_x'", "line feed"),
        ("a CONTAINS 'x'", "rocketmq", "amqp", "a CONTAINS 'x'", "line feed"),
        ("a > 5", "rocketmq", "amqp", "5", "parses numbers"),
        ("a = 9007199254740992", "rabbitmq", "servicebus", "9007199254740992", "rounds"),
        ("h.priority > 4", "rabbitmq", "servicebus", "h.priority", "default"),
        ("sys.TimeToLive IS NULL", "servicebus", "amqp", "sys.TimeToLive", "do not see the same"),
        ("p.subject = 'x'", "rabbitmq", "rocketmq", "p.subject", "does not see"),
        ("a = 'x' OR A = 'y'", "amqp", "servicebus", "A", "letter case"),
        ("a = 'x' OR a = 5", "amqp", "servicebus", "a", "compared with a text and with a number"),
    ],
)  # fmt: skip
def test_what_differs_is_refused_with_its_place(text: str, source: str, target: str, part: str, reason: str) -> None:
    assume = () if reason.startswith("assume") else EVERYTHING
    error = refusal(Filter.parse(text, source), target, assume)
    assert error.token == part
    assert reason in error.reason
    assert str(error).startswith(f"conversion from {source} to {target} refused")


def test_maps_that_no_text_can_say_are_refused_with_their_entry() -> None:
    presence = refusal(Filter.from_properties(application_properties={"a": 5, "b": None}), "amqp")
    assert presence.token == "b: null None"
    control = refusal(Filter.from_properties({"subject": "&p:a\nb"}), "rabbitmq")
    assert "control character" in control.reason
    assert "2^53" in refusal(Filter.from_correlation(properties={"a": 2**53}), "servicebus").reason
    assert refusal(
        Filter.from_correlation(properties={"a": "x", "b": uuid.UUID(int=1)}), "servicebus"
    ).token.startswith("b")
    assert refusal(Filter.from_tags("a"), "rabbitmq", EVERYTHING).token == "a"
    assert refusal(Filter.from_tags("a"), "servicebus", EVERYTHING).token == "a"


def test_names_of_assumptions_and_languages_are_checked() -> None:
    chosen = Filter.parse("a = 'x'")
    with pytest.raises(ConfigError, match="expected kinds or spelling"):
        chosen.convert("rocketmq", assume=["kind"])
    with pytest.raises(ConfigError, match="expected one of rabbitmq"):
        chosen.convert("jms")


def converted(filter: Filter, target: str, assume: tuple[Assumption, ...] = ()) -> Conversion | None:
    try:
        return filter.convert(target, assume=assume)
    except FilterConversionError:
        return None


def agrees(filter: Filter, found: Conversion, message: Message | bytes) -> None:
    again = Filter.parse(found.text, found.dialect)
    before, after = (each.verdict(message, now_ms=NOW_MS) for each in (filter, again))
    assert (before is Verdict.TRUE) is (after is Verdict.TRUE), (filter, found, before, after)
    assert not found.is_exact or before is after, (filter, found, before, after)


plain_values = st.one_of(
    rocketmq_strategies.typed_values,
    servicebus_filters.VALUES,
    st.sampled_from((2**53, 2**53 + 1, 9007199254740992.0, 0.1, -0.0)),
)
any_messages = st.one_of(
    strategies.encoded_messages(),
    amqp_messages(),
    servicebus_filters.messages(),
    rocketmq_strategies.typed_maps.map(stored_message),
)
texts_of = {
    "rabbitmq": strategies.expressions,
    "amqp": amqp_expressions,
    "rocketmq": rocketmq_strategies.expressions,
    "servicebus": servicebus_filters.filters(),
}


@pytest.mark.parametrize("source", LANGUAGES)
@given(data=st.data())
@examples(0.5)
def test_conversion_for_every_message_never_changes_a_delivery(source: str, data: st.DataObject) -> None:
    try:
        filter = Filter.parse(data.draw(texts_of[source]), source)
    except FilterError:
        return
    for target in LANGUAGES:
        found = converted(filter, target)
        if found is not None:
            assert not found.assumed
            for _ in range(3):
                agrees(filter, found, data.draw(any_messages))


_conditions = st.one_of(
    st.text(max_size=3),
    st.sampled_from(("red", "&p:a", "&s:b", "&&x", "a%_")),
    st.sampled_from((0, 7, -1, 2**53 - 1, 2**53 + 1, 0.5, -0.0, 9007199254740991.0, 1e300)),
    st.booleans(),
    st.binary(max_size=3),
)
_keys = st.sampled_from(("n", "s", "t", "price", "x y", "é", "or", "a[b]c"))


@given(
    wanted=st.dictionaries(_keys, _conditions, min_size=1, max_size=3),
    values=st.lists(st.dictionaries(_keys, st.one_of(plain_values, _conditions), max_size=4), min_size=3, max_size=3),
    label=st.none() | st.sampled_from(("red", "a", "")),
)
def test_maps_as_text_never_change_a_delivery(
    wanted: dict[str, Any], values: list[dict[str, Any]], label: str | None
) -> None:
    filters: list[Filter] = []
    with contextlib.suppress(FilterError):
        filters.append(Filter.from_properties(None if label is None else {"subject": label}, wanted))
    filters.append(Filter.from_correlation(label=label, properties=wanted))
    fulfilling = {key: value.removeprefix("&") if isinstance(value, str) else value for key, value in wanted.items()}
    for filter in filters:
        for target in LANGUAGES:
            found = converted(filter, target)
            for properties in [fulfilling, *values] if found is not None else []:
                for subject in (label, "other"):
                    message = Message(b"", subject=subject, application_properties=properties)
                    assert found is not None
                    agrees(filter, found, message)


_words = st.sampled_from(("a", "ab", "abc", "b", "A", "x_y", "%", "a\nb", "é", "😎", "5", "true"))
_string_texts = _words.map(rocketmq_strategies.quoted)
_numbers = st.sampled_from(("0", "1", "-1", "7", "2.5", "-0.0", "9007199254740991", "1.0E300", "9007199254740993"))
_operators = st.sampled_from(("=", "<>"))
_orders = st.sampled_from(("=", "<>", "<", "<=", ">", ">="))
_negations = st.sampled_from(("", "NOT "))
_string_lists = st.lists(_string_texts, min_size=1, max_size=3).map(", ".join)
_patterns = st.sampled_from(("'a%'", "'%b'", "'a%b'", "'ab'", "'%'", "'%b%'", "'_'", "''", "'x!_%' ESCAPE '!'"))
_text_conditions = st.one_of(
    st.builds("s {} {}".format, _operators, _string_texts),
    st.builds("{} {} t".format, _string_texts, _operators),
    st.builds("t {}IN ({})".format, _negations, _string_lists),
    st.builds("{} IS {}NULL".format, st.sampled_from(("s", "t", "n", "f")), _negations),
    st.builds("f {} {}".format, _operators, st.sampled_from(("TRUE", "FALSE"))),
)
_number_conditions = st.one_of(
    st.builds("n {} {}".format, _orders, _numbers),
    st.builds("{} {} n".format, _numbers, _orders),
    st.builds("n {}IN ({})".format, _negations, st.lists(_numbers, min_size=1, max_size=3).map(", ".join)),
)
_likes = st.builds("s {}LIKE {}".format, _negations, _patterns)
_searches = st.builds(
    "s {}{} {}".format, _negations, st.sampled_from(("STARTSWITH", "ENDSWITH", "CONTAINS")), _string_texts
)


def _combined(conditions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            inner.map("NOT ({})".format),
        )

    return st.recursive(conditions, larger, max_leaves=5)


_rabbitmq = (_text_conditions, _number_conditions, _likes)
common_filters = {
    "rabbitmq": _combined(
        st.one_of(*_rabbitmq, st.just("f"), st.builds("p.subject {} {}".format, _operators, _string_texts))
    ),
    "amqp": _combined(
        st.one_of(*_rabbitmq, st.just("f"), st.builds("m.[x-opt-rocketmq-tag] = {}".format, _string_texts))
    ),
    "rocketmq": _combined(
        st.one_of(_text_conditions, _searches, st.just("f"), st.builds("TAGS {} {}".format, _operators, _string_texts))
    ),
    "servicebus": _combined(st.one_of(*_rabbitmq, st.builds("sys.Label {} {}".format, _operators, _string_texts))),
}

_numeric_values = st.one_of(
    st.sampled_from((0, 1, -1, 7, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))).map(
        lambda value: AmqpValue(AmqpType.LONG, value)
    ),
    st.sampled_from((0, 7, 2**64 - 1)).map(lambda value: AmqpValue(AmqpType.ULONG, value)),
    st.sampled_from((1, 7)).map(lambda value: AmqpValue(AmqpType.UBYTE, value)),
    st.sampled_from((0.0, -0.0, 2.5, 7.0, 9007199254740991.0, 9007199254740992.0, 1e300)),
    st.sampled_from((2.5, 7.0)).map(lambda value: AmqpValue(AmqpType.FLOAT, value)),
)
_absent = st.sampled_from((None, AmqpValue(AmqpType.NULL, None)))


def _value_of(kind: FieldKind, *, strings_only: bool) -> st.SearchStrategy[Any]:
    if kind is FieldKind.NUMBER:
        return st.one_of(_absent, _numeric_values)
    if kind is FieldKind.BOOLEAN:
        return st.one_of(_absent, st.booleans())
    if strings_only:
        return st.one_of(_absent, _words, _words, st.text(min_size=1, max_size=3))
    symbols = st.sampled_from(("a", "ab", "b")).map(lambda value: AmqpValue(AmqpType.SYMBOL, value))
    return st.one_of(_absent, _words, _words, symbols, st.just(""))


@st.composite
def expected_messages(draw: st.DrawFn, kinds: dict[str, FieldKind], strings_only: bool) -> Message:
    """Messages that hold what a translation takes for granted."""
    sections: dict[str, dict[str, Any]] = {"properties": {}, "application": {}, "annotations": {}}
    for name, kind in kinds.items():
        value = draw(_value_of(kind, strings_only=strings_only))
        if value is None:
            continue
        if name in ("p.subject", "sys.Label"):
            sections["properties"]["subject"] = value
        elif name.startswith("m."):
            sections["annotations"]["x-opt-rocketmq-tag"] = value
        else:
            sections["application"][name] = value
    return Message(
        b"",
        properties=sections["properties"],
        message_annotations=sections["annotations"],
        application_properties={"other": 7} | sections["application"],
    )


@pytest.mark.parametrize("source", LANGUAGES)
@given(data=st.data())
def test_conversion_never_changes_a_delivery_where_its_assumptions_hold(source: str, data: st.DataObject) -> None:
    try:
        filter = Filter.parse(data.draw(common_filters[source]), source)
    except FilterError:
        return
    for target in LANGUAGES:
        found = converted(filter, target, EVERYTHING)
        if found is None or not found.assumed:
            continue
        rules = next(node.rules for node in walk(filter.tree) if isinstance(node, Field))
        try:
            translation = translated(filter.tree, rules, dialect_named(target))
        except Refused:
            raise AssertionError("converted, but not translated") from None
        for _ in range(4):
            agrees(filter, found, data.draw(expected_messages(translation.kinds, translation.strings_only)))
