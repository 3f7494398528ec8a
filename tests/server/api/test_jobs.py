"""Jobs over HTTP: seen and cancelled by those who may, waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.broker import Job, JobWork
from headgate.server.api import jobs
from server.running import RunningServer, running_server
from server.topics.test_topics import ANNA, ask


class Endless(JobWork):
    """Work that does not end by itself."""

    @property
    def total(self) -> int:
        return 1

    def step(self, job: Job, limit: int) -> int:
        return 0


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    reader = {"name": "anna", "password": "secret", "permissions": {"read": ".*"}}
    with running_server(tmp_path, handlers={}, user=[reader]) as running:
        yield running


@pytest.fixture
def job(running: RunningServer) -> str:
    return running.call(running.context.broker.jobs.start, "work", "guest", "orders", Endless()).id


def test_only_its_user_and_administrators_see_and_cancel_a_job(running: RunningServer, job: str) -> None:
    assert [each["id"] for each in ask(running, "GET", "/api/jobs")[1]] == [job]
    assert ask(running, "GET", "/api/jobs", user=ANNA)[1] == []
    assert ask(running, "GET", f"/api/jobs/{job}", user=ANNA)[0] == 403
    assert ask(running, "DELETE", f"/api/jobs/{job}", user=ANNA)[0] == 403
    assert ask(running, "GET", f"/api/jobs/{job}")[1]["state"] == "running"
    assert ask(running, "DELETE", f"/api/jobs/{job}")[1]["state"] == "cancelled"
    assert ask(running, "GET", f"/api/jobs/{job}?wait_s=20")[1]["state"] == "cancelled"


def test_those_who_wait_for_jobs_leave_room_for_other_requests(
    running: RunningServer, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MOST_WAITING", 0)
    begun_s = time.monotonic()
    assert ask(running, "GET", f"/api/jobs/{job}?wait_s=20")[1]["state"] == "running"
    assert time.monotonic() - begun_s < jobs.LONGEST_WAIT_S
