"""The examples of topics on few events: each leaves what its comments say."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.generate import write_events
from headgate.log import Stream, stream_folder
from headgate.message import Message
from headgate.spark.pipeline import Report, run
from headgate.spark.pipeline.configuration import check

from ..log_streams import read_messages

EXAMPLES = Path(__file__).parents[2] / "examples" / "topics"
EVENTS = 4_000

pytestmark = pytest.mark.spark


def example(name: str, folder: Path) -> dict[str, Any]:
    """An example with its places moved into `folder`."""
    text = (EXAMPLES / f"{name}.toml").read_text().replace("headgate-data/orders", str(folder / "orders"))
    return tomllib.loads(text.replace("headgate-data", str(folder)))


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which the red orders were routed."""
    made = tmp_path_factory.mktemp("shop")
    (made / "orders").mkdir()
    write_events(made / "orders" / "events.parquet", events=EVENTS, seed=3)
    run(check(example("red-orders", made)), spark=spark)
    return made


def messages(folder: Path, stream: str) -> list[Message]:
    return [Message.decode(body) for _, body in read_messages(Stream.open(stream_folder(folder, stream)))]


def values(message: Message) -> dict[str, Any]:
    return {name: value.value for name, value in (message.application_properties or {}).items()}


def routed(spark: SparkSession, folder: Path, name: str) -> Report:
    return run(check(example(name, folder)), spark=spark)


def test_red_orders_are_halved_and_five_rules_give_three_messages(folder: Path) -> None:
    orders = [values(message) for message in messages(folder, "shop-orders")]
    halved = messages(folder, "shop-orders.halved")
    red = [order for order in orders if order["color"] == "red"]
    assert [values(message)["quantity"] for message in halved] == [order["quantity"] // 2 for order in red]
    assert all("priority" not in values(message) and values(message)["RuleName"] == "RedOrders" for message in halved)
    assert {(message.properties or {})["correlation-id"].value for message in halved} == {"low"}
    audit = Counter(str(message.body) for message in messages(folder, "shop-orders.audit"))
    assert max(audit.values()) == 3, "one plain copy, one marked, one with a new id"
    rest = [values(message) for message in messages(folder, "shop-orders.rest")]
    assert all(order["color"] != "red" and order["region"] != "EMEA" for order in rest) and rest


def test_broadcast_gives_everybody_everything(spark: SparkSession, folder: Path) -> None:
    routed(spark, folder, "broadcast")
    everything = [message.encode() for message in messages(folder, "shop-orders")]
    for name in ("billing", "shipping", "archive"):
        assert [message.encode() for message in messages(folder, f"announcements.{name}")] == everything


def test_partitions_hold_each_message_once(spark: SparkSession, folder: Path) -> None:
    report = routed(spark, folder, "partitioning")
    (topic,) = report.topics
    assert topic.copies == topic.messages == len(messages(folder, "shop-orders"))
    regions = {values(message)["region"] for message in messages(folder, "regional-orders.east")}
    assert regions == {"EMEA", "APJ"}
    assert {values(message)["region"] for message in messages(folder, "regional-orders.west")} == {"AMER"}


def test_a_topic_behind_a_topic_sees_copies_as_they_arrive(spark: SparkSession, folder: Path) -> None:
    routed(spark, folder, "forwarding")
    review = [values(message) for message in messages(folder, "review")]
    reasons = Counter(order["reason"] for order in review)
    orders = [values(message) for message in messages(folder, "shop-orders")]
    assert reasons == {
        "price": sum(order["price"] > 500 for order in orders),
        "quantity": sum(order["quantity"] >= 10 for order in orders),
    }
    assert len(messages(folder, "review.prices")) == reasons["price"]
    europe = [values(message) for message in messages(folder, "review.europe")]
    assert europe == [order for order in review if order["region"] == "EMEA"]
