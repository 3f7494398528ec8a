"""python-qpid-proton: plain AMQP 1.0 without RabbitMQ's own library around it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from interop.servers import Served
from waiting import LIMIT_S

proton = pytest.importorskip("proton", reason="the Python clients are not installed: `make clients`")
reactor = pytest.importorskip("proton.reactor")
utils = pytest.importorskip("proton.utils")


@contextlib.contextmanager
def _connection(served: Served, **options: Any) -> Iterator[Any]:
    connection = utils.BlockingConnection(
        f"amqp://{served.host}:{served.amqp}", timeout=LIMIT_S, user="guest", password="guest", **options
    )
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def connection(served: Served) -> Iterator[Any]:
    with _connection(served) as connection:
        yield connection


class _Filters(reactor.Filter):
    """Filters of a stream, and whatever else a receiver asks for."""

    def __init__(self, *, settled: bool = False, **filters: tuple[str, object]) -> None:
        described = {
            proton.symbol(name.replace("_", "-")): proton.Described(proton.symbol(descriptor), value)
            for name, (descriptor, value) in {"start": ("rabbitmq:stream-offset-spec", "first"), **filters}.items()
        }
        super().__init__(described)
        self._settled = settled

    def apply(self, receiver: Any) -> None:
        super().apply(receiver)
        if self._settled:
            receiver.snd_settle_mode = proton.Link.SND_SETTLED


def _publish(connection: Any, stream: str, *messages: Any) -> None:
    sender = connection.create_sender(f"/queues/{stream}")
    for message in messages:
        assert sender.send(message).remote_state == proton.Delivery.ACCEPTED
    sender.close()


def _receive(receiver: Any, count: int, *, accept: bool = True) -> list[Any]:
    messages = []
    for _ in range(count):
        messages.append(receiver.receive(timeout=LIMIT_S))
        if accept:
            receiver.accept()
    return messages


def _in_force(receiver: Any) -> list[str]:
    """The names of the filters in the server's answer."""
    found = receiver.link.remote_source.filter
    found.rewind()
    return [str(name) for name in found.get_object()] if found.next() else []


def _event(number: int) -> Any:
    region = ("AMER", "EMEA", "APAC")[number % 3]
    return proton.Message(
        body=f"event {number}",
        subject=f"order.{number}",
        properties={"region": region, "number": number},
        annotations={proton.symbol("x-stream-filter-value"): region},
        durable=True,
    )


def test_messages_come_back_as_they_were_sent(connection: Any, stream: str) -> None:
    bodies = ["text", {"a": [1, None, True]}, [1, 2], 5]
    _publish(connection, stream, *[proton.Message(body=body, subject="s", id=7) for body in bodies])
    received = _receive(connection.create_receiver(f"/queues/{stream}", options=_Filters(), credit=10), len(bodies))
    assert [
        message.body if not isinstance(message.body, memoryview) else bytes(message.body) for message in received
    ] == bodies
    assert {(message.subject, message.id, message.durable, message.delivery_count) for message in received} == {
        ("s", 7, True, 0)
    }
    assert [message.annotations["x-stream-offset"] for message in received] == list(range(len(bodies)))


def test_filters_that_are_in_force_are_echoed(connection: Any, stream: str) -> None:
    options = _Filters(
        sql_filter=("amqp:sql-filter", "number > 3"), wrong=("amqp:sql-filter", "number > 3"), other=("unknown", 1)
    )
    receiver = connection.create_receiver(f"/queues/{stream}", options=options, credit=10)
    assert _in_force(receiver) == ["start", "sql-filter"]


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({"sql_filter": ("amqp:sql-filter", "region = 'EMEA' AND number > 5")}, [7, 10]),
        ({"p": ("amqp:properties-filter", {proton.symbol("subject"): "&s:.1"})}, [1]),
        ({"a": ("amqp:application-properties-filter", {"region": "APAC", "number": 8})}, [8]),
    ],
    ids=["sql", "properties", "application properties"],
)
def test_filters_are_evaluated_by_the_server(
    connection: Any, stream: str, filters: dict[str, tuple[str, object]], numbers: list[int]
) -> None:
    _publish(connection, stream, *[_event(number) for number in range(12)])
    receiver = connection.create_receiver(f"/queues/{stream}", options=_Filters(**filters), credit=20)
    received = _receive(receiver, len(numbers))
    assert [message.properties["number"] for message in received] == numbers


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("h.priority > 4", ["urgent"]),
        ("header.durable", ["urgent", "brief"]),
        ("h.durable = FALSE", ["transient"]),
        ("h.ttl <= 60000", ["brief"]),
        ("h.ttl IS NULL", ["urgent", "transient"]),
        ("h.first_acquirer AND h.delivery_count = 0", ["urgent", "brief"]),
        ("h.delivery_count > 0", []),
    ],
)
def test_header_fields_beyond_the_priority_are_filtered_by_here_alone(
    served: Served, connection: Any, stream: str, sql: str, names: list[str]
) -> None:
    import pika

    def message(name: str, **fields: object) -> Any:
        return proton.Message(body="body", properties={"name": name}, **fields)

    _publish(connection, stream, message("urgent", priority=9), message("brief", ttl=60))
    with served.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish("", stream, b"", pika.BasicProperties(headers={"name": "transient"}))
    _publish(connection, stream, message("last"))
    is_applied = "priority" in sql or not served.is_original
    wanted = [*(names if is_applied else ["urgent", "brief", "transient"]), "last"]
    filters = {"sql_filter": ("amqp:sql-filter", f"{sql} OR name = 'last'")}
    receiver = connection.create_receiver(f"/queues/{stream}", options=_Filters(**filters), credit=10)
    assert _in_force(receiver) == ["start"] + ["sql-filter"] * is_applied
    assert [found.properties["name"] for found in _receive(receiver, len(wanted))] == wanted


def test_settled_deliveries_need_no_answer(connection: Any, stream: str) -> None:
    _publish(connection, stream, *[_event(number) for number in range(5)])
    receiver = connection.create_receiver(f"/queues/{stream}", options=_Filters(settled=True), credit=10)
    assert receiver.link.remote_snd_settle_mode == proton.Link.SND_SETTLED
    received = _receive(receiver, 5, accept=False)
    assert [message.properties["number"] for message in received] == list(range(5))


def test_a_drained_receiver_learns_that_there_is_nothing_more(connection: Any, stream: str) -> None:
    _publish(connection, stream, *[_event(number) for number in range(4)])
    filters = {"sql_filter": ("amqp:sql-filter", "number = 2")}
    receiver = connection.create_receiver(f"/queues/{stream}", options=_Filters(**filters))
    receiver.link.drain(50)
    connection.wait(lambda: not receiver.link.draining(), timeout=LIMIT_S)
    assert [message.properties["number"] for message in _receive(receiver, 1)] == [2]


def test_large_messages_travel_in_parts_both_ways(served: Served, stream: str) -> None:
    large = b"large" * 100_000
    with _connection(served, max_frame_size=4096) as connection:
        _publish(connection, stream, proton.Message(body=large), _event(1))
        received = _receive(connection.create_receiver(f"/queues/{stream}", options=_Filters(), credit=5), 2)
    assert bytes(received[0].body) == large and received[1].body == "event 1"


def test_a_source_that_is_not_there_is_refused(connection: Any, name: str) -> None:
    with pytest.raises(utils.LinkDetached, match="amqp:not-found"):
        connection.create_receiver(f"/queues/{name}", credit=1)


def test_a_wrong_offset_is_refused(connection: Any, stream: str) -> None:
    with pytest.raises(utils.LinkDetached, match="amqp:precondition-failed"):
        connection.create_receiver(
            f"/queues/{stream}", options=_Filters(start=("rabbitmq:stream-offset-spec", "middle")), credit=1
        )
