"""A listener that has ended is started again, counted, and the health of the server tells the truth meanwhile."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import trustme

from headgate.server import listener_watch
from headgate.server.listening_sockets import PLAIN
from server.running import RunningServer, running_server
from waiting import LIMIT_S

NAMES = (*PLAIN, "rocketmq_tls")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with all listeners, which are looked at all the time."""
    folder = tmp_path_factory.mktemp("server")
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    tls = {"certificate": str(folder / "server.pem"), "key": str(folder / "server.pem")}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(listener_watch, "_LOOKED_S", 0.02)
        with running_server(folder, listeners={"servicebus": 0}, tls=tls) as running:
            yield running


def asked(running: RunningServer, path: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{running.ports['http']}{path}", timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), LIMIT_S):
        return True
    return False


def watched(running: RunningServer, name: str) -> listener_watch.Listener:
    return running.context.listeners._watched[name].listener


@pytest.mark.parametrize("name", NAMES)
def test_a_listener_that_ended_is_started_again(
    running: RunningServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(running, "/health")[0] == asked(running, "/health/ready")[0] == 200
    port, before = running.ports[name], running.context.listeners.restarts[name]
    refused = OSError("not yet")

    def refuse(*_asked: object) -> socket.socket:
        raise refused

    with monkeypatch.context() as patched:
        patched.setattr(listener_watch, "open_listener", refuse)
        running.call(watched(running, name).close)
        assert not accepts(port)
        assert running.call(running.context.listeners.ended) == [name]
        if name != "http":
            for path in ("/health", "/health/ready"):
                assert asked(running, path) == (
                    503,
                    f"{asked(running, path)[1].splitlines()[0]}\nlistener {name} does not accept\n",
                )
    running.until(lambda: running.context.listeners.restarts[name] == before + 1)
    assert accepts(port)
    assert asked(running, "/health")[0] == 200
    metrics = asked(running, "/metrics")[1]
    assert f'headgate_listener_restarts_total{{listener="{name}"}} {before + 1}' in metrics
    assert f'headgate_listener_accepts{{listener="{name}"}} 1' in metrics


def test_a_socket_that_listens_no_more_is_seen(running: RunningServer) -> None:
    """The system ends it, and neither the loop nor the server is told."""
    name = "stomp"
    before = running.context.listeners.restarts[name]
    listener = watched(running, name)
    assert isinstance(listener, listener_watch.SocketListener)
    running.call(lambda: listener._socket.shutdown(socket.SHUT_RDWR))
    running.until(lambda: running.context.listeners.restarts[name] == before + 1)
    assert accepts(running.ports[name])
