from __future__ import annotations

import contextlib
import socket
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from headgate.errors import AuthenticationError, ConfigError
from headgate.protocols.sasl import External
from headgate.server.context import ServerContext
from headgate.server.transport import Transport
from server.running import RunningServer, running_server
from waiting import LIMIT_S


class Who:
    """Says who the peer is: its certificate's name, and the user that this makes it."""

    def __init__(self, transport: Transport, context: ServerContext) -> None:
        self.transport = transport
        self.context = context

    def received(self, data: memoryview) -> None:
        self.context.authenticator.authenticate(self.transport, External(""), self.answered)

    def answered(self, result: str | AuthenticationError) -> None:
        peer = self.transport.peer
        self.transport.write(f"{peer.is_encrypted} {peer.certificate_name} {result}".encode())
        self.transport.close()

    def writable(self) -> None: ...

    def tick(self, now_ms: int) -> None: ...

    def lost(self, reason: Exception | None) -> None: ...

    def shut_down(self) -> None:
        self.transport.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> dict[str, str]:
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    issued.private_key_pem.write_to_path(tmp_path / "server.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return {"certificate": str(tmp_path / "server.pem"), "key": str(tmp_path / "server.key")}


Start = Callable[[str], RunningServer]


@pytest.fixture
def start(tls: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    started: list[Any] = []

    def start(verify: str) -> RunningServer:
        settings = {**tls, "ca": str(tmp_path / "ca.pem"), "verify_client": verify}
        users = [{"name": "anna", "password": "secret"}]
        started.append(running_server(tmp_path, handlers={"stream": Who}, tls=settings, user=users))
        return started[0].__enter__()  # type: ignore[no-any-return]

    yield start
    for running in started:
        running.__exit__(None, None, None)


def ask(
    running: RunningServer, authority: trustme.CA, *, name: str | None = None, issuer: trustme.CA | None = None
) -> str:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if name is not None:
        (issuer or authority).issue_cert("client.example", common_name=name).configure_cert(context)
    answer = b""
    # Whether an end is told or only seen depends on the loop.
    with (
        contextlib.suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(("127.0.0.1", running.ports["stream_tls"]), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        client.sendall(b"?")
        while piece := client.recv(1000):
            answer += piece
    return answer.decode()


def test_a_client_certificate_names_the_user(start: Start, authority: trustme.CA) -> None:
    running = start("optional")
    assert ask(running, authority, name="anna") == "True anna anna"
    assert ask(running, authority, name="stranger") == "True stranger Login was refused"
    assert ask(running, authority) == "True None Login was refused"


@pytest.mark.parametrize("verify", ["optional", "required"])
def test_a_certificate_of_another_authority_ends_the_connection(
    start: Start, authority: trustme.CA, verify: str
) -> None:
    running = start(verify)
    assert ask(running, authority, name="anna", issuer=trustme.CA()) == ""
    assert ask(running, authority, name="anna") == "True anna anna"


def test_without_a_certificate_there_is_no_connection_where_one_is_required(
    start: Start, authority: trustme.CA
) -> None:
    running = start("required")
    assert ask(running, authority) == ""
    assert running.context.connections.totals.opened == 0


def test_plain_bytes_at_a_port_with_tls_are_closed(start: Start, authority: trustme.CA) -> None:
    running = start("no")
    with socket.create_connection(("127.0.0.1", running.ports["stream_tls"]), 10) as client:
        client.sendall(b"PLAIN BYTES" * 10)
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(1000):
                assert b"True" not in piece
    assert ask(running, authority) == "True None Login was refused"


def test_https_and_the_advertised_port(start: Start, authority: trustme.CA) -> None:
    running = start("no")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    url = f"https://localhost:{running.ports['https']}/health/ready"
    with urllib.request.build_opener(*handlers).open(url, timeout=LIMIT_S) as answer:
        assert answer.read() == b"ready\n"
    assert set(running.ports) == {"stream", "stream_tls", "http", "https"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"certificate": "nowhere.pem"}, r"tls\.certificate: no file nowhere\.pem"),
        ({"key": None}, r"tls\.certificate, tls\.key: .* do not serve"),
    ],
)
def test_files_that_do_not_serve_are_named(
    tls: dict[str, str], tmp_path: Path, change: dict[str, str | None], expected: str
) -> None:
    given = {**tls, **{key: value or str(tmp_path / "ca.pem") for key, value in change.items()}}
    with pytest.raises(ConfigError, match=expected), running_server(tmp_path, handlers={"stream": Who}, tls=given):
        pass
