"""rabbitmq-amqp-python-client: declaring, publishing, consuming with every filter, as its users write it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from interop.servers import Served
from waiting import LIMIT_S

amqp = pytest.importorskip("rabbitmq_amqp_python_client", reason="the Python clients are not installed: `make clients`")
proton = pytest.importorskip("rabbitmq_amqp_python_client.qpid.proton.utils")

OUTCOMES = {37: "REJECTED", 38: "RELEASED"}
"""The client raises an error for these."""


@pytest.fixture
def connection(served: Served) -> Iterator[Any]:
    yield from _connected(served, "guest", "guest")


@pytest.fixture
def as_john(served: Served) -> Iterator[Any]:
    yield from _connected(served, "John", "John%27s")


def _connected(served: Served, user: str, password: str) -> Iterator[Any]:
    environment = amqp.Environment(uri=f"amqp://{user}:{password}@{served.host}:{served.amqp}/")
    connection = environment.connection()
    connection.dial()
    yield connection
    environment.close()


def _address(stream: str) -> str:
    return amqp.AddressHelper.queue_address(stream)


def _publish(connection: Any, address: str, *messages: Any) -> list[str]:
    """The outcomes of some messages."""
    publisher = connection.publisher(address)
    outcomes = []
    for message in messages:
        try:
            outcomes.append(publisher.publish(message).remote_state.name)
        except proton.SendException as refused:
            outcomes.append(OUTCOMES[refused.state])
    publisher.close()
    return outcomes


def _message(body: str, *, filter_value: str | None = None, **fields: Any) -> Any:
    annotations = None if filter_value is None else {"x-stream-filter-value": filter_value}
    return amqp.Message(amqp.Converter.string_to_bytes(body), annotations=annotations, **fields)


class _Done(Exception):  # noqa: N818 - the way out of the client's loop
    """Everything that was expected has come."""


class _Collector(amqp.AMQPMessagingHandler):
    """Collects bodies until the last one that is expected has come."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self.last = last
        self.bodies: list[str] = []
        self.annotations: list[dict[str, Any]] = []

    def on_amqp_message(self, event: Any) -> None:
        if self.bodies and self.bodies[-1] == self.last:
            return
        self.bodies.append(bytes(event.message.body).decode())
        self.annotations.append({str(key): value for key, value in event.message.annotations.items()})
        self.delivery_context.accept(event)
        if self.bodies[-1] == self.last:
            raise _Done


def _consume(served: Served, stream: str, *, until: str, start: Any = None, **filters: Any) -> _Collector:
    """What a consumer gets up to a message."""
    collector = _Collector(until)

    def run() -> None:
        environment = amqp.Environment(uri=f"amqp://guest:guest@{served.host}:{served.amqp}/")
        connection = environment.connection()
        connection.dial()
        options = amqp.StreamConsumerOptions(
            offset_specification=amqp.OffsetSpecification.first if start is None else start,
            filter_options=amqp.StreamFilterOptions(**filters) if filters else None,
        )
        with contextlib.suppress(_Done):
            connection.consumer(_address(stream), message_handler=collector, consumer_options=options).run()
        environment.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive(), f"{until} did not come, but {collector.bodies}"
    return collector


def test_a_stream_is_declared_shown_and_deleted(connection: Any, name: str) -> None:
    management = connection.management()
    specification = amqp.StreamSpecification(name=name, max_len_bytes=1_000_000, stream_filter_size_bytes=32)
    management.declare_queue(specification)
    management.declare_queue(specification)
    shown = management.queue_info(name)
    assert (shown.name, shown.queue_type.name, shown.is_durable) == (name, "stream", True)
    assert shown.arguments["x-max-length-bytes"] == 1_000_000
    assert shown.message_count == shown.consumer_count == 0
    with pytest.raises(amqp.ValidationCodeException, match="ErrPreconditionFailed"):
        management.declare_queue(amqp.StreamSpecification(name=name))
    management.delete_queue(name)
    with pytest.raises(amqp.ValidationCodeException, match="404"):
        management.queue_info(name)


def test_queues_of_other_types_are_refused(connection: Any, name: str) -> None:
    for specification in (amqp.QuorumQueueSpecification(name=name), amqp.ClassicQueueSpecification(name=name)):
        with pytest.raises(amqp.ValidationCodeException, match="400"):
            connection.management().declare_queue(specification)


def test_messages_come_back_in_order_with_their_offsets(served: Served, connection: Any, stream: str) -> None:
    given = [_message(f"m{number}") for number in range(60)]
    assert set(_publish(connection, _address(stream), *given)) == {"ACCEPTED"}
    received = _consume(served, stream, until="m59")
    assert received.bodies == [f"m{number}" for number in range(60)]
    assert [annotations["x-stream-offset"] for annotations in received.annotations] == list(range(60))


@pytest.mark.parametrize(
    ("start", "first"),
    [(lambda: 7, 7), (lambda: amqp.OffsetSpecification.last, 11), (lambda: datetime(2020, 1, 1, tzinfo=UTC), 0)],
    ids=["number", "last", "time"],
)
def test_a_consumer_starts_where_it_asks_to(
    served: Served, connection: Any, stream: str, start: Callable[[], Any], first: int
) -> None:
    _publish(connection, _address(stream), *[_message(f"m{number}") for number in range(12)])
    received = _consume(served, stream, until="m11", start=start())
    assert received.bodies == [f"m{number}" for number in range(first, 12)]


def test_messages_without_a_route_are_released(connection: Any, stream: str) -> None:
    assert _publish(connection, amqp.AddressHelper.exchange_address("amq.direct", "unbound"), _message("x")) == [
        "RELEASED"
    ]


def test_a_message_may_say_its_address(served: Served, connection: Any, stream: str) -> None:
    to_stream = amqp.AddressHelper.message_to_address_helper(_message("routed"), _address(stream))
    nowhere = amqp.AddressHelper.message_to_address_helper(_message("lost"), _address("nowhere"))
    assert _publish(connection, "", nowhere, to_stream) == ["RELEASED", "ACCEPTED"]
    assert _consume(served, stream, until="routed").bodies == ["routed"]


def test_an_exchange_leads_to_a_stream(served: Served, connection: Any, stream: str) -> None:
    management = connection.management()
    exchange = f"e-{stream}"
    management.declare_exchange(amqp.ExchangeSpecification(name=exchange, exchange_type=amqp.ExchangeType.direct))
    path = management.bind(
        amqp.ExchangeToQueueBindingSpecification(source_exchange=exchange, destination_queue=stream, binding_key="key")
    )
    assert _publish(connection, amqp.AddressHelper.exchange_address(exchange, "key"), _message("bound")) == ["ACCEPTED"]
    assert _consume(served, stream, until="bound").bodies == ["bound"]
    management.unbind(path)
    assert _publish(connection, amqp.AddressHelper.exchange_address(exchange, "key"), _message("x")) == ["RELEASED"]
    management.delete_exchange(exchange)


def test_a_topic_exchange_leads_through_another_exchange_to_a_stream(
    served: Served, connection: Any, stream: str
) -> None:
    management = connection.management()
    outer, inner = f"outer-{stream}", f"inner-{stream}"
    for name, kind in ((outer, amqp.ExchangeType.topic), (inner, amqp.ExchangeType.fanout)):
        management.declare_exchange(amqp.ExchangeSpecification(name=name, exchange_type=kind))
    between = amqp.ExchangeToExchangeBindingSpecification(
        source_exchange=outer, destination_exchange=inner, binding_key="orders.#"
    )
    path = management.bind(between)
    management.bind(amqp.ExchangeToQueueBindingSpecification(source_exchange=inner, destination_queue=stream))
    for key, outcome in (("orders.new", "ACCEPTED"), ("letters.new", "RELEASED")):
        address = amqp.AddressHelper.exchange_address(outer, key)
        assert _publish(connection, address, _message(key)) == [outcome]
    assert _consume(served, stream, until="orders.new").bodies == ["orders.new"]
    # The library names the other exchange as if it were a queue.
    management.unbind(path.replace(";dstq=", ";dste="))
    assert _publish(connection, amqp.AddressHelper.exchange_address(outer, "orders.new"), _message("x")) == ["RELEASED"]
    for name in (outer, inner):
        management.delete_exchange(name)


def test_large_messages_travel_in_parts(served: Served, connection: Any, stream: str) -> None:
    large = "large " * 150_000
    assert _publish(connection, _address(stream), _message(large), _message("end")) == ["ACCEPTED"] * 2
    assert _consume(served, stream, until="end").bodies == [large, "end"]


def test_a_bloom_filter(served: Served, connection: Any, stream: str) -> None:
    for region in ("emea", "amer", "apac"):
        _publish(connection, _address(stream), _message(region, filter_value=region))
    _publish(connection, _address(stream), _message("plain"), _message("end", filter_value="apac"))
    assert _consume(served, stream, until="end", values=["apac"]).bodies[0] == "apac"
    wanted = _consume(served, stream, until="plain", values=["amer"], match_unfiltered=True).bodies
    assert wanted == ["amer", "plain"]


def test_a_property_filter(served: Served, connection: Any, as_john: Any, stream: str) -> None:
    region = {"region": "emea"}
    matching = {"user_id": b"John", "subject": "Order 1", "application_properties": region}
    others: list[dict[str, Any]] = [
        {**matching, "user_id": None},
        {**matching, "subject": "order"},
        {**matching, "application_properties": {"region": "amer"}},
        {**matching, "application_properties": None},
    ]
    for fields in (*others, matching, *others, {**matching, "subject": "Order 2"}):
        user = as_john if fields["user_id"] else connection
        body = f"{fields['subject']} of {fields['user_id']}, {fields['application_properties']}"
        given = {name: value for name, value in fields.items() if value is not None}
        assert _publish(user, _address(stream), _message(body, **given)) == ["ACCEPTED"]
    last = f"Order 2 of {b'John'}, {region}"
    received = _consume(
        served,
        stream,
        until=last,
        message_properties=amqp.MessageProperties(user_id=b"John", subject="&p:Order"),
        application_properties=region,
    )
    assert received.bodies == [f"Order 1 of {b'John'}, {region}", last]


ORDER = (
    "p.subject = 'order.created' AND p.creation_time > 1700000000000 AND region IN ('AMER', 'EMEA', 'APJ') "
    "AND (h.priority > 4 OR price >= 99.99 OR premium_customer = TRUE)"
)


def _orders(connection: Any, stream: str) -> list[str]:
    """Publishes orders with the subject as their filter value; the bodies of those that the filter is true for."""
    created = {"subject": "order.created", "creation_time": 1_800_000_000}
    rows: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
        ("cheap", "order.created", {}, {"region": "AMER", "price": 5.0, "premium_customer": False}),
        ("dear", "order.created", {}, {"region": "EMEA", "price": 99.99}),
        ("urgent", "order.created", {"priority": 5}, {"region": "APJ"}),
        ("premium", "order.created", {}, {"region": "AMER", "premium_customer": True}),
        ("elsewhere", "order.created", {"priority": 9}, {"region": "MOON"}),
        ("paid", "order.paid", {"priority": 9}, {"region": "AMER"}),
        ("last", "order.created", {"priority": 9}, {"region": "AMER"}),
    ]
    for body, subject, header, properties in rows:
        message = _message(
            body, filter_value=subject, application_properties=properties, **{**created, "subject": subject}, **header
        )
        assert _publish(connection, _address(stream), message) == ["ACCEPTED"]
    return ["dear", "urgent", "premium", "last"]


def test_an_sql_filter(served: Served, connection: Any, stream: str) -> None:
    expected = _orders(connection, stream)
    assert _consume(served, stream, until="last", sql=ORDER).bodies == expected


def test_a_bloom_filter_and_an_sql_filter_together(served: Served, connection: Any, stream: str) -> None:
    expected = _orders(connection, stream)
    assert _consume(served, stream, until="last", values=["order.created"], sql=ORDER).bodies == expected


def test_a_filter_that_is_refused_lets_everything_through(served: Served, connection: Any, stream: str) -> None:
    _publish(connection, _address(stream), _message("a"), _message("b"))
    # This client does not compare what it asked for with what is in force.
    assert _consume(served, stream, until="b", sql="region =").bodies == ["a", "b"]


def test_an_unknown_stream_is_not_found(connection: Any, name: str) -> None:
    with pytest.raises(amqp.LinkDetached if hasattr(amqp, "LinkDetached") else Exception, match="not-found"):
        connection.publisher(_address(name))
