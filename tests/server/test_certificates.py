"""Login by TLS client certificate, as each protocol does it: SASL EXTERNAL, and STOMP without a name."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp10.events import MechanismsOffered, OutcomeReceived
from headgate.protocols.stomp.frames import Frame, FrameReader, Version
from headgate.protocols.stream.client import Opened
from headgate.protocols.stream.framing import ProtocolViolation
from headgate.server.metrics import open_descriptors
from server.amqp091_client import Client as Client091
from server.amqp10_client import client_of
from server.running import RunningServer, running_server
from stream_peer import StreamPeer
from waiting import LIMIT_S

OWN, FOREIGN = "own", "foreign"
SUBSCRIBE = "SUBSCRIBE\nid:{0}\ndestination:/amq/queue/{0}\nack:client\nprefetch-count:1\nreceipt:r\n\n\0"
USERS = [
    {"name": "anna", "password": "secret", "permissions": {"read": f"^{OWN}$"}},
    {"name": "bert", "password": "secret", "permissions": {"read": f"^{FOREIGN}$"}},
]


@dataclass
class Visit:
    """A login: the mechanisms that were offered before it, what it was refused with (None: it was not), and a way to
    consume from a stream, which gives what that is refused with.
    """

    offered: tuple[str, ...]
    refused: object
    consume: Callable[[str], object]


def visit_stream(stack: ExitStack, connected: socket.socket, name: str, passcode: str) -> Visit:
    peer = StreamPeer(0, connected=connected, mechanism="EXTERNAL")
    stack.callback(peer.close)
    while not peer.events:
        peer.receive()
    (answer,) = peer.events
    if isinstance(answer, ProtocolViolation):
        return Visit(peer.connection.server.mechanisms, answer.error.code, lambda stream: None)
    assert isinstance(answer, Opened)
    numbers = {OWN: 0, FOREIGN: 1}

    def consume(stream: str) -> object:
        code = peer.subscribe(stream, number=numbers[stream])
        return None if code == 1 else code

    return Visit(answer.server.mechanisms, None, consume)


def visit_amqp10(stack: ExitStack, connected: socket.socket, name: str, passcode: str) -> Visit:
    client = stack.enter_context(client_of(0, connected=connected, mechanism="EXTERNAL", response=name.encode()))
    (offered,), (outcome,) = client.of(MechanismsOffered), client.of(OutcomeReceived)

    def consume(stream: str) -> object:
        link = client.receiver(f"/queues/{stream}")
        return None if link.is_attached else client.detached(link)[0]

    return Visit(offered.mechanisms, outcome.code or None, consume)


def visit_amqp091(stack: ExitStack, connected: socket.socket, name: str, passcode: str) -> Visit:
    client = Client091(0, connected=connected, mechanism="EXTERNAL", response=name.encode())
    stack.enter_context(client)
    answer = client.log_in()
    assert isinstance(client.start, m.ConnectionStart)
    offered = tuple(client.start.mechanisms.decode().split(" "))
    if isinstance(answer, m.ConnectionClose):
        return Visit(offered, answer.reply_code, lambda stream: None)
    assert isinstance(answer, m.ConnectionTune)
    client.say(0, m.ConnectionTuneOk(answer.channel_max, answer.frame_max, 0))
    assert isinstance(client.call(0, m.ConnectionOpen("/")), m.ConnectionOpenOk)

    def consume(stream: str) -> object:
        assert client.call(1, m.ChannelOpen()) == m.ChannelOpenOk()
        answer = client.consume(1, stream)
        if isinstance(answer, m.ChannelClose):
            client.say(1, m.ChannelCloseOk())
            return answer.reply_code
        assert isinstance(answer, m.BasicConsumeOk)
        return None if client.call(1, m.ChannelClose()) == m.ChannelCloseOk() else "not closed"

    return Visit(offered, None, consume)


def visit_stomp(stack: ExitStack, connected: socket.socket, name: str, passcode: str) -> Visit:
    stack.callback(connected.close)
    reader = FrameReader(max_body_bytes=1000)
    reader.version = Version.V1_2

    def ask(text: str) -> Frame:
        connected.sendall(text.encode())
        while (frame := reader.next()) is None:
            data = connected.recv(1000)
            assert data, "the server closed the connection without a word"
            reader.add(data)
        return frame

    def refused(answer: Frame) -> object:
        return answer.headers["message"] if answer.command == "ERROR" else None

    login = f"login:{name}\npasscode:{passcode}\n" if name else ""
    answer = ask(f"CONNECT\naccept-version:1.2\nhost:/\n{login}\n\0")
    # STOMP offers nothing: the certificate counts where no name is given.
    return Visit((), refused(answer), lambda stream: refused(ask(SUBSCRIBE.format(stream))))


@dataclass
class Way:
    """How a protocol logs in, at which listener, and its words for: nobody of that name, a mechanism that is not
    offered, a stream that is not the user's to read.
    """

    listener: str
    visit: Callable[[ExitStack, socket.socket, str, str], Visit]
    nobody: object
    not_offered: object
    not_permitted: object


WAYS = {
    "stream": Way("stream_tls", visit_stream, 0x08, 0x07, 0x10),
    "amqp10": Way("amqps", visit_amqp10, 1, 1, "amqp:unauthorized-access"),
    "amqp091": Way("amqps", visit_amqp091, 403, 503, 403),
    "stomp": Way("stomp_tls", visit_stomp, "Bad CONNECT", "Bad CONNECT", "access_refused"),
}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def serve(folder: Path, authority: trustme.CA, verify: str) -> contextlib.AbstractContextManager[RunningServer]:
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(folder / "server.pem")
    issued.private_key_pem.write_to_path(folder / "server.key")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return running_server(
        folder,
        tls={
            "certificate": str(folder / "server.pem"),
            "key": str(folder / "server.key"),
            "ca": str(folder / "ca.pem"),
            "verify_client": verify,
        },
        authentication={"anonymous": False},
        limits={"login_failures_a_minute": 1000},
        user=USERS,
        stream=[{"name": OWN}, {"name": FOREIGN}],
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[RunningServer]:
    with serve(tmp_path_factory.mktemp("optional"), authority, "optional") as running:
        yield running


@pytest.fixture(scope="module")
def unasked(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[RunningServer]:
    """A server that asks for no certificates."""
    with serve(tmp_path_factory.mktemp("no"), authority, "no") as running:
        yield running


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


@pytest.fixture
def stack(running: RunningServer) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
    running.until(lambda: not len(running.context.connections))


def encrypted(
    running: RunningServer, listener: str, authority: trustme.CA, name: str | None, issuer: trustme.CA
) -> socket.socket:
    """A connection with a certificate of that common name, None for one without."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if name is not None:
        issuer.issue_cert("client.example", common_name=name).configure_cert(context)
    with ExitStack() as unless_made:
        plain = unless_made.enter_context(socket.create_connection(("127.0.0.1", running.ports[listener]), LIMIT_S))
        made = context.wrap_socket(plain, server_hostname="localhost")
        unless_made.pop_all()
    return made


@dataclass
class LogIn:
    """Logs in at a server in one of the ways."""

    stack: ExitStack
    way: Way
    authority: trustme.CA

    def __call__(self, at: RunningServer, bears: str | None, *, named: str = "", passcode: str = "") -> Visit:
        connected = encrypted(at, self.way.listener, self.authority, bears, self.authority)
        return self.way.visit(self.stack, connected, named, passcode)


@pytest.fixture
def log_in(stack: ExitStack, way: Way, authority: trustme.CA) -> LogIn:
    return LogIn(stack, way, authority)


def users(running: RunningServer) -> list[str | None]:
    return running.call(lambda: [record.user for record in running.context.connections])


def test_a_certificate_logs_in_as_the_user_that_it_names(running: RunningServer, log_in: LogIn, way: Way) -> None:
    anna = log_in(running, "anna")
    assert anna.refused is None and users(running) == ["anna"]
    assert "stomp" in way.listener or anna.offered[0] == "EXTERNAL"
    bert = log_in(running, "bert")
    assert bert.refused is None and users(running) == ["anna", "bert"]
    assert (anna.consume(OWN), anna.consume(FOREIGN)) == (None, way.not_permitted)
    assert (bert.consume(FOREIGN), bert.consume(OWN)) == (None, way.not_permitted)


def test_a_certificate_of_nobody_is_refused(running: RunningServer, log_in: LogIn, way: Way) -> None:
    assert log_in(running, "stranger").refused == way.nobody
    running.until(lambda: not running.context.broker.sessions)


def test_without_a_certificate_the_mechanism_is_not_offered_and_refused_all_the_same(
    running: RunningServer, log_in: LogIn, way: Way
) -> None:
    visit = log_in(running, None)
    assert "EXTERNAL" not in visit.offered and visit.refused == way.not_offered
    running.until(lambda: not running.context.broker.sessions)


def test_a_certificate_that_nobody_asked_for_is_none(unasked: RunningServer, log_in: LogIn, way: Way) -> None:
    visit = log_in(unasked, "anna")
    assert "EXTERNAL" not in visit.offered and visit.refused == way.not_offered


@pytest.mark.parametrize("way", ["amqp10", "amqp091", "stomp"], indirect=True)
def test_a_name_beside_the_certificate_is_not_believed(running: RunningServer, log_in: LogIn, way: Way) -> None:
    assert log_in(running, "anna", named="bert", passcode="guessed").refused == way.nobody


@pytest.mark.parametrize("way", ["stomp"], indirect=True)
def test_a_name_with_its_passcode_counts_before_the_certificate(running: RunningServer, log_in: LogIn) -> None:
    assert log_in(running, "anna", named="bert", passcode="secret").refused is None
    assert users(running) == ["bert"]


@pytest.mark.parametrize("listener", ["amqps", "stream_tls", "stomp_tls"])
def test_a_certificate_of_another_authority_gets_no_connection_and_leaves_nothing(
    running: RunningServer, authority: trustme.CA, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    forger = trustme.CA()

    def attempt() -> None:
        said = b""
        # Whether the alert, a reset or only the end is seen depends on what the client has read by then.
        with (
            contextlib.suppress(ssl.SSLError, ConnectionError),
            encrypted(running, listener, authority, "anna", forger) as connected,
        ):
            connected.sendall(b"AMQP\x00\x00\x09\x01")
            said = connected.recv(1000)
        assert said == b""

    running.until(lambda: not len(running.context.connections))
    attempt()
    opened, descriptors = running.context.connections.totals.opened, open_descriptors()
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            attempt()
        running.until(lambda: open_descriptors() <= descriptors)
    assert running.context.connections.totals.opened == opened and not running.context.broker.sessions
    assert not [record for record in caplog.records if record.name.startswith("headgate")]
    with encrypted(running, listener, authority, "anna", authority):
        running.until(lambda: len(running.context.connections) == 1)
