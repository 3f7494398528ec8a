"""`GET /api/streams/NAME/follow`: what comes, to whom, for how long, and what is left of it when it has ended."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from headgate.log import Stream, Writer, stream_folder
from headgate.message import Message
from headgate.server.api import messages
from server.http.test_access import Page
from server.http.test_endpoints import ask
from server.running import RunningServer, running_server
from waiting import LIMIT_S, eventually

USERS = [
    {"name": "anna", "password": "secret", "permissions": {"read": "^orders$"}},
    {"name": "nobody", "password": "secret"},
]


def basic(user: str = "guest", password: str = "guest") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    monkeypatch.setattr(messages, "TURN_S", 0.01)
    monkeypatch.setattr(messages, "WAITING_PER_READING", 0)
    with running_server(tmp_path, handlers={}, user=USERS, stream=[{"name": "orders"}]) as running:
        yield running


def publish(running: RunningServer, count: int, color: str = "red") -> None:
    root = running.context.broker.root
    encoded = Message(b"b", application_properties={"color": color}).encode()
    with Writer.open(Stream.open(stream_folder(root, "orders")), now_ms=0) as writer:
        writer.append([(encoded, None)] * count, now_ms=0)


class Events:
    """An open follower."""

    def __init__(self, running: RunningServer, headers: dict[str, str] | None = None, **query: Any) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", running.ports["http"], timeout=LIMIT_S)
        asked = urlencode({name.rstrip("_"): value for name, value in query.items()}, doseq=True)
        self._connection.request("GET", f"/api/streams/orders/follow?{asked}", headers=headers or basic())
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        if self.status == 200:
            assert self._answer.headers["content-type"].startswith("text/event-stream")
            assert self.lines() == [": headgate"]
        else:
            self.problem = json.loads(self._answer.read())

    def lines(self) -> list[str]:
        """The lines of the next event or comment; none at the end."""
        lines = []
        while line := self._answer.readline().decode().rstrip("\n"):
            lines.append(line)
        return lines

    def next(self) -> tuple[str, Any]:
        """The next event and its data."""
        while (lines := self.lines()) and lines[0].startswith(":"):
            pass
        fields = dict(line.split(": ", 1) for line in lines)
        return fields["event"], json.loads(fields["data"])

    def batches(self, matched: int) -> list[Any]:
        """Batches until so many messages have matched."""
        found: list[Any] = []
        while sum(batch["matched"] for batch in found) < matched:
            event, batch = self.next()
            assert event == "batch", batch
            found.append(batch)
        return found

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


Follow = Callable[..., Events]


@pytest.fixture
def follow(running: RunningServer) -> Iterator[Follow]:
    """Opens followers, which end with the test."""
    with contextlib.ExitStack() as opened:

        def open_one(headers: dict[str, str] | None = None, **query: Any) -> Events:
            events = Events(running, headers, **query)
            opened.callback(events.close)
            return events

        yield open_one


def test_matches_come_as_they_are_published_and_all_are_counted(follow: Follow, running: RunningServer) -> None:
    publish(running, 3)
    events = follow(filter="color = 'red'")
    publish(running, 2, "blue")
    publish(running, 5)
    found = events.batches(5)
    assert [row["offset"] for batch in found for row in batch["messages"]] == list(range(5, 10))
    publish(running, 2_000)
    sampled = events.batches(2_000)
    assert sum(batch["matched"] for batch in sampled) == 2_000
    assert all(batch["shown"] == len(batch["messages"]) <= 100 for batch in sampled)
    assert sampled[-1]["next_offset"] == 2_010 and sampled[-1]["counters"]["messages_kept"] == 2_005


def test_a_follower_begins_where_it_is_told_and_goes_on_where_its_connection_was_lost(
    follow: Follow, running: RunningServer
) -> None:
    publish(running, 20)
    first = follow(from_=5)
    assert [row["offset"] for batch in first.batches(15) for row in batch["messages"]] == list(range(5, 20))
    first.close()
    publish(running, 4)
    again = follow(basic() | {"Last-Event-ID": "20"}, from_=5)
    assert [row["offset"] for batch in again.batches(4) for row in batch["messages"]] == list(range(20, 24))


def test_while_nothing_matches_counters_and_comments_come(
    follow: Follow, running: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "QUIET_S", 0.02)
    monkeypatch.setattr(messages, "HEARTBEAT_S", 0.04)
    events = follow(filter="color = 'red'")
    assert events.lines() == [": still here"]
    publish(running, 7, "blue")
    event, batch = events.next()
    assert (event, batch["matched"], batch["counters"]["messages_examined"]) == ("batch", 0, 7)


@pytest.mark.parametrize(
    ("headers", "query", "status", "reason"),
    [
        (basic("nobody", "secret"), {}, 403, "read"),
        (basic("anna", "wrong"), {}, 401, ""),
        (basic(), {"from_": 9}, 400, "behind the end"),
        (basic(), {"filter": "a = ="}, 400, "a = ="),
        (basic(), {"language": "klingon", "filter": "a"}, 400, "klingon"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    follow: Follow, running: RunningServer, headers: dict[str, str], query: dict[str, Any], status: int, reason: str
) -> None:
    events = follow(headers, **query)
    assert (events.status, reason in events.problem["detail"]) == (status, True), events.problem


def _change_password(running: RunningServer) -> None:
    assert ask(running, "PUT", "/api/users/anna", b'{"password": "other"}')[0] == 200


def _delete_user(running: RunningServer) -> None:
    assert ask(running, "DELETE", "/api/users/anna")[0] == 204


@pytest.mark.parametrize("change", [_change_password, _delete_user])
@pytest.mark.parametrize("by", ["password", "session", "token"])
def test_it_ends_with_the_login(
    follow: Follow, running: RunningServer, by: str, change: Callable[[RunningServer], None]
) -> None:
    page = Page(running)
    page.log_in()
    token = page.ask("POST", "tokens", {"description": "d"})[1]["token"]
    logins = {
        "password": basic("anna", "secret"),
        "session": {"Cookie": page.cookie},
        "token": {"Authorization": f"Bearer {token}"},
    }
    events = follow(logins[by])
    change(running)
    if by == "token" and change is _change_password:
        # A token does not end with it.
        publish(running, 1)
        assert len(events.batches(1)) == 1
        assert page.ask("GET", "session")[0] == 401
        _delete_user(running)
    event, problem = events.next()
    assert (event, problem["status"], events.lines()) == ("error", 403, [])


def open_segments(running: RunningServer) -> list[Path]:
    """The segments of a server's streams that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(link.readlink())
    root = running.context.broker.root
    return [path for path in found if path.suffix == ".segment" and path.is_relative_to(root)]


def test_it_ends_with_a_logout(follow: Follow, running: RunningServer) -> None:
    page = Page(running)
    page.log_in()
    events = follow({"Cookie": page.cookie})
    publish(running, 1)
    events.batches(1)
    assert open_segments(running)
    assert page.ask("DELETE", "session")[0] == 204
    assert events.next()[0] == "error"
    eventually(lambda: not open_segments(running))


def test_it_ends_with_the_right_to_read_and_with_the_stream(follow: Follow, running: RunningServer) -> None:
    events = follow(basic("anna", "secret"))
    body = json.dumps({"permissions": {"read": "^other$"}}).encode()
    assert ask(running, "PUT", "/api/users/anna", body)[0] == 200
    event, problem = events.next()
    assert (event, problem["status"]) == ("error", 403) and "anna" in problem["detail"]
    other = follow()
    assert ask(running, "DELETE", "/api/streams/orders?force=true")[0] == 200
    event, problem = other.next()
    assert (event, problem["status"], other.lines()) == ("error", 404, [])
    # Where the files were is nothing for users.
    assert problem["detail"] == "orders: the stream was deleted"


def test_a_request_for_the_head_only_is_answered_and_follows_nothing(running: RunningServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["http"], timeout=LIMIT_S)
    try:
        for _ in range(2):
            connection.request("HEAD", "/api/streams/orders/follow", headers=basic())
            answer = connection.getresponse()
            assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
            answer.read()
    finally:
        connection.close()
    eventually(lambda: not open_segments(running))


def test_followers_are_limited_and_leave_with_their_clients(
    follow: Follow, running: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "FOLLOWERS_PER_USER", 1)
    first = follow()
    assert follow().status == 503 and follow(basic("anna", "secret")).status == 200
    first.close()
    deadline_s = time.monotonic() + LIMIT_S
    while (again := follow()).status == 503:
        assert time.monotonic() < deadline_s
    assert again.status == 200
    monkeypatch.setattr(messages, "FOLLOWERS_PER_USER", 9)
    monkeypatch.setattr(messages, "FOLLOWERS", 0)
    assert follow(basic("anna", "secret")).status == 503


def test_the_server_stops_without_waiting_for_followers(follow: Follow, running: RunningServer) -> None:
    events = follow()
    began_s = time.monotonic()
    stopped = running.stop()
    assert events.lines() == []
    stopped.result(LIMIT_S)
    # uvicorn gives answers two seconds, and then cancels them.
    assert time.monotonic() - began_s < 1.9
