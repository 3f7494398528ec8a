"""Back-tests and builds as jobs of Spark, each a process of its own that runs a command of `headgate`.

    POST spark-jobs ──► `python -m headgate.cli … --json --master …`, at low priority ──► its report

A job that is cancelled, or whose server stops, is ended by a signal, and the server waits for its end. Nothing is lost
by that: a back-test writes nothing, and a build that begins again makes what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

import msgspec

from headgate.broker import Job, JobState, JobWork
from headgate.errors import BrokerError, HeadgateError

_REPORT_BYTES = 8 << 20
"""Limit of a report; a back-test has at most some hundred samples."""
_TOLD_BYTES = 4000
_NICENESS = 10
_ENDING_S = 5.0
"""After this time a process that was asked to end is killed."""


class SparkWork(JobWork):
    """The work of one job: a process. Its one item is the whole command; `report` is what it wrote."""

    def __init__(self, command: Sequence[str]) -> None:
        """`command` are the arguments of `headgate`."""
        self._command = command
        self.report: list[object] = []
        """One object for each line that the command wrote; empty until it has ended."""
        self._task: asyncio.Task[None] | None = None

    @property
    def total(self) -> int:
        """One command."""
        return 1

    def step(self, job: Job, limit: int) -> int:
        """Start the process, and later look whether it has ended."""
        if self._task is None:
            job.when_ended = self._end
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif self._task.done():
            error = self._task.exception()
            if error is not None:
                raise error if isinstance(error, HeadgateError) else BrokerError(str(error)) from error
            job.done, job.state = 1, JobState.DONE
        return 0

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def gone(self) -> None:
        """Wait until the process has ended; of a job that is done, failed or cancelled."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headgate.cli",
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # With the JVM and Spark's workers: they are ended together.
            start_new_session=True,
        )
        try:
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
            written, told, status = await _output(process)
        except BaseException:
            await _end(process)
            raise
        if status:
            raise BrokerError(told.strip() or f"the process ended with status {status}")
        if len(written) > _REPORT_BYTES:
            raise BrokerError(f"the report has more than {_REPORT_BYTES} bytes; ask for fewer samples")
        self.report = [msgspec.json.decode(line) for line in written.splitlines() if line.strip()]


async def _output(process: asyncio.subprocess.Process) -> tuple[bytes, str, int]:
    """What a process wrote and told, and its status, when it and all that have its pipes have ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    return await asyncio.gather(_first(process.stdout), _last(process.stderr), process.wait())


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process with the processes that it started, which hold its pipes, too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_output(process), _ENDING_S)
            return


async def _first(stream: asyncio.StreamReader) -> bytes:
    """All of a stream, up to more than the limit; the rest is read and dropped."""
    kept = bytearray()
    while piece := await stream.read(65_536):
        if len(kept) <= _REPORT_BYTES:
            kept += piece
    return bytes(kept)


async def _last(stream: asyncio.StreamReader) -> str:
    """The end of what a command told."""
    kept = b""
    while piece := await stream.read(65_536):
        kept = (kept + piece)[-_TOLD_BYTES:]
    return kept.decode(errors="replace")
