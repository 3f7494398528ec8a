"""Links that publish: outcomes, addresses, messages that are refused, what is stored."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest

from headgate.message import AmqpType, AmqpValue, Body, Message, amqp_value
from headgate.protocols.amqp10 import ConnectionSettings
from headgate.protocols.amqp10.events import Detached
from headgate.protocols.amqp10.performatives import SENDER, SETTLED, Transfer
from headgate.protocols.amqp10.terminus import Accepted, Coordinator, RawEntry, Rejected, Released, Source, Target
from server.amqp10_client import Client, Management, client_of, rabbitmq_handler
from server.running import RunningServer, running_server

FIRST = RawEntry.of("offset", "rabbitmq:stream-offset-spec", amqp_value("first"))
FAULTS = pytest.mark.parametrize(
    ("message", "condition"),
    [
        (b"no message", "amqp:decode-error"),
        (Message(None, subject="no body").encode(), "amqp:decode-error"),
        (Message(b"", user_id=b"somebody else").encode(), "amqp:unauthorized-access"),
    ],
)
"""Messages that end the link that they come on."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(
        tmp_path_factory.mktemp("server"),
        handlers={"amqp": rabbitmq_handler},
        limits={"message_size_bytes": 300_000, "unconfirmed_messages": 100},
    ) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with client_of(server.ports["amqp"]) as client:
        yield client


@pytest.fixture
def stream(client: Client) -> str:
    name = f"s-{uuid.uuid4()}"
    assert Management(client).declare(name) == 201
    return name


def _stored(client: Client, stream: str) -> list[Message]:
    link = client.receiver(f"/queues/{stream}", filters=(FIRST,))
    return [received.message for received in client.drain(link)]


def _message(body: bytes = b"x", **fields: object) -> Message:
    return Message(body, **fields)


def test_messages_are_accepted_when_they_are_stored(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}")
    assert client.send(link, *[_message(bytes([number])) for number in range(5)]) == [Accepted()] * 5
    assert [message.body.octets() for message in _stored(client, stream)] == [bytes([number]) for number in range(5)]


def test_more_messages_than_credit_flow_as_they_are_stored(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}")
    assert link.credit == 100
    sent = 0
    while sent < 1000:
        client.pump(lambda: link.credit > 0)
        for _ in range(min(link.credit, 1000 - sent)):
            link.send(_message(b"%d" % sent).encode())
            sent += 1
    client.pump(lambda: len(client.outcomes) == 1000)
    assert [message.body.octets() for message in _stored(client, stream)] == [b"%d" % number for number in range(1000)]


def test_settled_messages_have_no_outcome(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}", snd_settle_mode=SETTLED)
    client.send(link, _message(b"silent"), settled=True)
    mixed = client.sender(f"/queues/{stream}")
    mixed.send(_message(b"silent too").encode(), settled=True)
    assert client.send(mixed, _message(b"loud")) == [Accepted()]
    assert sorted(message.body.octets() for message in _stored(client, stream)) == [b"loud", b"silent", b"silent too"]
    assert len(client.outcomes) == 1


def test_large_messages_come_in_many_frames(server: RunningServer, stream: str) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate((10, 200_000, 5, 299_000))]
    with client_of(server.ports["amqp"], settings=ConnectionSettings(max_frame_size=1024)) as client:
        link = client.sender(f"/queues/{stream}")
        client.connection.remote_max_frame_size = 1024
        assert client.send(link, *[_message(body) for body in bodies]) == [Accepted()] * 4
        assert [message.body.octets() for message in _stored(client, stream)] == bodies


def test_a_message_above_the_limit_detaches_the_link(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}")
    assert link.peer.max_message_size == 300_000
    client.send(link, _message(bytes(300_001)))
    assert client.detached(link)[0] == "amqp:link:message-size-exceeded"
    assert _stored(client, stream) == []


def test_an_exchange_leads_to_the_streams_bound_to_it(client: Client, stream: str) -> None:
    management = Management(client)
    other = f"{stream}-other"
    management.declare(other)
    exchange = f"e-{stream}"
    assert management.request("PUT", f"/exchanges/{exchange}", {"type": "direct"})[0] == 204
    for queue, key in ((stream, "both"), (other, "both"), (stream, "one/a"), (stream, "")):
        binding = {"source": exchange, "destination_queue": queue, "binding_key": key}
        assert management.request("POST", "/bindings", binding)[0] == 204
    for address, outcome in (
        (f"/exchanges/{exchange}/both", Accepted()),
        (f"/exchanges/{exchange}/one%2Fa", Accepted()),
        (f"/exchanges/{exchange}", Accepted()),
        (f"/exchanges/{exchange}/none", Released()),
    ):
        link = client.sender(address)
        assert client.send(link, _message(address.encode())) == [outcome]
    assert len(_stored(client, other)) == 1
    annotations = [
        (message.message_annotations["x-exchange"].value, message.message_annotations["x-routing-key"].value)
        for message in _stored(client, stream)
    ]
    assert annotations == [(exchange, "both"), (exchange, "one/a"), (exchange, "")]


def test_a_headers_exchange_decides_for_each_message_and_keeps_their_order(client: Client, stream: str) -> None:
    management = Management(client)
    exchange, other = f"e-{stream}", f"{stream}-other"
    management.declare(other)
    assert management.request("PUT", f"/exchanges/{exchange}", {"type": "headers"})[0] == 204
    for queue, wanted in ((stream, {"n": None}), (other, {"odd": True, "x-match": "any-with-x", "x-opt": "o"})):
        binding = {"source": exchange, "destination_queue": queue, "binding_key": "", "arguments": wanted}
        assert management.request("POST", "/bindings", binding)[0] == 204
    link = client.sender(f"/exchanges/{exchange}")
    messages = [
        Message(b"%d" % number, application_properties={"n": number, "odd": number % 2 == 1}) for number in range(6)
    ]
    by_annotation = Message(b"annotated", message_annotations={"x-opt": "o", "x-stream-filter-value": "v"})
    # A map of one element.
    faulty = b"\x00\x53\x74\xc1\x03\x01\xa1\x00" + _message(b"faulty").encode()
    outcomes = client.send(link, *messages, Message(b"lost"), by_annotation, faulty)
    assert outcomes[:8] == [Accepted()] * 6 + [Released(), Accepted()]
    assert isinstance(outcomes[8], Rejected) and outcomes[8].error.condition == "amqp:decode-error"
    assert [message.body.octets() for message in _stored(client, stream)] == [b"%d" % number for number in range(6)]
    assert [message.body.octets() for message in _stored(client, other)] == [b"1", b"3", b"5", b"annotated"]
    by_value = RawEntry.of("value", "rabbitmq:stream-filter", amqp_value("v"))
    found = client.drain(client.receiver(f"/queues/{other}", filters=(FIRST, by_value)))
    assert b"annotated" in [received.message.body.octets() for received in found]


def test_without_a_target_each_message_says_where_it_goes(client: Client, stream: str) -> None:
    link = client.sender(None)
    good = f"/queues/{stream}"
    outcomes = client.send(
        link,
        _message(b"0", to=good),
        _message(b"1", to="/queues/nowhere"),
        _message(b"2", to=good),
        _message(b"3", to="/exchanges/nowhere/k"),
        _message(b"4", to="nonsense"),
        _message(b"5"),
        _message(b"6", to="/exchanges/amq.direct/unbound"),
    )
    assert [type(outcome) for outcome in outcomes] == [
        Accepted,
        Released,
        Accepted,
        Rejected,
        Rejected,
        Rejected,
        Released,
    ]
    conditions = [outcome.error.condition for outcome in outcomes if isinstance(outcome, Rejected)]
    assert conditions == ["amqp:not-found", "amqp:precondition-failed", "amqp:precondition-failed"]
    assert [message.body.octets() for message in _stored(client, stream)] == [b"0", b"2"]


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("/queues/nowhere", "amqp:not-found"),
        ("/exchanges/nowhere/k", "amqp:not-found"),
        ("/queues/", "amqp:invalid-field"),
        ("/queues/a/b", "amqp:invalid-field"),
        ("/exchanges//k", "amqp:invalid-field"),
        ("/exchanges/", "amqp:invalid-field"),
        ("/exchanges/amq.default", "amqp:invalid-field"),
        ("/exchanges/amq.default/k", "amqp:invalid-field"),
        ("/exchanges/e/k/l", "amqp:invalid-field"),
        ("queue", "amqp:invalid-field"),
        ("/topic/x", "amqp:invalid-field"),
        ("/queues/%zz", "amqp:invalid-field"),
    ],
)
def test_a_target_that_leads_nowhere_is_refused(client: Client, address: str, condition: str) -> None:
    assert client.detached(client.sender(address))[0] == condition


def test_what_is_not_served_is_refused_as_such(client: Client, stream: str) -> None:
    link = client.attach(SENDER, target=Coordinator(), source=Source())
    assert client.detached(link)[0] == "amqp:not-implemented"
    link = client.attach(SENDER, target=Target(dynamic=True), source=Source())
    assert client.detached(link)[0] == "amqp:not-implemented"
    address = Target(amqp_value(f"/queues/{stream}"))
    link = client.attach(SENDER, target=address, source=Source(), unsettled=amqp_value({b"tag": None}))
    assert client.detached(link)[0] == "amqp:not-implemented"
    link = client.attach(SENDER, target=address, source=Source(), incomplete_unsettled=True)
    assert client.detached(link)[0] == "amqp:not-implemented"
    link = client.attach(SENDER, target=address, source=Source(), rcv_settle_mode=1)
    assert client.detached(link)[0] == "amqp:not-implemented"
    link = client.attach(SENDER, target=Target(AmqpValue(AmqpType.BINARY, b"/queues/q")), source=Source())
    assert client.detached(link)[0] == "amqp:invalid-field"
    assert client.sender(f"/queues/{stream}").is_attached


@FAULTS
def test_a_message_without_an_address_that_is_a_fault_ends_the_link(
    client: Client, stream: str, message: bytes, condition: str
) -> None:
    link = client.sender(None)
    client.send(link, _message(b"before", to=f"/queues/{stream}"), message)
    assert client.detached(link)[0] == condition
    assert [message.body.octets() for message in _stored(client, stream)] == [b"before"]


def test_an_address_behind_the_body_is_found(client: Client, stream: str) -> None:
    properties = Message(None, to=f"/queues/{stream}").encode()
    body = bytes.fromhex("00537740")
    link = client.sender(None)
    assert client.send(link, _message(b"0", to=f"/queues/{stream}"), body + properties) == [Accepted()] * 2
    assert [(message.properties or {})["to"].value for message in _stored(client, stream)] == [f"/queues/{stream}"] * 2


def test_messages_that_are_given_up_cost_no_credit(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}")
    for number in range(3 * 100):
        client.pump(lambda: link.credit > 0)
        link.session.send(Transfer(link.handle, link.session.next_delivery_id, b"%d" % number, more=True), b"part")
        link.session.send(Transfer(link.handle, aborted=True))
        link.session.next_delivery_id += 1
        link.credit -= 1
        link.delivery_count += 1
    client.pump(lambda: link.credit > 0)
    assert link.is_attached and not client.outcomes
    assert _stored(client, stream) == []


@FAULTS
def test_a_message_that_is_a_fault_of_the_link_ends_it(
    client: Client, stream: str, message: bytes, condition: str
) -> None:
    link = client.sender(f"/queues/{stream}")
    client.send(link, _message(b"before"), message, _message(b"after"))
    assert client.detached(link)[0] == condition
    assert [message.body.octets() for message in _stored(client, stream)] == [b"before"]


def test_a_filter_value_that_is_no_string_rejects_the_message(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}")
    wrong = Message(b"", message_annotations={"x-stream-filter-value": 5})
    right = Message(b"", message_annotations={"x-stream-filter-value": "AMER"})
    outcomes = client.send(link, right, wrong, right)
    assert [type(outcome) for outcome in outcomes] == [Accepted, Rejected, Accepted]
    assert outcomes[1].error.condition == "amqp:precondition-failed"
    assert "x-stream-filter-value is a string" in outcomes[1].error.description
    assert len(_stored(client, stream)) == 2


def test_the_users_own_id_is_fine(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}")
    assert client.send(link, Message(b"", user_id=b"guest")) == [Accepted()]


def test_bodies_of_all_kinds_keep_their_bytes(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}")
    bodies = [Body.value({"a": [1, None]}), Body.sequence([1], ["b"]), Body.data(b"1", b"2"), Body.value(None)]
    assert client.send(link, *[Message(body, footer={"f": 1}) for body in bodies]) == [Accepted()] * 4
    stored = _stored(client, stream)
    assert [message.body for message in stored] == bodies
    assert all(message.footer["f"].value == 1 for message in stored)


def test_a_deleted_stream_detaches_its_publishers(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}")
    Management(client).request("DELETE", f"/queues/{stream}")
    assert client.detached(link)[0] == "amqp:resource-deleted"


def test_a_stream_of_the_same_name_gets_nothing_from_links_of_the_deleted_one(client: Client, stream: str) -> None:
    old = client.sender(f"/queues/{stream}")
    management = Management(client)
    for method, body in (("DELETE", None), ("PUT", {"arguments": {"x-queue-type": "stream"}})):
        properties = {"message-id": method, "to": f"/queues/{stream}", "subject": method, "reply-to": "$me"}
        management.requests.send(Message(Body.value(body), properties=properties).encode(), settled=True)
    number = old.send(_message(b"late").encode())
    fresh = client.sender(f"/queues/{stream}", name="fresh")
    assert client.detached(old)[0] == "amqp:resource-deleted"
    assert not isinstance(client.outcomes.get(number), Accepted)
    assert client.send(fresh, _message(b"new")) == [Accepted()]
    assert fresh.is_attached
    assert [message.body.octets() for message in _stored(client, stream)] == [b"new"]


def test_an_anonymous_link_outlives_a_stream(client: Client, stream: str) -> None:
    link = client.sender(None)
    assert client.send(link, _message(to=f"/queues/{stream}")) == [Accepted()]
    management = Management(client)
    management.request("DELETE", f"/queues/{stream}")
    assert client.send(link, _message(to=f"/queues/{stream}")) == [Released()]
    management.declare(stream)
    assert client.send(link, _message(to=f"/queues/{stream}")) == [Accepted()]
    assert not client.of(Detached, link)


def test_deliveries_are_not_resumed(client: Client, stream: str) -> None:
    link = client.sender(f"/queues/{stream}")
    link.session.send(Transfer(link.handle, 0, b"t", resume=True), _message().encode())
    assert client.detached(link)[0] == "amqp:not-implemented"


def test_a_fault_right_behind_a_message_closes_the_connection_and_the_message_is_kept(
    server: RunningServer, client: Client, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    link = client.sender(f"/queues/{stream}")
    link.send(_message(b"kept").encode())
    # Both are read at once, and the connection is closed before the message is written.
    client.socket.sendall(b"".join(client.connection.take_output()) + b"\x00\x00\x00\x01\x02\x00\x00\x00")
    assert client.closed() == "amqp:connection:framing-error"
    with client_of(server.ports["amqp"]) as other:
        assert [message.body.octets() for message in _stored(other, stream)] == [b"kept"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
