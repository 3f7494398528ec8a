"""The calls of gRPC, one by one, over a socket."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from brokers import open_session, publish
from headgate.broker import MessageKind
from headgate.broker.consumer_groups import GroupSettings
from headgate.message import Message
from headgate.protocols.rocketmq import Status
from headgate.protocols.rocketmq.grpc import messages as pb
from server.rocketmq.conftest import GrpcSite
from server.rocketmq.grpc_peer import (
    METHODS,
    codes,
    consumer_settings,
    finished,
    message,
    producer_settings,
    seconds,
)

NOT_SERVED = ["PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "EndTransaction", "SyncLiteSubscription"]


def test_a_route_names_the_queues_of_a_topic_and_the_address_that_the_client_came_to(site: GrpcSite) -> None:
    site.topic("routed", 3, MessageKind.NORMAL, MessageKind.DELAY)
    asked = pb.Endpoints(scheme=pb.AddressScheme.IPv4, addresses=[pb.Address(host="10.1.2.3", port=99)])
    found = site.peer().call(pb.QueryRouteRequest(topic=pb.Resource(name="routed"), endpoints=asked))
    assert found.status.code == Status.OK and [queue.id for queue in found.message_queues] == [0, 1, 2]
    queue = found.message_queues[0]
    assert queue.broker.endpoints == asked and (queue.broker.id, queue.topic.name) == (0, "routed")
    assert list(queue.accept_message_types) == [pb.MessageType.NORMAL, pb.MessageType.DELAY]
    without = site.peer().call(pb.QueryRouteRequest(topic=pb.Resource(name="routed")))
    [address] = without.message_queues[0].broker.endpoints.addresses
    assert (address.host, address.port) == ("localhost", site.running.ports["rocketmq"])


def test_an_unknown_topic_has_no_route(site: GrpcSite) -> None:
    peer = site.peer()
    route = pb.QueryRouteRequest(topic=pb.Resource(name="nowhere"))
    assert peer.call(route).status.code == Status.TOPIC_NOT_FOUND
    assert peer.call(pb.QueryRouteRequest(topic=pb.Resource(name="a b"))).status.code == Status.ILLEGAL_TOPIC
    status, _ = peer.receive("g", "nowhere")
    assert status.code == Status.TOPIC_NOT_FOUND


def test_a_topic_is_made_for_a_producer_that_said_that_it_is_one(site: GrpcSite) -> None:
    peer = site.peer()
    with peer.telemetry(producer_settings()) as answers:
        assert next(answers).status.code == Status.OK
        found = peer.call(pb.QueryRouteRequest(topic=pb.Resource(name="made")))
    assert len(found.message_queues) == 4
    assert site.peer().send("made-too", b"x").status.code == Status.OK


def test_an_assignment_is_any_queue_and_of_a_fifo_group_each(site: GrpcSite) -> None:
    site.topic("assigned", 3)
    groups = site.running.context.broker.consumer_groups
    site.running.call(lambda: groups.declare("fifo", GroupSettings(fifo=True)))
    peer = site.peer()
    for group, ids in (("plain", [-1]), ("fifo", [0, 1, 2])):
        asked = pb.QueryAssignmentRequest(topic=pb.Resource(name="assigned"), group=pb.Resource(name=group))
        found = peer.call(asked)
        assert [each.message_queue.id for each in found.assignments] == ids


def test_settings_are_answered_completed(site: GrpcSite) -> None:
    settings = GroupSettings(fifo=True, max_attempts=3, backoff_ms=(2_000,))
    groups = site.running.context.broker.consumer_groups
    site.running.call(lambda: groups.declare("set", settings))
    peer = site.peer()
    with peer.telemetry(
        pb.TelemetryCommand(thread_stack_trace=pb.ThreadStackTrace(nonce="nobody asked")),
        consumer_settings("set", {"t": (pb.FilterType.SQL, "a = 1")}),
    ) as answers:
        answer = next(answers)
        assert answer.status.code == Status.OK
        assert (answer.settings.subscription.fifo, answer.settings.backoff_policy.max_attempts) == (True, 3)
        heartbeat = pb.HeartbeatRequest(group=pb.Resource(name="set"), client_type=pb.ClientType.SIMPLE_CONSUMER)
        assert peer.call(heartbeat).status.code == Status.OK


def test_a_heartbeat_needs_settings(site: GrpcSite) -> None:
    found = site.peer().call(pb.HeartbeatRequest(client_type=pb.ClientType.PRODUCER))
    assert found.status.code == Status.UNRECOGNIZED_CLIENT_TYPE


def test_a_kind_of_client_that_is_not_served_is_told_so(site: GrpcSite) -> None:
    lite = consumer_settings("g", {}, pb.ClientType.LITE_PUSH_CONSUMER)
    with site.peer().telemetry(lite) as answers:
        assert next(answers).status.code == Status.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (consumer_settings("g", {"t": (pb.FilterType.TAG, "||")}), "expression format is not correct"),
        (consumer_settings("g", {"t": (pb.FilterType.SQL, "a >")}), "expected"),
        (consumer_settings("g", {"t": (9, "a")}), "filters of type 9"),
        (consumer_settings("a b", {}), "contains illegal characters"),
        (consumer_settings("g", {"a b": (1, "*")}), "contains illegal characters"),
    ],
)
def test_wrong_settings_end_the_stream(site: GrpcSite, command: Any, reason: str) -> None:
    with site.peer().telemetry(command) as answers, pytest.raises(grpc.RpcError) as ended:
        next(answers)
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert ended.value.details().startswith("process client telemetryCommand failed. ")
    assert reason in ended.value.details()


def test_messages_are_sent_received_and_acknowledged(site: GrpcSite) -> None:
    site.topic("plain", 2)
    peer = site.peer()
    sent = peer.send("plain", *(message("plain", b"%d" % number, tag="A", keys=["k"]) for number in range(3)))
    assert sent.status.code == Status.OK and codes(sent.entries) == [Status.OK] * 3
    assert [each.offset for each in sent.entries] == [0, 1, 2]
    status, found = peer.receive("g", "plain")
    assert status.code == Status.OK and sorted(each.body for each in found) == [b"0", b"1", b"2"]
    assert {each.system_properties.message_id for each in found} == {each.message_id for each in sent.entries}
    assert {each.system_properties.delivery_attempt for each in found} == {1}
    handles = [each.system_properties.receipt_handle for each in found]
    answer = peer.ack("g", "plain", *handles)
    assert answer.status.code == Status.OK and codes(answer.entries) == [Status.OK] * 3
    status, found = peer.receive("g", "plain")
    assert (status.code, status.message, found) == (Status.MESSAGE_NOT_FOUND, "no new message", [])


def test_producers_that_send_one_by_one_reach_all_queues(site: GrpcSite) -> None:
    site.topic("spread", 3)
    peer = site.peer()
    for number in range(6):
        assert peer.send("spread", b"%d" % number).status.code == Status.OK
    _, found = peer.receive("g", "spread")
    assert sorted(each.system_properties.queue_id for each in found) == [0, 0, 1, 1, 2, 2]


def test_a_message_group_has_one_queue_and_keeps_its_order(site: GrpcSite) -> None:
    site.topic("ordered", 4)
    groups = site.running.context.broker.consumer_groups
    site.running.call(lambda: groups.declare("in-order", GroupSettings(fifo=True)))
    peer = site.peer()
    for number in range(3):
        sent = peer.send("ordered", *(message("ordered", b"%d" % number, message_group=name) for name in "ab"))
        assert sent.status.code == Status.OK
    _, found = peer.receive("in-order", "ordered")
    assert peer.receive("in-order", "ordered")[1] == []
    for name in "ab":
        of_group = [each for each in found if each.system_properties.message_group == name]
        assert [each.body for each in of_group] == [b"0", b"1", b"2"]
        assert len({each.system_properties.queue_id for each in of_group}) == 1


def _handles(found: list[Any]) -> list[str]:
    return [each.system_properties.receipt_handle for each in found]


def test_a_call_with_a_message_that_is_refused_stores_none(site: GrpcSite) -> None:
    site.topic("strict", 1, MessageKind.NORMAL)
    peer = site.peer()
    for refused, status in (
        (message("strict", b""), Status.MESSAGE_BODY_EMPTY),
        (message("strict", b"x" * (4 * 1024 * 1024 + 1)), Status.MESSAGE_BODY_TOO_LARGE),
        (message("strict", b"x", tag="a|b"), Status.ILLEGAL_MESSAGE_TAG),
        (message("strict", b"x", message_group="g"), Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("strict", b"x", message_type=pb.MessageType.TRANSACTION), Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("strict", b"x", lite_topic="l"), Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("strict", b"x", priority=1), Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ):
        answer = peer.send("strict", b"fine", refused)
        assert (answer.status.code, len(answer.entries)) == (status, 0)
    assert peer.receive("g", "strict")[0].code == Status.MESSAGE_NOT_FOUND


def test_a_message_of_the_largest_size_is_taken_and_delivered(site: GrpcSite) -> None:
    site.topic("large")
    peer = site.peer()
    body = bytes(range(256)) * (4 * 1024 * 4)
    assert len(body) == 4 * 1024 * 1024 and peer.send("large", body).status.code == Status.OK
    _, [found] = peer.receive("g", "large", long_polling_timeout=seconds(20))
    assert found.body == body


def test_the_filter_of_the_receive_counts(site: GrpcSite) -> None:
    site.topic("filtered")
    peer = site.peer()
    peer.send("filtered", *(message("filtered", tag.encode(), tag=tag, properties={"n": n}) for tag, n in _TAGGED))
    for group, expression, bodies in (
        ("tags", pb.FilterExpression(type=pb.FilterType.TAG, expression="A || C"), {b"A", b"C"}),
        ("all", pb.FilterExpression(), {b"A", b"B", b"C"}),
        ("sql", pb.FilterExpression(type=pb.FilterType.SQL, expression="n > 1 AND TAGS <> 'C'"), {b"B"}),
    ):
        _, found = peer.receive(group, "filtered", filter_expression=expression)
        assert {each.body for each in found} == bodies
    nothing = pb.FilterExpression(type=pb.FilterType.SQL, expression="n > 9")
    status, _ = peer.receive("none", "filtered", filter_expression=nothing)
    assert (status.code, status.message) == (Status.MESSAGE_NOT_FOUND, "no match message")


_TAGGED = [("A", "1"), ("B", "2"), ("C", "3")]


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (pb.FilterType.TAG, "||", "subString split error"),
        (pb.FilterType.SQL, "a = ", "expected"),
        (pb.FilterType.SQL, "a = '" + "x" * 20_000 + "'", "limits.filter_bytes"),
        (7, "a", "filters of type 7"),
    ],
)
def test_a_receive_with_a_wrong_filter_is_refused(site: GrpcSite, kind: int, text: str, reason: str) -> None:
    site.topic(f"wrong-{kind}-{len(text)}")
    expression = pb.FilterExpression(type=kind, expression=text)
    for _ in range(2):
        status, _ = site.peer().receive("g", f"wrong-{kind}-{len(text)}", filter_expression=expression)
        assert status.code == Status.ILLEGAL_FILTER_EXPRESSION and reason in status.message


def test_a_receive_is_held_until_a_message_comes(site: GrpcSite) -> None:
    site.topic("awaited", 2)
    consumer, producer = site.peer(), site.peer()
    held = consumer.begin_receive("g", "awaited", long_polling_timeout=seconds(20))
    site.running.until(lambda: any(record.bytes_received for record in site.running.context.connections))
    assert producer.send("awaited", b"now").status.code == Status.OK
    status, [found] = finished(held)
    assert status.code == Status.OK and found.body == b"now"


def test_a_receive_is_answered_before_its_call_is_over(site: GrpcSite) -> None:
    site.topic("short")
    call = site.peer().begin_receive("g", "short", timeout_s=1.5, long_polling_timeout=seconds(20))
    assert finished(call)[0].code == Status.MESSAGE_NOT_FOUND


def test_results_of_an_acknowledgement_are_told_apart(site: GrpcSite) -> None:
    site.topic("mixed", 2)
    peer = site.peer()
    peer.send("mixed", b"a", b"b")
    _, found = peer.receive("g", "mixed")
    first, second = _handles(found)
    mixed = peer.ack("g", "mixed", first, "no handle", second)
    assert mixed.status.code == Status.MULTIPLE_RESULTS
    assert codes(mixed.entries) == [Status.OK, Status.INVALID_RECEIPT_HANDLE, Status.OK]
    assert [each.receipt_handle for each in mixed.entries] == [first, "no handle", second]
    again = peer.ack("g", "mixed", first)
    assert again.status.code == Status.INVALID_RECEIPT_HANDLE
    assert peer.ack("other", "mixed", second).status.code == Status.INVALID_RECEIPT_HANDLE
    assert peer.ack("g", "mixed").status.code == Status.BAD_REQUEST


def test_a_message_comes_again_when_its_invisible_time_is_changed_to_none(site: GrpcSite) -> None:
    site.topic("again")
    peer = site.peer()
    peer.send("again", b"x")
    _, [first] = peer.receive("g", "again")
    changed = _change(peer, "again", first, 0)
    assert changed.status.code == Status.OK
    _, [second] = peer.receive("g", "again", long_polling_timeout=seconds(20))
    system = second.system_properties
    assert (system.delivery_attempt, system.message_id) == (2, first.system_properties.message_id)
    assert system.receipt_handle != first.system_properties.receipt_handle
    assert _change(peer, "again", first, 5).status.code == Status.INVALID_RECEIPT_HANDLE
    later = _change(peer, "again", second, 30)
    assert later.receipt_handle != system.receipt_handle
    assert _change(peer, "again", second, 30).status.code == Status.INVALID_RECEIPT_HANDLE
    assert peer.ack("g", "again", system.receipt_handle).status.code == Status.INVALID_RECEIPT_HANDLE
    assert peer.ack("g", "again", later.receipt_handle).status.code == Status.OK
    assert _change(peer, "again", second, -1).status.code == Status.ILLEGAL_INVISIBLE_TIME
    assert _change(peer, "again", second, 50_000).status.code == Status.ILLEGAL_INVISIBLE_TIME


def test_an_attempt_that_is_repeated_is_given_the_same_again(site: GrpcSite) -> None:
    topic, group = "repeated", "repeating"
    site.topic(topic)
    settings = GroupSettings(fifo=True, max_attempts=1)
    site.running.call(lambda: site.running.context.broker.consumer_groups.declare(group, settings))
    peer = site.peer()
    peer.send(topic, *(message(topic, body, message_group="m") for body in (b"a", b"b", b"c")))
    _, first = peer.receive(group, topic, batch_size=2, attempt_id="one")
    assert peer.ack(group, topic, *_handles(first)[:1]).status.code == Status.OK
    other, _ = peer.receive(group, topic, batch_size=2, attempt_id="other", queue=0)
    assert other.code == Status.MESSAGE_NOT_FOUND
    _, again = peer.receive(group, topic, batch_size=2, attempt_id="one")
    assert [each.body for each in again] == [b"b", b"c"]
    assert [each.system_properties.delivery_attempt for each in again] == [1, 1]
    late = peer.ack(group, topic, *_handles(first)[1:])
    assert late.status.code == Status.INVALID_RECEIPT_HANDLE
    status, _ = peer.receive(group, topic, attempt_id="two")
    assert status.code == Status.MESSAGE_NOT_FOUND
    # What was asked for meanwhile is the last attempt.
    status, _ = peer.receive(group, topic, attempt_id="one")
    assert status.code == Status.MESSAGE_NOT_FOUND
    refused, _ = peer.receive(group, topic, attempt_id="x" * 256)
    assert refused.code == Status.BAD_REQUEST


def test_who_sends_one_id_of_attempt_with_all_receives_keeps_what_it_has(site: GrpcSite) -> None:
    site.topic("constant")
    peer = site.peer()
    peer.send("constant", b"a", b"b")
    _, [first] = peer.receive("g", "constant", batch_size=1, attempt_id="one")
    _, [second] = peer.receive("g", "constant", batch_size=1, attempt_id="one")
    assert (first.body, second.body) == (b"a", b"b")
    assert peer.ack("g", "constant", *_handles([first, second])).status.code == Status.OK


def _change(peer: Any, topic: str, held: Any, length_s: float) -> Any:
    return peer.call(
        pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name="g"),
            topic=pb.Resource(name=topic),
            receipt_handle=held.system_properties.receipt_handle,
            invisible_duration=seconds(length_s),
            message_id=held.system_properties.message_id,
        )
    )


def test_a_message_becomes_a_dead_letter(site: GrpcSite) -> None:
    site.topic("deadly")
    peer = site.peer()
    peer.send("deadly", message("deadly", b"x", tag="A", properties={"color": "red"}))
    _, [found] = peer.receive("g", "deadly")
    request = pb.ForwardMessageToDeadLetterQueueRequest(
        group=pb.Resource(name="g"),
        topic=pb.Resource(name="deadly"),
        receipt_handle=found.system_properties.receipt_handle,
    )
    assert peer.call(request).status.code == Status.OK
    assert peer.call(request).status.code == Status.INVALID_RECEIPT_HANDLE
    site.running.until(lambda: site.running.context.broker.message_topics.find("%DLQ%g") is not None)
    _, [letter] = peer.receive("undertaker", "%DLQ%g", long_polling_timeout=seconds(20))
    assert (letter.body, letter.system_properties.tag, dict(letter.user_properties)) == (b"x", "A", {"color": "red"})
    origin = letter.system_properties.dead_letter_queue
    assert (origin.topic, origin.message_id) == ("deadly", found.system_properties.message_id)


@pytest.mark.parametrize("message_id", [None, 7])
def test_a_dead_letter_of_another_protocol_says_the_id_that_its_consumer_saw(
    site: GrpcSite, message_id: int | None
) -> None:
    topic, group = f"foreign-{message_id}", f"foreign-{message_id}"
    site.topic(topic)
    broker = site.running.context.broker
    foreign = Message(b"x", message_id=message_id).encode()
    assert site.running.call(lambda: publish(broker, open_session(broker).publisher(topic), [foreign])) is None
    peer = site.peer()
    _, [found] = peer.receive(group, topic)
    seen = found.system_properties.message_id
    assert seen == "7" if message_id else len(seen) == 32
    request = pb.ForwardMessageToDeadLetterQueueRequest(
        group=pb.Resource(name=group),
        topic=pb.Resource(name=topic),
        receipt_handle=found.system_properties.receipt_handle,
    )
    assert peer.call(request).status.code == Status.OK
    site.running.until(lambda: broker.message_topics.find(f"%DLQ%{group}") is not None)
    _, [letter] = peer.receive("undertaker", f"%DLQ%{group}", long_polling_timeout=seconds(20))
    assert letter.system_properties.dead_letter_queue.message_id == seen


def test_a_delayed_message_comes_at_its_time_and_one_that_is_recalled_never(site: GrpcSite) -> None:
    site.topic("delayed", 2)
    peer = site.peer()
    now_ms = site.running.context.clock.now_ms()
    soon = message("delayed", b"soon", delivery_timestamp=_at(now_ms + 400))
    never = message("delayed", b"never", delivery_timestamp=_at(now_ms + 60_000))
    past = message("delayed", b"past", delivery_timestamp=_at(now_ms - 60_000))
    sent = peer.send("delayed", soon, never, past)
    assert codes(sent.entries) == [Status.OK] * 3
    assert [bool(each.recall_handle) for each in sent.entries] == [True, True, False]
    recall = pb.RecallMessageRequest(topic=pb.Resource(name="delayed"), recall_handle=sent.entries[1].recall_handle)
    recalled = peer.call(recall)
    assert (recalled.status.code, recalled.message_id) == (Status.OK, sent.entries[1].message_id)
    assert peer.call(recall).status.code == Status.NOT_FOUND
    got = {}
    while len(got) < 2:
        _, found = peer.receive("g", "delayed", long_polling_timeout=seconds(20))
        got |= {each.body: each.system_properties for each in found}
    assert set(got) == {b"soon", b"past"}
    assert got[b"soon"].message_type == pb.MessageType.DELAY
    assert got[b"soon"].delivery_timestamp == soon.system_properties.delivery_timestamp
    assert got[b"soon"].store_timestamp.ToMilliseconds() >= now_ms + 400
    for handle in ("", "x", "1.2.3/x", "9.9.9"):
        wrong = pb.RecallMessageRequest(topic=pb.Resource(name="delayed"), recall_handle=handle)
        assert peer.call(wrong).status.code in (Status.BAD_REQUEST, Status.NOT_FOUND)


def _at(time_ms: int) -> Any:
    return pb.Timestamp(seconds=time_ms // 1000, nanos=time_ms % 1000 * 1_000_000)


@pytest.mark.parametrize("name", NOT_SERVED)
def test_what_is_not_served_is_refused_with_its_code(site: GrpcSite, name: str) -> None:
    peer = site.peer()
    method = METHODS[name]
    data = method.request().SerializeToString()
    if method.gives_stream:
        [answer] = [method.response.FromString(each) for each in peer.stream(name, data)]  # type: ignore[attr-defined]
    else:
        answer = method.response.FromString(peer.raw(name, data))  # type: ignore[attr-defined]
    assert answer.status.code == Status.NOT_IMPLEMENTED


def test_a_call_without_a_client_id_is_refused(site: GrpcSite) -> None:
    for client_id in ("", "x" * 300):
        found = site.peer(client_id=client_id).call(pb.QueryRouteRequest(topic=pb.Resource(name="t")))
        assert found.status.code == Status.CLIENT_ID_REQUIRED


def test_a_namespace_is_part_of_a_name(site: GrpcSite) -> None:
    site.topic("space%spaced")
    peer = site.peer()
    topic = pb.Resource(resource_namespace="space", name="spaced")
    given = message("spaced", b"x")
    given.topic.CopyFrom(topic)
    assert peer.call(pb.SendMessageRequest(messages=[given])).status.code == Status.OK
    request = pb.ReceiveMessageRequest(
        group=pb.Resource(resource_namespace="space", name="g"),
        message_queue=pb.MessageQueue(topic=topic, id=-1),
        batch_size=1,
        invisible_duration=seconds(30),
    )
    _, [found] = finished(peer.stream("ReceiveMessage", request.SerializeToString()))
    assert found.topic == topic
    assert peer.ack("space%g", "space%spaced", found.system_properties.receipt_handle).status.code == Status.OK
