"""Endpoints of jobs: long work that users asked for."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from headgate.broker import ADMINISTRATOR, Broker, Job, Jobs
from headgate.errors import AccessRefusedError
from headgate.server.http import Answer, Call, Endpoint, Group
from headgate.server.listings import may_see_all

LONGEST_WAIT_S = 20.0
MOST_WAITING = 16
"""Limit: requests that wait for the end of a job; others are answered at once."""
_LOOK_S = 0.05


class JobAnswer(msgspec.Struct, frozen=True):
    """A job: `done` and `failed` count what it did and could not do, `error` says why the last one failed."""

    id: str
    kind: str
    user: str
    subject: str
    state: str
    """`running`, `done`, `cancelled` or `failed`."""
    done: int
    total: int
    failed: int
    error: str | None
    rate_per_s: float | None
    started_ms: int
    ended_ms: int | None


class WaitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for the end of the job."""

    wait_s: Annotated[
        float, msgspec.Meta(ge=0, le=LONGEST_WAIT_S, description="Answer when the job ends, or after so long.")
    ] = 0.0


def job_group(broker: Broker) -> Group:
    """The endpoints of jobs."""
    requests = _JobRequests(broker)
    own: dict[str, Any] = {"permission": "the job's user, or the tag `administrator` or `monitoring`"}
    return Group(
        "Jobs",
        "Long work that users asked for, such as resubmission of dead letters. After a restart of the server jobs are "
        "gone: what they did stays done, and the rest is as before.",
        (
            Endpoint(
                "GET", "jobs", "The jobs that run, and the last that ended.", requests.listed, answer=list[JobAnswer]
            ),
            Endpoint("GET", "jobs/{job}", "One job.", requests.shown, query=WaitQuery, answer=JobAnswer, **own),
            Endpoint(
                "DELETE",
                "jobs/{job}",
                "Cancels a job: it begins nothing more, and stays in the list.",
                requests.cancelled,
                permission="the job's user, or the tag `administrator`",
                answer=JobAnswer,
                action="job.cancel",
            ),
        ),
    )


class _JobRequests:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._jobs: Jobs = broker.jobs
        self._waiting = 0

    async def listed(self, call: Call) -> Answer:
        sees_all = may_see_all(self._broker.users, call.user)
        return Answer([_row(job) for job in self._jobs if sees_all or job.user == call.user])

    async def shown(self, call: Call) -> Answer:
        job = self._jobs.get(call.names["job"])
        if job.user != call.user and not may_see_all(self._broker.users, call.user):
            raise AccessRefusedError(f"job {job.id} is that of another user")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (call.query.wait_s if self._waiting < MOST_WAITING else 0.0)
        self._waiting += 1
        try:
            while job.is_running and loop.time() < until_s:
                await asyncio.sleep(min(_LOOK_S, until_s - loop.time()))
        finally:
            self._waiting -= 1
        return Answer(_row(job))

    async def cancelled(self, call: Call) -> Answer:
        job = self._jobs.get(call.names["job"])
        if job.user != call.user and ADMINISTRATOR not in self._broker.users.get(call.user).tags:
            raise AccessRefusedError(f"job {job.id} is that of another user")
        return Answer(_row(self._jobs.cancel(job.id)))


def _row(job: Job) -> JobAnswer:
    return JobAnswer(
        job.id,
        job.kind,
        job.user,
        job.subject,
        job.state.value,
        job.done,
        job.total,
        job.failed,
        job.error,
        job.rate_per_s,
        job.started_ms,
        job.ended_ms,
    )
