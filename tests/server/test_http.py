from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from headgate.broker.consumers import ConsumerOptions, MessageConsumer
from headgate.derived.match_index import FilterRegistry, IndexSettings
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification
from headgate.log.format import FILE_HEAD_BYTES
from headgate.server import listings, mixed_listener
from headgate.server.api import messages, why
from headgate.server.http import application
from headgate.server.http.access import LOGINS_PER_ADDRESS
from headgate.server.http.dispatcher import REQUESTS
from headgate.server.transport import Peer
from server.http.test_access import Page
from server.links import FakeLink
from server.running import RunningServer, running_server
from waiting import LIMIT_S, until_closed

GUEST = ("guest", "guest")
AS_GUEST = b"Host: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    users = [{"name": "anna", "password": "secret", "permissions": {"read": "^orders$"}}]
    with running_server(tmp_path, handlers={}, user=users, stream=[{"name": "orders"}, {"name": "hidden"}]) as running:
        yield running


def request(
    running: RunningServer, path: str, *, user: tuple[str, str] | None = None, method: str = "GET", body: Any = None
) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{running.ports['http']}{path}", data=data, method=method)
    if user is not None:
        asked.add_header("Authorization", "Basic " + base64.b64encode(":".join(user).encode()).decode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def listed(running: RunningServer, what: str, user: tuple[str, str] = GUEST) -> Any:
    status, text = request(running, f"/api/{what}", user=user)
    assert status == 200, text
    return json.loads(text)


def metrics(running: RunningServer, path: str = "/metrics") -> dict[str, float]:
    status, text = request(running, path)
    assert status == 200
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_health_needs_no_login(running: RunningServer) -> None:
    assert request(running, "/health/live") == (200, "live\n")
    assert request(running, "/health/ready") == (200, "ready\n")
    running.context.is_started = False
    assert request(running, "/health/ready") == (503, "not ready\n")


@pytest.mark.parametrize("path", ["streams", "consumers", "connections", "users", "users/anna"])
def test_lists_need_a_login(running: RunningServer, path: str) -> None:
    method = "DELETE" if "/" in path else "GET"
    assert request(running, f"/api/{path}", method=method)[0] == 401
    status, text = request(running, f"/api/{path}", method=method, user=("guest", "wrong"))
    assert status == 401 and json.loads(text) == {
        "type": "about:blank",
        "title": "Unauthorized",
        "status": 401,
        "detail": "Login was refused",
        "error": "Login was refused",
    }


def test_wrong_passwords_are_answered_late_and_in_the_end_not_looked_at(tmp_path: Path) -> None:
    with running_server(
        tmp_path, handlers={}, timeouts={"login_failure_s": 0.2}, limits={"login_failures_a_minute": 2}
    ) as running:
        for _ in range(2):
            before = time.monotonic()
            assert request(running, "/api/streams", user=("guest", "wrong"))[0] == 401
            assert time.monotonic() - before >= 0.2
        assert request(running, "/api/streams", user=GUEST)[0] == 401


def test_streams_are_those_that_the_user_may_read(running: RunningServer) -> None:
    assert [row["name"] for row in listed(running, "streams")] == ["hidden", "orders"]
    (row,) = listed(running, "streams", ("anna", "secret"))
    assert (row["name"], row["messages"], row["next_offset"], row["consumers"]) == ("orders", 0, 0, 0)
    assert row["counters"]["messages_published"] == row["reading"]["messages_matched"] == 0
    assert row["size_bytes"] == 2 * FILE_HEAD_BYTES
    assert row["match_index"] is None


def test_a_stream_is_shown_whole_to_who_may_read_it(running: RunningServer) -> None:
    for user in (GUEST, ("anna", "secret")):
        status, text = request(running, "/api/streams/orders", user=user)
        assert status == 200
        row = json.loads(text)
        assert (row["name"], row["segments"], row["chunks"], row["filter_size_bytes"]) == ("orders", 1, 0, 16)
        assert (row["publishers"], row["stored_offsets"]) == ({}, {})
    for name in ("hidden", "missing"):
        assert request(running, f"/api/streams/{name}", user=("anna", "secret"))[0] == 403
    assert request(running, "/api/streams/missing", user=GUEST)[0] == 404
    assert request(running, "/api/streams/orders")[0] == 401


def test_consumers_are_listed_with_the_filter_in_force(running: RunningServer) -> None:
    def consume() -> None:
        session = running.context.broker.open_session("guest", protocol="AMQP 1.0", connection="127.0.0.1:1#1")
        options = ConsumerOptions(
            start=OffsetSpecification.first(),
            filter_values=(b"emea",),
            match_unfiltered=True,
            filter=Filter.parse("price > 10", "amqp"),
            name="app",
            tag="link-1",
        )
        session.message_consumer("orders", options).want_more(5)
        session.message_consumer("hidden", ConsumerOptions(start=OffsetSpecification.first()))

    running.call(consume)
    assert len(listed(running, "consumers")) == 2
    (row,) = listed(running, "consumers", ("anna", "secret"))
    assert (row["stream"], row["name"], row["tag"], row["credit"], row["lag"]) == ("orders", "app", "link-1", 5, 0)
    assert (row["filtered_lag"], row["lost"]) == (0, 0)
    assert (row["dialect"], row["filter"]) == ("amqp", "price > 10")
    assert (row["filter_values"], row["match_unfiltered"]) == (["emea"], True)
    found = metrics(running, "/metrics/per-object")
    labels = '{connection="127.0.0.1:1#1",consumer="app",stream="orders",tag="link-1"}'
    assert found[f"headgate_consumer_credit{labels}"] == 5
    assert metrics(running)["rabbitmq_consumers"] == 2


def test_names_that_are_no_utf_8_hide_nothing(running: RunningServer) -> None:
    def consume() -> None:
        session = running.context.broker.open_session("guest", protocol="AMQP 0.9.1", connection="127.0.0.1:1#1")
        options = ConsumerOptions(start=OffsetSpecification.first(), name="n\udcff", tag="t\udcff")
        session.message_consumer("orders", options)
        link = FakeLink(Peer("127.0.0.1", 1, is_loopback=True))
        record = running.context.connections.opened(link, listener="amqp", now_ms=0)
        record.user, record.client = "guest", {"product\udcff": "p\udcff"}

    running.call(consume)
    (row,) = listed(running, "consumers")
    assert (row["name"], row["tag"]) == ("n\\udcff", "t\\udcff")
    assert [row["client"] for row in listed(running, "connections")] == [{"product\\udcff": "p\\udcff"}]
    labels = r'{connection="127.0.0.1:1#1",consumer="n\\udcff",stream="orders",tag="t\\udcff"}'
    assert f"headgate_consumer_credit{labels}" in metrics(running, "/metrics/per-object")


def test_metrics_have_the_names_of_rabbitmq_and_our_own(running: RunningServer) -> None:
    found = metrics(running)
    assert found["rabbitmq_queues"] == 2
    assert found['rabbitmq_detailed_queue_messages{queue="orders",vhost="/"}'] == 0
    assert found['headgate_chunks_skipped_total{stream="orders"}'] == 0
    assert found["rabbitmq_stream_read_bytes_total"] == 0
    assert found["rabbitmq_process_resident_memory_bytes"] > 10_000_000


def test_how_far_a_match_index_is_behind_is_shown(running: RunningServer) -> None:
    stream = running.call(running.context.broker.catalogue.get, "orders")
    registry = FilterRegistry(stream.stream)
    registry.configure(IndexSettings(calculate_filter_bitmap=True))
    registry.register("emea", "region = 'EMEA'", "amqp", now_ms=1)
    assert 'headgate_match_index_lag_messages{stream="orders"}' not in metrics(running)
    session = running.context.broker.open_session("guest", protocol="AMQP 1.0", connection="127.0.0.1:1#1")
    running.call(session.publisher, "orders")
    running.until(lambda: running.context.broker.index_lag(stream) is not None)
    assert listed(running, "streams")[1]["match_index"] == {"lag_messages": 0, "lag_seconds": 0.0}
    found = metrics(running)
    assert found['headgate_match_index_lag_messages{stream="orders"}'] == 0
    assert found['headgate_match_index_lag_seconds{stream="orders"}'] == 0
    assert 'headgate_match_index_lag_seconds{stream="hidden"}' not in found


def test_lists_and_metrics_count_messages_and_no_bookkeeping(running: RunningServer) -> None:
    consumers: list[MessageConsumer] = []

    def consume() -> None:
        session = running.context.broker.open_session("guest", protocol="AMQP 1.0", connection="127.0.0.1:1#1")
        stream = running.context.broker.catalogue.get("orders")
        writer = stream.open_writer(now_ms=1)
        # Every sixth offset is that of a tracking chunk.
        for number in range(20):
            writer.append([(b"m", None)] * 5, now_ms=1)
            writer.store_offset(b"app", 6 * number + 4)
            writer.flush_offsets(now_ms=1)
        stream.close_writer()
        stream.refresh()
        for start in (0, 57, 119):
            options = ConsumerOptions(start=OffsetSpecification.offset(start), name=f"at {start}", tag=str(start))
            consumers.append(session.message_consumer("orders", options))

    running.call(consume)
    for _ in range(2):
        (row,) = listed(running, "streams", ("anna", "secret"))
        assert (row["first_offset"], row["next_offset"], row["messages"]) == (0, 120, 100)
        status, text = request(running, "/api/streams/orders", user=GUEST)
        whole = json.loads(text)
        assert status == 200
        assert (whole["messages"], whole["size_bytes"]) == (row["messages"], row["size_bytes"])
        assert {each["name"]: each["lag"] for each in listed(running, "consumers")} == {
            "at 0": 100,
            "at 57": 52,
            "at 119": 0,
        }
        assert [(each["stored_offset"], each["lag"]) for each in listed(running, "offsets")] == [(118, 0)]
        found = metrics(running, "/metrics/per-object")
        assert found["rabbitmq_queue_messages"] == 100
        assert found['rabbitmq_detailed_queue_messages{queue="orders",vhost="/"}'] == 100
        assert found["rabbitmq_stream_consumer_max_offset_lag"] == 100
        labels = '{connection="127.0.0.1:1#1",consumer="at 119",stream="orders",tag="119"}'
        assert found[f"headgate_consumer_lag{labels}"] == 0


def test_an_administrator_makes_changes_and_removes_users(running: RunningServer) -> None:
    new = {"password": "p", "permissions": {"write": "^o"}}
    assert request(running, "/api/users/ben", user=GUEST, method="PUT", body=new)[0] == 201
    assert [row["name"] for row in listed(running, "streams", ("ben", "p"))] == []
    change = {"tags": ["monitoring"], "password": "q"}
    assert request(running, "/api/users/ben", user=GUEST, method="PUT", body=change)[0] == 200
    assert len(listed(running, "streams", ("ben", "q"))) == 2
    row = next(row for row in listed(running, "users") if row["name"] == "ben")
    assert row == {
        "name": "ben",
        "tags": ["monitoring"],
        "configure": "",
        "write": "^o",
        "read": "",
        "has_password": True,
    }
    assert request(running, "/api/users/ben", user=GUEST, method="DELETE")[0] == 204
    assert request(running, "/api/users/ben", user=GUEST, method="DELETE")[0] == 404


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"colour": "red"}, "colour"),
        ({"password": 5}, "password"),
        ({"permissions": {"read": "("}}, "regular expression"),
    ],
)
def test_a_wrong_change_of_a_user_is_refused_with_the_reason(running: RunningServer, body: Any, expected: str) -> None:
    status, text = request(running, "/api/users/new", user=GUEST, method="PUT", body=body)
    assert status == 400 and expected in json.loads(text)["error"]
    assert "new" not in running.context.broker.users


def test_a_body_that_is_too_long_is_refused(running: RunningServer) -> None:
    assert request(running, "/api/users/new", user=GUEST, method="PUT", body={"password": "x" * 70_000})[0] == 413


def test_users_are_the_administrators_matter(running: RunningServer) -> None:
    assert request(running, "/api/users", user=("anna", "secret"))[0] == 403
    assert request(running, "/api/users/anna", user=("anna", "secret"), method="DELETE")[0] == 403


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Basic Z3Vlc3Q=", "Bearer abc", "Basic /////w=="])
def test_credentials_that_are_none_are_refused(running: RunningServer, header: str) -> None:
    asked = urllib.request.Request(f"http://127.0.0.1:{running.ports['http']}/api/streams")
    asked.add_header("Authorization", header)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=LIMIT_S)
    with caught.value as error:
        assert error.code == 401


@pytest.mark.parametrize(
    "credentials", ["é".encode(), b"\xff\xfe", b"Z3Vlc3Q6Z3Vlc3Q=\x80", "Z3Vlc3Q6Z3Vlc3Q＝".encode()]
)
def test_credentials_that_are_no_ascii_are_refused_as_others(
    running: RunningServer, credentials: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(running) as client:
        client.sendall(b"GET /api/streams HTTP/1.0\r\nAuthorization: Basic " + credentials + b"\r\n\r\n")
        assert until_closed(client).startswith(b"HTTP/1.1 401 ")
    assert not [record for record in caplog.records if record.exc_info]


def test_a_body_that_its_client_cuts_off_ends_quietly(running: RunningServer) -> None:
    site = application(running.context, running.server._access, running.server.api_groups)
    told = iter([{"type": "http.request", "body": b'{"pass', "more_body": True}, {"type": "http.disconnect"}])
    scope = {
        "type": "http",
        "method": "PUT",
        "path": "/api/users/new",
        "raw_path": b"/api/users/new",
        "query_string": b"",
        "headers": [(b"authorization", b"Basic Z3Vlc3Q6Z3Vlc3Q=")],
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> dict[str, object]:
        return next(told)

    async def send(_message: object) -> None:
        """Nobody is there."""

    asyncio.run_coroutine_threadsafe(site(scope, receive, send), running.loop).result(LIMIT_S)
    assert next(told, None) is None and "new" not in running.context.broker.users


def connected(running: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.ports["http"]), LIMIT_S)


def test_silent_connections_stand_in_nobodys_way(tmp_path: Path) -> None:
    more = 10
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(running_server(tmp_path, handlers={}, timeouts={"handshake_s": 600.0}))
        silent = [stack.enter_context(connected(running)) for _ in range(mixed_listener.CONNECTIONS + more)]
        assert request(running, "/health/live") == (200, "live\n")
        for client in silent[: more + 1]:
            assert until_closed(client) == b""
        # The latest of them are still served.
        silent[-1].sendall(b"GET /health/live HTTP/1.0\r\n\r\n")
        assert until_closed(silent[-1]).endswith(b"live\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /hea",
        b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\nGET /hea",
        b"GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab",
        b"PUT /api/users/x HTTP/1.1\r\n" + AS_GUEST + b"Content-Length: 5\r\n\r\nab",
    ],
)
def test_a_client_that_owes_a_request_is_cut_off(tmp_path: Path, said: bytes) -> None:
    answered = said.count(b"/health/live")
    # An answer has to leave within that time, however busy the machine is.
    timeouts = {"handshake_s": 2.0 if answered else 0.3}
    with running_server(tmp_path, handlers={}, timeouts=timeouts) as running, connected(running) as client:
        client.sendall(said)
        assert until_closed(client).count(b"200 OK") == answered


def test_a_client_that_does_not_take_its_answers_is_cut_off(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, handlers={}, timeouts={"handshake_s": 0.3}) as running,
        connected(running) as client,
        contextlib.suppress(ConnectionError),
    ):
        while True:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100)


def test_requests_that_read_files_do_not_wait_for_those_that_are_slow(tmp_path: Path) -> None:
    held = threading.Event()
    with running_server(tmp_path, handlers={}) as running:
        try:
            for _ in range(messages.READS + messages.READERS + why.QUESTIONS):
                running.call(running.loop.run_in_executor, None, held.wait)
            assert request(running, "/api/languages", user=GUEST)[0] == 200
        finally:
            held.set()


class SlowAuthenticator:
    """Answers nobody until it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[str], None]] = []

    def authenticate(self, link: object, credentials: object, then: Callable[[str], None], **_given: object) -> None:
        self.waiting.append(then)

    def is_from_elsewhere(self, peer: Peer, user: str) -> bool:
        return False

    def answer(self) -> None:
        for then in self.waiting:
            then("guest")


def test_requests_of_users_that_wait_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered, waiting = threading.Event(), []

    async def wait(_context: object) -> None:
        waiting.append(1)
        while not answered.is_set():
            await asyncio.sleep(0.01)

    with contextlib.ExitStack() as stack:
        running = stack.enter_context(running_server(tmp_path, handlers={}))
        monkeypatch.setattr(listings, "counted", wait)
        asking = []
        for _ in range(REQUESTS):
            asking.append(client := stack.enter_context(connected(running)))
            client.sendall(b"GET /api/offsets HTTP/1.1\r\nConnection: close\r\n" + AS_GUEST + b"\r\n")
            running.until(lambda: len(waiting) == len(asking))
        assert request(running, "/api/streams", user=GUEST)[0] == 503
        assert Page(running).ask("POST", "session", {"user": "guest", "password": "guest"})[0] == 200
        answered.set()
        for client in asking:
            assert b"200 OK" in until_closed(client)
        assert request(running, "/api/streams", user=GUEST)[0] == 200


@pytest.mark.slow
def test_logins_that_wait_are_limited_and_hold_up_no_session_and_no_health(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(running_server(tmp_path, handlers={}, timeouts={"handshake_s": 2.0}))
        session = Page(running)
        assert session.ask("POST", "session", {"user": "guest", "password": "guest"})[0] == 200
        given, slow = running.context.authenticator, SlowAuthenticator()
        running.context.authenticator = cast(Any, slow)
        asking = []
        for _ in range(LOGINS_PER_ADDRESS):
            asking.append(client := stack.enter_context(connected(running)))
            client.sendall(b"GET /api/streams HTTP/1.1\r\nConnection: close\r\n" + AS_GUEST + b"\r\n")
        running.until(lambda: len(slow.waiting) == LOGINS_PER_ADDRESS)
        assert request(running, "/api/streams", user=GUEST)[0] == 503
        assert session.ask("GET", "streams")[0] == 200
        assert request(running, "/health/live")[0] == 200
        # It comes later than them, and when it is cut off they were looked at.
        with connected(running) as silent:
            assert until_closed(silent) == b""
        running.call(slow.answer)
        for client in asking:
            assert b"200 OK" in until_closed(client)
        running.context.authenticator = given
        assert request(running, "/api/streams", user=GUEST)[0] == 200
