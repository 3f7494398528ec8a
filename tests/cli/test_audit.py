"""`headgate audit` and `headgate job`: of a server, and the audit stream of a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Run
from headgate.client import Management
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RunningServer]:
    anna = {"name": "anna", "password": "secret", "permissions": {"read": ".*"}}
    with running_server(tmp_path, handlers={"stream": StreamHandler}, user=[anna]) as running:
        yield running


def test_the_audit_is_shown_of_a_server_and_of_its_folder(run: Run, real: RunningServer) -> None:
    server = ["--server", f"127.0.0.1:{real.ports['stream']}"]
    assert run("stream", "create", "plain", *server).status == 0
    assert run("topic", "create", "orders", *server).status == 0
    shown = run("audit", *server, "--json").json
    assert [(row["user"], row["action"], row["subject"]) for row in shown] == [
        ("guest", "stream.create", "plain"),
        ("guest", "topic.create", "orders"),
    ]
    (line,) = run("audit", *server, "--action", "topic", "--by", "guest", "--since", "1h").out.splitlines()[1:]
    assert line.split("\t")[1:2] + line.split("\t")[4:] == ["guest", "topic.create", "orders", "done", "{}"]
    assert run("audit", *server, "--by", "anna").err == "nothing is recorded, or nothing of that kind\n"
    refused = run("audit", *server, "--user", "anna", "--password", "secret")
    assert refused.status == 1 and "administrator" in refused.err
    followed = run("tail", "headgate.audit", *server, "--from", "first", "--json").json
    assert [row["application_properties"]["action"] for row in followed] == ["stream.create", "topic.create"]
    root = ["--root", str(real.context.settings.root)]
    assert run("audit", *root, "--json").json == shown
    assert "headgate.audit" not in run("stream", "ls", *server).out


def test_a_folder_without_an_audit_stream_has_no_entries(run: Run, tmp_path: Path) -> None:
    assert run("audit", "--root", tmp_path / "empty").status == 1
    tmp_path.joinpath("empty").mkdir()
    assert run("audit", "--root", tmp_path / "empty").status == 0


def test_jobs_are_listed_and_cancelled(run: Run, real: RunningServer) -> None:
    server = ["--server", f"127.0.0.1:{real.ports['stream']}"]
    assert run("job", "ls", *server).err == "there are no jobs\n"
    assert run("job", "ls").status == 2
    assert run("topic", "create", "orders", *server).status == 0
    assert run("subscription", "create", "orders", "all", *server).status == 0
    line = json.dumps({"body": "b"})
    assert run("publish", "orders", *server, stdin="\n".join([line] * 3)).status == 0
    received = run("subscription", "receive", "orders", "all", "-n", "3", "--wait", "10s", "--json", *server).json
    tokens = [row["token"] for row in received]
    assert run("subscription", "settle", "orders", "all", "dead-letter", *tokens, *server).status == 0
    topics = Management.of(f"http://127.0.0.1:{real.ports['http']}").topics
    job = topics.dead_letters("orders", "all").resubmit(rate_per_s=0.01)
    (row,) = run("job", "ls", "--json", *server).json
    assert (row["id"], row["state"], row["total"]) == (job, "running", 3)
    assert "cancelled" in run("job", "cancel", job, *server).out
    assert run("job", "ls", *server).out.splitlines()[1].split("\t")[4] == "cancelled"
    assert run("job", "cancel", "none", *server).status == 1
