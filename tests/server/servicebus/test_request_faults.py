"""Requests to `$cbs` and `$management` with wrong arguments of every type: each gets a documented answer."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.message import AmqpArray, AmqpType, AmqpValue, Body, Message, amqp_value
from headgate.protocols.amqp10.terminus import Accepted
from message_values import typed_values
from server.amqp10_client import Client, client_of
from server.entities import ServedEntities
from server.running import RunningServer
from server.servicebus_client import Requests

pytestmark = pytest.mark.faults

STATUSES = frozenset({200, 202, 204, 400, 401, 403, 404, 408, 409, 410, 501})
CONDITIONS = frozenset(
    {"amqp:not-found", "amqp:not-allowed", "amqp:not-implemented", "amqp:unauthorized-access"}
    | {"amqp:resource-limit-exceeded", "amqp:precondition-failed"}
    | {f"com.microsoft:{name}" for name in (
        "argument-error", "argument-out-of-range", "entity-already-exists", "entity-disabled", "message-lock-lost",
        "message-not-found", "session-lock-lost", "session-cannot-be-locked", "timeout", "server-busy", "auth-failed",
    )}
)  # fmt: skip
OPERATIONS: dict[str, tuple[str, ...]] = {
    "peek-message": ("from-sequence-number", "message-count", "session-id"),
    "renew-lock": ("lock-tokens",),
    "schedule-message": ("messages",),
    "cancel-scheduled-message": ("sequence-numbers",),
    "receive-by-sequence-number": ("sequence-numbers", "receiver-settle-mode", "session-id"),
    "update-disposition": (
        "disposition-status", "lock-tokens", "deadletter-reason", "deadletter-description", "properties-to-modify",
        "session-id",
    ),
    "renew-session-lock": ("session-id",),
    "get-session-state": ("session-id",),
    "set-session-state": ("session-id", "session-state"),
    "get-message-sessions": ("last-updated-time", "top", "skip"),
    "add-rule": ("rule-name", "rule-description"),
    "remove-rule": ("rule-name",),
    "enumerate-rules": ("top", "skip"),
    "batch-delete-messages": ("message-count", "enqueued-time-utc"),
    "no-such-operation": (),
}  # fmt: skip
"""The operations of the service, served or not, and their arguments."""


def _array(kind: AmqpType, *members: Any) -> AmqpValue:
    return AmqpValue(AmqpType.ARRAY, AmqpArray(kind, tuple(AmqpValue(kind, member) for member in members)))


RIGHT: dict[str, Any] = {
    "from-sequence-number": 1,
    "message-count": AmqpValue(AmqpType.INT, 1),
    "lock-tokens": _array(AmqpType.UUID, uuid.UUID(int=1)),
    "sequence-numbers": _array(AmqpType.LONG, 1),
    "receiver-settle-mode": AmqpValue(AmqpType.UINT, 1),
    "disposition-status": "completed",
    "deadletter-reason": "why",
    "deadletter-description": "because",
    "properties-to-modify": {"a": 1},
    "session-id": "s",
    "session-state": b"state",
    "rule-name": "r",
    "rule-description": {"sql-filter": {"expression": "a = 1"}, "sql-rule-action": {"expression": "SET a = 2"}},
    "top": AmqpValue(AmqpType.INT, 10),
    "skip": AmqpValue(AmqpType.INT, 0),
    "messages": [{"message-id": "m", "message": Message(b"m").encode()}],
    "last-updated-time": AmqpValue(AmqpType.TIMESTAMP, 253_402_300_800_000),
    "enqueued-time-utc": AmqpValue(AmqpType.TIMESTAMP, 1),
}
"""Arguments of all operations."""
WRONG: list[Any] = [
    None, True, 0, -1, 2**63 - 1, -(2**63), 1.5, float("nan"), "", "text", "x" * 5_000, b"", b"\xff" * 40,
    uuid.UUID(int=0), [], [None], ["text", 1], {}, {"a": None}, {"expression": 5}, {"sql-filter": 1},
    {"correlation-filter": {"label": 7}}, {"correlation-filter": {"properties": {"a": [1], "b": {"c": 1}}}},
    {"correlation-filter": {"properties": 1}},
    {"sql-filter": {"expression": "a"}, "correlation-filter": {"label": "b"}},
    {"sql-filter": {"expression": "1=1"}, "sql-rule-action": {"expression": "DROP a"}},
    [{"message": b"\x00\x53\x75"}], [{"message": "text"}], [{"message-id": 5, "message": b""}], [5],
    AmqpValue(AmqpType.ULONG, 2**64 - 1), AmqpValue(AmqpType.UBYTE, 255), AmqpValue(AmqpType.TIMESTAMP, -(2**63)),
    AmqpValue(AmqpType.CHAR, 0x41), AmqpValue(AmqpType.SYMBOL, "completed"),
    AmqpValue(AmqpType.MAP, ((amqp_value(1), amqp_value(2)),)),
    _array(AmqpType.UUID), _array(AmqpType.LONG), _array(AmqpType.LONG, -1, 2**63 - 1), _array(AmqpType.STRING, "a"),
    _array(AmqpType.UUID, *(uuid.UUID(int=number) for number in range(300))),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(server: RunningServer) -> Iterator[tuple[Client, Requests, Requests]]:
    """Requests to a subscription that has messages, and to `$cbs`."""
    ServedEntities(server).topic("faulty", s=None)
    with client_of(server.ports["amqp"], mechanism="MSSBCBS", response=b"") as client:
        assert client.send(client.sender("faulty"), *[Message(b"m").encode()] * 3) == [Accepted()] * 3
        yield client, Requests(client, "faulty/Subscriptions/s/$management"), Requests(client, "$cbs")


@pytest.fixture(autouse=True)
def _without_a_fault(caplog: pytest.LogCaptureFixture, server: RunningServer) -> Iterator[None]:
    with caplog.at_level(logging.ERROR):
        yield
    assert not caplog.records and server.context.connections.totals.failed == 0, caplog.text


def _asked(client: Client, requests: Requests, operation: str, body: Any, **asked: object) -> tuple[int, Any, Any]:
    requests.responses.grant(50)
    if not requests.requests.credit:
        client.pump(lambda: requests.requests.credit > 0)
    answer = requests.ask(operation, body, **asked)
    client.events.clear()
    client.outcomes.clear()
    return answer


def documented(place: tuple[Client, Requests, Requests], operation: str, body: Any, **asked: object) -> int:
    """Asks, and judges the answer."""
    client, requests, _ = place
    status, _, told = _asked(client, requests, f"com.microsoft:{operation}", body, **asked)
    case = f"{operation} of {body!r}"
    assert status in STATUSES, f"{case}: {status} {told}"
    assert status < 300 or told["errorCondition"].value in CONDITIONS, f"{case}: {told}"
    assert isinstance(told["statusDescription"].value, str) and told["statusDescription"].value, case
    return status


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_a_wrong_argument_of_every_type_has_a_documented_answer(
    place: tuple[Client, Requests, Requests], operation: str
) -> None:
    right = {name: RIGHT[name] for name in OPERATIONS[operation]}
    for name in right:
        documented(place, operation, {key: value for key, value in right.items() if key != name})
        for value in WRONG:
            documented(place, operation, right | {name: value})
    for body in WRONG:
        documented(place, operation, body)
    # What was asked for is undone, and others still get an answer.
    documented(place, "remove-rule", {"rule-name": "r"})
    assert documented(place, "enumerate-rules", {"top": 5, "skip": 0}) == 200


@given(
    st.sampled_from(sorted(OPERATIONS)),
    st.dictionaries(st.sampled_from(sorted(RIGHT)), typed_values, max_size=4),
    typed_values,
)
@examples(2)
def test_any_arguments_have_a_documented_answer(
    place: tuple[Client, Requests, Requests], operation: str, arguments: dict[str, AmqpValue], extra: AmqpValue
) -> None:
    status = documented(
        place,
        operation,
        RIGHT | arguments,
        **{"com.microsoft:server-timeout": extra, "com.microsoft:tracking-id": extra},
    )
    if operation == "add-rule" and status == 200:
        found = arguments.get("rule-name", amqp_value("r"))
        documented(place, "remove-rule", {"rule-name": found})


@given(typed_values, typed_values)
@examples(1)
def test_any_token_has_a_documented_answer(
    place: tuple[Client, Requests, Requests], token: AmqpValue, name: AmqpValue
) -> None:
    client, _, claims = place
    status, _, told = _asked(client, claims, "put-token", token, name=name, type="jwt")
    assert status in (202, 400, 401)
    assert status == 202 or told["error-condition"].value in CONDITIONS


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("address", ["faulty/Subscriptions/s/$management", "$cbs"])
def test_requests_that_are_no_requests_end_their_link_only(server: RunningServer, address: str) -> None:
    bodies = [Body.data(b"x"), Body.data(b"x", b"y"), Body.sequence([1, 2]), Body.value(None), None]
    with client_of(server.ports["amqp"], mechanism="MSSBCBS", response=b"") as client:
        for body in bodies:
            for properties in (
                {},
                {"operation": 5},
                {"operation": "put-token"},
                {"operation": "com.microsoft:add-rule"},
            ):
                requests = Requests(client, address)
                message = Message(body, properties={"reply-to": requests.reply_to}, application_properties=properties)
                requests.requests.send(message.encode())
                (response,) = client.receive(requests.responses, 1)
                told = response.message.application_properties
                assert (told.get("statusCode") or told["status-code"]).value in (400, 501)
        for data in (b"\x00", b"\xff" * 20, b"\x00\x53\x77", b"\x00\x53\x77\xd1\xff\xff\xff\xff"):
            requests = Requests(client, address)
            requests.requests.send(data)
            assert client.detached(requests.requests)[0] == "amqp:decode-error"
        assert client.sender("faulty").is_attached
