"""Back-tests and builds that users start over HTTP."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from headgate.client import Management
from headgate.errors import AccessRefusedError, BrokerError
from headgate.log import Stream, Writer, stream_folder
from headgate.message import Message
from headgate.server import spark_jobs
from server.running import RunningServer, running_server
from server.topics.test_topics import ask
from waiting import eventually

_ANNA = {"name": "anna", "password": "secret", "permissions": {"read": "^orders$"}}


def orders(root: Path) -> None:
    stream = Stream.create(stream_folder(root, "orders"), name="orders", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        messages = [Message(b"x", application_properties={"n": number}).encode() for number in range(20)]
        writer.append([(message, None) for message in messages], now_ms=1)


def management(running: RunningServer, user: str = "guest", password: str = "guest") -> Management:
    return Management.of(f"http://127.0.0.1:{running.ports['http']}", user=user, password=password)


def python_that(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server start this shell script in place of Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(path))


def test_only_a_server_that_has_spark_starts_jobs(tmp_path: Path) -> None:
    orders(tmp_path / "data")
    with running_server(tmp_path, handlers={}) as running:
        assert ask(running, "GET", "/api/spark-jobs") == (200, {"is_offered": False})
        with pytest.raises(BrokerError, match=r"\[spark\] master"):
            management(running).start_spark_job({"kind": "back-test", "stream": "orders"})


def test_what_the_command_wrote_is_the_report_and_what_it_told_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders(tmp_path / "data")
    with running_server(tmp_path, handlers={}, user=[_ANNA], spark={"master": "local[1]"}) as running:
        guest, anna = management(running), management(running, "anna", "secret")
        python_that(tmp_path, """printf '{"args": "'; printf '%s ' "$@" | tr '"' "'"; echo '"}'""", monkeypatch)
        job = anna.start_spark_job({"kind": "back-test", "stream": "orders", "rules": [{"name": "-a", "sql": "n > 1"}]})
        assert anna.topics.job(job, wait_s=20)["state"] == "done"
        (report,) = anna.spark_report(job)
        assert "rule test" in report["args"]
        assert "--rule={'name':'-a','sql':'n > 1'} " in report["args"]
        assert ask(running, "GET", "/api/spark-jobs") == (200, {"is_offered": True})
        for kind, words in (("columns", "columns build --master=local[1] "), ("lookup", "lookup build /")):
            job = guest.start_spark_job({"kind": kind, "stream": "orders"})
            assert guest.topics.job(job, wait_s=20)["state"] == "done"
            assert words in guest.spark_report(job)[0]["args"]
        with pytest.raises(AccessRefusedError):
            anna.start_spark_job({"kind": "columns", "stream": "orders"})
        python_that(tmp_path, "echo no Java here >&2; exit 1", monkeypatch)
        failed = guest.topics.job(guest.start_spark_job({"kind": "columns", "stream": "orders"}), wait_s=20)
        assert (failed["state"], failed["error"]) == ("failed", "no Java here")


def test_a_cancelled_job_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(tmp_path / "data")
    note = tmp_path / "pid"
    python_that(tmp_path, f"echo $$ > {note}.new; mv {note}.new {note}; exec sleep 1000", monkeypatch)
    with running_server(tmp_path, handlers={}, spark={"master": "local[1]"}) as running:
        guest = management(running)
        job = guest.start_spark_job({"kind": "match-index", "stream": "orders"})
        eventually(note.exists)
        assert guest.topics.cancel_job(job)["state"] == "cancelled"
        eventually(lambda: not Path(f"/proc/{int(note.read_text())}").exists() or _is_zombie(int(note.read_text())))


def test_a_server_that_stops_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that does not end when it is asked to."""
    orders(tmp_path / "data")
    note = tmp_path / "pid"
    monkeypatch.setattr(spark_jobs, "_ENDING_S", 0.1)
    python_that(tmp_path, f"trap '' TERM; echo $$ > {note}.new; mv {note}.new {note}; sleep 1000", monkeypatch)
    with running_server(tmp_path, handlers={}, spark={"master": "local[1]"}) as running:
        management(running).start_spark_job({"kind": "match-index", "stream": "orders"})
        eventually(note.exists)
    assert not Path(f"/proc/{int(note.read_text())}").exists()


def _is_zombie(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.long
@pytest.mark.spark
def test_a_back_test_runs_on_spark(tmp_path: Path) -> None:
    orders(tmp_path / "data")
    with running_server(tmp_path, handlers={}, spark={"master": "local[1]"}) as running:
        guest = management(running)
        rules = [{"name": "late", "sql": "n > 15"}]
        job = guest.start_spark_job({"kind": "back-test", "stream": "orders", "rules": rules})
        eventually(lambda: guest.topics.job(job)["state"] != "running")
        assert guest.topics.job(job)["error"] is None
        (report,) = guest.spark_report(job)
        assert [rule["matched"] for rule in report["rules"]] == [4]
        assert report["messages"] == 20
