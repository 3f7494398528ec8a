from __future__ import annotations

import base64
import http.client
import json
import re
import shutil
import struct
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from headgate.broker import ViewCounters
from headgate.broker.consumer_groups import GroupCounters, GroupCounts, GroupSettings
from headgate.broker.consumers import ConsumerOptions
from headgate.broker.stream import StreamCounters
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification
from headgate.scan import ScanCounters
from headgate.server.console import FILES
from headgate.topic import AddRule, CreateSubscription, RuleDefinition
from interop.programs import Client, Program, start
from server.links import FakeLink
from server.running import RunningServer, running_server
from waiting import LIMIT_S, eventually

CONSOLE = Path(str(resources.files("headgate.server.console")))
SOURCES = {name: (CONSOLE / name).read_text(encoding="utf-8") for name in FILES.values() if name != "favicon.ico"}
LISTS = (
    "overview",
    "streams",
    "topics",
    "subscriptions",
    "rules",
    "rocketmq/groups",
    "consumers",
    "offsets",
    "connections",
    "users",
)
GUEST = ("guest", "guest")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    users = [{"name": "anna", "password": "secret", "permissions": {"read": "^orders$"}}]
    with running_server(tmp_path, handlers={}, user=users, stream=[{"name": "orders"}]) as running:
        yield running


def answer(
    running: RunningServer, path: str, method: str = "GET", user: tuple[str, str] | None = None
) -> tuple[int, Mapping[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["http"], timeout=LIMIT_S)
    headers = {}
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
    try:
        connection.request(method, path, headers=headers)
        given = connection.getresponse()
        return given.status, given.headers, given.read().decode()
    finally:
        connection.close()


def node(program: str, *arguments: object) -> Any:
    """What a program gives that has `tables` and `refresh`, the modules of the page, and its arguments as `given`."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed: the page's program runs in it")
    imports = "".join(
        f"import * as {name} from {json.dumps((CONSOLE / f'{name}.mjs').as_uri())}\n" for name in ("tables", "refresh")
    )
    asked = f"const given = {json.dumps(arguments)}\nconst result = await (async () => {{\n{program}\n}})()\n"
    ran = subprocess.run(
        ["node", "--input-type=module", "-"],
        input=f"{imports}{asked}process.stdout.write(JSON.stringify(result))\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


# what the server answers


@pytest.mark.parametrize(("path", "name"), [each for each in FILES.items() if each[1] in SOURCES])
def test_the_page_and_its_files_need_no_login_and_are_strict_about_the_rest(
    running: RunningServer, path: str, name: str
) -> None:
    status, headers, text = answer(running, path)
    assert (status, text) == (200, SOURCES[name])
    kinds = {"html": "text/html", "css": "text/css", "mjs": "text/javascript"}
    assert headers["Content-Type"] == f"{kinds[name.rpartition('.')[2]]}; charset=utf-8"
    policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert {policy[rule] for rule in ("default-src", "frame-ancestors", "base-uri")} == {"'none'"}
    assert {policy[rule] for rule in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    assert headers["Cache-Control"] == "no-cache"
    status, head, nothing = answer(running, path, "HEAD")
    assert (status, nothing, head["Content-Length"]) == (200, "", str(len(text.encode())))


def test_the_icon_is_where_browsers_look_for_it_and_where_the_page_says(running: RunningServer) -> None:
    assert '<link rel="icon" href="favicon.ico">' in answer(running, "/")[2]
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["http"], timeout=LIMIT_S)
    try:
        connection.request("GET", "/favicon.ico")
        given = connection.getresponse()
        icon = given.read()
    finally:
        connection.close()
    assert (given.status, given.headers["Content-Type"]) == (200, "image/vnd.microsoft.icon")
    # The head of an ICO file with one image, which lies behind it and ends the file.
    reserved, kind, images = struct.unpack_from("<HHH", icon)
    size, start = struct.unpack_from("<II", icon, 14)
    assert (reserved, kind, images, start + size) == (0, 1, 1, len(icon))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/console/console.mjs"])
def test_the_page_is_only_read(running: RunningServer, path: str, method: str) -> None:
    status, headers, _ = answer(running, path, method)
    assert status == 405 and set(headers["Allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize(
    "path", ["/console", "/console/", "/console/__init__.py", "/console/..%2fhttp.py", "/index.html", "/api", "/other"]
)
def test_unknown_paths_are_not_found(running: RunningServer, path: str) -> None:
    assert answer(running, path)[0] == 404


def test_the_overview_says_what_the_server_is_and_who_asks(running: RunningServer) -> None:
    status, headers, text = answer(running, "/api/overview", user=("anna", "secret"))
    assert status == 200 and headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
    overview = json.loads(text)
    assert (overview["product"], overview["ready"], overview["user"], overview["tags"]) == (
        "Headgate",
        True,
        "anna",
        [],
    )
    assert overview["ports"] == {"http": running.ports["http"]}
    assert answer(running, "/api/overview")[0] == 401


# what the page is made of


def test_the_package_contains_the_files() -> None:
    project = Path(__file__).parents[3] / "pyproject.toml"
    data = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]["headgate"]
    packed = {path.name for pattern in data for path in CONSOLE.parent.parent.glob(pattern) if path.parent == CONSOLE}
    assert packed == set(FILES.values())


def test_nothing_comes_from_other_hosts_and_nothing_is_inline() -> None:
    for name, source in SOURCES.items():
        assert not re.search(r"https?:|//[a-z0-9.-]+\.[a-z]|@import|url\(", source), name
    page = SOURCES["console.html"]
    assert not re.search(r"<style|<script(?![^>]* src=)|\son\w+=|\sstyle=", page)
    named = re.findall(r'(?:src|href)="([^#"]+)"', page)
    modules = re.findall(r'from "\./([^"]+)"', "".join(SOURCES.values()))
    assert {*named, *(f"console/{module}" for module in modules)} == {path[1:] for path in FILES if path != "/"}


def test_what_the_server_says_becomes_text_and_never_markup() -> None:
    for name, source in SOURCES.items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|DOMParser", source
        ), name
        assert not re.search(r"localStorage|sessionStorage|indexedDB|\.cookie", source), name


def test_every_list_that_is_asked_for_is_there(running: RunningServer) -> None:
    asked = [line for source in SOURCES.values() for line in source.splitlines() if "fetch(" in line]
    assert [line.strip() for line in asked] == ["const answer = await fetch(`api/${list}`, {"]
    lists = node("return [...new Set(Object.keys(tables.VIEWS).flatMap(tables.listsOf))]")
    assert set(lists) == set(LISTS)
    for name in lists:
        assert answer(running, f"/api/{name}", user=GUEST)[0] == 200


def test_every_view_has_its_link() -> None:
    assert re.findall(r'href="#(\w+)"', SOURCES["console.html"]) == node("return Object.keys(tables.VIEWS)")


def served(running: RunningServer) -> dict[str, Any]:
    """All lists of a server with a consumer that filters, a connection, and a topic with a subscription."""

    def consume() -> None:
        session = running.context.broker.open_session("guest", protocol="AMQP 1.0", connection="127.0.0.1:1#1")
        options = ConsumerOptions(
            start=OffsetSpecification.first(),
            filter_values=(b"emea", b"apac"),
            filter=Filter.parse("price > 10", "amqp"),
            name="app",
            tag="link-1",
        )
        session.message_consumer("orders", options).want_more(5)
        session.store_offset("orders", "app", 3)
        running.context.broker.consumer_groups.declare("packing", GroupSettings())
        running.context.broker.consumer_groups.view("orders", "packing")
        running.context.connections.opened(FakeLink(), listener="amqp", now_ms=1_700_000_000_000)

    running.call(consume)
    changed: list[object] = []

    def subscribe() -> None:
        session = running.context.broker.open_session("guest", protocol="HTTP", connection="127.0.0.1:1#2")
        session.create_topic("orders")
        rule = RuleDefinition("dear", sql="price > 10", action="SET seen = TRUE")
        session.change_topic("orders", [CreateSubscription("all"), AddRule("all", rule)], changed.append)

    running.call(subscribe)
    running.until(lambda: changed)
    lists = {name: json.loads(answer(running, f"/api/{name}", user=GUEST)[2]) for name in LISTS}
    assert all(lists.values())
    return lists


def value_at(row: Any, field: str) -> Any:
    for part in field.split("."):
        row = row[part]
    return row


def test_every_field_that_is_shown_is_in_the_lists(running: RunningServer) -> None:
    lists = served(running)
    shown = node(
        "return Object.values(tables.VIEWS).flat().flatMap((table) => table.totals ??"
        " (table.facts ?? [...table.columns, ...table.key.map((field) => ({ field }))])"
        ".map((one) => ({ ...one, list: table.list })))"
    )
    assert len(shown) > 100
    for column in shown:
        rows = lists[column["list"]]
        if not column.get("isRare"):
            value_at(rows if column["list"] == "overview" else rows[0], column["field"])


def test_every_counter_is_shown_under_its_own_name() -> None:
    columns = node(
        "return Object.fromEntries(Object.entries(tables.VIEWS).map(([view, all]) =>"
        " [view, all.flatMap((table) => table.columns ?? table.totals ?? table.facts)"
        ".filter((one) => !one.kind.toLowerCase().includes('rate')).map((one) => one.title)]))"
    )
    delivered = {"delivered_messages", "delivered_chunks", "delivered_bytes"}
    read = {*ScanCounters.__struct_fields__, *delivered}
    assert read <= set(columns["overview"])
    assert read | set(StreamCounters.__dataclass_fields__) <= set(columns["streams"])
    assert read | {"lag", "filtered_lag", "lost", "filter_values", "filter", "dialect"} <= set(columns["consumers"])
    assert set(ViewCounters.__dataclass_fields__) <= set(columns["topics"])
    group = {*GroupCounts.__dataclass_fields__, *GroupCounters.__dataclass_fields__, *ScanCounters.__struct_fields__}
    assert (group - {"unseen"}) | {"lag", "members"} <= set(columns["groups"])


# what the tables say


def tables_of(view: str, *answers: dict[str, Any], words: str = "") -> list[dict[str, Any]]:
    """The tables of a view after answers with some seconds between them, as texts."""
    shown = node(
        "const [view, answers, words] = given\n"
        "const lists = new Map()\n"
        "answers.forEach((answer, turn) => Object.entries(answer).forEach(([name, rows]) =>"
        " lists.set(name, tables.taken(lists.get(name), Array.isArray(rows) ? rows : [rows], 1000 + turn * 2000))))\n"
        "return tables.tablesOf(view, lists, words)",
        view,
        answers,
        words,
    )
    return [
        {
            "caption": table["caption"],
            "note": table["note"],
            "rows": [
                dict(zip((column["title"] for column in table["columns"]), (cell["text"] for cell in row), strict=True))
                for row in table["rows"]
            ],
        }
        for table in shown
    ]


def facts(table: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["value"] for row in table["rows"]}


def test_a_server_is_shown_in_every_view(running: RunningServer) -> None:
    lists = served(running)
    server, totals, read = tables_of("overview", lists)
    assert facts(server)["ready"] == "yes" and facts(server)["ports"] == f"http: {running.ports['http']}"
    assert (facts(totals)["streams"], facts(totals)["consumers"], facts(totals)["connections"]) == ("1", "1", "1")
    assert facts(totals)["offsets/s"] == "" and facts(read)["chunks_skipped"] == "0"
    consumers, _ = tables_of("consumers", lists)
    (row,) = consumers["rows"]
    assert (row["filter_values"], row["filter"], row["dialect"]) == ("emea, apac", "price > 10", "amqp")
    _, subscriptions, _, rules = tables_of("topics", lists)
    (shown,) = subscriptions["rows"]
    assert (shown["topic"], shown["name"], shown["rules"], shown["status"]) == ("orders", "all", "1", "active")
    assert [(row["name"], row["filter"], row["action"]) for row in rules["rows"]] == [
        ("dear", "price > 10", "SET seen = TRUE")
    ]
    groups, _, read = tables_of("groups", lists)
    assert [(row["name"], row["members"], row["queues"], row["lag"]) for row in groups["rows"]] == [
        ("packing", "0", "1", "0")
    ]
    assert [row["cpu_ns"] for row in read["rows"]] == ["0"]
    for view in ("streams", "topics", "offsets", "connections", "users"):
        assert all(table["rows"] for table in tables_of(view, lists)), view
    (offsets,) = tables_of("offsets", lists)
    assert [(row["name"], row["stored_offset"]) for row in offsets["rows"]] == [("app", "3")]


def test_rates_are_what_grew_between_two_answers() -> None:
    def stream(name: str, next_offset: int, size: int) -> dict[str, Any]:
        return {"name": name, "next_offset": next_offset, "counters": {"bytes_written": size}}

    first = {"streams": [stream("a", 100, 0), stream("shrunk", 50, 5)]}
    second = {"streams": [stream("new", 7, 9), stream("a", 2100, 5000), stream("shrunk", 10, 5)]}
    assert [row["offsets/s"] for row in tables_of("streams", first)[0]["rows"]] == ["", ""]
    rows = {row["name"]: row for row in tables_of("streams", first, second)[0]["rows"]}
    assert (rows["a"]["offsets/s"], rows["a"]["bytes_written/s"]) == ("1,000", "2.5 kB/s")
    assert (rows["new"]["offsets/s"], rows["shrunk"]["offsets/s"]) == ("", "")
    assert (rows["shrunk"]["bytes_written/s"], rows["a"]["delivered_bytes/s"]) == ("0 B/s", "")


def test_names_from_clients_stay_what_they_are() -> None:
    names = ['<img src=x onerror="alert(1)">', "__proto__", "constructor", "a & b"]
    lists = {"streams": [{"name": name, "next_offset": 4, "arguments": {"__proto__": "x"}} for name in names]}
    rows = tables_of("streams", lists, lists)[0]["rows"]
    assert [row["name"] for row in rows] == names
    assert {row["offsets/s"] for row in rows} == {"0"}
    # The class of every JavaScript object has such a field; a row of the list has not.
    assert node("return tables.tablesOf('users', new Map([['users', { rows: [{}] }]]))[0].rows[0]")[0]["text"] == ""


def test_a_stream_that_cannot_be_opened_says_why() -> None:
    (good, bad) = tables_of(
        "streams", {"streams": [{"name": "good", "messages": 1}, {"name": "bad", "error": "no file"}]}
    )[0]["rows"]
    assert (good["error"], bad["error"], bad["messages"]) == ("", "no file", "")
    assert "error" not in tables_of("streams", {"streams": [{"name": "good"}]})[0]["rows"][0]


def test_rows_are_those_with_all_words() -> None:
    lists = {"users": [{"name": "Anna", "tags": ["monitoring"]}, {"name": "ben", "tags": ["monitoring"]}]}
    assert [row["name"] for row in tables_of("users", lists, words=" MONI anna ")[0]["rows"]] == ["Anna"]


def test_rows_are_sorted_by_values_and_what_is_nothing_comes_last() -> None:
    program = (
        "const rows = given[0].map((value) => [{ value, text: String(value) }])\n"
        "return tables.sorted(rows, 0, given[1]).map((row) => row[0].value)"
    )
    assert node(program, [10, None, 9, "b", "a"], False) == [9, 10, "a", "b", None]
    assert node(program, [10, None, 9, "b", "a"], True) == [10, 9, "b", "a", None]


def test_values_are_shown_as_on_the_command_line() -> None:
    cases = [
        ("count", 1234567, "1,234,567"),
        ("bytes", 999, "999 B"),
        ("bytes", 8_000_000, "8.0 MB"),
        ("bytes", 5_000_000_000_000, "5.0 TB"),
        ("rate", 0.25, "0.3"),
        ("rate", 1234.4, "1,234"),
        ("byteRate", 1500.2, "1.5 kB/s"),
        ("time", 1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
        ("time", 1e18, "1000000000000000000 ms"),
        ("text", True, "yes"),
        ("text", {"max-age": "7D", "n": 1}, "max-age: 7D, n: 1"),
        ("text", None, ""),
    ]
    shown = node("return given[0].map(([kind, value]) => tables.shown(kind, value))", [case[:2] for case in cases])
    assert shown == [case[2] for case in cases]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, "[]", {"rows": []}),
        (200, '{"product": "x"}', {"rows": [{"product": "x"}]}),
        (200, "<html>", {"trouble": "The server answered 200 (it does not say why)."}),
        (503, '{"error": "ask again later"}', {"trouble": "The server answered 503 (ask again later)."}),
        (404, "Not Found", {"trouble": "The server answered 404 (it does not say why)."}),
        (403, '{"error": "no"}', {"refused": "You may not read this list: no."}),
    ],
)
def test_answers_are_told_apart(status: int, body: str, expected: dict[str, Any]) -> None:
    assert node("return tables.understood(...given)", status, body) == expected


def test_a_refused_login_and_a_refused_list_say_a_sentence(running: RunningServer) -> None:
    status, _, text = answer(running, "/api/overview", user=("guest", "wrong"))
    said = node("return tables.understood(...given)", status, text)
    assert said["login"].startswith("The server refused this user with this password (Login was refused).")
    status, _, text = answer(running, "/api/users", user=("anna", "secret"))
    program = "return tables.tablesOf('users', new Map([['users', tables.understood(...given)]]))[0]"
    table = node(program, status, text)
    assert (
        table["note"] == "You may not read this list: user 'anna' has not the tag administrator."
        and table["rows"] == []
    )


# when is asked

REFRESHER = """
const log = [], waiting = [], timers = []
let lists = ["a", "b"], goesOn = true
const settle = () => new Promise((resolve) => setImmediate(resolve))
const answer = async () => { waiting.shift()?.("answer"); await settle() }
const refresher = new refresh.Refresher({
  ask: (list, signal) => new Promise((resolve) => { log.push(`ask ${list}`); waiting.push(resolve)
    signal.addEventListener("abort", () => log.push(`give up ${list}`)) }),
  wanted: () => lists,
  answered: (list) => { log.push(`answered ${list}`); return goesOn },
  intervalMs: 5000,
  setTimer: (call, afterMs) => { log.push(`wait ${afterMs}`); timers.push(call); return call },
  clearTimer: (call) => { if (timers.includes(call)) timers.splice(timers.indexOf(call), 1) },
})
const passed = async () => { timers.shift()?.(); await settle() }
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            "refresher.start(); refresher.start(); await answer(); await answer(); await passed(); await answer()",
            "ask a, answered a, ask b, answered b, wait 5000, ask a, answered a, ask b",
        ),
        ("refresher.start(); await passed(); await passed()", "ask a"),
        ("refresher.start(); refresher.stop(); await answer(); await passed()", "ask a, give up a"),
        (
            "refresher.start(); refresher.stop(); refresher.start(); await answer(); await answer()",
            "ask a, give up a, ask a, answered a, ask b",
        ),
        ("refresher.start(); goesOn = false; await answer()", "ask a, answered a, wait 5000"),
        (
            "refresher.start(); lists = ['c']; refresher.now(); refresher.now(); await answer(); await passed()",
            "ask a, answered a, wait 0, ask c",
        ),
        (
            "lists = ['a']; refresher.start(); await answer(); lists = ['c']; refresher.now(); await passed()",
            "ask a, answered a, wait 5000, ask c",
        ),
        ("refresher.now(); await passed()", ""),
        (
            "lists = ['a']; refresher.start(); await answer(); refresher.stop(); await passed()",
            "ask a, answered a, wait 5000",
        ),
    ],
    ids=[
        "in turn",
        "no pile",
        "stopped",
        "started again",
        "trouble",
        "other view",
        "other view at once",
        "off",
        "hidden",
    ],
)
def test_one_request_at_a_time_and_the_next_round_after_the_last_answer(program: str, expected: str) -> None:
    assert node(f"{REFRESHER}{program}\nreturn log.join(', ')") == expected


# the page as a whole, on a document that is made up


@pytest.fixture
def page(running: RunningServer) -> Iterator[Program]:
    program = str(Path(__file__).parent / "console_document.mjs")
    address = f"http://127.0.0.1:{running.ports['http']}/"
    command = ("node", program, (CONSOLE / "console.mjs").as_uri(), address, ",".join(LISTS))
    started = start(Client("node, which runs the page's program,", command, CONSOLE))
    yield started
    started.stop()


def until(page: Program, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """What the page shows when that holds."""
    shown: dict[str, Any] = {}

    def look() -> object:
        shown.update(page.ask("show"))
        return holds(shown)

    eventually(look)
    return shown


def test_who_is_refused_is_told_and_may_try_again(page: Program) -> None:
    shown = page.ask("show")
    assert shown["asks_login"] and not shown["shows_lists"] and shown["tables"] == []
    page.ask("login", user="guest", password="wrong")
    shown = until(page, lambda shown: "refused" in shown["notice"])
    assert shown["asks_login"] and shown["password"] == "" and shown["tables"] == []
    page.ask("login", user="guest", password="guest")
    shown = until(page, lambda shown: len(shown["tables"]) == 3 and all(table["rows"] for table in shown["tables"]))
    assert (shown["notice"], shown["asks_login"], shown["current"]) == ("", False, ["#overview"])
    page.ask("leave")
    shown = page.ask("show")
    assert shown["asks_login"] and not shown["shows_lists"] and shown["tables"] == []


def test_the_page_shows_what_this_user_may_read(running: RunningServer, page: Program) -> None:
    name = "<img src=x onerror=alert(1)>"

    def declare() -> None:
        session = running.context.broker.open_session("guest", protocol="AMQP 1.0", connection="127.0.0.1:1#1")
        session.declare_stream(name, {})

    running.call(declare)
    page.ask("login", user="guest", password="guest")
    page.ask("go", view="streams")
    shown = until(page, lambda shown: shown["tables"] and shown["tables"][0]["rows"])
    assert [row[0] for row in shown["tables"][0]["rows"]] == [name, "orders"]
    page.ask("sort", title="name")
    assert [row[0] for row in page.ask("show")["tables"][0]["rows"]] == ["orders", name]
    page.ask("filter", words="ORD")
    assert [row[0] for row in page.ask("show")["tables"][0]["rows"]] == ["orders"]
    page.ask("leave")
    page.ask("login", user="anna", password="secret")
    shown = until(page, lambda shown: shown["tables"] and shown["tables"][0]["rows"])
    assert [row[0] for row in shown["tables"][0]["rows"]] == ["orders"]
    page.ask("go", view="users")
    shown = until(page, lambda shown: "You may not read" in "".join(shown["notes"]))
    assert shown["notes"] == ["You may not read this list: user 'anna' has not the tag administrator."]
