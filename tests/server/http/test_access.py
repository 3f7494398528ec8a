"""Who may ask what: sessions by cookie, tokens, requests of other pages."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.broker import Permissions
from headgate.server.http import sessions
from server.links import SetClock
from server.running import RunningServer, running_server
from waiting import LIMIT_S

GUEST = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
PASSWORD = {"user": "anna", "password": "secret"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    users = [{"name": "anna", "password": "secret", "permissions": {"configure": ".*", "read": ".*"}}]
    with running_server(tmp_path, handlers={}, user=users, stream=[{"name": "orders"}]) as running:
        yield running


class Page:
    """A page of the server in a browser, which keeps the cookie."""

    def __init__(self, running: RunningServer) -> None:
        self._running = running
        self.host = f"127.0.0.1:{running.ports['http']}"
        self.cookie = ""
        self.headers: dict[str, str] = {}
        """Of the last answer."""

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Headers by names with `_`; an empty one is left out."""
        sent = {
            "Origin": "" if method == "GET" else f"http://{self.host}",
            "Sec-Fetch-Site": "same-origin",
            "Sec-Fetch-Mode": "cors",
            "Content-Type": "" if body is None else "application/json",
            "Cookie": self.cookie,
        } | {name.replace("_", "-"): text for name, text in headers.items()}
        connection = http.client.HTTPConnection(self.host, timeout=LIMIT_S)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, f"/api/{path}", data, {name: text for name, text in sent.items() if text})
            answer = connection.getresponse()
            self.headers = {name.lower(): text for name, text in answer.getheaders()}
            read = answer.read()
        finally:
            connection.close()
        if "set-cookie" in self.headers:
            self.cookie = self.headers["set-cookie"].partition(";")[0]
        return answer.status, json.loads(read) if read else None

    def log_in(self) -> None:
        status, told = self.ask("POST", "session", PASSWORD)
        assert status == 200, told


@pytest.fixture
def page(running: RunningServer) -> Page:
    page = Page(running)
    page.log_in()
    return page


def test_a_login_is_a_cookie_that_no_script_reads_and_no_other_site_sends(running: RunningServer, page: Page) -> None:
    cookie = page.headers["set-cookie"]
    name, value = page.cookie.split("=")
    assert name == f"headgate-session-{running.ports['http']}" and len(value) >= 43
    assert cookie.partition("; ")[2].split("; ") == ["Path=/", "HttpOnly", "SameSite=Strict"]
    status, told = page.ask("GET", "session")
    assert (status, told["user"], told["tags"]) == (200, "anna", [])
    assert told["expires_ms"] - running.context.clock.now_ms() > (sessions.IDLE_S - 60) * 1000
    assert page.ask("GET", "streams")[1][0]["name"] == "orders"
    assert value not in repr(vars(running.server._access.sessions))


def test_under_tls_the_cookie_is_secure(running: RunningServer) -> None:
    page = Page(running)
    # A proxy on this machine that ends TLS.
    assert page.ask("POST", "session", PASSWORD, X_Forwarded_Proto="https", Origin=f"https://{page.host}")[0] == 200
    assert "; Secure" in page.headers["set-cookie"]


def test_a_logout_ends_the_session_and_not_the_others(running: RunningServer, page: Page) -> None:
    other, before = Page(running), page.cookie
    other.log_in()
    assert page.ask("DELETE", "session") == (204, None)
    assert "Max-Age=0" in page.headers["set-cookie"]
    page.cookie = before
    assert page.ask("GET", "session")[0] == 401
    assert other.ask("GET", "session")[0] == 200


def test_a_page_gets_no_dialog_of_the_browser(running: RunningServer) -> None:
    page = Page(running)
    status, problem = page.ask("GET", "streams")
    assert (status, problem["status"], page.headers.get("www-authenticate")) == (401, 401, None)
    assert page.ask("POST", "session", {"user": "anna", "password": "wrong"})[0] == 401
    assert "www-authenticate" not in page.headers and not page.cookie
    for mode in ("navigate", ""):
        assert page.ask("GET", "streams", Sec_Fetch_Mode=mode)[0] == 401
        assert "www-authenticate" in page.headers


@pytest.mark.parametrize("how", ["password", "no password", "deleted", "deleted and made again", "idle"])
def test_a_session_ends_with_what_it_stands_on(
    running: RunningServer, page: Page, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = running.context.broker.users
    assert page.ask("GET", "session")[0] == 200
    match how:
        case "password":
            running.call(users.set_password, "anna", "secret")
        case "no password":
            running.call(users.set_password, "anna", None)
        case "deleted":
            running.call(users.remove, "anna")
        case "deleted and made again":
            running.call(users.remove, "anna")
            running.call(users.add, "anna", "secret")
        case "idle":
            monkeypatch.setattr(sessions, "IDLE_S", -1.0)
    assert page.ask("GET", "session")[0] == 401
    monkeypatch.undo()
    assert page.ask("GET", "session")[0] == 401


def test_the_default_user_has_sessions_on_this_machine_only(running: RunningServer) -> None:
    page = Page(running)
    assert page.ask("POST", "session", {"user": "guest", "password": "guest"})[0] == 200
    assert page.ask("GET", "session")[0] == 200
    # A proxy on this machine says where its client is.
    assert page.ask("GET", "session", X_Forwarded_For="192.0.2.7")[0] == 401


def test_a_page_whose_name_was_made_to_mean_this_machine_is_not_the_default_user(running: RunningServer) -> None:
    port = running.ports["http"]
    guest = {"user": "guest", "password": "guest"}
    for host in (f"evil.example:{port}", "localhost.evil.example", f"127.0.0.1.evil.example:{port}", "evillocalhost"):
        page, as_own = Page(running), {"Host": host, "Origin": f"http://{host}"}
        assert page.ask("POST", "session", guest, **as_own)[0] == 401 and not page.cookie
        assert page.ask("GET", "session", Host=host, **GUEST)[0] == 401
        # Those who may come from anywhere may use any name.
        assert page.ask("POST", "session", PASSWORD, **as_own)[0] == 200
    for host in ("localhost", f"LOCALHOST.:{port}", f"[::1]:{port}", f"127.0.0.1:{port}", socket.gethostname()):
        page = Page(running)
        assert page.ask("POST", "session", guest, Host=host, Origin=f"http://{host}")[0] == 200, host
        assert page.ask("GET", "session", Host="evil.example")[0] == 401


def test_sessions_are_idle_from_their_last_request_and_limited_per_user(running: RunningServer) -> None:
    clock = SetClock()
    kept = sessions.Sessions(running.context.broker.users, clock)
    stored = running.context.broker.users.get("anna").password_hash
    used, unused = kept.begin("anna", stored), kept.begin("anna", stored)
    clock.seconds += sessions.IDLE_S * 0.6
    assert kept.find(used) is not None
    clock.seconds += sessions.IDLE_S * 0.6
    assert kept.find(used) is not None and kept.find(unused) is None
    more = [kept.begin("anna", stored) for _ in range(sessions.SESSIONS_PER_USER)]
    assert kept.find(used) is None
    assert all(kept.find(each) is not None for each in more)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 204),
        ({"Sec_Fetch_Site": ""}, 204),
        ({"Origin": ""}, 204),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://evil.example", "Sec_Fetch_Site": ""}, 403),
        ({"Origin": "http://127.0.0.1:3000", "Sec_Fetch_Site": "same-site"}, 403),
        ({"Origin": "null", "Sec_Fetch_Site": ""}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "none", "Origin": ""}, 403),
        ({"Sec_Fetch_Site": "", "Origin": ""}, 403),
    ],
)
def test_a_change_by_a_cookie_has_to_come_from_our_page(
    running: RunningServer, page: Page, headers: dict[str, str], status: int
) -> None:
    made = page.ask("POST", "tokens", {"description": "x"})
    assert made[0] == 201
    assert page.ask("DELETE", f"tokens/{made[1]['id']}", **headers)[0] == status
    assert len(page.ask("GET", "tokens")[1]) == (0 if status == 204 else 1)


def test_a_change_by_a_cookie_is_json(page: Page) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert page.ask("POST", "tokens", {"description": "x"}, Content_Type=kind)[0] == 415
    assert page.ask("POST", "tokens", {"description": "x"}, Content_Type="Application/JSON; charset=utf-8")[0] == 201


def test_other_pages_learn_nothing_and_log_nobody_in(running: RunningServer, page: Page) -> None:
    evil = {"Origin": "http://evil.example", "Sec_Fetch_Site": "cross-site"}
    assert page.ask("GET", "streams", Sec_Fetch_Site="cross-site")[0] == 403
    assert page.ask("DELETE", "streams/orders", Cookie="", **GUEST, **evil)[0] == 403
    stranger = Page(running)
    assert stranger.ask("POST", "session", PASSWORD, **evil)[0] == 403 and not stranger.cookie
    assert page.ask("GET", "openapi.json", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200


def test_a_token_is_its_user_until_it_is_revoked(running: RunningServer, page: Page) -> None:
    status, made = page.ask("POST", "tokens", {"description": "report"})
    assert status == 201
    script = Page(running)
    as_script = {"Authorization": f"Bearer {made['token']}", "Sec_Fetch_Site": "", "Sec_Fetch_Mode": "", "Origin": ""}
    told = script.ask("GET", "session", **as_script)[1]
    assert (told["user"], told["tags"], told["expires_ms"]) == ("anna", [], None)
    (row,) = script.ask("GET", "tokens", **as_script)[1]
    assert (row["id"], row["user"], row["description"], row["read_only"]) == (made["id"], "anna", "report", False)
    assert made["token"] not in json.dumps(row)
    assert script.ask("GET", "users", **as_script)[0] == 403
    assert script.ask("PUT", "streams/orders", {"arguments": {"max-age": "7D"}}, **as_script)[0] == 200
    assert script.ask("POST", "tokens", {"description": "more"}, **as_script)[0] == 403
    running.call(running.context.broker.users.permit, "anna", Permissions(read="^x"))
    assert script.ask("GET", "streams", **as_script) == (200, [])
    assert page.ask("DELETE", f"tokens/{made['id']}")[0] == 204
    assert page.ask("DELETE", f"tokens/{made['id']}")[0] == 404
    assert script.ask("GET", "session", **as_script)[0] == 401


def test_a_read_only_token_changes_nothing(running: RunningServer, page: Page) -> None:
    made = page.ask("POST", "tokens", {"description": "", "read_only": True, "expires_in_s": 3600})[1]
    as_script = {"Authorization": f"Bearer {made['token']}", "Cookie": ""}
    assert page.ask("GET", "streams", **as_script)[0] == 200
    for method, path in (("DELETE", "streams/orders"), ("DELETE", f"tokens/{made['id']}"), ("PUT", "topics/orders")):
        assert page.ask(method, path, **as_script)[0] == 403, path
    assert page.ask("GET", "tokens")[1][0]["expires_ms"] > running.context.clock.now_ms()


def test_tokens_of_others_are_the_administrators_matter(running: RunningServer, page: Page) -> None:
    script = Page(running)
    status, made = script.ask("POST", "tokens", {"description": "of guest"}, **GUEST)
    assert status == 201
    assert page.ask("GET", "tokens")[1] == []
    assert page.ask("DELETE", f"tokens/{made['id']}")[0] == 404
    own = page.ask("POST", "tokens", {"description": "of anna"})[1]
    assert [row["user"] for row in script.ask("GET", "tokens", **GUEST)[1]] == ["guest", "anna"]
    assert script.ask("DELETE", f"tokens/{own['id']}", **GUEST)[0] == 204
    assert script.ask("POST", "session", {"user": "guest", "password": made["token"]})[0] == 401


@pytest.mark.parametrize(
    "body", [{}, {"description": "x", "expires_in_s": 0}, {"description": "x" * 201}, {"description": "x", "user": "b"}]
)
def test_a_wrong_token_is_not_made(page: Page, body: Any) -> None:
    assert page.ask("POST", "tokens", body)[0] == 400
    assert page.ask("GET", "tokens")[1] == []
