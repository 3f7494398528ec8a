"""Column and lookup files of the streams of a root as segments seal: a process of low priority.

It is started again if it ends.

It looks every few seconds for sealed segments without a file. Killed at any time it leaves no wrong file, so the server
does not wait for it when it stops.
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
    """The process that builds, and the task that watches it."""

    def __init__(self, root: Path, kinds: Sequence[str]) -> None:
        """`kinds` are those of `derived_child`."""
        self._root = root
        self._kinds = kinds
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    def start(self) -> None:
        """Start the process; returns at once."""
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """End the process; again is harmless."""
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
        """Start the process and wait for its end: its status."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headgate.server.derived_child",
            str(self._root),
            *self._kinds,
            # Ends with the server, however that ends.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
