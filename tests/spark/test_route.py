"""Routing a topic: each subscription gets the copies its rules make, in order, once; the reference says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from body_schemas import order_body, order_schema
from headgate.log import Stream, StreamArguments, stream_folder
from headgate.message import Message
from headgate.spark.pipeline import Report, run
from headgate.spark.pipeline.configuration import check
from headgate.spark.route import declare_topic, output_of_copies, route_topic, rule_results
from headgate.topic import ERRORS_COUNTED, Rule, RuleHistory, Subscription, Topic

from ..log_streams import read_messages
from .conftest import write_stream

pytestmark = pytest.mark.spark

COLORS = ("red", "green", "blue")
COUNT = 900


def order(number: int) -> bytes:
    """Red, green and blue orders in turn; every tenth has a text for a quantity."""
    quantity: object = "many" if number % 10 == 0 else number
    return Message(
        b"order %d" % number, application_properties={"color": COLORS[number % 3], "quantity": quantity}
    ).encode()


def messages(root: Path, name: str) -> list[Message]:
    return [Message.decode(body) for _, body in read_messages(Stream.open(stream_folder(root, name)))]


def property_of(message: Message, name: str) -> Any:
    properties = message.application_properties or {}
    return properties[name].value if name in properties else None


def number_of(message: Message) -> int:
    """The number of an order, from its body."""
    assert message.body is not None
    (text,) = message.body.parts
    assert isinstance(text, bytes)
    return int(text.split()[1])


def numbers(root: Path, name: str) -> list[int]:
    """The numbers of the orders of a stream, in its order."""
    return [number_of(message) for message in messages(root, name)]


@pytest.fixture
def orders(root: Path) -> Path:
    """A root with a stream of orders over several segments."""
    limits = StreamArguments(max_segment_size_bytes=20_000)
    write_stream(root, "orders", [order(n) for n in range(COUNT)], arguments=limits)
    return root


def routed(spark: SparkSession, root: Path, *topics: dict[str, Any]) -> Report:
    return run(check({"name": "routing", "root": str(root), "topic": list(topics)}), spark=spark)


def red_orders() -> dict[str, Any]:
    """The subscriptions of the documentation: five rules that make three messages of a red order."""
    return {
        "name": "orders",
        "subscription": [
            {
                "name": "red",
                "dead_letter": "broken",
                "rule": [
                    {"name": "red", "sql": "color = 'red'"},
                    {"name": "cool", "correlation": {"properties": {"color": "blue"}}},
                    {"name": "any", "sql": "color IN ('red', 'green')", "dialect": "rabbitmq"},
                    {"name": "half", "sql": "color = 'red'", "action": "SET quantity = quantity / 2"},
                    {"name": "mark", "sql": "color = 'red'", "action": "SET sys.Label = 'red'; REMOVE color"},
                ],
            },
            {"name": "big", "rule": [{"name": "big", "sql": "quantity > 500 AND color <> 'blue'"}]},
            {"name": "rest", "fall_through": True},
        ],
    }


def test_five_rules_make_three_messages_and_the_fall_through_gets_what_is_left(
    spark: SparkSession, orders: Path
) -> None:
    report = routed(spark, orders, red_orders())
    copies = messages(orders, "orders.red")
    first_red = [message for message in copies if number_of(message) == 3]
    assert [property_of(message, "RuleName") for message in first_red] == [None, "half", "mark"]
    assert [property_of(message, "quantity") for message in first_red] == [3, 1, 3]
    assert [property_of(message, "color") for message in first_red] == ["red", "red", None]
    broken = messages(orders, "broken")
    assert len(broken) == len([n for n in range(COUNT) if n % 30 == 0])
    assert {property_of(message, "DeadLetterReason") for message in broken} == {"FilterEvaluationException"}
    assert numbers(orders, "orders.red") == sorted(numbers(orders, "orders.red"))
    assert set(numbers(orders, "orders.red")) == set(range(COUNT)), "every colour is asked for by a rule"
    expected_big = [n for n in range(501, COUNT) if n % 3 != 2 and n % 10]
    assert numbers(orders, "orders.big") == expected_big
    (topic,) = report.topics
    by_rule = {(rule.subscription, rule.rule): rule for rule in topic.rules}
    assert topic.messages == COUNT and by_rule["red", "half"].matched == COUNT // 3
    half, big = by_rule["red", "half"], by_rule["big", "big"]
    assert (half.errors, half.failed_actions) == (0, len(broken))
    assert half.last_failure_offset == max(n for n in range(COUNT) if n % 30 == 0)
    assert "string" in str(half.last_failure_reason)
    assert (big.errors, big.failed_actions) == (len([n for n in range(COUNT) if n % 10 == 0]), 0)
    assert by_rule["red", ""].copies == COUNT and by_rule["big", ""].copies == len(expected_big)
    assert sum(topic.written.values()) == topic.copies == sum(rule.copies for rule in topic.rules)


def test_copies_of_several_subscriptions_stand_in_one_stream_in_the_order_of_their_messages(
    spark: SparkSession, orders: Path
) -> None:
    red, large = Rule("red", "color = 'red'"), Rule("large", "quantity > 500")
    declare_topic(orders, Topic("orders", (Subscription("red", (red,)), Subscription("large", (large,)))))
    outputs = {output_of_copies(name): {"root": str(orders), "stream": "both"} for name in ("red", "large")}
    done = route_topic(spark, orders, "orders", outputs)
    of_red, of_large = [n for n in range(COUNT) if n % 3 == 0], [n for n in range(501, COUNT) if n % 10]
    assert numbers(orders, "both") == sorted(of_red + of_large)
    assert [rule.copies for rule in done.rules if not rule.rule] == [len(of_red), len(of_large)]


def test_rules_of_a_route_decode_bodies_and_the_stream_of_the_copies_has_the_schema(
    spark: SparkSession, root: Path
) -> None:
    schema = order_schema().text
    bodies = [order_body(id=n, total=n * 1.5) for n in range(20)]
    encoded = [Message(body).encode() for body in bodies]
    write_stream(root, "shop", encoded, arguments=StreamArguments(body_schema=schema))
    rule = Rule("large", "body.total > 25", dialect="amqp")
    declare_topic(root, Topic("shop", (Subscription("large", (rule,)),)))
    route_topic(spark, root, "shop", {output_of_copies("large"): {"root": str(root), "stream": "out"}})
    assert [message.body.octets() for message in messages(root, "out") if message.body] == bodies[17:]
    assert Stream.open(stream_folder(root, "out")).body_schema == schema


def test_a_second_run_continues_and_a_changed_rule_decides_what_comes_after_it(
    spark: SparkSession, orders: Path
) -> None:
    def by_color(color: str) -> dict[str, Any]:
        rule = {"name": "color", "correlation": {"properties": {"color": color}}}
        return {"name": "orders", "subscription": [{"name": "one", "rule": [rule]}]}

    routed(spark, orders, by_color("red"))
    nothing = routed(spark, orders, by_color("red"))
    assert nothing.topics[0].messages == 0 and nothing.topics[0].continued
    later = [order(n) for n in range(COUNT, COUNT + 30)]
    write_stream(orders, "orders", later)
    routed(spark, orders, by_color("blue"))
    last = [order(n) for n in range(COUNT + 30, COUNT + 60)]
    write_stream(orders, "orders", last)
    routed(spark, orders, by_color("blue"))
    expected = [n for n in range(COUNT + 30) if n % 3 == 0] + [n for n in range(COUNT + 30, COUNT + 60) if n % 3 == 2]
    assert numbers(orders, "orders.one") == expected


def test_copies_forwarded_to_a_topic_are_routed_there_in_the_same_run(spark: SparkSession, orders: Path) -> None:
    report = routed(
        spark,
        orders,
        {
            "name": "billing",
            "subscription": [
                {"name": "labelled", "rule": [{"name": "label", "sql": "sys.Label = 'bill' AND quantity > 10"}]}
            ],
        },
        {
            "name": "orders",
            "subscription": [
                {
                    "name": "reds",
                    "forward_to": "billing",
                    "rule": [{"name": "r", "sql": "color = 'red'", "action": "SET sys.Label = 'bill'"}],
                },
                {"name": "greens", "forward_to": "billing", "rule": [{"name": "g", "sql": "color = 'green'"}]},
            ],
        },
    )
    assert [topic.name for topic in report.topics] == ["orders", "billing"]
    assert numbers(orders, "billing") == [n for n in range(COUNT) if n % 3 < 2], "two subscriptions, in order of offset"
    assert numbers(orders, "billing.labelled") == [n for n in range(11, COUNT) if n % 3 == 0 and n % 10]


def test_new_ids_and_times_of_a_copy_do_not_depend_on_when_it_is_made(spark: SparkSession, orders: Path) -> None:
    def with_ids(stream: str, state: Path) -> dict[str, Any]:
        rule = {"name": "id", "sql": "1=1", "action": "SET sys.MessageId = newid()"}
        subscription = {"name": "ids", "stream": stream, "rule": [rule]}
        topic = {"name": "orders", "subscription": [subscription], "max_messages_per_batch": 200}
        return {"name": "again", "root": str(orders), "state": str(state), "topic": [topic]}

    for name in ("first", "second"):
        run(check(with_ids(name, orders / f"state-{name}")), spark=spark)
    first, second = messages(orders, "first"), messages(orders, "second")
    assert [message.encode() for message in first] == [message.encode() for message in second]
    assert len({message.properties["message-id"].value for message in first if message.properties}) == COUNT


def test_errors_that_are_not_looked_for_in_many_rules_are_not_told_as_none(orders: Path) -> None:
    many = tuple(Rule(f"r{number}", f"quantity > {number}") for number in range(ERRORS_COUNTED))
    kept = Subscription("kept", (Rule("one", "quantity > 5"),), dead_letter_on_errors=True)
    for rules, errors in ((many[1:], 0), (many, None)):
        declare_topic(orders, Topic("orders", (Subscription("many", rules), kept)))
        stream = Stream.open(stream_folder(orders, "orders"))
        told = {(each.subscription, each.rule): each for each in rule_results(stream, RuleHistory.load(stream), {})}
        assert told["many", "r7"].errors == errors
        assert told["kept", "one"].errors == told["many", ""].errors == 0
