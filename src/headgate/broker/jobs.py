"""Jobs: long work that a user asked for, done in steps between the broker's other work, and seen by all who may.

    start ──► a step at each tick, as many items as the rate allows ──► done, cancelled or failed

Jobs are in memory: after a restart there are none. What a job did stays done, what it did not do is as before.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from headgate.errors import HeadgateError, LimitExceededError, ResourceNotFoundError

MOST_RUNNING = 4
"""Limit: jobs that run at a time."""

KEPT_JOBS = 100
"""Limit: ended jobs that are remembered."""

ITEMS_A_STEP = 64
"""Limit: items of one step: a dead letter takes some 0.12 ms of the loop, and there are 10 to 20 steps a second."""

logger = logging.getLogger("headgate.broker")


class JobState(StrEnum):
    """The state of a job."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class JobWork(ABC):
    """The work of one job. Its steps may leave parts to workers; they call back in the broker's thread."""

    @property
    @abstractmethod
    def total(self) -> int:
        """How many items there are."""

    @abstractmethod
    def step(self, job: Job, limit: int) -> int:
        """Begin with at most `limit` more items; gives how many. Sets the job's counts, and its state at the end.

        Raises HeadgateError, which ends the job.
        """


@dataclass(slots=True, eq=False)
class Job:
    """One job, as its user sees it; `done` and `failed` count items, `error` says why the last one failed."""

    id: str
    kind: str
    user: str
    subject: str
    total: int
    started_ms: int
    work: JobWork = field(repr=False)
    rate_per_s: float | None = None
    state: JobState = JobState.RUNNING
    done: int = 0
    failed: int = 0
    error: str | None = None
    ended_ms: int | None = None
    when_ended: Callable[[], None] = field(default=lambda: None, repr=False)
    credit: float = 1.0
    """How many items it may begin now, where it has a rate."""

    @property
    def is_running(self) -> bool:
        """Whether it still begins items."""
        return self.state is JobState.RUNNING


class Jobs:
    """The jobs of one broker; in its thread only."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._jobs: dict[str, Job] = {}
        self._started = 0
        self._ticked_ms = now_ms()

    def __iter__(self) -> Iterator[Job]:
        """All jobs that are remembered, oldest first."""
        return iter(list(self._jobs.values()))

    def get(self, job_id: str) -> Job:
        """One job; ResourceNotFoundError."""
        found = self._jobs.get(job_id)
        if found is None:
            raise ResourceNotFoundError(
                "no such job; after a restart of the server earlier jobs are gone", subject=job_id
            )
        return found

    @property
    def running(self) -> list[Job]:
        """The jobs that are not ended."""
        return [job for job in self._jobs.values() if job.is_running]

    def start(self, kind: str, user: str, subject: str, work: JobWork, *, rate_per_s: float | None = None) -> Job:
        """Start a job, which begins at the next tick; LimitExceededError while `MOST_RUNNING` others run."""
        if len(self.running) >= MOST_RUNNING:
            raise LimitExceededError(
                f"{MOST_RUNNING} jobs run already; wait until one of them ends, or cancel one", subject=subject
            )
        self._started += 1
        now_ms = self._now_ms()
        # The time makes an id of an earlier process mean no other job.
        job_id = f"{now_ms:x}-{self._started}"
        job = self._jobs[job_id] = Job(job_id, kind, user, subject, work.total, now_ms, work, rate_per_s)
        ended = [each for each in self._jobs.values() if not each.is_running]
        for old in ended[: max(0, len(ended) - KEPT_JOBS)]:
            del self._jobs[old.id]
        return job

    def cancel(self, job_id: str) -> Job:
        """Let a job begin nothing more; what it began is carried out. ResourceNotFoundError; an ended job stays so."""
        job = self.get(job_id)
        if job.is_running:
            self._end(job, JobState.CANCELLED)
        return job

    def tick(self, now_ms: int) -> None:
        """Give each running job a step."""
        elapsed_s = max(0, now_ms - self._ticked_ms) / 1000
        self._ticked_ms = now_ms
        for job in self:
            if job.ended_ms is not None:
                continue
            if not job.is_running:
                # It failed between two ticks, in a part that a worker had.
                self._end(job, job.state)
                continue
            limit = ITEMS_A_STEP
            if job.rate_per_s is not None:
                # What was not used within a second is not made up for.
                job.credit = min(job.credit + job.rate_per_s * elapsed_s, max(job.rate_per_s, 1.0))
                limit = min(limit, int(job.credit))
            if not limit:
                continue
            try:
                job.credit -= job.work.step(job, limit)
            except HeadgateError as error:
                fail(job, error)
            if not job.is_running:
                self._end(job, job.state)

    def _end(self, job: Job, state: JobState) -> None:
        job.state = state
        job.ended_ms = self._now_ms()
        job.when_ended()
        logger.info(
            "job %s of user %r, %s %s: %s, %d of %d",
            job.id,
            job.user,
            job.kind,
            job.subject,
            state,
            job.done,
            job.total,
        )


def fail(job: Job, error: HeadgateError) -> None:
    """End a job by an error."""
    job.error = str(error)
    job.state = JobState.FAILED
