"""Which Python the workers of what Headgate registers run under."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession


class this_interpreter:  # noqa: N801 - reads as the statement it is
    """Workers of what is made inside run under this interpreter, in a local session that left the choice open.

    PySpark's default is `python3` of the PATH, which from a virtual environment that is not activated is one without
    Headgate. The session's own setting is put back: other workers of the user's are not touched. `spark` is the active
    session unless given; a session of Spark Connect has its interpreter on the server.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        context = getattr(spark or SparkSession.getActiveSession(), "_sc", None)
        free = context is not None and str(context.master).startswith("local") and context.pythonExec == "python3"
        self._context: Any = context if free else None

    def __enter__(self) -> None:
        if self._context is not None:
            self._context.pythonExec = sys.executable

    def __exit__(self, *_: object) -> None:
        if self._context is not None:
            self._context.pythonExec = "python3"
