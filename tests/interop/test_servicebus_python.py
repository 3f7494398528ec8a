"""The unmodified Python client of Service Bus, both its forms: sending, receiving, every settlement, locks, peeking.

The examples of the documentation of filters are here, too; rules that were given at creation are declared.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from interop.entities import DEFAULT, connection_string, declare_queue, declare_topic
from interop.servers import Served, ServerProcess
from waiting import eventually

servicebus = pytest.importorskip("azure.servicebus", reason="the Python clients are not installed: `make clients`")
exceptions = pytest.importorskip("azure.servicebus.exceptions")
aio = pytest.importorskip("azure.servicebus.aio")

Message = servicebus.ServiceBusMessage
DELETE = servicebus.ServiceBusReceiveMode.RECEIVE_AND_DELETE
DEAD_LETTERS = servicebus.ServiceBusSubQueue.DEAD_LETTER
NEXT_SESSION = servicebus.NEXT_AVAILABLE_SESSION


_WITHOUT_KEEP_ALIVE = {"keep_alive": 0}
"""The thread that keeps a connection alive looks once a second whether it is to end, and `close` waits for it."""


_closing = ThreadPoolExecutor(4)
"""Where receivers are closed while tests go on: they have that thread in any case."""


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Any]:
    if served.is_original:
        pytest.skip("RabbitMQ has no topics of Service Bus")
    text = connection_string(served)
    with servicebus.ServiceBusClient.from_connection_string(text, retry_total=0) as client, _closing:
        yield client


def _send(client: Any, topic: str, *messages: Any) -> None:
    with client.get_topic_sender(topic, **_WITHOUT_KEEP_ALIVE) as sender:
        for message in messages:
            sender.send_messages(message)


def _received(client: Any, topic: str, subscription: str, count: int) -> list[Any]:
    """The next messages of a subscription, and nothing else."""
    receiver = client.get_subscription_receiver(topic, subscription, receive_mode=DELETE)
    try:
        found = _next(receiver, count)
        assert receiver.peek_messages(1, sequence_number=1) == []
    finally:
        _closing.submit(receiver.close)
    return found


def _next(receiver: Any, count: int) -> list[Any]:
    """The next messages of a receiver."""
    found: list[Any] = []
    while len(found) < count:
        batch = receiver.receive_messages(count - len(found), max_wait_time=10)
        assert batch, found
        found += batch
    return found


def _bodies(messages: list[Any]) -> list[str]:
    return [str(message) for message in messages]


def _properties(message: Any) -> dict[str, Any]:
    return {key.decode(): value.decode() if isinstance(value, bytes) else value
            for key, value in message.application_properties.items()}  # fmt: skip


# the client's calls


def test_every_settlement(client: Any, served: Served, name: str) -> None:
    declare_topic(served, name, s={"rules": DEFAULT, "settings": {"max_delivery_count": 2}})
    _send(client, name, *(Message(f"m{number}") for number in range(5)))
    with client.get_subscription_receiver(name, "s") as receiver:
        done, back, dead, aside, kept = receiver.receive_messages(5, max_wait_time=10)
        assert _bodies([done, back, dead, aside, kept]) == ["m0", "m1", "m2", "m3", "m4"]
        receiver.complete_message(done)
        receiver.abandon_message(back)
        receiver.dead_letter_message(dead, reason="why", error_description="because")
        receiver.defer_message(aside)
        assert receiver.renew_message_lock(kept) > datetime.datetime.now(datetime.UTC)
        (again,) = receiver.receive_messages(1, max_wait_time=10)
        assert str(again) == "m1" and again.delivery_count == 1 and again.sequence_number == back.sequence_number
        receiver.abandon_message(again)
        receiver.complete_message(kept)
        assert _bodies(receiver.peek_messages(5, sequence_number=1)) == ["m3"], "it is deferred"
    with client.get_subscription_receiver(name, "s", sub_queue=DEAD_LETTERS) as receiver:
        letters = receiver.receive_messages(2, max_wait_time=10)
        assert [(str(each), each.dead_letter_reason) for each in letters] == [
            ("m2", "why"),
            ("m1", "MaxDeliveryCountExceeded"),
        ]
        assert letters[0].dead_letter_error_description == "because"
        assert letters[0].enqueued_sequence_number == dead.sequence_number
        for letter in letters:
            receiver.complete_message(letter)


def test_what_a_message_carries_comes_back_with_its_types(client: Any, served: Served, name: str) -> None:
    declare_queue(served, name)
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    properties = {"int": 7, "float": 0.5, "flag": True, "text": "é", "time": moment, "id": uuid.UUID(int=5)}
    sent = Message(
        b"body", application_properties=properties, subject="s", correlation_id="c", to="t", reply_to="r",
        content_type="text/plain", message_id="mine", partition_key="p", time_to_live=datetime.timedelta(hours=1),
    )  # fmt: skip
    with client.get_queue_sender(name, **_WITHOUT_KEEP_ALIVE) as sender:
        sender.send_messages(sent)
    with client.get_queue_receiver(name) as receiver:
        (found,) = receiver.receive_messages(1, max_wait_time=10)
        fields = (
            "subject",
            "correlation_id",
            "to",
            "reply_to",
            "content_type",
            "message_id",
            "partition_key",
            "time_to_live",
        )
        assert [getattr(found, field) for field in fields] == [getattr(sent, field) for field in fields]
        received = _properties(found)
        assert received.pop("time") in (moment, int(moment.timestamp() * 1000))
        assert received == {key: value for key, value in properties.items() if key != "time"}
        assert found.expires_at_utc - found.enqueued_time_utc == datetime.timedelta(hours=1)
        assert found.locked_until_utc > found.enqueued_time_utc and found.delivery_count == 0
        receiver.complete_message(found)


def test_a_batch_has_all_its_messages_in_order(client: Any, served: Served, name: str) -> None:
    declare_queue(served, name)
    with client.get_queue_sender(name.upper()) as sender:
        batch = sender.create_message_batch()
        with contextlib.suppress(ValueError):
            for number in range(3_000):
                batch.add_message(Message(f"{number} " + "x" * 300))
        sender.send_messages(batch)
        sender.send_messages([Message("last"), Message("very last")])
        with pytest.raises(exceptions.MessageSizeExceededError):
            sender.send_messages(Message("x" * (1 << 20)))
    found: list[Any] = []
    with client.get_queue_receiver(name, receive_mode=DELETE, prefetch_count=500) as receiver:
        for message in receiver:
            found.append(message)
            if len(found) == len(batch) + 2:
                break
    assert [int(str(message).split()[0]) for message in found[:-2]] == list(range(len(batch)))
    assert _bodies(found[-2:]) == ["last", "very last"] and len(batch) > 2_000


def test_messages_without_a_body(client: Any, served: Served, name: str) -> None:
    declare_topic(served, name, s=[{"name": "r", "sql": "n > 0", "action": "SET n = n + 1"}])

    def message(number: int) -> Any:
        return Message(None, subject="control", application_properties={"n": number})

    due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=0.3)
    with client.get_topic_sender(name, **_WITHOUT_KEEP_ALIVE) as sender:
        sender.send_messages(message(1))
        sender.send_messages([message(2), Message("body", application_properties={"n": 3})])
        sender.schedule_messages(message(4), due)
    with client.get_subscription_receiver(name, "s") as receiver:
        found = _next(receiver, 4)
        assert [(_properties(each)["n"], each.subject) for each in found] == [
            (2, "control"), (3, "control"), (4, None), (5, "control"),
        ]  # fmt: skip
        assert [each.raw_amqp_message.body for each in (found[0], found[1], found[3])] == [None] * 3
        assert str(found[2]) == "body"
        receiver.dead_letter_message(found[0], reason="why")
        for each in found[1:]:
            receiver.complete_message(each)
    with client.get_subscription_receiver(name, "s", sub_queue=DEAD_LETTERS, receive_mode=DELETE) as receiver:
        (letter,) = _next(receiver, 1)
        assert (letter.raw_amqp_message.body, letter.dead_letter_reason) == (None, "why")


def test_a_lock_that_is_lost_is_told_on_the_link_and_by_management(served: Served, client: Any, name: str) -> None:
    """Where settling on the link fails, the client asks management: that must refuse it, too."""
    declare_queue(served, name, lock_ms=1_000)
    with client.get_queue_sender(name, **_WITHOUT_KEEP_ALIVE) as sender:
        sender.send_messages(Message("m"))
    with client.get_queue_receiver(name) as receiver, client.get_queue_receiver(name) as other:
        (first,) = receiver.receive_messages(1, max_wait_time=10)
        (again,) = other.receive_messages(1, max_wait_time=10)
        # The client looks at the time itself, so that of its message is moved.
        first._expiry = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
        with pytest.raises(exceptions.MessageLockLostError):
            receiver.complete_message(first)
        with pytest.raises(exceptions.MessageLockLostError):
            receiver.renew_message_lock(first)
        other.complete_message(again)


def _in_sessions(sessions: str, count: int) -> list[Any]:
    """Messages of sessions, in turns: `a0`, `b0`, `a1` …"""
    return [Message(f"{each}{number}", session_id=each) for number in range(count) for each in sessions]


def test_sessions(client: Any, served: Served, name: str) -> None:
    declare_queue(served, name, requires_session=True)
    with client.get_queue_sender(name, **_WITHOUT_KEEP_ALIVE) as sender:
        sender.send_messages(_in_sessions("ab", 3))
        with pytest.raises(exceptions.ServiceBusError, match="SessionId was not set"):
            sender.send_messages(Message("none"))
    began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
    with client.get_queue_receiver(name, session_id="a") as receiver:
        session = receiver.session
        done, back, dead = receiver.receive_messages(3, max_wait_time=10)
        assert _bodies([done, back, dead]) == ["a0", "a1", "a2"] and {done.session_id, back.session_id} == {"a"}
        assert (session.session_id, session.get_state()) == ("a", None)
        session.set_state("half")
        assert session.get_state() == b"half"
        assert session.locked_until_utc <= session.renew_lock() == session.locked_until_utc
        receiver.complete_message(done)
        receiver.abandon_message(back)
        receiver.dead_letter_message(dead, reason="why")
        (again,) = receiver.receive_messages(3, max_wait_time=10)
        assert (str(again), again.delivery_count) == ("a1", 1)
        assert _bodies(receiver.peek_messages(9, sequence_number=1)) == ["a1"]
        with pytest.raises(exceptions.SessionCannotBeLockedError):
            client.get_queue_receiver(name, session_id="a").__enter__()
        with client.get_queue_receiver(name, session_id=NEXT_SESSION, receive_mode=DELETE) as free:
            assert free.session.session_id == "b"
            assert _bodies(free.receive_messages(3, max_wait_time=10)) == ["b0", "b1", "b2"]
            with pytest.raises(exceptions.OperationTimeoutError):
                client.get_queue_receiver(name, session_id=NEXT_SESSION, max_wait_time=1).__enter__()
    assert list(client.list_queue_sessions(name, state_updated_after=began)) == ["a"]
    with client.get_queue_receiver(name, session_id=NEXT_SESSION) as receiver:
        assert (receiver.session.session_id, receiver.session.get_state()) == ("a", b"half")
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None
        (again,) = receiver.receive_messages(1, max_wait_time=10)
        # Closing a session counts as no attempt.
        assert (str(again), again.delivery_count) == ("a1", 1)
        receiver.complete_message(again)
    with client.get_queue_receiver(name, sub_queue=DEAD_LETTERS) as receiver:
        (letter,) = receiver.receive_messages(1, max_wait_time=10)
        assert (str(letter), letter.session_id, letter.dead_letter_reason) == ("a2", "a", "why")
        receiver.complete_message(letter)


def test_locks_of_sessions_are_renewed_and_lost(client: Any, served: Served, name: str) -> None:
    # The renewer waits for half of the whole seconds of a lock, and asks all the time where that is none.
    by_session = {"rules": DEFAULT, "settings": {"requires_session": True, "lock_ms": 2_000}}
    renewed = by_session | {"settings": {"requires_session": True, "lock_ms": 4_000}}
    declare_topic(served, name, s=by_session, renewed=renewed)
    _send(client, name, Message("none"), Message("m", session_id="x"))
    with client.get_subscription_receiver(name, "renewed", session_id="x") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=10)
        with servicebus.AutoLockRenewer() as renewer:
            until = receiver.session.locked_until_utc
            renewer.register(receiver, receiver.session)
            eventually(lambda: receiver.session.locked_until_utc > until)
        receiver.complete_message(message)
    with client.get_subscription_receiver(name, "s", session_id="x") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=10)
        # While it waits it is told so; afterwards it looks at the time itself.
        with pytest.raises(exceptions.SessionLockLostError):
            receiver.receive_messages(1, max_wait_time=10)
        with pytest.raises(exceptions.SessionLockLostError):
            receiver.complete_message(message)
    with client.get_subscription_receiver(name, "s", sub_queue=DEAD_LETTERS) as receiver:
        (letter,) = receiver.receive_messages(1, max_wait_time=10)
        assert (str(letter), letter.dead_letter_reason) == ("none", "Session id is null")


def test_what_is_not_there(client: Any, served: Served, name: str) -> None:
    declare_topic(served, name, s=DEFAULT)
    with pytest.raises(exceptions.MessagingEntityNotFoundError), client.get_queue_sender(f"no-{name}") as sender:
        sender.send_messages(Message("m"))
    with (
        pytest.raises(exceptions.MessagingEntityNotFoundError),
        client.get_subscription_receiver(name, "no") as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=1)
    with client.get_subscription_receiver(name, "s") as receiver, pytest.raises(exceptions.ServiceBusError):
        receiver.receive_deferred_messages([1])


def test_deferred_messages(client: Any, served: Served, name: str) -> None:
    declare_queue(served, name, lock_ms=5_000)
    with client.get_queue_sender(name) as sender:
        sender.send_messages([Message(f"m{number}", application_properties={"n": number}) for number in range(5)])
    with client.get_queue_receiver(name) as receiver:
        held = receiver.receive_messages(5, max_wait_time=10)
        for message in held:
            receiver.defer_message(message)
        numbers = [message.sequence_number for message in held]
        peeked = receiver.peek_messages(9, sequence_number=1)
        state = servicebus.ServiceBusMessageState
        assert [(each.sequence_number, each.state) for each in peeked] == [(each, state.DEFERRED) for each in numbers]
        done, back, dead, again, kept = receiver.receive_deferred_messages(numbers)
        assert _bodies([done, back, dead, again, kept]) == ["m0", "m1", "m2", "m3", "m4"]
        assert (back.sequence_number, back.delivery_count, back.state) == (numbers[1], 1, state.DEFERRED)
        with pytest.raises(exceptions.MessageNotFoundError):
            receiver.receive_deferred_messages(numbers)
        receiver.complete_message(done)
        receiver.abandon_message(back)
        receiver.dead_letter_message(dead, reason="why", error_description="because")
        receiver.defer_message(again)
        assert receiver.renew_message_lock(kept) > datetime.datetime.now(datetime.UTC)
        found = receiver.receive_deferred_messages(numbers)
        assert [(str(each), each.delivery_count) for each in found] == [("m1", 2), ("m3", 2)]
        for message in [*found, kept]:
            receiver.complete_message(message)
        assert receiver.peek_messages(9, sequence_number=1) == []
    with client.get_queue_receiver(name, sub_queue=DEAD_LETTERS, receive_mode=DELETE) as receiver:
        (letter,) = receiver.receive_messages(1, max_wait_time=10)
        assert (str(letter), letter.dead_letter_reason, letter.enqueued_sequence_number) == ("m2", "why", numbers[2])
    with client.get_queue_sender(name) as sender:
        sender.send_messages(Message("last"))
    with client.get_queue_receiver(name) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=10)
        receiver.defer_message(message)
    with client.get_queue_receiver(name, receive_mode=DELETE) as receiver:
        assert _bodies(receiver.receive_deferred_messages(message.sequence_number)) == ["last"]
        assert receiver.peek_messages(9, sequence_number=1) == []


def test_messages_for_later(client: Any, served: Served, name: str) -> None:
    queue = declare_queue(served, f"{name}-q")
    declare_topic(served, name, s=[{"name": "r", "sql": "n = 1"}])
    now = datetime.datetime.now(datetime.UTC)
    soon, late = now + datetime.timedelta(seconds=1), now + datetime.timedelta(hours=1)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(Message("before"))
        numbers = sender.schedule_messages([Message(f"m{number}") for number in range(3)], late)
        assert numbers == sorted(set(numbers))
        (soon_number,) = sender.schedule_messages(Message("soon"), soon)
        sender.send_messages([Message("late", scheduled_enqueue_time_utc=late), Message("with it")])
        sender.cancel_scheduled_messages(numbers[1:])
        with pytest.raises(exceptions.MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers[:2])
    with client.get_queue_receiver(queue, receive_mode=DELETE) as receiver:
        assert _bodies(receiver.receive_messages(2, max_wait_time=10)) == ["before", "with it"]
        (found,) = receiver.receive_messages(1, max_wait_time=10)
        assert str(found) == "soon" and found.enqueued_time_utc >= found.scheduled_enqueue_time_utc
        assert found.sequence_number > soon_number
        left = receiver.peek_messages(9, sequence_number=1)
        assert [(str(each), each.state.name) for each in left] == [("m0", "SCHEDULED"), ("late", "SCHEDULED")]
        assert left[0].sequence_number == numbers[0]
        assert abs(left[0].scheduled_enqueue_time_utc - late) < datetime.timedelta(seconds=1)
    with client.get_topic_sender(name) as sender:
        sender.send_messages(Message("yes", application_properties={"n": 1}, scheduled_enqueue_time_utc=soon))
        sender.schedule_messages([Message(str(n), application_properties={"n": n}) for n in range(2)], soon)
    assert _bodies(_received(client, name, "s", 2)) == ["yes", "1"]


def test_time_to_live(client: Any, served: Served, name: str) -> None:
    queue = declare_queue(served, name, default_time_to_live_ms=60_000, dead_letter_on_expiration=True)
    second, now = datetime.timedelta(seconds=1), datetime.datetime.now(datetime.UTC)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([Message("short", time_to_live=second), Message("long", time_to_live=3_600 * second)])
        sender.schedule_messages(Message("later", time_to_live=second), now + second / 5)
        sender.schedule_messages(Message("end"), now + 3 * second / 2)
    with client.get_queue_receiver(queue, sub_queue=DEAD_LETTERS) as dead, client.get_queue_receiver(queue) as receiver:
        waits = servicebus.ServiceBusMessageState.SCHEDULED
        while any(each.state is waits for each in receiver.peek_messages(9, sequence_number=1)):
            pass
        found = receiver.receive_messages(2, max_wait_time=10)
        found += receiver.receive_messages(2 - len(found), max_wait_time=10) if len(found) < 2 else []
        assert _bodies(found) == ["long", "end"]
        assert [each.expires_at_utc - each.enqueued_time_utc for each in found] == [60 * second] * 2
        letters = dead.receive_messages(2, max_wait_time=10)
        letters += dead.receive_messages(2 - len(letters), max_wait_time=10) if len(letters) < 2 else []
        assert [(str(each), each.dead_letter_reason) for each in letters] == [
            ("short", "TTLExpiredException"), ("later", "TTLExpiredException"),
        ]  # fmt: skip
        for letter in letters:
            dead.complete_message(letter)


async def _use_sessions(client: Any, queue: str) -> None:
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(_in_sessions("ab", 2))

    async def use() -> tuple[str, list[str]]:
        async with client.get_queue_receiver(queue, session_id=NEXT_SESSION) as receiver:
            await receiver.session.set_state(receiver.session.session_id)
            assert await receiver.session.renew_lock() == receiver.session.locked_until_utc
            found = await receiver.receive_messages(2, max_wait_time=10)
            await asyncio.gather(*(receiver.complete_message(each) for each in found))
            return (await receiver.session.get_state()).decode(), _bodies(found)

    assert sorted(await asyncio.gather(use(), use())) == [("a", ["a0", "a1"]), ("b", ["b0", "b1"])]
    assert [each async for each in client.list_queue_sessions(queue)] == ["a", "b"]
    with pytest.raises(exceptions.OperationTimeoutError):
        async with client.get_queue_receiver(queue, session_id=NEXT_SESSION, max_wait_time=1):
            raise AssertionError("there is no session")


def test_the_asynchronous_client(served: Served, name: str) -> None:
    declare_topic(served, name, s=DEFAULT)

    async def use() -> None:
        text = connection_string(served)
        async with aio.ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            async with client.get_topic_sender(name, **_WITHOUT_KEEP_ALIVE) as sender:
                await asyncio.gather(*(sender.send_messages(Message(f"m{number}")) for number in range(5)))
                await sender.send_messages([Message("b0"), Message("b1")])
            async with client.get_subscription_receiver(name, "s") as receiver:
                found = await receiver.receive_messages(7, max_wait_time=10)
                assert {str(message) for message in found} >= {"m0"}
                await receiver.dead_letter_message(found[0], reason="why")
                await receiver.renew_message_lock(found[1])
                await receiver.abandon_message(found[1])
                await asyncio.gather(*(receiver.complete_message(message) for message in found[2:]))
                assert [str(each) for each in await receiver.peek_messages(9, sequence_number=1)] == [str(found[1])]
            await _use_sessions(client, declare_queue(served, f"{name}-q", requires_session=True))
            dead = client.get_subscription_receiver(name, "s", sub_queue=DEAD_LETTERS)
            async with dead:
                (letter,) = await dead.receive_messages(1, max_wait_time=10)
                assert letter.dead_letter_reason == "why"
                await dead.complete_message(letter)

    asyncio.run(use())


# the examples of the documentation of filters


def test_blue_and_quantity_ten(client: Any, served: Served, name: str) -> None:
    declare_topic(served, name, s=[{"name": "r", "sql": "color = 'blue' AND quantity = 10"}])
    orders = (("blue", 10), ("blue", 9), ("red", 10))
    _send(
        client, name,
        *(Message("m", application_properties={"color": color, "quantity": number}) for color, number in orders),
        Message("end", application_properties={"COLOR": "blue", "Quantity": 10}),
    )  # fmt: skip
    assert _bodies(_received(client, name, "s", 2)) == ["m", "end"]


def test_red_orders_with_an_action(client: Any, served: Served, name: str) -> None:
    action = "SET quantity = quantity / 2; REMOVE priority; SET sys.CorrelationId = 'low'"
    rule = {"name": "RedOrdersWithAction", "sql": "user.color = 'red'", "action": action}
    declare_topic(served, name, s=[rule], all=DEFAULT)
    _send(client, name, Message("m", application_properties={"color": "red", "quantity": 10, "priority": "high"}))
    (copy,) = _received(client, name, "s", 1)
    assert _properties(copy) == {"color": "red", "quantity": 5, "RuleName": "RedOrdersWithAction"}
    assert copy.correlation_id == "low"
    (original,) = _received(client, name, "all", 1)
    assert _properties(original)["quantity"] == 10 and original.correlation_id is None


def test_the_true_and_the_false_filter(client: Any, served: Served, name: str) -> None:
    declare_topic(served, name, yes=[{"name": "t", "sql": "1=1"}], no=[{"name": "f", "sql": "1=0"}])
    _send(client, name, Message("m"))
    assert _bodies(_received(client, name, "yes", 1)) == ["m"] and _received(client, name, "no", 0) == []


def test_correlation_filters_by_subject_and_by_properties(client: Any, served: Served, name: str) -> None:
    declare_topic(
        served, name,
        both=[{"name": "r", "correlation": {"label": "Important", "correlation_id": "high"}}],
        mine=[{"name": "r", "correlation": {"properties": {"color": "blue", "n": 2}}}],
    )  # fmt: skip
    _send(
        client, name,
        Message("1", subject="Important", correlation_id="high", application_properties={"color": "blue", "n": "2"}),
        Message("2", subject="Important", correlation_id="High", application_properties={"color": "blue", "n": 2}),
        Message("3", subject="important", correlation_id="high"),
    )  # fmt: skip
    assert _bodies(_received(client, name, "both", 1)) == ["1"]
    assert _bodies(_received(client, name, "mine", 1)) == ["2"]


def test_five_rules_give_three_messages(client: Any, served: Served, name: str) -> None:
    rules = [{"name": f"plain{number}", "sql": f"n > {number}"} for number in range(3)]
    rules += [{"name": f"acts{number}", "sql": "n = 7", "action": f"SET by = {number}"} for number in range(2)]
    declare_topic(served, name, s=rules)
    _send(client, name, Message("m", application_properties={"n": 7}))
    found = [_properties(message) for message in _received(client, name, "s", 3)]
    assert found == [
        {"n": 7},
        {"n": 7, "by": 0, "RuleName": "acts0"},
        {"n": 7, "by": 1, "RuleName": "acts1"},
    ]


def test_broadcast_and_partitioning(client: Any, served: Served, name: str) -> None:
    regions = {f"part{number}": [{"name": "r", "sql": f"region % 3 = {number}"}] for number in range(3)}
    declare_topic(served, name, **regions, all1=DEFAULT, all2=DEFAULT)
    _send(client, name, [Message(str(number), application_properties={"region": number}) for number in range(9)])
    for number in range(3):
        assert _bodies(_received(client, name, f"part{number}", 3)) == [str(number + 3 * each) for each in range(3)]
    for subscription in ("all1", "all2"):
        assert _bodies(_received(client, name, subscription, 9)) == [str(number) for number in range(9)]


def test_system_properties_and_the_operators_of_the_page(client: Any, served: Served, name: str) -> None:
    filters = {
        "label": "sys.Label LIKE 'order%' AND sys.ReplyTo IS NULL",
        "exists": "EXISTS(user.discount) AND NOT EXISTS(color)",
        "in": "StoreId IN ('Store1', 'Store2')",
        "id": "sys.MessageId = '5' OR sys.To NOT IN ('Store5', 'Store6')",
    }
    declare_topic(served, name, **{key: [{"name": "r", "sql": sql}] for key, sql in filters.items()})
    _send(
        client, name,
        Message("1", subject="order.new"),
        Message("2", application_properties={"discount": 0.5}, message_id="5"),
        Message("3", application_properties={"StoreId": "Store2", "color": 1, "discount": 1}, to="Store7"),
    )  # fmt: skip
    expected = {"label": ["1"], "exists": ["2"], "in": ["3"], "id": ["2", "3"]}
    assert {key: _bodies(_received(client, name, key, len(found))) for key, found in expected.items()} == expected


def test_duplicates_are_accepted_and_dropped(client: Any, served: Served, name: str) -> None:
    declare_queue(served, name, {"requires_duplicate_detection": True})
    with client.get_queue_sender(name, **_WITHOUT_KEEP_ALIVE) as sender:
        sender.send_messages(Message("first", message_id="1"))
        sender.send_messages(Message("again", message_id="1", session_id="another", correlation_id="other"))
        batch = sender.create_message_batch()
        for number in ("2", "1", "2", "3"):
            batch.add_message(Message(number, message_id=number))
        sender.send_messages(batch)
        sender.send_messages([Message("no id"), Message("no id")])
    with client.get_queue_receiver(name, receive_mode=DELETE) as receiver:
        assert _bodies(_next(receiver, 5)) == ["first", "2", "3", "no id", "no id"]


def test_routing_with_forwarding(client: Any, served: Served, name: str) -> None:
    """The topic's rules say which queue a message goes to; the queue's dead letters go on to one for all."""
    everything, reds, blues = (f"{name}-{each}" for each in ("failed", "reds", "blues"))
    declare_queue(served, everything)
    for queue in (reds, blues):
        declare_queue(served, queue, forward_dead_letters_to=everything)
    act = {"name": "r", "sql": "color = 'red'", "action": "SET via = 'topic'"}
    plain = {"name": "b", "correlation": {"properties": {"color": "blue"}}}
    declare_topic(served, name, r={"rules": [act], "forward_to": reds}, b={"rules": [plain], "forward_to": blues})
    messages = [Message(color, application_properties={"color": color}) for color in ("red", "blue", "green", "red")]
    _send(client, name, *messages)
    with client.get_queue_receiver(reds) as receiver:
        first, second = _next(receiver, 2)
        assert [str(first), str(second)] == ["red", "red"] and _properties(first)["via"] == "topic"
        numbers = [each.enqueued_sequence_number for each in (first, second)]
        assert first.enqueued_sequence_number != first.sequence_number and numbers == sorted(numbers)
        assert first.delivery_count == 0 and first.dead_letter_source is None
        receiver.dead_letter_message(second, reason="broken")
    with client.get_queue_receiver(blues) as receiver:
        (blue,) = _next(receiver, 1)
        receiver.complete_message(blue)
    with client.get_queue_receiver(everything, receive_mode=DELETE) as receiver:
        (letter,) = _next(receiver, 1)
    assert (letter.dead_letter_source, letter.dead_letter_reason) == (reds, "broken")
    assert letter.enqueued_sequence_number == second.enqueued_sequence_number


@pytest.mark.filterwarnings("ignore:.*<socket.socket:pytest.PytestUnraisableExceptionWarning")
def test_nothing_that_was_confirmed_is_lost_in_a_crash(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path / "served")
    served = process.start()
    try:
        declare_topic(served, "t", s=DEFAULT)
        with servicebus.ServiceBusClient.from_connection_string(connection_string(served)) as client:
            _send(client, "t", [Message(str(number)) for number in range(10)])
            with client.get_subscription_receiver("t", "s") as receiver:
                found = receiver.receive_messages(10, max_wait_time=10)
                assert len(found) == 10
                for message in found[:4]:
                    receiver.complete_message(message)
                receiver.dead_letter_message(found[4])
                receiver.abandon_message(found[5])
                receiver.defer_message(found[9])
                (aside,) = receiver.receive_deferred_messages(found[9].sequence_number)
                receiver.abandon_message(aside)
                with client.get_topic_sender("t") as sender:
                    late = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
                    later = sender.schedule_messages([Message("later"), Message("never")], late)
                    sender.cancel_scheduled_messages(later[1])
                process.kill()
        served = process.start()
        # Without retries: the client asks three times more for what is not there.
        again = servicebus.ServiceBusClient.from_connection_string(connection_string(served), retry_total=0)
        with again, again.get_subscription_receiver("t", "s") as receiver, again.get_topic_sender("t") as sender:
            left = receiver.peek_messages(20, sequence_number=1)
            assert [(str(each), each.sequence_number) for each in left] == [
                (str(each), each.sequence_number) for each in found[5:]
            ]
            (aside,) = receiver.receive_deferred_messages(found[9].sequence_number)
            assert (str(aside), aside.delivery_count) == ("9", 2)
            receiver.complete_message(aside)
            with pytest.raises(exceptions.MessageNotFoundError):
                sender.cancel_scheduled_messages(later)
            sender.cancel_scheduled_messages(later[:1])
            # The locks hold in the new process.
            receiver.complete_message(receiver.receive_messages(1, max_wait_time=10)[0])
            assert receiver.peek_messages(1, sequence_number=1)[0].sequence_number == found[6].sequence_number
    finally:
        process.close()
        # The client leaves sockets to a server that was killed.
        gc.collect()
