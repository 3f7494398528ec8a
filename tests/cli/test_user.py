from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Run
from headgate.broker.users import Users
from server.running import RunningServer, running_server


def rows(run: Run, *options: object) -> dict[str, dict[str, object]]:
    shown = run("user", "ls", "--json", *options)
    assert shown.status == 0, shown.err
    return {row["name"]: row for row in map(json.loads, shown.out.splitlines())}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path, listeners={"amqp": "off", "stomp": "off"}) as running:
        yield running


@pytest.fixture(params=["files", "http", "stream"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """Users of a root, or of a server that is named by its HTTP or by its stream listener."""
    if request.param == "files":
        tmp_path.joinpath("root").mkdir()
        return ()
    ports = request.getfixturevalue("running").ports
    place = f"127.0.0.1:{ports[request.param]}"
    return ("--server", f"http://{place}" if request.param == "http" else place)


def test_users_are_added_changed_and_removed(run: Run, options: tuple[str, ...]) -> None:
    assert list(rows(run, *options)) == ["guest"]
    patterns = ("--read", ".*", "--write", "^orders")
    added = run("user", "add", "anna", *patterns, "--tag", "monitoring", *options, stdin="secret\n")
    assert (added.status, added.out) == (0, ""), added.err
    assert rows(run, *options)["anna"] == {
        "name": "anna",
        "tags": ["monitoring"],
        "configure": "",
        "write": "^orders",
        "read": ".*",
        "has_password": True,
    }
    assert run("user", "permit", "anna", "--configure", "^a", "--read", "", *options).status == 0
    anna = rows(run, *options)["anna"]
    assert (anna["configure"], anna["write"], anna["read"]) == ("^a", "^orders", "")
    assert run("user", "password", "anna", *options, stdin="other\n").status == 0
    assert run("user", "rm", "anna", *options).status == 0
    assert list(rows(run, *options)) == ["guest"]


def test_passwords_are_what_standard_input_says(run: Run, tmp_path: Path) -> None:
    run("user", "add", "anna", stdin="one two\nrest\n")
    users = Users(tmp_path / "root" / ".headgate" / "users.json", default_user="guest")
    users.authenticate("anna", "one two")
    run("user", "password", "anna", stdin="three")
    users.reload()
    users.authenticate("anna", "three")


def test_a_users_file_of_its_own_is_taken(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    tmp_path.joinpath("root").mkdir()
    assert run("user", "add", "anna", "--users-file", path, stdin="secret\n").status == 0
    assert "anna" in Users(path, default_user="guest") and list(rows(run)) == ["guest"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (("add", "guest"), "x\n", "guest: there is such a user already"),
        (("add", "new"), "", "found no password"),
        (("add", "new", "--read", "("), "x\n", "is no regular expression"),
        (("rm", "nobody"), "", "no such user"),
        (("password", "nobody"), "x\n", "nobody: no such user"),
        (("permit", "nobody", "--read", "x"), "", "nobody: no such user"),
        (("permit", "guest"), "", "give at least one of --configure, --write, --read"),
        (("permit", "guest", "--read", "("), "", "is no regular expression"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Run, options: tuple[str, ...], arguments: tuple[str, ...], stdin: str, expected: str
) -> None:
    shown = run("user", *arguments, *options, stdin=stdin)
    assert shown.status in (1, 2) and expected in shown.err
    assert list(rows(run, *options)) == ["guest"]


def test_a_wrong_login_is_told(run: Run, running: RunningServer) -> None:
    server = f"http://127.0.0.1:{running.ports['http']}"
    shown = run("user", "ls", "--server", server, "--password", "wrong")
    assert shown.status == 1 and "Login was refused" in shown.err and "wrong" not in shown.err
    assert "--user and --password say who asks" in shown.err


def test_a_server_that_is_not_there_is_told(run: Run) -> None:
    shown = run("user", "ls", "--server", "http://127.0.0.1:1")
    assert shown.status == 1 and "http://127.0.0.1:1" in shown.err
