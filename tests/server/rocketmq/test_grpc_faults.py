"""Requests that no client sends: bytes that are no messages, wrong types, absent fields, huge counts, calls given up.

Each is answered by a status or an error of gRPC, the server logs no error of its own, and goes on.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from headgate.clock import SystemClock
from headgate.protocols.grpc import frames as grpc_frames
from headgate.protocols.grpc.frames import Frame
from headgate.protocols.grpc.framing import prefixed
from headgate.protocols.rocketmq import Status
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.server.rocketmq.grpc.calls import GrpcHandler
from server.garbage import grpc_corpus, grpc_headers, opened
from server.rocketmq.conftest import GrpcSite
from server.rocketmq.grpc_peer import GrpcPeer, consumer_settings, message, producer_settings, seconds
from waiting import until_closed

TOPIC, GROUP = "faulty", "g"
LARGEST = 2**31 - 1
_NEVER = -2
"""Not answered, or by an error of the server."""


@pytest.fixture
def peer(site: GrpcSite, caplog: pytest.LogCaptureFixture) -> Iterator[GrpcPeer]:
    """A client of a server that still serves when the test is over, and has logged nothing as its own error."""
    if site.running.context.broker.message_topics.find(TOPIC) is None:
        site.topic(TOPIC, 2)
    with caplog.at_level(logging.WARNING):
        yield site.peer()
        after = site.peer()
        assert after.send(TOPIC, b"x").status.code == Status.OK
        _, found = after.receive("after", TOPIC, long_polling_timeout=seconds(20))
        assert after.ack("after", TOPIC, *(each.system_properties.receipt_handle for each in found)).entries
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def answered(peer: GrpcPeer, name: str, data: bytes) -> int:
    """The status of an answer, or of gRPC's error; a call that is not answered fails the test by its time limit."""
    method = next(each for each in pb.METHODS if each.name == name)
    try:
        if method.takes_stream:
            call = peer.channel.stream_stream(f"/{pb.SERVICE}/{name}")
            for _ in call(iter([data]), metadata=peer.metadata(), timeout=20):
                pass
            return 0
        if method.gives_stream:
            answers = [method.response.FromString(each) for each in peer.stream(name, data)]  # type: ignore[attr-defined]
            return int(answers[0].status.code)
        return int(method.response.FromString(peer.raw(name, data)).status.code)  # type: ignore[attr-defined]
    except grpc.RpcError as error:
        return _NEVER if error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN) else -1


@pytest.mark.parametrize("method", pb.METHODS, ids=lambda method: method.name)
def test_bytes_that_are_no_message(peer: GrpcPeer, method: Any) -> None:
    for data in (b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x0f", b"", b"\x0a\x02\x0a\x7f", b"\x12\x00\x12\x00"):
        status = answered(peer, method.name, data)
        assert status != _NEVER and (status != Status.OK or method.name == "NotifyClientTermination")


@pytest.mark.parametrize("name", ["QueryRoute", "ReceiveMessage", "Telemetry"])
def test_a_call_without_a_request_is_answered(peer: GrpcPeer, name: str) -> None:
    call = peer.channel.stream_stream(f"/{pb.SERVICE}/{name}")
    answers = list(call(iter(()), metadata=peer.metadata(), timeout=20))
    if name != "Telemetry":
        assert b"the call has no request" in answers[0]


def test_a_method_that_is_not_there(peer: GrpcPeer) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        peer.raw("Nothing", b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_request_beyond_all_limits(peer: GrpcPeer) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        peer.send(TOPIC, b"x" * (17 * 1024 * 1024))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_huge_counts(peer: GrpcPeer) -> None:
    assert peer.receive(GROUP, TOPIC, batch_size=LARGEST)[0].code in (Status.OK, Status.MESSAGE_NOT_FOUND)
    assert peer.receive(GROUP, TOPIC, batch_size=-LARGEST)[0].code == Status.BAD_REQUEST
    for queue in (LARGEST, -LARGEST):
        assert peer.receive(GROUP, TOPIC, queue=queue)[0].code in (Status.OK, Status.MESSAGE_NOT_FOUND)
    for length in (2**63 - 1, -(2**63)):
        duration = pb.Duration(seconds=length, nanos=LARGEST)
        assert peer.receive(GROUP, TOPIC, invisible_duration=duration)[0].code == Status.ILLEGAL_INVISIBLE_TIME
        given = message(TOPIC, b"x", born_timestamp=pb.Timestamp(seconds=length, nanos=-LARGEST))
        assert peer.send(TOPIC, given).status.code == Status.BAD_REQUEST
        due = message(TOPIC, b"x", delivery_timestamp=pb.Timestamp(seconds=length))
        assert peer.send(TOPIC, due).status.code in (Status.BAD_REQUEST, Status.ILLEGAL_DELIVERY_TIME)
    assert peer.ack(GROUP, TOPIC, *["x"] * 2_000).status.code == Status.BAD_REQUEST
    assert peer.send(TOPIC, *[b"x"] * 2_000).status.code == Status.BAD_REQUEST
    many = consumer_settings(GROUP, {f"t{number}": (pb.FilterType.TAG, "A") for number in range(5_000)})
    with peer.telemetry(many) as answers:
        assert next(answers).status.code == Status.OK


def test_thousands_of_client_ids(site: GrpcSite, peer: GrpcPeer) -> None:
    route = pb.QueryRouteRequest(topic=pb.Resource(name=TOPIC)).SerializeToString()
    for name, data, response in (
        ("QueryRoute", route, pb.QueryRouteResponse),
        ("NotifyClientTermination", b"", pb.NotifyClientTerminationResponse),
    ):
        call = peer.channel.unary_unary(f"/{pb.SERVICE}/{name}")
        for start in range(0, 2_000, 200):
            ids = [f"many-{number}" for number in range(start, start + 200)]
            calls = [call.future(data, metadata=[("x-mq-client-id", client_id)]) for client_id in ids]
            assert {response.FromString(each.result()).status.code for each in calls} == {Status.OK}
    assert len(site.running.context.connections) < 200


def test_calls_that_are_given_up(site: GrpcSite, peer: GrpcPeer) -> None:
    broker = site.running.context.broker
    for _ in range(20):
        held = [peer.begin_receive("left", TOPIC, long_polling_timeout=seconds(20)) for _ in range(5)]
        peer.send(TOPIC, b"x")
        for call in held:
            call.cancel()
        sending = peer.channel.unary_unary(f"/{pb.SERVICE}/SendMessage")
        request = pb.SendMessageRequest(messages=[message(TOPIC, b"y" * 100_000)])
        sending.future(request.SerializeToString(), metadata=peer.metadata()).cancel()
    peer.call(pb.NotifyClientTerminationRequest())
    views = site.running.call(lambda: [broker.consumer_groups.view(f"{TOPIC}-{queue}", "left") for queue in range(2)])
    site.running.until(lambda: not any(view.waiting for view in views))


RECORDED: list[tuple[str, Any]] = [
    ("QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name=TOPIC), endpoints=pb.Endpoints(scheme=1))),
    ("QueryAssignment", pb.QueryAssignmentRequest(topic=pb.Resource(name=TOPIC), group=pb.Resource(name=GROUP))),
    ("Heartbeat", pb.HeartbeatRequest(group=pb.Resource(name=GROUP), client_type=3)),
    ("Telemetry", consumer_settings(GROUP, {TOPIC: (pb.FilterType.SQL, "a = 1 AND b IN ('x', 'y')")})),
    ("Telemetry", producer_settings(TOPIC)),
    (
        "SendMessage",
        pb.SendMessageRequest(
            messages=[message(TOPIC, b"body", tag="A", keys=["k"], properties={"a": "1", "b": "x"})] * 2
        ),
    ),
    (
        "SendMessage",
        pb.SendMessageRequest(messages=[message(TOPIC, b"body", delivery_timestamp=pb.Timestamp(seconds=1 << 40))]),
    ),
    (
        "ReceiveMessage",
        pb.ReceiveMessageRequest(
            group=pb.Resource(name=GROUP),
            message_queue=pb.MessageQueue(topic=pb.Resource(name=TOPIC), id=-1),
            filter_expression=pb.FilterExpression(type=pb.FilterType.SQL, expression="a = 1"),
            batch_size=2,
            invisible_duration=seconds(15),
            long_polling_timeout=seconds(0),
            attempt_id="attempt",
        ),
    ),
    (
        "AckMessage",
        pb.AckMessageRequest(
            group=pb.Resource(name=GROUP),
            topic=pb.Resource(name=TOPIC),
            entries=[pb.AckMessageEntry(message_id="id", receipt_handle="AQAAdGVzdA")],
        ),
    ),
    (
        "ChangeInvisibleDuration",
        pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name=GROUP),
            topic=pb.Resource(name=TOPIC),
            receipt_handle="AQAAdGVzdA",
            invisible_duration=seconds(5),
        ),
    ),
    (
        "ForwardMessageToDeadLetterQueue",
        pb.ForwardMessageToDeadLetterQueueRequest(
            group=pb.Resource(name=GROUP), topic=pb.Resource(name=TOPIC), receipt_handle="AQAAdGVzdA"
        ),
    ),
    ("RecallMessage", pb.RecallMessageRequest(topic=pb.Resource(name=TOPIC), recall_handle="0.1.abc/id")),
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            changed[at:at] = chance.randbytes(chance.randint(1, 8))
        elif kind == 3:
            del changed[at : at + chance.randint(1, 8)]
        else:
            start = chance.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + chance.randint(1, 20)]
    return bytes(changed)


@pytest.mark.parametrize("count", [200, pytest.param(5_000, marks=pytest.mark.long)])
def test_mutated_requests(site: GrpcSite, peer: GrpcPeer, seed: int, count: int) -> None:
    chance = random.Random(seed)
    seen: set[int] = set()
    for number in range(count):
        name, request = chance.choice(RECORDED)
        data = mutated(request.SerializeToString(), chance)
        if name == "ReceiveMessage":
            try:
                found = pb.ReceiveMessageRequest.FromString(data)
            except Exception:
                found = None
            if found is not None:
                # What waits is tried elsewhere.
                found.long_polling_timeout.seconds = min(0, found.long_polling_timeout.seconds)
                found.long_polling_timeout.nanos = min(0, found.long_polling_timeout.nanos)
                data = found.SerializeToString()
        seen.add(answered(peer, name, data))
        if number % 100 == 0:
            assert peer.send(TOPIC, b"x").status.code == Status.OK
    # Some are no messages, some are refused for what they say. How many statuses there are is chance.
    assert _NEVER not in seen and Status.BAD_REQUEST in seen and len(seen) > 2
    assert len(site.running.context.connections) < 100


# Peers that are slow or silent

BEGUN = grpc_frames.frame(Frame.HEADERS, 4, 3, grpc_headers("SendMessage"))
MESSAGE = prefixed(bytes(100_000))
OWED = {
    "a head": BEGUN[:5],
    "a frame": BEGUN[:40],
    "a block of fields": grpc_frames.frame(Frame.HEADERS, 0, 3, grpc_headers("SendMessage")[:9]),
    "a request": BEGUN,
    "a message": BEGUN + grpc_frames.frame(Frame.DATA, 0, 3, MESSAGE[:1_000]),
    "a message of a stream": grpc_frames.frame(Frame.HEADERS, 4, 3, grpc_headers("Telemetry"))
    + grpc_frames.frame(Frame.DATA, 0, 3, MESSAGE[:10]),
}


@pytest.mark.parametrize("owed", OWED)
def test_who_owes_the_rest_of_what_it_began_is_cut_off(open_site: Callable[..., GrpcSite], owed: str) -> None:
    running = open_site(timeouts={"handshake_s": 0.3}).running
    connected, _ = opened(running.ports["rocketmq"], grpc_corpus(0))
    with connected:
        connected.sendall(OWED[owed])
        until_closed(connected)
    assert running.context.connections.totals.timed_out == 1


def test_who_brings_enough_stays_and_is_asked_whether_it_is_there(
    open_site: Callable[..., GrpcSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, passed_s = open_site().running, 0.0
    monkeypatch.setattr(SystemClock, "monotonic_s", staticmethod(lambda: time.monotonic() + passed_s))

    def tick() -> None:
        [connection] = running.server._acceptor._connections
        running.call(lambda: connection.tick(0))

    def owes() -> bool:
        [connection] = running.server._acceptor._connections
        handler = connection._handler
        assert isinstance(handler, GrpcHandler)
        return 3 in handler._tasks and handler.connection.received(3) == 16_000

    connected, _ = opened(running.ports["rocketmq"], grpc_corpus(0))
    with connected:
        # A large request and a stream that waits.
        connected.sendall(BEGUN + grpc_frames.frame(Frame.DATA, 0, 3, MESSAGE[:16_000]))
        connected.sendall(grpc_frames.frame(Frame.HEADERS, 4, 5, grpc_headers("Telemetry")))
        running.until(owes)
        passed_s = 10.3
        tick()
        connected.sendall(grpc_frames.frame(Frame.DATA, 1, 3, MESSAGE[16_000:32_000]))
        said = b""

        def hears(expected: bytes) -> None:
            nonlocal said
            while expected not in said:
                piece = connected.recv(1 << 16)
                assert piece, "the server closed the connection"
                said += piece

        hears(b"grpc-status")
        passed_s += 31.0
        tick()
        hears(grpc_frames.frame(Frame.PING, 0, 0, bytes(8)))
        passed_s += 30.0
        tick()
        until_closed(connected)
    assert running.context.connections.totals.timed_out == 1
