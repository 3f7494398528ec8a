"""`headgate stream change`: on files, at a server, and where a server has the root."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Run
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RunningServer]:
    users = [{"name": "anna", "password": "secret", "permissions": {"read": "^orders$"}}]
    with running_server(tmp_path, handlers={"stream": StreamHandler}, user=users) as running:
        yield running


@pytest.fixture(params=["files", "server", "served"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[str], list[str]]:
    """Options of commands, and of those that write messages."""
    if request.param == "files":
        return [], []
    running: RunningServer = request.getfixturevalue("real")
    server = ["--server", f"127.0.0.1:{running.ports['stream']}"]
    return (server if request.param == "server" else ["--root", str(running.context.settings.root)]), server


def test_what_is_kept_of_a_stream_can_be_changed(run: Run, place: tuple[list[str], list[str]]) -> None:
    there, writing = place
    run("stream", "create", "orders", "--max-segment-size", "1000", "--filter-size", "32", *writing)
    for number in range(8):
        assert run("publish", "orders", *writing, stdin=json.dumps({"body": "x" * 600})).status == 0, number

    def first() -> int:
        return int(run("stream", "info", "orders", "--json", *there).json[0]["first_offset"])

    assert first() == 0
    changed = run("stream", "change", "orders", "--max-length", "2kB", "--max-age", "7d", *there)
    assert (changed.status, changed.out.split()) == (0, ["max-length-bytes", "2000", "max-age", "604800s"]), changed.err
    # What lies beyond is deleted at once.
    assert 0 < first() < 8
    unset = run("stream", "change", "orders", "--max-length", "none", *there)
    assert unset.out.split() == ["max-length-bytes", "none"]
    kept = first()
    for _ in range(8):
        run("publish", "orders", *writing, stdin=json.dumps({"body": "x" * 600}))
    assert first() == kept
    for options, named in (([], "nothing to change"), (["--max-age", "soon"], "--max-age: found 'soon'")):
        refused = run("stream", "change", "orders", *options, *there)
        assert refused.status == 2 and named in refused.err
    missing = run("stream", "change", "order", "--max-age", "7d", *there)
    assert missing.status == 1 and "did you mean 'orders'" in missing.err
    # Who declares it says what is in force; else the answer names the argument and both values.
    if writing:
        other = run("stream", "create", "orders", "--max-age", "1d", "--max-segment-size", "1000", *writing)
        assert other.status == 1
        assert "max-age is 604800s, given 86400s" in other.err and "headgate stream change" in other.err


def test_an_argument_that_cannot_be_changed_is_named_and_a_right_is_needed(run: Run, real: RunningServer) -> None:
    from headgate.broker.arguments import FILTER_SIZE
    from headgate.client import Management
    from headgate.errors import AccessRefusedError, BrokerError

    run("stream", "create", "orders", "--server", f"127.0.0.1:{real.ports['stream']}")
    url = f"http://127.0.0.1:{real.ports['http']}"
    with pytest.raises(BrokerError, match=f"x-{FILTER_SIZE} cannot be changed"):
        Management.of(url).change_stream("orders", {FILTER_SIZE: 16})
    with pytest.raises(BrokerError, match="x-max-age is 'soon'"):
        Management.of(url).change_stream("orders", {"max-age": "soon"})
    with pytest.raises(AccessRefusedError):
        Management.of(url, user="anna", password="secret").change_stream("orders", {"max-age": "1D"})
