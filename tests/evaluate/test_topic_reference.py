"""What a message leaves on a subscription: the rule semantics of Service Bus."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.evaluate.actions import Action
from headgate.evaluate.filter import Filter
from headgate.evaluate.topic_reference import Copies, Copy, CopyRule, Failure, copies_of
from headgate.message import Message


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    filter: Filter
    action: Action | None = None


def rule(name: str, sql: str, action: str | None = None) -> Rule:
    return Rule(name, Filter.parse(sql, "servicebus"), None if action is None else Action.parse(action))


def identity_of(one: CopyRule) -> bytes:
    return one.name.encode()


def copies(message: Message, *rules: Rule) -> Copies:
    return copies_of(rules, message, now_ms=0, identity_of=identity_of)


RED = Message(b"body", application_properties={"color": "red", "quantity": 10})


def test_rules_without_action_make_one_copy_and_each_with_an_action_its_own_in_order() -> None:
    found = copies(
        RED,
        rule("a2", "1=1", "SET tag = 'a2'"),
        rule("n1", "color = 'red'"),
        rule("a1", "color = 'red'", "SET color = 'blue'"),
        rule("n2", "quantity > 1"),
        rule("none", "color = 'blue'"),
    )
    assert found.failures == ()
    assert found.copies == (
        Copy(None, RED),
        Copy(
            "a2",
            Message(b"body", application_properties={"color": "red", "quantity": 10, "tag": "a2", "RuleName": "a2"}),
        ),
        Copy("a1", Message(b"body", application_properties={"color": "blue", "quantity": 10, "RuleName": "a1"})),
    )


def test_without_a_matching_rule_there_is_no_copy() -> None:
    assert copies(RED) == Copies((), ())
    assert copies(RED, rule("a", "missing <> 'x'"), rule("b", "missing <> 'x'", "SET t = 1")) == Copies((), ())


def test_the_name_of_the_rule_wins_over_what_the_action_sets() -> None:
    found = copies(Message(b"", application_properties={"rulename": "old"}), rule("r", "1=1", "SET RULENAME = 'mine'"))
    assert found.copies[0].message == Message(b"", application_properties={"RuleName": "r"})


def test_a_failing_filter_or_action_stops_its_rule_alone_and_says_why() -> None:
    found = copies(
        RED,
        rule("filter", "quantity / 0 = 1"),
        rule("action", "1=1", "SET a = color * 2"),
        rule("good", "1=1"),
    )
    assert found.copies == (Copy(None, RED),)
    assert found.failures == (
        Failure("filter", "division by zero"),
        Failure("action", "* does not take a string and a number"),
    )


def test_properties_that_are_not_framed_as_they_say_fail_the_rule_that_changes_them() -> None:
    broken = Message.decode(b"\x00\x53\x74\xc1\x04\x01\xa1\x01a")
    found = copies(broken, rule("plain", "1=1"), rule("named", "1=1", "SET sys.Label = 'x'"))
    assert [copy.rule for copy in found.copies] == [None]
    assert [failure.rule for failure in found.failures] == ["named"]


def test_rules_of_other_kinds_stand_beside_each_other() -> None:
    rules = (
        Rule("correlation", Filter.from_correlation(properties={"color": "red"})),
        Rule("properties", Filter.from_properties(application_properties={"color": "red"}), Action.parse("SET a = 1")),
    )
    assert [copy.rule for copy in copies(RED, *rules).copies] == [None, "properties"]
