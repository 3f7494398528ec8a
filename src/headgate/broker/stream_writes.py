"""Writes of a broker's streams: queued messages become chunks, and jobs that need a stream's writer have it in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from headgate.broker.environment import RunInWorker
from headgate.broker.message_id_read import ReadIds
from headgate.broker.observer import BatchObserver
from headgate.broker.publishers import Queued
from headgate.broker.stream import BrokerStream
from headgate.broker.turns import Turns
from headgate.broker.write_job import WriteJob, refuse
from headgate.errors import ResourceNotFoundError

WRITE_LIMIT_S = 60.0
"""How long the broker waits, when it must, for a write in the background before it gives it up."""


class WriterJob(Protocol):
    """A job that needs a stream's writer for itself."""

    def run(self) -> None:
        """Do it, in any thread; errors wait for `finish`."""

    def finish(self) -> None:
        """Answer, in the broker's thread."""

    def abandon(self) -> None:
        """Answer that it never ran, or failed with an internal error."""


class StreamWrites:
    """The batches that wait to be written, and the jobs that a worker has; in the broker's thread only."""

    def __init__(
        self,
        worker: RunInWorker | None,
        *,
        waits_for_disk: bool,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
        watch: Callable[[BrokerStream], None],
        observer: BatchObserver | None = None,
    ) -> None:
        """`worker` runs jobs that take long: appends only where a confirm waits for the disk."""
        self._worker = worker
        self._waits_for_disk = waits_for_disk
        self._now_ms = now_ms
        self._watch = watch
        self._observer = observer
        self._is_stopping = False
        self.turns: Turns[BrokerStream] = Turns(wake)
        """The streams with published messages that are not written."""
        self._jobs: dict[BrokerStream, tuple[WriterJob, threading.Event]] = {}
        """Jobs that a worker has, each with the event that is set when its `run` is over."""

    @property
    def has_jobs(self) -> bool:
        """Whether a worker has a job."""
        return bool(self._jobs)

    def stop_worker(self) -> None:
        """From now on every job is run at once, as the broker ends."""
        self._is_stopping = True

    def forget(self, stream: BrokerStream) -> None:
        """A stream is deleted: write nothing of it any more."""
        self.turns.forget(stream)

    def queue(self, stream: BrokerStream, queued: Queued) -> None:
        """Write a batch of a publisher in the next turn; where the stream takes none, it is refused at once."""
        if queued.publisher.is_closed:
            refuse(stream, [queued], ResourceNotFoundError("the publisher was closed", subject=stream.name))
            return
        if stream.refuses_with is not None:
            refuse(stream, [queued], stream.refuses_with)
            return
        stream.queue.append(queued)
        self.turns.ask(stream)

    def write_queued(self) -> None:
        """Append the batches of publishers, stream by stream, and call their `written`.

        With a worker and `Durability.DISK` the appends go on in the background; batches queued meanwhile follow as one
        append.
        """
        self.turns.take(self._write)

    def _write(self, stream: BrokerStream) -> None:
        if stream.is_writing or (stream.recent_ids is not None and not self.know_ids(stream)):
            return
        job = WriteJob.begin(stream, now_ms=self._now_ms(), observer=self._observer)
        if job is None:
            return
        self._watch(stream)
        self.run(stream, job, in_worker=self._waits_for_disk)

    def know_ids(self, stream: BrokerStream) -> bool:
        """Whether all message ids that duplicate detection needs are known; a worker may begin to read them.

        Where they cannot be read, the queued messages are refused.
        """
        job = None if stream.recent_ids is None else ReadIds.needed(stream, now_ms=self._now_ms())
        if job is not None:
            self._watch(stream)
            self.run(stream, job, in_worker=job.is_long)
        return not stream.is_writing and (job is None or job.is_known)

    def run(self, stream: BrokerStream, job: WriterJob, *, in_worker: bool) -> None:
        """Run a job that needs a stream's writer; in a worker, the writer is the job's alone until it is finished."""
        run_in_worker = self._worker
        if run_in_worker is None or self._is_stopping or not in_worker:
            try:
                job.run()
            except BaseException:
                job.abandon()
                raise
            job.finish()
            return
        over = threading.Event()
        self._jobs[stream] = job, over
        stream.is_writing = True

        def work() -> None:
            try:
                job.run()
            finally:
                over.set()

        run_in_worker(work, lambda error: self._written(stream, job, error))

    def _written(self, stream: BrokerStream, job: WriterJob, error: BaseException | None) -> None:
        """A worker has ended a job: finish it, unless `finish` has done so meanwhile."""
        if stream not in self._jobs or self._jobs[stream][0] is not job:
            return
        self._take_job(stream)
        try:
            if isinstance(error, BaseException):
                job.abandon()
                raise error
            job.finish()
        finally:
            if stream.queue:
                self.turns.ask(stream)

    def write_all(self, stream: BrokerStream) -> None:
        """Write all batches queued for a stream, and wait for that."""
        while stream.is_writing or stream.queue:
            self.finish(stream)
            if stream.queue:
                self._write(stream)

    def finish(self, stream: BrokerStream) -> None:
        """Wait for a worker's job; a job that never began, as the worker was stopped, confirms nothing."""
        if stream.is_writing:
            job, over = self._take_job(stream)
            if over.wait(WRITE_LIMIT_S):
                job.finish()
            else:
                job.abandon()

    def _take_job(self, stream: BrokerStream) -> tuple[WriterJob, threading.Event]:
        """Take over the job that a worker has with the writer."""
        stream.is_writing = False
        return self._jobs.pop(stream)
