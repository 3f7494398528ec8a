"""One run at a time of what has a checkpoint: a second one is refused before Spark begins."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql.utils import is_remote

from headgate import clock
from headgate.errors import QueryRunningError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@contextlib.contextmanager
def only_run(checkpoint: str | Path | None) -> Iterator[None]:
    """Hold a lock beside a checkpoint, `CHECKPOINT.lock`; the system releases it when this process dies.

    Spark notices a second driver only when it has done a batch that the first one did, and then ends either of them.
    Without a checkpoint, with one at a URL, and over Spark Connect, whose server runs the query, nothing is locked.
    Raises QueryRunningError that names the process with the lock.
    """
    if checkpoint is None or _URL.match(str(checkpoint)) or is_remote() or os.environ.get("SPARK_REMOTE"):
        yield
        return
    path = Path(f"{checkpoint}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise QueryRunningError(
                f"{file.read() or 'another process'} runs the query with checkpoint {checkpoint}; "
                "wait for its end, or end that process"
            ) from error
        since = datetime.fromtimestamp(clock.now_ms() // 1000, UTC)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}, since {since:%Y-%m-%dT%H:%M:%SZ},")
        file.flush()
        try:
            yield
        finally:
            # Not by closing alone: a child that was forked may have the descriptor.
            fcntl.flock(file, fcntl.LOCK_UN)
