"""Subscriptions of topics read by unmodified clients of RabbitMQ: actions, acknowledgements, dead letters, kill -9."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.servers import Served, ServerProcess
from waiting import LIMIT_S

pika = pytest.importorskip("pika", reason="the Python clients are not installed: `make clients`")
amqp = pytest.importorskip("rabbitmq_amqp_python_client")
proton = pytest.importorskip("proton")
utils = pytest.importorskip("proton.utils")

RED = {"name": "Red", "sql": "color = 'red'", "action": "SET quantity = quantity / 2"}
LOGIN = "Basic " + base64.b64encode(b"guest:guest").decode()


def make_topic(served: Served, topic: str, **settings: Any) -> str:
    """A topic with a subscription `red`, made at the running server; gives the name of the subscription's queue."""
    for path, body in (("", {}), ("/subscriptions/red", {"rules": [RED], "settings": settings})):
        request = urllib.request.Request(
            f"http://{served.host}:{served.http}/api/topics/{urllib.parse.quote(topic, safe='')}{path}",
            data=json.dumps(body).encode(),
            headers={"Authorization": LOGIN},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=LIMIT_S).close()
    return f"{topic}/Subscriptions/red"


@pytest.fixture
def queue(served: Served, name: str) -> Iterator[str]:
    """The queue of a subscription; its topic's name holds a slash."""
    if served.is_original:
        pytest.skip("RabbitMQ has no topics")
    topic = f"shop/{name}"
    yield make_topic(served, topic)
    served.delete(topic)


def topic_of(queue: str) -> str:
    return queue.removesuffix("/Subscriptions/red")


def dead_letters_of(queue: str) -> str:
    return f"{queue}/$DeadLetterQueue"


# pika


def publish(served: Served, queue: str, *colors: str) -> None:
    """Messages 0, 1, … of these colors to the topic, each confirmed."""
    with served.channel() as channel:
        channel.confirm_delivery()
        for number, color in enumerate(colors):
            properties = pika.BasicProperties(headers={"color": color, "quantity": 10 * (number + 1)})
            channel.basic_publish("", topic_of(queue), b"%d" % number, properties, mandatory=True)


def consumed(channel: Any, queue: str, count: int) -> list[Any]:
    """So many messages, not acknowledged: method, properties, body."""
    received = []
    for message in channel.consume(queue, inactivity_timeout=LIMIT_S):
        assert message[0] is not None, f"only {len(received)} of {count} messages came"
        received.append(message)
        if len(received) == count:
            return received
    raise AssertionError("the consumer was cancelled")


def test_pika_settles_copies_one_by_one_and_reads_the_dead_letters(served, queue):
    publish(served, queue, "red", "blue", "red", "red")
    with served.channel() as channel:
        channel.basic_qos(prefetch_count=10)
        first, second, third = consumed(channel, queue, 3)
        assert [message[2] for message in (first, second, third)] == [b"0", b"2", b"3"]
        assert [message[1].headers["quantity"] for message in (first, second, third)] == [5, 15, 20]
        assert first[1].headers == {"color": "red", "quantity": 5, "RuleName": "Red"}
        channel.basic_ack(first[0].delivery_tag)
        channel.basic_nack(second[0].delivery_tag, requeue=False)
        channel.basic_nack(third[0].delivery_tag, requeue=True)
        ((method, properties, body),) = consumed(channel, queue, 1)
        assert (method.redelivered, properties.headers["x-delivery-count"], body) == (True, 1, b"3")
        channel.basic_ack(method.delivery_tag)
        channel.cancel()
        assert channel.queue_declare(queue, passive=True).method.message_count == 0
        method, properties, body = channel.basic_get(dead_letters_of(queue))
        assert (properties.headers["DeadLetterReason"], body) == ("rejected", b"2")
        channel.basic_ack(method.delivery_tag)
        assert channel.basic_get(dead_letters_of(queue)) == (None, None, None)


def test_pika_is_told_when_the_topic_is_deleted(served, queue):
    cancelled = []
    with served.channel() as channel:
        channel.add_on_cancel_callback(cancelled.append)
        channel.basic_consume(queue, lambda *_: None)
        channel.queue_delete(topic_of(queue))
        channel.connection.process_data_events(0)
        while not cancelled:
            channel.connection.process_data_events(LIMIT_S)


# rabbitmq-amqp-python-client


class _Done(Exception):  # noqa: N818 - the way out of the client's loop
    """Everything that was expected has come."""


class _Settler(amqp.AMQPMessagingHandler):
    """Settles messages by their bodies until so many have come."""

    def __init__(self, count: int, how: dict[str, str]) -> None:
        super().__init__()
        self.messages: list[Any] = []
        self._count = count
        self._how = how

    def on_amqp_message(self, event: Any) -> None:
        if len(self.messages) == self._count:
            return
        self.messages.append(event.message)
        body = bytes(event.message.body).decode()
        getattr(self.delivery_context, self._how.pop(body, "accept"))(event)
        if len(self.messages) == self._count:
            raise _Done


def settle(served: Served, queue: str, count: int, how: dict[str, str]) -> list[tuple[str, Any]]:
    """Consumes so many messages, each settled as `how` says for its body the first time, else accepted."""
    handler = _Settler(count, dict(how))

    def run() -> None:
        environment = amqp.Environment(uri=f"amqp://guest:guest@{served.host}:{served.amqp}/")
        connection = environment.connection()
        connection.dial()
        with contextlib.suppress(_Done):
            connection.consumer(amqp.AddressHelper.queue_address(queue), message_handler=handler).run()
        environment.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive(), f"only {len(handler.messages)} of {count} came"
    return [(bytes(message.body).decode(), message) for message in handler.messages]


def test_the_python_client_settles_copies_and_reads_the_dead_letters(served, queue):
    publish(served, queue, "red", "red", "blue", "red")
    received = settle(served, queue, 4, {"1": "discard", "3": "requeue"})
    assert [body for body, _ in received] == ["0", "1", "3", "3"]
    assert received[0][1].application_properties == {"color": "red", "quantity": 5, "RuleName": "Red"}
    environment = amqp.Environment(uri=f"amqp://guest:guest@{served.host}:{served.amqp}/")
    connection = environment.connection()
    connection.dial()
    management = connection.management()
    shown = management.queue_info(queue)
    assert (shown.name, shown.queue_type.name, shown.message_count) == (queue, "quorum", 0)
    management.declare_queue(amqp.QuorumQueueSpecification(name=queue))
    assert management.queue_info(dead_letters_of(queue)).message_count == 1
    ((body, dead),) = settle(served, dead_letters_of(queue), 1, {})
    assert body == "1"
    assert "DeadLetterReason" in dead.application_properties
    publish(served, queue, "red", "red")
    assert management.purge_queue(queue) == 2
    assert management.queue_info(queue).message_count == 0
    environment.close()


# python-qpid-proton


@contextlib.contextmanager
def proton_connection(served: Served) -> Iterator[Any]:
    connection = utils.BlockingConnection(
        f"amqp://{served.host}:{served.amqp}", timeout=LIMIT_S, user="guest", password="guest"
    )
    try:
        yield connection
    finally:
        connection.close()


def test_proton_settles_with_every_outcome(served, queue):
    publish(served, queue, *["red"] * 4)
    address = amqp.AddressHelper.queue_address(queue)
    with proton_connection(served) as connection:
        receiver = connection.create_receiver(address, credit=10)
        for settle in (
            receiver.accept,
            receiver.reject,
            lambda: receiver.release(delivered=True),
            lambda: receiver.release(delivered=False),
        ):
            message = receiver.receive(timeout=LIMIT_S)
            assert (message.delivery_count, message.first_acquirer) == (0, True)
            settle()
        again = set()
        for _ in range(2):
            message = receiver.receive(timeout=LIMIT_S)
            # This client's word for "delivered" is modified, without saying that the delivery failed.
            assert message.delivery_count == 0
            again.add(bytes(message.body))
            receiver.accept()
        assert again == {b"2", b"3"}
        dead = connection.create_receiver(amqp.AddressHelper.queue_address(dead_letters_of(queue)), credit=1)
        assert bytes(dead.receive(timeout=LIMIT_S).body) == b"1"
        dead.accept()


# kill -9


@pytest.mark.faults
def test_after_kill_9_a_completed_copy_stays_away_and_an_unacknowledged_one_comes_again(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path)
    try:
        served = process.start()
        queue = make_topic(served, "orders", lock_ms=2000)
        publish(served, queue, *["red"] * 4)
        connection = pika.BlockingConnection(pika.ConnectionParameters(served.host, served.amqp))
        channel = connection.channel()
        received = consumed(channel, queue, 4)
        channel.basic_ack(received[0][0].delivery_tag)
        channel.basic_nack(received[1][0].delivery_tag, requeue=False)
        # Its answer leaves the server when what came before is on disk.
        channel.basic_qos(prefetch_count=10)
        process.kill()
        # The client notices, and closes what it had open.
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connection.sleep(LIMIT_S)
        served = process.start()
        with served.channel() as channel:
            (_, properties, dead), *_ = consumed(channel, dead_letters_of(queue), 1)
            assert (properties.headers["DeadLetterReason"], dead) == ("rejected", b"1")
            channel.cancel()
            # Claims outlive the server: what was not acknowledged comes again when their time is over.
            again = consumed(channel, queue, 2)
        assert [(method.redelivered, body) for method, _, body in again] == [(True, b"2"), (True, b"3")]
    finally:
        process.close()
