"""Links of Service Bus's clients: sending, receiving, settling; what is refused, and how."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.broker import EntityDeclaration
from headgate.message import AmqpArray, AmqpType, AmqpValue, Body, Message, amqp_value
from headgate.protocols.amqp10 import Link
from headgate.protocols.amqp10.events import Closed, Detached, StateChanged
from headgate.protocols.amqp10.performatives import FIRST, RECEIVER, SECOND, SETTLED, Disposition, Transfer
from headgate.protocols.amqp10.terminus import (
    Accepted,
    Coordinator,
    Error,
    Modified,
    RawEntry,
    Rejected,
    Released,
    Source,
    TransactionalState,
)
from headgate.topic import RuleDefinition, SubscriptionSettings, TopicKind, TopicSettings, TopicStatus
from server.amqp10_client import Client, Management, client_of
from server.entities import ServedEntities
from server.running import RunningServer
from server.servicebus_client import Requests, bodies, peek_lock, refused, send_batch, settle


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with client_of(server.ports["amqp"], mechanism="ANONYMOUS", response=b"\0RootManageSharedAccessKey") as client:
        yield client


def _message(body: bytes, **properties: object) -> bytes:
    return Message(body, application_properties=properties).encode()


def _send(client: Client, address: str, *messages: bytes) -> None:
    assert set(map(type, client.send(client.sender(address), *messages))) == {Accepted}


def _dead_letter(**info: str) -> Rejected:
    pairs = tuple((AmqpValue(AmqpType.SYMBOL, name), amqp_value(text)) for name, text in info.items())
    return Rejected(Error("com.microsoft:dead-letter", None, AmqpValue(AmqpType.MAP, pairs)))


# sending and receiving


def test_a_topic_gives_each_subscription_what_its_rules_select(
    client: Client, entities: ServedEntities, name: str
) -> None:
    halves = RuleDefinition("half", sql="color = 'red'", action="SET quantity = quantity / 2")
    entities.topic(name, all=None, red=halves)
    _send(client, name, _message(b"1", color="red", quantity=10), _message(b"2", color="blue", quantity=10))
    assert bodies(client, peek_lock(client, f"{name}/Subscriptions/all"), 2) == [b"1", b"2"]
    (copy,) = client.receive(peek_lock(client, f"{name}/subscriptions/RED"), 1)
    found = copy.message.application_properties
    assert (found["quantity"], found["RuleName"]) == (amqp_value(5), amqp_value("half"))


def test_a_message_says_what_clients_read(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name, lock_ms=30_000)
    Management(client)
    _send(client, f"amqps://localhost:5672/{name.upper()}", Message(b"x", user_id=b"me", subject="s").encode())
    publisher = client.sender(f"/queues/{name}")
    client.send(publisher, Message(b"from RabbitMQ's side").encode())
    ours, others = client.receive(peek_lock(client, name), 2)
    for number, one in enumerate((ours.message, others.message)):
        annotations = one.message_annotations
        assert set(annotations) == {
            "x-opt-sequence-number", "x-opt-enqueue-sequence-number", "x-opt-enqueued-time",
            "x-opt-locked-until", "x-opt-message-state",
        }  # fmt: skip
        assert annotations["x-opt-sequence-number"] == AmqpValue(AmqpType.LONG, (number << 20) + 1)
        assert annotations["x-opt-locked-until"].value - annotations["x-opt-enqueued-time"].value >= 30_000
        assert one.header["delivery-count"].value == 0 and len(one.properties["message-id"].value) == 32
    assert ours.message.properties["user-id"].value == b"me"


def test_receive_and_delete_is_pre_settled(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name)
    _send(client, name, b"".join([_message(b"1")]), _message(b"2"))
    link = client.receiver(name, credit=5, snd_settle_mode=SETTLED)
    first, _ = client.receive(link, 2)
    assert "x-opt-locked-until" not in first.message.message_annotations
    link.detach()
    assert bodies(client, peek_lock(client, name), 0) == []
    again = client.receiver(name)
    assert client.drain(again) == []


def test_a_drained_link_learns_that_there_is_nothing_more(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name)
    _send(client, name, _message(b"1"))
    link = peek_lock(client, name, credit=0)
    assert [one.message.body.octets() for one in client.drain(link, 7)] == [b"1"]
    assert client.drain(peek_lock(client, f"{name}/$Transfer/$DeadLetterQueue", credit=0)) == []


# settling


def test_every_outcome_has_its_effect_and_is_confirmed(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name, max_delivery_count=2)
    _send(client, name, *(_message(b"%d" % number) for number in range(6)))
    link = peek_lock(client, name, credit=6)
    ids = [one.id for one in client.receive(link, 6)]
    assert settle(client, link, ids[0], ids[1], Accepted()) == Accepted()
    assert settle(client, link, ids[2], ids[2], Released()) == Released()
    assert settle(client, link, ids[3], ids[3], Modified(True)) == Modified(True)
    assert settle(client, link, ids[4], ids[4], Modified(None, True)) == Modified(None, True)
    why = _dead_letter(DeadLetterReason="why", DeadLetterErrorDescription="because", more="yes")
    assert settle(client, link, ids[5], ids[5], why) == Rejected()
    link.grant(10)
    released, failed = client.receive(link, 2)
    assert [one.message.body.octets() for one in (released, failed)] == [b"2", b"3"]
    assert [one.message.header["delivery-count"].value for one in (released, failed)] == [0, 1]
    # The second attempt of two fails.
    settle(client, link, failed.id, failed.id, Modified())
    dead = client.receive(peek_lock(client, f"{name}/$DeadLetterQueue"), 2)
    told = [(one.message.body.octets(), one.message.application_properties) for one in dead]
    assert told[0] == (
        b"5",
        {name: amqp_value(text) for name, text in
         {"DeadLetterReason": "why", "DeadLetterErrorDescription": "because", "more": "yes"}.items()},
    )  # fmt: skip
    assert told[1][0] == b"3" and told[1][1]["DeadLetterReason"] == amqp_value("MaxDeliveryCountExceeded")
    annotations = [one.message.message_annotations for one in dead]
    assert [each["x-opt-sequence-number"].value for each in annotations] == [1, (1 << 20) + 1]
    assert [each["x-opt-enqueue-sequence-number"].value >> 20 for each in annotations] == [5, 3]
    assert all(not key.startswith("x-headgate") for each in annotations for key in each)


def test_a_lock_that_is_lost_settles_nothing(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name, lock_ms=1_000)
    _send(client, name, _message(b"1"), _message(b"2"))
    link = peek_lock(client, name, credit=2)
    first, _ = client.receive(link, 2)
    # Both locks end, and both messages come again.
    link.grant(2)
    again, kept = client.receive(link, 2)
    assert again.message.header["delivery-count"].value == 1
    state = settle(client, link, first.id, first.id, Accepted())
    assert isinstance(state, Rejected) and state.error.condition == "com.microsoft:message-lock-lost"
    assert settle(client, link, again.id, kept.id, Accepted()) == Accepted()


def test_a_client_that_settles_nothing_is_given_no_more_than_is_kept_for_it(
    client: Client, entities: ServedEntities, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.server.servicebus.receiver_link.MOST_UNSETTLED", 3)
    entities.queue(name, lock_ms=1_000)
    _send(client, name, *(_message(b"%d" % number) for number in range(5)))
    link = peek_lock(client, name, credit=9)
    first, *_ = client.receive(link, 3)
    assert client.drain(link) == [] and link.credit == 0
    link.grant(9)
    settle(client, link, first.id, first.id, Accepted())
    (fourth,) = client.receive(link, 1)
    assert fourth.message.body.octets() == b"3"
    # Locks end: the client is told so, and given what came back.
    again = client.receive(link, 3)
    assert {one.message.header["delivery-count"].value for one in again} <= {0, 1}
    lost = [each for each in client.of(StateChanged) if isinstance(each.state, Rejected)]
    assert lost and all(each.state.error.condition == "com.microsoft:message-lock-lost" for each in lost)


def test_locks_outlive_their_link(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name)
    _send(client, name, _message(b"1"))
    link = peek_lock(client, name)
    client.receive(link, 1)
    link.detach()
    client.pump(lambda: bool(client.of(Detached, link)))
    assert client.drain(peek_lock(client, name, credit=0)) == []


def test_what_a_client_completes_before_it_goes_is_completed(
    server: RunningServer, client: Client, entities: ServedEntities, name: str
) -> None:
    entities.queue(name, lock_ms=1_000)
    _send(client, name, _message(b"1"), _message(b"2"))
    with client_of(server.ports["amqp"], mechanism="ANONYMOUS", response=b"\0RootManageSharedAccessKey") as other:
        link = peek_lock(other, name)
        first, _ = other.receive(link, 2)
        link.session.send(Disposition(RECEIVER, first.id, first.id, True, Accepted()))
        # In the same bytes, so that nothing happens between.
        other.connection.close()
        other.pump(lambda: bool(other.of(Closed)))
    # The lock of the other one ends.
    assert bodies(client, peek_lock(client, name, credit=2), 1) == [b"2"]
    assert client.drain(peek_lock(client, name, credit=0)) == []


def test_what_is_not_served_of_settling_leaves_the_message_as_it_was(
    client: Client, entities: ServedEntities, name: str
) -> None:
    entities.queue(name)
    _send(client, name, _message(b"1"))
    link = peek_lock(client, name)
    (one,) = client.receive(link, 1)
    settle(client, link, one.id, one.id, _dead_letter())
    dead = peek_lock(client, f"{name}/$DeadLetterQueue")
    (letter,) = client.receive(dead, 1)
    state = settle(client, dead, letter.id, letter.id, _dead_letter())
    assert isinstance(state, Rejected) and state.error.condition == "com.microsoft:argument-error"
    link = peek_lock(client, f"{name}/$DeadLetterQueue/$management", credit=0)
    settled = Requests(client, f"{name}/$DeadLetterQueue/$management")
    tokens = [uuid.uuid4()]
    assert settled.do("update-disposition", disposition_status="completed", lock_tokens=tokens)[0] == 410


def test_transactions_are_refused(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name)
    _send(client, name, _message(b"1"))
    link = peek_lock(client, name)
    (one,) = client.receive(link, 1)
    state = settle(client, link, one.id, one.id, TransactionalState(b"t", None))
    assert isinstance(state, Rejected) and state.error.condition == "amqp:not-implemented"
    coordinator = client.attach(False, target=Coordinator(), source=Source())
    assert client.detached(coordinator)[0] == "amqp:not-implemented"
    sender = client.sender(name)
    inside = Transfer(sender.handle, sender.session.next_delivery_id, b"t", 0, state=TransactionalState(b"t", None))
    sender.session.send(inside, _message(b"2"))
    assert client.detached(sender)[0] == "amqp:not-implemented"
    assert client.drain(link) == []


# batches


def test_a_batch_is_there_as_a_whole(
    server: RunningServer, client: Client, entities: ServedEntities, name: str
) -> None:
    entities.queue(name)
    link = client.sender(name)
    stream = server.context.broker.catalogue.get(name)
    large = [_message(b"%d" % number + bytes(100)) for number in range(5_000)]
    client.send(link, _message(b"before"), settled=True)
    assert send_batch(client, link, *large) == Accepted()
    assert server.call(lambda: stream.counters.chunks_written) == 2
    assert server.call(lambda: stream.next_offset) == 5_001
    state = send_batch(client, link, _message(b"last"), b"no message")
    # Python fails at an error without information.
    assert isinstance(state, Rejected) and state.error.info == AmqpValue(AmqpType.MAP, ())
    assert state.error.condition == "amqp:decode-error"
    assert server.call(lambda: stream.next_offset) == 5_001
    receiver = client.receiver(name, credit=5_001, snd_settle_mode=SETTLED)
    assert len(client.receive(receiver, 5_001)) == 5_001


def test_a_message_without_a_body_takes_every_road_and_is_delivered_without(
    client: Client, server: RunningServer, entities: ServedEntities, name: str
) -> None:
    other = entities.queue(f"{name}-other")
    entities.topic(
        name, plain=None, changed=RuleDefinition("r", sql="n > 0", action="SET n = n + 1; SET sys.Label = 'l'")
    )
    create = server.context.broker.entities.create_subscription
    entities.told(create, name, "forwarding", SubscriptionSettings(), forward_to=other)
    sent = Message(None, application_properties={"n": 1}).encode()
    batch = Message(None, application_properties={"n": 2}, ttl=AmqpValue(AmqpType.UINT, 900_000)).encode()
    soon = AmqpValue(AmqpType.TIMESTAMP, server.context.clock.now_ms() + 100)
    later = Message(None, application_properties={"n": 3}, message_annotations={"x-opt-scheduled-enqueue-time": soon})
    _send(client, name, sent)
    _send(client, entities.queue(f"{name}-nothing"), b"")
    (nothing,) = client.receive(peek_lock(client, f"{name}-nothing"), 1)
    assert nothing.message.body is None
    assert send_batch(client, client.sender(name), batch, _message(b"with", n=5)) == Accepted()
    requests = Requests(client, f"{name}/$management")
    assert requests.do("schedule-message", messages=[{"message": later.encode()}])[0] == 200
    expected = [None, None, None, Body.data(b"with")]
    for address in (f"{name}/Subscriptions/plain", f"{name}/Subscriptions/changed", other):
        link = peek_lock(client, address)
        found = {one.message.application_properties["n"].value: one for one in client.receive(link, 4)}
        first = 2 if "changed" in address else 1
        assert sorted(found) == [first, first + 1, first + 2, first + 4]
        assert [one.message.body for _, one in sorted(found.items())] == expected
        assert not any(
            key.startswith("x-headgate") for one in found.values() for key in one.message.message_annotations
        )
    settle(client, link, found[1].id, found[1].id, Modified(None, True))
    settle(client, link, found[2].id, found[2].id, _dead_letter(DeadLetterReason="why"))
    number = found[1].message.message_annotations["x-opt-sequence-number"]
    numbers = AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.LONG, (number,)))
    of_other = Requests(client, f"{other}/$management")
    _, told = of_other.do(
        "receive-by-sequence-number", sequence_numbers=numbers, receiver_settle_mode=AmqpValue(AmqpType.UINT, 1)
    )
    (letter,) = client.receive(peek_lock(client, f"{other}/$DeadLetterQueue"), 1)
    assert (Message.decode(told["messages"][0]["message"]).body, letter.message.body) == (None, None)
    # RabbitMQ's side has no messages without a body: it refuses them, and its consumers get an empty one.
    first_of_all = RawEntry.of("offset", "rabbitmq:stream-offset-spec", amqp_value("first"))
    consumer = client.receiver(f"/queues/{name}", filters=(first_of_all,), credit=4)
    stored = [one.message for one in client.receive(consumer, 4)]
    assert [each.body for each in stored] == [Body.data(b"")] * 2 + [Body.data(b"with"), Body.data(b"")]
    assert [each.message_annotations.get("x-headgate-no-body") for each in stored] == [amqp_value(True)] * 2 + [
        None,
        amqp_value(True),
    ]
    publisher = client.sender(f"/queues/{name}")
    publisher.send(sent)
    assert client.detached(publisher)[0] == "amqp:decode-error"


def test_duplicates_are_accepted_and_dropped(client: Client, entities: ServedEntities, name: str) -> None:
    detecting = TopicSettings(kind=TopicKind.QUEUE, requires_duplicate_detection=True)
    entities.told(entities.server.context.broker.entities.create, EntityDeclaration(name, detecting))

    def message(number: int, body: bytes) -> bytes:
        return Message(body, message_id=str(number)).encode()

    link = client.sender(name)
    assert client.send(link, message(1, b"1"), message(1, b"again"), message(2, b"2")) == [Accepted()] * 3
    assert send_batch(client, link, message(3, b"3"), message(2, b"again"), message(3, b"again")) == Accepted()
    assert send_batch(client, link, message(3, b"again")) == Accepted()
    ours = client.sender(f"/queues/{name}")
    assert client.send(ours, message(1, b"again"), message(4, b"4")) == [Accepted()] * 2
    assert bodies(client, peek_lock(client, name), 4) == [b"1", b"2", b"3", b"4"]
    client.drain(client.receiver(name))


def test_other_formats_are_refused(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name)
    link = client.sender(name)
    number = link.session.next_delivery_id
    link.session.send(Transfer(link.handle, number, b"t", 7), _message(b"x"))
    link.session.next_delivery_id += 1
    link.delivery_count += 1
    client.pump(lambda: number in client.outcomes)
    state = client.outcomes[number]
    assert isinstance(state, Rejected) and state.error.condition == "amqp:not-implemented"


def test_messages_for_later_are_decided_when_they_are_due(
    server: RunningServer, client: Client, entities: ServedEntities, name: str
) -> None:
    entities.topic(name, s="n < 5")
    link = client.sender(name)
    now_ms = server.context.clock.now_ms()

    def later(body: bytes, after_ms: int, n: int = 0) -> bytes:
        due = AmqpValue(AmqpType.TIMESTAMP, now_ms + after_ms)
        annotations = {"x-opt-scheduled-enqueue-time": due}
        return Message(body, message_annotations=annotations, application_properties={"n": n}).encode()

    states = client.send(
        link, _message(b"now", n=1), later(b"never", 4_000_000, n=9), later(b"past", -1), later(b"soon", 300)
    )
    assert states == [Accepted()] * 4
    assert send_batch(client, link, later(b"late", 4_000_000), _message(b"of a batch", n=2)) == Accepted()
    assert isinstance(send_batch(client, link, later(b"no", 300), b"no message"), Rejected)
    found = client.receive(peek_lock(client, f"{name}/Subscriptions/s"), 4)
    assert [one.message.body.octets() for one in found] == [b"now", b"past", b"of a batch", b"soon"]
    annotations = found[3].message.message_annotations
    due_ms = now_ms + 300
    assert annotations["x-opt-scheduled-enqueue-time"].value == due_ms
    assert annotations["x-opt-enqueued-time"].value >= due_ms and len(annotations) == 6
    assert "x-opt-scheduled-enqueue-time" not in found[2].message.message_annotations
    assert server.call(lambda: server.context.broker.entities.find(name).counts()).scheduled == 2


def test_properties_of_an_outcome_are_those_of_the_message_from_then_on(
    client: Client, entities: ServedEntities, name: str
) -> None:
    entities.queue(name)
    _send(client, name, _message(b"x", n=1), _message(b"y"))
    link = peek_lock(client, name, credit=2)
    first, second = client.receive(link, 2)
    given = {"n": amqp_value(2), "a": amqp_value(uuid.UUID(int=7))}
    right, wrong = (
        AmqpValue(AmqpType.MAP, tuple((AmqpValue(AmqpType.SYMBOL, key), value) for key, value in properties.items()))
        for properties in (given, {"n": AmqpValue(AmqpType.LIST, ())})
    )
    assert settle(client, link, first.id, first.id, Modified(None, None, right)) == Modified()
    link.grant(1)
    (again,) = client.receive(link, 1)
    assert again.message.application_properties == given
    state = settle(client, link, second.id, second.id, Modified(None, None, wrong))
    assert isinstance(state, Rejected) and state.error.condition == "com.microsoft:argument-error"


def test_a_message_above_the_limit_is_rejected_alone(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name)
    link = client.sender(name)
    assert link.peer.max_message_size == 1 << 20
    for _ in range(3):
        before, large, after = client.send(link, _message(b"x"), _message(bytes(2 << 20)), _message(bytes(1_000_000)))
        assert isinstance(large, Rejected) and large.error.condition == "amqp:link:message-size-exceeded"
        assert before == after == Accepted()
    assert link.credit + link.delivery_count == 1_000 and len(client.receive(peek_lock(client, name), 6)) == 6


def test_a_message_at_the_limit_reaches_a_receiver_that_names_the_same_limit(
    client: Client, entities: ServedEntities, name: str
) -> None:
    entities.queue(name)
    link = client.sender(name)
    limit = link.peer.max_message_size
    assert limit is not None
    # With an id, so that none is added; what the broker adds goes beyond the limit.
    around = len(Message(bytes(limit // 2), message_id="x").encode()) - limit // 2
    (outcome,) = client.send(link, Message(bytes(limit - around), message_id="x").encode())
    assert outcome == Accepted()
    receiver = client.receiver(name, max_message_size=limit, credit=0)
    receiver.max_message_size = 2 * limit  # As Python's client, it takes more than it says.
    receiver.grant(1)
    (received,) = client.receive(receiver, 1)
    assert len(received.data) > limit


def test_limits_of_a_message_are_kept(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name)
    link = client.sender(name)
    large = Message(b"x", message_id="x" * 129).encode()
    taken, refused_ = client.send(link, _message(b"ok"), large)
    assert taken == Accepted() and isinstance(refused_, Rejected)
    assert refused_.error.condition == "com.microsoft:argument-error"
    assert isinstance(send_batch(client, link, _message(b"never"), large), Rejected)
    assert bodies(client, peek_lock(client, name), 1) == [b"ok"]
    assert client.drain(peek_lock(client, name, credit=0)) == []


# refusals


def test_what_is_not_there_is_not_found(client: Client, entities: ServedEntities, name: str) -> None:
    entities.topic(name, s=None)
    Management(client).declare(f"plain-{name}")
    for link in (
        client.sender(f"no-{name}"),
        client.sender(f"plain-{name}"),
        peek_lock(client, f"{name}/Subscriptions/no"),
        peek_lock(client, f"amqps://localhost/{name}/Subscriptions/no"),
        client.sender(f"{name}/Subscriptions/no/$management"),
        client.sender("$management"),
    ):
        condition, text = refused(client, link)
        assert condition == "amqp:not-found" and text.startswith("The messaging entity '")
        assert text.endswith("' could not be found.")


def test_what_is_not_allowed(client: Client, entities: ServedEntities, name: str) -> None:
    entities.topic(name, s=None)
    entities.subscription(name, "sessions", requires_session=True)
    links = [
        client.sender(f"{name}/Subscriptions/s"),
        client.sender(f"{name}/$DeadLetterQueue"),
        peek_lock(client, name),
        peek_lock(client, f"{name}/Subscriptions/sessions"),
    ]
    assert [refused(client, link)[0] for link in links] == ["amqp:not-allowed"] * 4
    via = AmqpValue(
        AmqpType.MAP,
        ((AmqpValue(AmqpType.SYMBOL, "com.microsoft:transfer-destination-address"), amqp_value("other")),),
    )
    assert refused(client, client.sender(name, properties=via))[0] == "amqp:not-implemented"


def test_links_end_with_what_they_lead_to(client: Client, entities: ServedEntities, name: str) -> None:
    entities.topic(name, s=None)
    sender, receiver = client.sender(name), peek_lock(client, f"{name}/Subscriptions/s")
    entities.change(name, TopicSettings(status=TopicStatus.RECEIVE_DISABLED))
    assert client.detached(receiver)[0] == "com.microsoft:entity-disabled"
    assert refused(client, peek_lock(client, f"{name}/Subscriptions/s"))[0] == "com.microsoft:entity-disabled"
    assert client.send(sender, _message(b"1")) == [Accepted()]
    entities.change(name, TopicSettings(status=TopicStatus.DISABLED))
    assert client.detached(sender)[0] == "com.microsoft:entity-disabled"
    entities.change(name, TopicSettings())
    links: list[Link] = [client.sender(name), peek_lock(client, f"{name}/Subscriptions/s", credit=0)]
    entities.delete(name)
    assert [client.detached(link)[0] for link in links] == ["amqp:resource-deleted", "amqp:not-found"]


def test_rules_that_fail_make_dead_letters(client: Client, entities: ServedEntities, name: str) -> None:
    entities.topic(name, s="quantity > 5")
    number = Message(Body.value(1), application_properties={"quantity": 9}).encode()
    _send(client, name, _message(b"1", quantity="ten"), number)
    (good,) = client.receive(peek_lock(client, f"{name}/Subscriptions/s"), 1)
    assert good.message.application_properties["quantity"].value == 9
    (dead,) = client.receive(peek_lock(client, f"{name}/Subscriptions/s/$DeadLetterQueue"), 1)
    assert dead.message.application_properties["DeadLetterReason"].value == "FilterEvaluationException"
    annotations = dead.message.message_annotations
    assert annotations["x-opt-enqueued-time"].value > 0


# receivers of JMS


def _browser(client: Client, address: str, **fields: Any) -> Link:
    source = Source(amqp_value(address), distribution_mode="copy", **fields)
    return client.receiver(address, source=source, rcv_settle_mode=FIRST)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_browser_takes_nothing_away(client: Client, entities: ServedEntities, name: str, is_ours: bool) -> None:
    entities.topic(name, s=None)
    sent = [b"%d" % number for number in range(600)]
    _send(client, name, *map(_message, sent))
    address = f"{name}/Subscriptions/s"
    held = client.receive(peek_lock(client, address, credit=2), 2)
    link = _browser(client, address if is_ours else f"/queues/{address.replace('/', '%2F')}")
    assert link.peer.source.distribution_mode == "copy"
    first = client.drain(link, 10)
    assert [one.message.body.octets() for one in first] == sent[:10]
    assert settle(client, link, first[0].id, first[9].id, Accepted()) == Accepted()
    assert [one.message.body.octets() for one in client.drain(link, 1_000)] == sent[10:]
    assert client.drain(link, 10) == []
    # What comes while it looks is shown, too.
    link.grant(1)
    _send(client, name, _message(b"late"))
    assert bodies(client, link, 1) == [b"late"]
    ended = client.receiver(address, credit=599, rcv_settle_mode=SECOND)
    assert bodies(client, ended, 599) == [*sent[2:], b"late"] and len(held) == 2


def test_a_selector_is_refused_and_other_filters_are_echoed_as_left_out(
    client: Client, entities: ServedEntities, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    entities.queue(name)
    for selector in (
        RawEntry.of("jms-selector", 0x0000_468C_0000_0004, amqp_value("color = 'red'")),
        RawEntry.of("any", "apache.org:selector-filter:string", amqp_value("color = 'red'")),
    ):
        for link in (client.receiver(name, filters=(selector,)), _browser(client, name, filter=(selector,))):
            condition, text = refused(client, link)
            assert condition == "amqp:not-implemented" and "the rules of a subscription select" in text
    other = RawEntry.of("no-local", "apache.org:no-local-filter:list", AmqpValue(AmqpType.LIST, ()))
    link = client.receiver(name, filters=(other,))
    assert link.is_attached and link.peer.source.filter == ()
    assert "the filter no-local is left out" in caplog.text
