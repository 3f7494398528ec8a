"""Sessions of real clients, played again with frames that are changed, torn, left out, doubled and in another order."""

from __future__ import annotations

import base64
import collections
import contextlib
import gc
import json
import logging
import random
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headgate.message import Message
from headgate.protocols.amqp10.terminus import Accepted
from headgate.server.metrics import open_descriptors, resident_bytes
from server.amqp10_client import client_of
from server.entities import ServedEntities
from server.garbage import changed, rest10
from server.running import RunningServer, running_server
from server.servicebus_client import peek_lock, settle
from waiting import LIMIT_S

pytestmark = pytest.mark.faults

SESSIONS = Path(__file__).parents[2] / "vectors" / "own" / "servicebus_sessions.jsonl"
ROUNDS, LONG_ROUNDS = 150, 5_000
_KEPT_BYTES = 32 << 20
_COUNTED = (
    "Amqp10Handler",
    "Link",
    "Receiver",
    "ReceivingLink",
    "SendingLink",
    "ManagementNode",
    "Session",
    "Connection",
)


@pytest.fixture(scope="module")
def sessions() -> list[list[bytes]]:
    """The frames of each connection; those that open it come first."""
    return [frames(base64.b64decode(json.loads(line)["said"])) for line in SESSIONS.read_text().splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    timeouts = {"linger_s": 10 * LIMIT_S, "handshake_s": LIMIT_S}
    with running_server(tmp_path_factory.mktemp("sessions"), timeouts=timeouts) as running:
        entities = ServedEntities(running)
        entities.topic("recorded", s=None)
        entities.queue("recorded-queue")
        entities.queue("bystander")
        yield running


def frames(said: bytes) -> list[bytes]:
    found = []
    while said:
        size = 8 if said.startswith(b"AMQP") else int.from_bytes(said[:4], "big")
        found.append(said[:size])
        said = said[size:]
    return found


def reframed(frame: bytes) -> bytes:
    return frame if frame.startswith(b"AMQP") else struct.pack(">I", len(frame)) + frame[4:]


def mutated(chance: random.Random, session: Sequence[bytes]) -> bytes:
    """A session that a client might have that has gone mad; mostly it begins well."""
    said = list(session)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(said) if chance.random() < 0.3 else 5, len(said) + 1) - 1
        match chance.randrange(7):
            case 0:
                del said[at]
            case 1:
                said.insert(at, chance.choice(session))
            case 2:
                other = chance.randrange(len(said))
                said[at], said[other] = said[other], said[at]
            case 3:
                said[at] = changed(chance, said[at])
            case _:
                said[at] = reframed(changed(chance, said[at]))
        if len(said) < 6:
            break
    data = b"".join(said)
    return data[: chance.randrange(len(data))] if chance.random() < 0.3 else data


def play(port: int, chance: random.Random, data: bytes) -> bytes | None:
    """What the server says to it until it closes; None for a client that goes away without reading."""
    said = bytearray()
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client:
        with contextlib.suppress(ConnectionError):
            while data:
                size = chance.choice((1, 100, 3000, len(data)))
                client.sendall(data[:size])
                data = data[size:]
            if chance.random() < 0.1:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                return None
            client.shutdown(socket.SHUT_WR)
        while piece := client.recv(1 << 16):
            said += piece
    return bytes(said)


def objects() -> dict[str, int]:
    """How many objects there are of kinds that belong to a connection."""
    gc.collect()
    counted = collections.Counter(type(each).__name__ for each in gc.get_objects())
    return {kind: counted[kind] for kind in _COUNTED}


def withstands(
    server: RunningServer, sessions: list[list[bytes]], caplog: pytest.LogCaptureFixture, seed: int, rounds: int
) -> None:
    caplog.set_level(logging.ERROR)
    port, totals = server.ports["amqp"], server.context.connections.totals
    with client_of(port, mechanism="MSSBCBS", response=b"") as bystander:
        sender, receiver = bystander.sender("bystander"), peek_lock(bystander, "bystander", credit=1000)

        def goes_on(number: int) -> None:
            assert bystander.send(sender, Message(b"%d" % number).encode()) == [Accepted()]
            (found,) = bystander.receive(receiver, 1)
            assert found.message.body.octets() == b"%d" % number
            assert settle(bystander, receiver, found.id, found.id, Accepted()) == Accepted()

        def attack(first: int, count: int) -> None:
            for number in range(first, first + count):
                chance = random.Random(number)
                data = mutated(chance, chance.choice(sessions))
                said = play(port, chance, data)
                case = f"seed {number} plays {data!r}"
                assert not caplog.records, f"{case}: {caplog.text}"
                assert said is None or not rest10(said), f"{case}; the answer ends in {rest10(said)[:200]!r}"
                if number % 20 == 0:
                    goes_on(number)
            server.until(lambda: len(server.context.connections) == 1)
            goes_on(first)

        attack(seed, rounds // 3)
        descriptors, memory, there = open_descriptors(), resident_bytes(), server.call(objects)
        attack(seed + rounds // 3, rounds - rounds // 3)
        assert totals.failed == 0
        server.until(lambda: open_descriptors() <= descriptors)
        # What tests before left behind may go meanwhile.
        server.until(lambda: all(count <= there[kind] for kind, count in objects().items()))
        assert resident_bytes() < memory + _KEPT_BYTES
        (handler,) = server.call(lambda: [*server.context.connections])
        assert handler.listener == "amqp"


def test_sessions_as_they_were_recorded_are_served(server: RunningServer, sessions: list[list[bytes]]) -> None:
    """Without errors of the protocol: what is changed below is what a client says."""
    for session in sessions:
        said = play(server.ports["amqp"], random.Random(1), b"".join(session))
        assert said is not None and not rest10(said) and said.count(b"\x00\x53\x11") > 0
        assert b"amqp:decode-error" not in said and b"amqp:connection:framing-error" not in said


def test_mutated_sessions_of_real_clients_end_their_connection_and_nothing_else(
    server: RunningServer, sessions: list[list[bytes]], caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    withstands(server, sessions, caplog, seed, ROUNDS)


@pytest.mark.long
def test_many_mutated_sessions_of_real_clients_end_their_connection_and_nothing_else(
    server: RunningServer, sessions: list[list[bytes]], caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    withstands(server, sessions, caplog, seed, LONG_ROUNDS)
