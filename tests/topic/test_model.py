"""What makes a topic right: names, limits, kinds of filters, and errors that name the place."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError, FilterError, RuleError, RuleExistsError, RuleLimitError
from headgate.evaluate import Filter
from headgate.message import AmqpType, AmqpValue, Message
from headgate.topic import Rule, RuleDefinition, Subscription, Topic, TopicLimits
from headgate.topic.limits import LIMIT_MEANINGS


def rule(name: str, text: str = "region = 'AMER'") -> Rule:
    return Rule(name, text, dialect="rabbitmq")


def refused(topic: Topic) -> RuleError:
    with pytest.raises(RuleError) as caught:
        topic.check()
    return caught.value


def test_a_subscription_made_without_rules_has_the_true_rule() -> None:
    (only,) = Subscription("all").rules
    assert (only.name, only.definition.sql, only.has_action) == ("$Default", "1=1", False)


def test_a_subscription_with_rules_of_its_own_has_only_those() -> None:
    assert [each.name for each in Subscription("some", (rule("a"),)).rules] == ["a"]
    assert Subscription("none", ()).rules == ()


def test_a_fall_through_subscription_has_no_rules_and_takes_none() -> None:
    assert Subscription("rest", fall_through=True).rules == ()
    error = refused(Topic("orders", (Subscription("rest", (rule("a"),), fall_through=True),)))
    assert (error.topic, error.subscription) == ("orders", "rest")
    assert "no rules" in str(error)


def test_a_topic_has_one_fall_through() -> None:
    both = (Subscription("rest", fall_through=True), Subscription("other", fall_through=True))
    error = refused(Topic("orders", both))
    assert error.subscription == "other"
    assert "'rest'" in error.reason


@pytest.mark.parametrize("name", ["", "x" * 51, "a/b", "a\\b", "a?", "a#", "a*", "a@b", "a|b", "a\n", " a", "a "])
def test_a_name_that_no_subscription_or_rule_may_have_is_refused(name: str) -> None:
    assert refused(Topic("t", (Subscription(name, ()),))).subscription == name
    definition = RuleDefinition(name, sql="TRUE", dialect="rabbitmq")
    error = refused(Topic("t", (Subscription("s", (Rule.of(definition),)),)))
    assert (error.subscription, error.rule) == ("s", name)


@pytest.mark.parametrize("name", ["", "x" * 261, "/orders", "orders/", "/", "a?", "a\t"])
def test_a_name_that_no_topic_may_have_is_refused(name: str) -> None:
    assert refused(Topic(name)).topic == name


def test_a_topic_may_have_slashes_inside_its_name() -> None:
    Topic("shop/orders/new").check()


def test_of_names_that_begin_with_a_dollar_only_the_default_rule_is_allowed() -> None:
    assert "$Default" in refused(Topic("t", (Subscription("s", (rule("$mine"),)),))).reason
    Topic("t", (Subscription("s", (rule("$Default"),)),)).check()


def test_names_of_rules_and_subscriptions_are_unique_without_case() -> None:
    error = refused(Topic("t", (Subscription("s", (rule("Big"), rule("bIG"))),)))
    assert isinstance(error, RuleExistsError)
    assert (error.rule, "'Big'" in error.reason) == ("bIG", True)
    error = refused(Topic("t", (Subscription("One", ()), Subscription("one", ()))))
    assert isinstance(error, RuleExistsError)
    assert (error.subscription, error.rule) == ("one", None)


def test_a_subscription_does_not_forward_to_its_own_topic() -> None:
    assert "own topic" in refused(Topic("t", (Subscription("s", (), forward_to="t"),))).reason


def test_a_wrong_filter_names_topic_subscription_rule_place_and_reason() -> None:
    wrong = Rule.of(RuleDefinition("big", sql="price > > 5", dialect="rabbitmq"))
    error = refused(Topic("orders", (Subscription("red", (wrong,)),)))
    assert (error.topic, error.subscription, error.rule) == ("orders", "red", "big")
    assert isinstance(error.cause, FilterError)
    assert error.cause.span == (8, 9)
    shown = str(error)
    assert shown.startswith("topic 'orders', subscription 'red', rule 'big': rabbitmq filter refused: ")
    assert shown.endswith("\n  price > > 5\n          ^")


def test_a_rule_error_survives_pickling() -> None:
    wrong = Rule.of(RuleDefinition("big", sql="price >", dialect="rabbitmq"))
    error = refused(Topic("orders", (Subscription("red", (wrong,)),)))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.rule, type(again)) == (str(error), "big", RuleError)


@pytest.mark.parametrize(
    ("definition", "named"),
    [
        ({}, "name"),
        ({"name": "r"}, "no filter"),
        ({"name": "r", "sql": "TRUE", "tags": "a"}, "sql and tags"),
        ({"name": "r", "tags": "a", "dialect": "rabbitmq"}, "dialect"),
        ({"name": "r", "tags": "a", "parameters": {"x": 1}}, "parameters"),
        ({"name": "r", "sql": "TRUE", "dialect": "klingon"}, "klingon"),
        ({"name": "r", "sqll": "TRUE"}, "sqll"),
        ({"name": "r", "sql": 5}, "sql"),
        ({"name": "r", "properties": {"subjct": "x"}}, "subjct"),
        ({"name": "r", "properties": {"message-id": {"t": "uuid", "v": "nonsense"}}}, "uuid"),
    ],
)
def test_what_is_not_a_rule_is_refused_by_the_key_that_is_wrong(definition: dict[str, object], named: str) -> None:
    with pytest.raises((RuleError, ConfigError), match=named):
        Rule.of(RuleDefinition.of(definition)).check(TopicLimits().content)


def test_a_rule_with_property_filters_selects_as_the_filter_does() -> None:
    found = Rule("p", properties={"subject": "&p:order."}, application_properties={"size": 5})
    assert found.filter.matches(Message(subject="order.new", application_properties={"size": 5}), now_ms=0)
    assert not found.filter.matches(Message(subject="order.new", application_properties={"size": 6}), now_ms=0)


def test_a_rule_takes_a_filter_that_was_parsed() -> None:
    given = Filter.parse("region = 'AMER'", "rabbitmq")
    assert Rule("r", given).definition == RuleDefinition("r", sql="region = 'AMER'", dialect="rabbitmq")
    with pytest.raises(ConfigError, match="keyword"):
        Rule("r", Filter.from_properties({"subject": "x"}))


def test_a_rule_keeps_the_exact_types_of_its_values() -> None:
    values = {"small": AmqpValue(AmqpType.INT, 2), "half": 0.5, "text": "x", "none": None, "bytes": b"\xff"}
    made = Rule("r", application_properties=values)
    again = Rule.of(RuleDefinition.of(msgspec_round_trip(made.definition)))
    assert again == made
    assert again.filter == made.filter


def msgspec_round_trip(definition: RuleDefinition) -> object:
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(definition))


@given(
    name=st.text(min_size=1),
    text=st.none() | st.text(),
    tags=st.none() | st.text(),
    fields=st.none() | st.dictionaries(st.text(), st.none() | st.booleans() | st.text() | st.integers(-9, 9)),
    action=st.none() | st.text(),
)
def test_a_definition_is_the_same_after_writing_and_reading(
    name: str, text: str | None, tags: str | None, fields: dict[str, object] | None, action: str | None
) -> None:
    definition = RuleDefinition(
        name, sql=text, tags=tags, correlation=fields, application_properties=fields, action=action
    )
    assert RuleDefinition.of(msgspec_round_trip(definition)) == definition


def test_a_rule_and_its_number_survive_pickling() -> None:
    made = Rule.of(RuleDefinition("r", sql="a = 1", dialect="rabbitmq"), number=7)
    made.check(TopicLimits().content)
    again = pickle.loads(pickle.dumps(made))
    assert (again, again.number, again.filter) == (made, 7, made.filter)


def test_true_and_false_filters_count_as_no_filters() -> None:
    definitions = [RuleDefinition(f"r{number}", sql=text) for number, text in enumerate(["1=1", " 1 = 0 "])]
    assert all(definition.is_constant for definition in definitions)
    assert not RuleDefinition("r", sql="1=2").is_constant


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (TopicLimits(subscriptions=1), "2 subscriptions"),
        (TopicLimits(sql_filters=1), "2 sql filters"),
        (TopicLimits(correlation_filters=0), "1 correlation filters"),
    ],
)
def test_more_than_a_limit_allows_is_refused(limits: TopicLimits, what: str) -> None:
    subscriptions = (
        Subscription("a", (rule("one"), rule("two"))),
        Subscription("b", (Rule("three", properties={"subject": "x"}),)),
    )
    error = refused(Topic("t", subscriptions, limits))
    assert isinstance(error, RuleLimitError)
    assert what in error.reason
    Topic("t", subscriptions).check()


def test_a_limit_below_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="rule_name_characters"):
        TopicLimits(rule_name_characters=0).check()
    with pytest.raises(ConfigError, match="subscriptions"):
        TopicLimits(subscriptions=-1).check()


def test_every_limit_says_what_it_counts() -> None:
    assert tuple(LIMIT_MEANINGS) == TopicLimits.__struct_fields__


def test_a_topic_without_history_is_numbered_by_place() -> None:
    numbered = Topic("t", (Subscription("a", (rule("x"), rule("y"))), Subscription("b", ()))).numbered()
    assert [each.number for each in numbered.subscriptions] == [1, 2]
    assert [each.number for each in numbered.subscriptions[0].rules] == [1, 2]
