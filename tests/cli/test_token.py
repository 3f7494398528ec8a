from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from command_line import Run
from server.running import RunningServer, running_server


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    users = [{"name": "anna", "password": "secret", "permissions": {"configure": ".*", "write": ".*", "read": ".*"}}]
    with running_server(tmp_path, listeners={"amqp": "off", "stomp": "off"}, user=users) as running:
        yield running


def created(run: Run, server: str, *options: str) -> dict[str, Any]:
    as_anna = ("--server", server, "--user", "anna", "--password", "secret")
    shown = run("token", "create", "report", "--json", *options, *as_anna)
    assert shown.status == 0, shown.err
    return dict(json.loads(shown.out))


def test_a_token_serves_in_place_of_the_password_until_it_is_revoked(
    run: Run, running: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, stream = (f"127.0.0.1:{running.ports[name]}" for name in ("http", "stream"))
    made = created(run, f"http://{web}")
    monkeypatch.setenv("HEADGATE_TOKEN", made["token"])
    assert run("stream", "create", "orders", "--server", stream).status == 0
    assert run("publish", "orders", "--server", stream, stdin='{"body": "x"}\n').status == 0
    for server in (stream, f"http://{web}"):
        shown = run("token", "ls", "--json", "--server", server)
        (row,) = map(json.loads, shown.out.splitlines())
        assert (row["id"], row["user"], row["description"]) == (made["id"], "anna", "report")
    assert made["token"] not in shown.out
    monkeypatch.delenv("HEADGATE_TOKEN")
    in_url = f"headgate-stream://anna:{made['token']}@{stream}"
    assert run("stream", "info", "orders", "--server", in_url).status == 0
    assert run("token", "rm", made["id"], "--server", f"http://anna:secret@{web}").status == 0
    refused = run("stream", "info", "orders", "--server", in_url)
    assert refused.status == 1 and "authentication failure" in refused.err and made["token"] not in refused.err


def test_a_read_only_token_reads_over_http_only(run: Run, running: RunningServer) -> None:
    web = f"http://127.0.0.1:{running.ports['http']}"
    made = created(run, web, "--read-only", "--expires-in", "1h")
    shown = run("token", "ls", "--server", web, "--password", made["token"])
    names, row = (line.split("\t") for line in shown.out.splitlines())
    listed = dict(zip(names, row, strict=True))
    assert listed["may"] == "read"
    assert (
        3599
        <= (datetime.fromisoformat(listed["expires"]) - datetime.fromisoformat(listed["created"])).total_seconds()
        <= 3601
    )
    refused = run("token", "rm", made["id"], "--server", web, "--password", made["token"])
    assert refused.status == 1 and "reading only" in refused.err
    stream = f"127.0.0.1:{running.ports['stream']}"
    assert run("stream", "create", "orders", "--server", stream, "--password", made["token"]).status == 1


def test_tokens_are_those_of_a_server(run: Run, running: RunningServer) -> None:
    shown = run("token", "ls")
    assert shown.status == 2 and "--server" in shown.err
    web = f"http://127.0.0.1:{running.ports['http']}"
    assert run("token", "rm", "none", "--server", web).status == 1
    wrong = run("token", "create", "x", "--expires-in", "soon", "--server", web)
    assert wrong.status == 2 and "--expires-in" in wrong.err
