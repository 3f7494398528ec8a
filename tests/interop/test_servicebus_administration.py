"""The administration clients of Service Bus for Python, JavaScript and Java, as their users use them."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from interop.programs import (
    GO_SERVICEBUS,
    JAVA_SERVICEBUS,
    JAVA_SERVICEBUS_ADMINISTRATION,
    NODE_SERVICEBUS,
    NODE_SERVICEBUS_ADMINISTRATION,
    Client,
    Program,
    bodies,
    start,
)
from interop.servers import Served

pytest.importorskip("azure.servicebus", reason="the Python clients are not installed: `make clients`")

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)


def connection_string(served: Served) -> str:
    return (
        f"Endpoint=sb://localhost:{served.servicebus};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        connection_string(served), connection_verify=str(served.authority)
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def node(served: Served) -> Iterator[Program]:
    kind = NODE_SERVICEBUS_ADMINISTRATION
    program = start(replace(kind, environment=(*kind.environment, ("NODE_EXTRA_CA_CERTS", str(served.authority)))))
    program.ask("connect", connection_string=connection_string(served))
    yield program
    program.stop()


@pytest.fixture(scope="module")
def java(served: Served) -> Iterator[Program]:
    program = start(JAVA_SERVICEBUS_ADMINISTRATION)
    program.ask("connect", connection_string=connection_string(served), host="localhost", port=served.servicebus)
    yield program
    program.stop()


# Python


def test_a_topic_has_what_it_was_created_with_and_names_have_no_case(
    client: ServiceBusAdministrationClient, name: str
) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND, AccessRights.LISTEN],
        key_name="reader",
        primary_key="cHJpbWFyeQ==",
        secondary_key="c2Vjb25kYXJ5",
    )
    client.create_topic(
        name,
        default_message_time_to_live=timedelta(days=3),
        auto_delete_on_idle="PT10M",
        max_size_in_megabytes=2048,
        enable_batched_operations=False,
        user_metadata="mine <&> 'yours'",
        authorization_rules=[rule],
    )
    found = client.get_topic(name.upper())
    assert found.status == EntityStatus.ACTIVE
    assert (found.default_message_time_to_live, found.auto_delete_on_idle) == (timedelta(days=3), timedelta(minutes=10))
    assert (found.max_size_in_megabytes, found.enable_batched_operations) == (2048, False)
    assert found.user_metadata == "mine <&> 'yours'"
    kept = found.authorization_rules[0]
    assert (kept.key_name, kept.rights, kept.primary_key) == ("reader", ["Send", "Listen"], "cHJpbWFyeQ==")
    with pytest.raises(ResourceExistsError, match="already exists"):
        client.create_topic(name.upper())
    client.delete_topic(name)
    with pytest.raises(ResourceNotFoundError):
        client.get_topic(name)


def test_an_update_changes_what_is_there_and_nothing_else(client: ServiceBusAdministrationClient, name: str) -> None:
    client.create_queue(name, lock_duration=timedelta(seconds=30), max_delivery_count=4, requires_session=True)
    assert client.get_queue_runtime_properties(f"{name}/$DeadLetterQueue").total_message_count == 0
    queue = client.get_queue(name)
    queue.status, queue.max_delivery_count = EntityStatus.SEND_DISABLED, 7
    client.update_queue(queue)
    found = client.get_queue(name)
    assert (found.status, found.max_delivery_count) == (EntityStatus.SEND_DISABLED, 7)
    assert found.lock_duration == timedelta(seconds=30) and found.requires_session is True
    queue.requires_session = False
    with pytest.raises(HttpResponseError, match="RequiresSession"):
        client.update_queue(queue)
    queue.requires_session, queue.requires_duplicate_detection = True, True
    with pytest.raises(HttpResponseError, match="RequiresDuplicateDetection property of an existing Queue cannot be"):
        client.update_queue(queue)
    queue.requires_duplicate_detection = False
    queue.forward_to = f"{name}-nothing"
    with pytest.raises(HttpResponseError, match=r"SubCode=40400\. .*The auto forwarding destination entity does"):
        client.update_queue(queue)
    with pytest.raises(HttpResponseError, match="partitioned queues and topics are not supported"):
        client.create_queue(f"{name}-parts", enable_partitioning=True)
    queue.forward_to, queue.name = None, f"{name}-other"
    with pytest.raises(HttpResponseError):
        client.update_queue(queue)
    client.delete_queue(name)


def test_a_subscription_forwards_and_is_listed_with_its_counts(
    client: ServiceBusAdministrationClient, name: str
) -> None:
    client.create_queue(f"{name}/target")
    client.create_topic(name)
    client.create_subscription(
        name, "red", forward_to=f"{name}/target", dead_lettering_on_filter_evaluation_exceptions=False
    )
    found = client.get_subscription(name, "RED")
    assert found.forward_to.endswith(f"/{name}/target")
    assert found.dead_lettering_on_filter_evaluation_exceptions is False
    found.forward_to = None
    client.update_subscription(name, found)
    assert client.get_subscription(name, "red").forward_to is None
    counts = client.get_subscription_runtime_properties(name, "red")
    assert (counts.total_message_count, counts.active_message_count, counts.dead_letter_message_count) == (0, 0, 0)
    assert client.get_topic_runtime_properties(name).subscription_count == 1
    assert client.get_queue_runtime_properties(f"{name}/target").total_message_count == 0
    assert counts.created_at_utc > datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    client.delete_subscription(name, "red")
    assert list(client.list_subscriptions(name)) == []


VALUES = {
    "int": 1,
    "long": 2**40,
    "double": 2.5,
    "boolean": True,
    "string": " a <b> ",
    "date": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "duration": timedelta(days=1, milliseconds=1500),
}


def test_rules_of_every_kind_come_back_as_they_were_given(client: ServiceBusAdministrationClient, name: str) -> None:
    client.create_topic(name)
    client.create_subscription(name, "s")
    sql = SqlRuleFilter("color = @color AND size > @size", parameters={"@color": "red", "@size": 3})
    action = SqlRuleAction("SET quantity = quantity / @by", parameters={"@by": 2})
    client.create_rule(name, "s", "sql", filter=sql, action=action)
    client.create_rule(name, "s", "correlation", filter=CorrelationRuleFilter(correlation_id="7", properties=VALUES))
    client.create_rule(name, "s", "false", filter=FalseRuleFilter())
    rules = {rule.name: rule for rule in client.list_rules(name, "s")}
    assert list(rules) == ["$Default", "sql", "correlation", "false"]
    assert isinstance(rules["$Default"].filter, TrueRuleFilter) and isinstance(rules["false"].filter, FalseRuleFilter)
    assert rules["sql"].filter.sql_expression == sql.sql_expression
    assert dict(rules["sql"].filter.parameters) == {"@color": "red", "@size": 3}
    assert (rules["sql"].action.sql_expression, dict(rules["sql"].action.parameters)) == (
        action.sql_expression,
        {"@by": 2},
    )
    assert dict(rules["correlation"].filter.properties) == VALUES
    changed = rules["sql"]
    changed.filter, changed.action = TrueRuleFilter(), None
    client.update_rule(name, "s", changed)
    found = client.get_rule(name, "s", "SQL")
    assert isinstance(found.filter, TrueRuleFilter) and found.action is None
    client.delete_rule(name, "s", "correlation")
    assert [rule.name for rule in client.list_rules(name, "s")] == ["$Default", "sql", "false"]


def test_a_wrong_rule_is_refused_with_its_place_and_leaves_no_trace(
    client: ServiceBusAdministrationClient, name: str
) -> None:
    client.create_topic(name)
    client.create_subscription(name, "s")
    with pytest.raises(HttpResponseError, match=r"SubCode=40000.*Token line=1, column=9, Token in error=AND") as error:
        client.create_rule(name, "s", "bad", filter=SqlRuleFilter("color = AND 1"))
    assert error.value.status_code == 400
    with pytest.raises(HttpResponseError, match="SubCode=40000"):
        client.create_rule(name, "s", "bad", filter=CorrelationRuleFilter())
    with pytest.raises(ResourceExistsError, match="already exists"):
        client.create_rule(name, "s", "$default")
    with pytest.raises(ResourceNotFoundError, match="could not be found"):
        client.delete_rule(name, "s", "bad")
    assert [rule.name for rule in client.list_rules(name, "s")] == ["$Default"]


def test_lists_come_in_pages(client: ServiceBusAdministrationClient, name: str) -> None:
    client.create_topic(name)
    names = [f"s{number}" for number in range(5)]
    for each in names:
        client.create_subscription(name, each)
    assert [found.name for found in client.list_subscriptions(name, max_page_size=2)] == names


def test_the_namespace_has_a_name(client: ServiceBusAdministrationClient) -> None:
    assert client.get_namespace_properties().name == "localhost"


def test_the_asynchronous_client_does_the_same(served: Served, name: str) -> None:
    async def use() -> list[str]:
        client = AsyncAdministrationClient.from_connection_string(
            connection_string(served), connection_verify=str(served.authority)
        )
        async with client:
            await client.create_topic(name)
            await client.create_subscription(name, "s")
            await client.create_rule(name, "s", "r", filter=SqlRuleFilter("a = 1"))
            found = [rule.name async for rule in client.list_rules(name, "s")]
            with pytest.raises(ResourceNotFoundError):
                await client.get_topic(f"{name}-other")
            await client.delete_topic(name)
            return found

    assert asyncio.run(use()) == ["$Default", "r"]


# JavaScript


def call(node: Program, method: str, *arguments: Any) -> Any:
    return node.ask("call", method=method, arguments=arguments)


def test_javascript_makes_changes_and_lists_entities(node: Program, name: str) -> None:
    made = call(node, "createTopic", name, {"defaultMessageTimeToLive": "P2D", "userMetadata": "mine"})
    assert (made["name"], made["defaultMessageTimeToLive"], made["userMetadata"]) == (name, "P2D", "mine")
    assert made["maxSizeInMegabytes"] == 1024 and made["status"] == "Active"
    topic = call(node, "getTopic", name)
    call(node, "updateTopic", {**topic, "status": "SendDisabled", "userMetadata": None})
    topic = call(node, "getTopic", name)
    assert (topic["status"], topic["defaultMessageTimeToLive"]) == ("SendDisabled", "P2D")
    options = {"lockDuration": "PT30S", "maxDeliveryCount": 3, "requiresSession": True}
    call(node, "createQueue", f"{name}-queue", options)
    queue = call(node, "getQueue", f"{name}-queue")
    assert {key: queue[key] for key in options} == options
    subscription = call(node, "createSubscription", name, "s", {"forwardTo": f"{name}-queue"})
    assert (subscription["topicName"], subscription["subscriptionName"]) == (name, "s")
    assert subscription["forwardTo"].endswith(f"/{name}-queue")
    counts = call(node, "getSubscriptionRuntimeProperties", name, "s")
    assert counts["totalMessageCount"] == 0 and counts["createdAt"] > "2020"
    assert call(node, "getQueueRuntimeProperties", f"{name}-queue")["activeMessageCount"] == 0
    assert call(node, "getTopicRuntimeProperties", name)["subscriptionCount"] == 1
    assert call(node, "getNamespaceProperties")["name"] == "localhost"
    assert call(node, "subscriptionExists", name, "s") is True
    call(node, "deleteSubscription", name, "s")
    assert call(node, "subscriptionExists", name, "s") is False
    call(node, "deleteTopic", name)
    call(node, "deleteQueue", f"{name}-queue")


def test_javascript_has_rules_of_every_kind(node: Program, name: str) -> None:
    call(node, "createTopic", name)
    call(node, "createSubscription", name, "s", {"defaultRuleOptions": {"name": "first", "filter": {"subject": "red"}}})
    action = {"sqlExpression": "SET quantity = quantity / 2"}
    sql = {"sqlExpression": "color = @color AND n = @n", "sqlParameters": {"@color": "blue", "@n": 10}}
    assert call(node, "createRule", name, "s", "sql", sql, action)["filter"] == sql
    properties = {"n": 1.5, "flag": True, "text": "a <b>", "when": {"date": "2026-01-02T03:04:05.000Z"}}
    call(node, "createRule", name, "s", "correlation", {"correlationId": "7", "applicationProperties": properties})
    pages = node.ask("list", method="listRules", arguments=[name, "s"], page=2)
    assert [[rule["name"] for rule in page] for page in pages] == [["first", "sql"], ["correlation"]]
    first, found = pages[0]
    assert first["filter"] == {"subject": "red"}
    assert (found["filter"], found["action"]) == (sql, action)
    correlation = call(node, "getRule", name, "s", "correlation")["filter"]
    assert correlation["applicationProperties"] == {**properties, "when": "2026-01-02T03:04:05.000Z"}
    call(node, "updateRule", name, "s", {**found, "filter": {"sqlExpression": "1=0"}})
    assert call(node, "getRule", name, "s", "sql")["filter"]["sqlExpression"] == "1=0"
    call(node, "deleteTopic", name)


def test_javascript_is_told_why_something_is_refused(node: Program, name: str) -> None:
    call(node, "createTopic", name)
    call(node, "createSubscription", name, "s")
    refused = [
        ("createTopic", [name.upper()], 409, "MessageEntityAlreadyExistsError"),
        ("getTopic", [f"{name}-other"], 404, "MessageEntityNotFoundError"),
        ("createRule", [name, "s", "bad", {"sqlExpression": "color ="}], 400, "ServiceError"),
        ("deleteRule", [name, "s", "other"], 404, "MessageEntityNotFoundError"),
    ]
    for method, arguments, status, code in refused:
        found = node.ask("fail", method=method, arguments=arguments)
        assert (found["status"], found["code"]) == (status, code), method
    call(node, "deleteTopic", name)


# Java


def test_java_makes_changes_and_lists_entities(java: Program, name: str) -> None:
    made = java.ask("create_topic", topic=name, user_metadata="mine", time_to_live="P2D")
    assert made == {
        "name": name,
        "time_to_live": "PT48H",
        "user_metadata": "mine",
        "status": "Active",
        "batched": True,
    }
    assert java.ask("update_topic", topic=name, status="Disabled")["status"] == "Disabled"
    assert java.ask("get_topic", topic=name)["user_metadata"] == "mine"
    assert java.ask("create_queue", queue=f"{name}-queue", lock="PT30S", max_delivery_count=3)["lock"] == "PT30S"
    assert java.ask("get_queue", queue=f"{name}-queue")["max_delivery_count"] == 3
    assert java.ask("queue_counts", queue=f"{name}-queue") == [0, 0, 0]
    made = java.ask("create_subscription", topic=name, subscription="s", sessions=True)
    assert (made["topic"], made["sessions"]) == (name, True)
    assert java.ask("update_subscription", topic=name, subscription="s", max_delivery_count=5)["name"] == "s"
    assert java.ask("get_subscription", topic=name, subscription="s")["max_delivery_count"] == 5
    assert java.ask("subscription_counts", topic=name, subscription="s") == [0, 0, 0]
    assert java.ask("list_subscriptions", topic=name) == ["s"]
    assert name in java.ask("list_topics") and f"{name}-queue" in java.ask("list_queues")
    assert java.ask("namespace") == "localhost"
    for deleted in ({"topic": name, "subscription": "s"}, {"topic": name}, {"queue": f"{name}-queue"}):
        java.ask("delete", **deleted)
    assert java.ask("exists", topic=name) is False


def test_java_has_rules_of_every_kind_and_is_told_why_one_is_refused(java: Program, name: str) -> None:
    java.ask("create_topic", topic=name, user_metadata="")
    java.ask("create_subscription", topic=name, subscription="s", rule="first", label="red")
    place = {"topic": name, "subscription": "s"}
    java.ask("create_rule", **place, rule="sql", sql="color = 'blue'", action="SET quantity = quantity / 2")
    java.ask("create_rule", **place, rule="correlation", label="x", properties={"color": "red"})
    java.ask("create_rule", **place, rule="all")
    first, sql, correlation, everything = java.ask("list_rules", **place)
    assert (first["name"], first["label"]) == ("first", "red")
    assert (sql["sql"], sql["action"]) == ("color = 'blue'", "SET quantity = quantity / 2")
    assert correlation["properties"] == {"color": "red"} and everything["kind"] == "TrueRuleFilter"
    assert java.ask("update_rule", **place, rule="sql", sql="color = 'red'")["sql"] == "color = 'red'"
    failed = java.ask("fail", command="create_rule", **place, rule="bad", sql="color =")
    assert failed["status"] == 400 and "Token line=1, column=" in failed["message"]
    failed = java.ask("fail", command="create_rule", **place, rule="sql", sql="1=1")
    assert (failed["kind"], failed["status"]) == ("ResourceExistsException", 409)
    failed = java.ask("fail", command="get_topic", topic=f"{name}-other")
    assert (failed["kind"], failed["status"]) == ("ResourceNotFoundException", 404)
    java.ask("delete", **place, rule="all")
    assert [rule["name"] for rule in java.ask("list_rules", **place)] == ["first", "sql", "correlation"]
    java.ask("delete", topic=name)


@pytest.mark.parametrize("kind", [NODE_SERVICEBUS, JAVA_SERVICEBUS, GO_SERVICEBUS], ids=str)
def test_one_connection_string_is_for_messages_and_administration(
    client: ServiceBusAdministrationClient, served: Served, name: str, kind: Client
) -> None:
    client.create_queue(name)
    program = start(kind)
    program.ask("connect", connection_string=connection_string(served))
    program.ask("send", entity=name, messages=[{"body": "m"}])
    messages = ServiceBusClient.from_connection_string(connection_string(served))
    with messages, messages.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("n"))
    program.ask("open", id="r", queue=name, deletes=True)
    assert bodies(program.ask("receive", id="r", count=2)) == ["m", "n"]
    program.ask("close")
    program.stop()
