"""Statuses, routes, settings, signatures, and the messages beside those of a client library."""

from __future__ import annotations

import hmac
from typing import Any

import pytest
from google.protobuf import descriptor_pool

from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    FilterSyntaxError,
    HeadgateError,
    LogError,
    RemoteProtocolError,
    ResourceNotFoundError,
)
from headgate.protocols.rocketmq import Status, refused
from headgate.protocols.rocketmq.grpc import (
    OK,
    ClientSettings,
    GrpcLimits,
    TopicRoute,
    ack_response,
    assignment_response,
    parse_signature,
    parsed,
    reached_at,
    route_response,
    settings_answer,
    status_of,
)
from headgate.protocols.rocketmq.grpc import messages as pb

LIMITS = GrpcLimits()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (refused(Status.ILLEGAL_TOPIC, "no"), Status.ILLEGAL_TOPIC),
        (FilterSyntaxError("no", dialect="rocketmq", text="a"), Status.ILLEGAL_FILTER_EXPRESSION),
        (AuthenticationError("no"), Status.UNAUTHORIZED),
        (AccessRefusedError("no", subject="t"), Status.FORBIDDEN),
        (ResourceNotFoundError("no", subject="t"), Status.NOT_FOUND),
        (LogError("no", path="f"), Status.INTERNAL_SERVER_ERROR),
    ],
)
def test_errors_are_statuses(error: HeadgateError, status: Status) -> None:
    found = status_of(error)
    assert found.code == status and "no" in found.message


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        parsed(pb.SendMessageRequest, b"\x0a\xff\xff")
    assert refusal.value.code == Status.BAD_REQUEST


def route() -> TopicRoute:
    topic = pb.Resource(name="orders")
    return TopicRoute(
        topic, 3, (pb.MessageType.NORMAL, pb.MessageType.FIFO), "broker", reached_at(pb.Endpoints(), "::1", 5)
    )


def test_a_route_has_every_queue_and_where_it_is() -> None:
    response = route_response(route(), OK)
    assert [queue.id for queue in response.message_queues] == [0, 1, 2]
    queue = response.message_queues[2]
    assert (queue.topic.name, queue.permission, queue.broker.name) == ("orders", pb.Permission.READ_WRITE, "broker")
    assert list(queue.accept_message_types) == [pb.MessageType.NORMAL, pb.MessageType.FIFO]
    endpoints = queue.broker.endpoints
    assert endpoints.scheme == pb.AddressScheme.IPv6
    assert [(each.host, each.port) for each in endpoints.addresses] == [("::1", 5)]


def test_a_client_is_told_the_address_that_it_came_to() -> None:
    asked = pb.Endpoints(scheme=pb.AddressScheme.DOMAIN_NAME, addresses=[pb.Address(host="forwarded", port=9)])
    assert reached_at(asked, "here", 5) == asked
    assert reached_at(pb.Endpoints(), "here", 5).scheme == pb.AddressScheme.DOMAIN_NAME
    for address in (pb.Address(host="", port=9), pb.Address(host="h", port=0), pb.Address(host="h", port=70_000)):
        with pytest.raises(RemoteProtocolError) as refusal:
            reached_at(pb.Endpoints(addresses=[address]), "here", 5)
        assert refusal.value.code == Status.ILLEGAL_ACCESS_POINT


def test_an_assignment_is_any_queue_or_each_of_a_fifo_group() -> None:
    for is_fifo, ids in ((False, [-1]), (True, [0, 1, 2])):
        response = assignment_response(route(), OK, is_fifo=is_fifo)
        assert [each.message_queue.id for each in response.assignments] == ids


def answer(given: Any) -> Any:
    return settings_answer(given, fifo=True, max_attempts=5, backoff_ms=(1_000, 2_500), limits=LIMITS)


def test_settings_of_a_producer_are_completed() -> None:
    given = pb.Settings(
        client_type=pb.ClientType.PRODUCER,
        publishing=pb.Publishing(topics=[pb.Resource(name="orders")]),
        user_agent=pb.UA(version="1"),
    )
    settings = ClientSettings.of(given)
    assert settings.is_producer and settings.group is None
    found = answer(given)
    assert (found.publishing.max_body_size, found.publishing.validate_message_type) == (4 * 1024 * 1024, True)
    assert found.user_agent.version == "1" and found.publishing.topics[0].name == "orders"
    backoff = found.backoff_policy
    assert (backoff.max_attempts, backoff.exponential_backoff.initial.nanos) == (3, 10_000_000)


def consumer(**fields: Any) -> Any:
    entry = pb.SubscriptionEntry(
        topic=pb.Resource(name="orders"), expression=pb.FilterExpression(type=pb.FilterType.SQL, expression="a = 1")
    )
    subscription = pb.Subscription(group=pb.Resource(name="g", resource_namespace="ns"), subscriptions=[entry])
    return pb.Settings(**({"client_type": pb.ClientType.PUSH_CONSUMER, "subscription": subscription} | fields))


def test_settings_of_a_consumer_are_completed_with_those_of_its_group() -> None:
    settings = ClientSettings.of(consumer())
    assert (settings.is_producer, settings.group) == (False, "ns%g")
    assert settings.filters == {"orders": (pb.FilterType.SQL, "a = 1")}
    found = answer(consumer())
    subscription = found.subscription
    assert (subscription.fifo, subscription.receive_batch_size) == (True, 32)
    assert subscription.long_polling_timeout.seconds == 20 and subscription.subscriptions[0].topic.name == "orders"
    waits = [each.seconds * 1000 + each.nanos // 1_000_000 for each in found.backoff_policy.customized_backoff.next]
    assert (found.backoff_policy.max_attempts, waits) == (5, [1_000, 2_500])
    assert found.HasField("metric") and not found.metric.on


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (pb.Settings(), Status.UNRECOGNIZED_CLIENT_TYPE),
        (consumer(client_type=pb.ClientType.LITE_PUSH_CONSUMER), Status.UNRECOGNIZED_CLIENT_TYPE),
        (consumer(client_type=99), Status.UNRECOGNIZED_CLIENT_TYPE),
        (pb.Settings(client_type=pb.ClientType.SIMPLE_CONSUMER), Status.UNRECOGNIZED_CLIENT_TYPE),
        (consumer(subscription=pb.Subscription()), Status.ILLEGAL_CONSUMER_GROUP),
        (
            pb.Settings(client_type=pb.ClientType.PRODUCER, publishing=pb.Publishing(topics=[pb.Resource(name="a b")])),
            Status.ILLEGAL_TOPIC,
        ),
    ],
)
def test_settings_that_are_refused(given: Any, status: Status) -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        ClientSettings.of(given)
    assert refusal.value.code == status


def test_an_acknowledgement_with_mixed_results_says_so() -> None:
    entries = [pb.AckMessageEntry(message_id=str(number), receipt_handle=f"h{number}") for number in range(2)]
    lost = pb.Status(code=Status.INVALID_RECEIPT_HANDLE, message="lost")
    for statuses, overall in (
        ([OK, OK], Status.OK),
        ([lost, lost], Status.INVALID_RECEIPT_HANDLE),
        ([OK, lost], Status.MULTIPLE_RESULTS),
    ):
        response = ack_response(entries, statuses)
        assert response.status.code == overall
        assert [each.status.code for each in response.entries] == [each.code for each in statuses]
        assert [(each.message_id, each.receipt_handle) for each in response.entries] == [("0", "h0"), ("1", "h1")]


def header(key: str, secret: str, time: str, *, upper: bool = False) -> str:
    digest = hmac.new(secret.encode(), time.encode(), "sha1").hexdigest()
    signature = digest.upper() if upper else digest
    return f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"


def test_a_signature_counts_with_either_secret() -> None:
    for text in (header("app", "first", "now"), header("app/region", "first", "now", upper=True)):
        found = parse_signature(text)
        assert found is not None and found.key == "app"
        found.check(("other", "first"), "now")
        for secrets, time in ((("other",), "now"), (("first",), "later"), ((), "now")):
            with pytest.raises(AuthenticationError):
                found.check(secrets, time)


def test_a_client_without_a_key_signs_with_nothing() -> None:
    assert parse_signature("") is None
    assert parse_signature(header("", "", "now")) is None


@pytest.mark.parametrize("text", ["Basic Z3Vlc3Q6Z3Vlc3Q=", "MQv2-HMAC-SHA1 Signature=00", "MQv2-HMAC-SHA1"])
def test_a_header_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(AuthenticationError):
        parse_signature(text)


def test_a_signature_that_is_no_hexadecimal_digits_is_wrong() -> None:
    found = parse_signature("MQv2-HMAC-SHA1 Credential=app, Signature=zz")
    assert found is not None
    with pytest.raises(AuthenticationError):
        found.check(("secret",), "now")


def test_the_messages_are_in_a_descriptor_pool_of_their_own() -> None:
    """Client libraries in the same process have files and messages of the same names in the default pool."""
    assert pb.Resource.DESCRIPTOR.file.pool is not descriptor_pool.Default()
    assert pb.Resource.FromString(pb.Resource(name="ours").SerializeToString()).name == "ours"
