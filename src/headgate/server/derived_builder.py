"""The process that builds column and lookup files of the streams of a root as segments seal, at low priority.

It is started again if it ends.

It looks every few seconds for sealed segments without a file. Killed at any time it leaves no wrong file, so a server
that stops does not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

logger = logging.getLogger("headgate.server")

_AGAIN_AFTER_S = 10.0


class DerivedBuilder:
    """The building process, and the task that watches it."""

    def __init__(self, root: Path, kinds: Sequence[str]) -> None:
        """`kinds` are names of `derived_child.KINDS`."""
        self._root = root
        self._kinds = kinds
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    def start(self) -> None:
        """Start the process; returns at once."""
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """End the process; a second call is harmless."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await task

    async def _watch(self) -> None:
        while True:
            try:
                ended = f"ended with status {await self._run()}"
            except OSError as error:
                ended = f"cannot be run: {error}"
            logger.warning(
                "the process that builds derived files %s; the next begins in %d s",
                ended,
                _AGAIN_AFTER_S,
            )
            await asyncio.sleep(_AGAIN_AFTER_S)

    async def _run(self) -> int:
        """Start the process and wait for its end; returns its exit status."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headgate.server.derived_child",
            str(self._root),
            *self._kinds,
            # The process ends with the server, even a killed one: its standard input ends then.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
