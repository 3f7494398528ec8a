"""Requests to the management: every row of the table, and requests that are none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.message import AmqpType, AmqpValue, Body, Message, amqp_value
from headgate.protocols.amqp10.performatives import MIXED, RECEIVER, SENDER, SETTLED, UNSETTLED
from headgate.protocols.amqp10.terminus import Source, Target
from server.amqp10_client import PAIRED, Client, Management, client_of, rabbitmq_handler
from server.running import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("server")
    with running_server(folder, handlers={"amqp": rabbitmq_handler}) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with client_of(server.ports["amqp"]) as client:
        yield client


@pytest.fixture
def management(client: Client) -> Management:
    return Management(client)


@pytest.fixture
def name() -> str:
    return f"s-{uuid.uuid4()}"


STREAM = {"x-queue-type": "stream"}


def test_a_stream_is_declared_shown_and_deleted(management: Management, name: str) -> None:
    arguments = {**STREAM, "x-max-age": "7D", "x-initial-group-size": 3}
    status, shown = management.request("PUT", f"/queues/{name}", {"durable": True, "arguments": arguments})
    assert status == 201
    assert shown == {
        "name": name,
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "type": "stream",
        "arguments": arguments,
        "leader": "headgate@localhost",
        "replicas": ["headgate@localhost"],
        "message_count": 0,
        "consumer_count": 0,
    }
    assert management.request("GET", f"/queues/{name}") == (200, shown)
    assert management.request("PUT", f"/queues/{name}", {"arguments": arguments})[0] == 200
    assert management.request("DELETE", f"/queues/{name}") == (200, {"message_count": 0})
    assert management.request("GET", f"/queues/{name}")[0] == 404
    assert management.request("DELETE", f"/queues/{name}") == (200, {"message_count": 0})


def test_numbers_of_all_types_are_the_same_argument(management: Management, name: str) -> None:
    for number in (AmqpValue(AmqpType.UINT, 32), AmqpValue(AmqpType.LONG, 32), AmqpValue(AmqpType.UBYTE, 32)):
        arguments = amqp_value({**STREAM, "x-stream-filter-size-bytes": number})
        assert management.request("PUT", f"/queues/{name}", {"arguments": arguments})[0] in (200, 201)
    symbols = AmqpValue(
        AmqpType.MAP, tuple((AmqpValue(AmqpType.SYMBOL, key), amqp_value(value)) for key, value in
                            {**STREAM, "x-stream-filter-size-bytes": 32}.items())
    )  # fmt: skip
    assert management.request("PUT", f"/queues/{name}", {"arguments": symbols})[0] == 200


def test_a_stream_begins_at_the_offset_that_its_declaration_says(
    server: RunningServer, management: Management, name: str
) -> None:
    arguments = {**STREAM, "x-stream-initial-offset": 1000}
    status, shown = management.request("PUT", f"/queues/{name}", {"arguments": arguments})
    assert (status, shown["arguments"], shown["message_count"]) == (201, arguments, 0)
    assert server.call(lambda: server.context.broker.catalogue.get(name).next_offset) == 1000
    for other in ({**STREAM, "x-stream-initial-offset": 1001}, STREAM):
        assert management.request("PUT", f"/queues/{name}", {"arguments": other})[0] == 409


def test_names_are_percent_encoded(management: Management, name: str) -> None:
    assert management.request("PUT", f"/queues/{name}%2F%C3%A4%20b", {"arguments": STREAM})[1]["name"] == f"{name}/ä b"
    assert management.request("GET", f"/queues/{name}%2f%c3%a4%20b")[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"arguments": {}}, 400),
        ({}, 400),
        ({"arguments": {"x-queue-type": "quorum"}}, 400),
        ({"arguments": STREAM, "durable": False}, 400),
        ({"arguments": STREAM, "exclusive": True}, 400),
        ({"arguments": STREAM, "auto_delete": True}, 400),
        ({"arguments": STREAM, "durable": "yes"}, 400),
        ({"arguments": STREAM, "color": "red"}, 400),
        ({"arguments": 5}, 400),
        ({5: "five"}, 400),
        ("text", 400),
        (None, 400),
        ({"arguments": {**STREAM, "x-max-age": "5x"}}, 400),
        ({"arguments": {**STREAM, "x-stream-filter-size-bytes": 15}}, 400),
        ({"arguments": {**STREAM, "x-stream-filter-size-bytes": "20"}}, 400),
        ({"arguments": {**STREAM, "x-max-length-bytes": -1}}, 400),
        ({"arguments": {**STREAM, "x-stream-initial-offset": -1}}, 400),
        ({"arguments": {**STREAM, "x-stream-initial-offset": "1000"}}, 400),
        ({"arguments": {**STREAM, "x-other": b"bytes"}}, 400),
        ({"arguments": {**STREAM, "max-age": "7D"}}, 400),
        ({"arguments": {**STREAM, "x-max-length": 5}}, 409),
        ({"arguments": {**STREAM, "x-dead-letter-exchange": "e"}}, 409),
    ],
)
def test_a_declaration_that_is_refused_says_why(management: Management, name: str, body: object, status: int) -> None:
    found, reason = management.request("PUT", f"/queues/{name}", body)
    assert found == status
    assert isinstance(reason, str) and reason
    assert management.request("GET", f"/queues/{name}")[0] == 404


def test_other_arguments_are_a_conflict(management: Management, name: str) -> None:
    assert management.declare(name) == 201
    assert management.declare(name, max_age="7D") == 409


def test_reserved_names_are_forbidden(management: Management) -> None:
    assert management.declare("amq.mine") == 403
    assert management.request("PUT", "/exchanges/amq.mine", {})[0] == 403
    assert management.request("PUT", "/exchanges/", {})[0] == 403
    assert management.request("DELETE", "/exchanges/amq.direct")[0] == 403


def test_streams_are_not_purged(management: Management, name: str) -> None:
    assert management.request("DELETE", f"/queues/{name}/messages")[0] == 404
    management.declare(name)
    status, reason = management.request("DELETE", f"/queues/{name}/messages")
    assert status == 400 and "purge not supported" in reason


def test_exchanges_and_bindings(management: Management, name: str) -> None:
    exchange = f"{name}/e"
    path = f"/exchanges/{name}%2Fe"
    properties = {"type": "direct", "durable": True, "auto_delete": False, "internal": False, "arguments": {}}
    assert management.request("PUT", path, properties) == (204, None)
    assert management.request("PUT", path, properties) == (204, None)
    assert management.request("PUT", path, {**properties, "durable": False})[0] == 409
    assert management.request("PUT", f"/exchanges/{name}-other", {"type": "none"})[0] == 400
    assert management.request("PUT", f"/exchanges/{name}-random", {"type": "x-local-random"})[0] == 400
    management.declare(name)
    binding = {"source": exchange, "destination_queue": name, "binding_key": "k 1", "arguments": {}}
    assert management.request("POST", "/bindings", binding) == (204, None)
    with_arguments = {**binding, "arguments": {"x": 1}}
    assert management.request("POST", "/bindings", with_arguments) == (204, None)
    query = f"/bindings?src={name}%2Fe&dstq={name}&key=k%201"
    status, found = management.request("GET", query)
    assert status == 200
    assert [{key: value for key, value in shown.items() if key != "location"} for shown in found] == [
        binding,
        with_arguments,
    ]
    for shown in found:
        assert management.request("DELETE", shown["location"]) == (204, None)
    assert management.request("GET", query) == (200, [])
    assert management.request("DELETE", path) == (204, None)
    assert management.request("DELETE", path) == (204, None)


@pytest.mark.parametrize(
    "body",
    [
        {"destination_queue": "q", "binding_key": "k"},
        {"source": "amq.direct", "binding_key": "k"},
        {"source": "amq.direct", "destination_exchange": "e", "binding_key": "k"},
        {"source": "amq.direct", "destination_queue": "q", "binding_key": "k", "color": 1},
        {"source": 5, "destination_queue": "q"},
    ],
)
def test_a_binding_without_both_ends_is_refused(management: Management, body: object) -> None:
    assert management.request("POST", "/bindings", body)[0] == 400


def test_a_binding_of_something_that_is_not_there_is_a_bad_one(management: Management, name: str) -> None:
    assert management.declare(name) == 201
    for source, queue, missing in [("amq.direct", "nowhere", "nowhere"), ("no-exchange", name, "no-exchange")]:
        body = {"source": source, "destination_queue": queue, "binding_key": "k", "arguments": {}}
        status, reason = management.request("POST", "/bindings", body)
        assert status == 400
        assert missing in reason


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", "/queues/q"),
        ("GET", "/exchanges/e"),
        ("GET", "/nothing"),
        ("PUT", "queues/q"),
        ("PUT", "zzz/exchanges/e"),
        ("GET", ""),
        ("PUT", "/queues/%zz"),
        ("PUT", "/queues/%ff"),
        ("PUT", "/auth/tokens"),
        ("GET", "/bindings?src=e"),
        ("GET", "/bindings?nonsense"),
        ("DELETE", "/bindings/src=e"),
        ("DELETE", "/bindings/src=e;dstq=q;key=k"),
        ("GET", "/queues/a/b"),
    ],
)
def test_an_unknown_request_is_a_bad_one(management: Management, method: str, path: str) -> None:
    assert management.request(method, path)[0] == 400


def test_a_request_without_a_value_is_a_bad_one(management: Management) -> None:
    assert management.request("GET", "/queues/q", raw_body=Body.data(b""))[0] == 400
    assert management.request("GET", "/queues/q", subject=None)[0] == 400
    assert management.request("GET", "/queues/q", to=None)[0] == 400


@pytest.mark.parametrize("identity", [uuid.UUID(int=7), AmqpValue(AmqpType.ULONG, 5), b"bytes", "text"], ids=str)
def test_the_correlation_id_has_the_type_of_the_message_id(management: Management, identity: object) -> None:
    assert management.request("GET", "/queues/nothing", identity=identity)[0] == 404


def test_many_requests_are_answered_in_order(management: Management) -> None:
    for number in range(30):
        management.client.pump(lambda: management.requests.credit > 0)
        properties = {"message-id": f"m{number}", "to": "/queues/nothing", "subject": "GET"}
        management.requests.send(Message(Body.value(None), properties=properties).encode(), settled=True)
    responses = management.client.receive(management.responses, 30)
    assert [response.message.properties["correlation-id"].value for response in responses] == [
        f"m{number}" for number in range(30)
    ]


def test_responses_wait_for_credit_and_hold_requests_back(client: Client) -> None:
    management = Management(client)
    management.responses.grant(0)
    for number in range(8):
        properties = {"message-id": f"m{number}", "to": "/queues/nothing", "subject": "GET"}
        management.requests.send(Message(Body.value(None), properties=properties).encode(), settled=True)
    assert management.requests.credit == 0
    client.receiver("/queues/nothing")
    assert management.requests.credit == 0
    assert [message for message in client.messages if message.link == management.responses.name] == []
    management.responses.grant(5)
    assert len(client.receive(management.responses, 5)) == 5
    client.pump(lambda: management.requests.credit > 0)


def test_a_link_that_is_not_paired_is_refused(client: Client) -> None:
    link = client.attach(SENDER, target=Target(amqp_value("/management")), source=Source())
    assert client.detached(link)[0] == "amqp:precondition-failed"
    link = client.attach(RECEIVER, source=Source(amqp_value("/management")), target=Target())
    assert client.detached(link)[0] == "amqp:precondition-failed"


@pytest.mark.parametrize("mode", [UNSETTLED, SETTLED, MIXED])
def test_responses_are_settled_whatever_the_client_attaches_with(client: Client, mode: int) -> None:
    ends = {"source": Source(amqp_value("/management")), "target": Target(amqp_value("/management"))}
    link = client.attach(RECEIVER, snd_settle_mode=mode, properties=PAIRED, **ends)
    assert link.is_attached
    assert link.peer.snd_settle_mode == SETTLED


def test_a_request_that_is_no_message_ends_the_link(management: Management) -> None:
    management.requests.send(b"no message", settled=True)
    assert management.client.detached(management.requests)[0] == "amqp:decode-error"
