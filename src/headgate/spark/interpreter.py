"""The Python interpreter of workers that run Headgate's functions and data sources."""

from __future__ import annotations

import functools
import gc
import shutil
import subprocess
import sys
from typing import Any

from pyspark.sql import SparkSession

from headgate.errors import SparkSetupError

_DEFAULT = "python3"
"""The interpreter of PySpark's workers where `PYSPARK_PYTHON` is not set."""

_FIND = """
import importlib.util, sys
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
sys.exit(f"it has no package {missing[0]}" if missing else 0)
"""


class this_interpreter:  # noqa: N801 - reads as the statement it is
    """Workers of functions made inside run under this interpreter, in a local session that left the choice open.

    PySpark's default is `python3` of the PATH, which has no Headgate if the virtual environment is not activated. The
    session's own setting is put back: the user's other workers are not affected. `spark` is the active session unless
    given; a session of Spark Connect has its interpreter on the server.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        context = getattr(spark or SparkSession.getActiveSession(), "_sc", None)
        free = context is not None and str(context.master).startswith("local") and context.pythonExec == _DEFAULT
        self._context: Any = context if free else None

    def __enter__(self) -> None:
        if self._context is not None:
            self._context.pythonExec = sys.executable

    def __exit__(self, *_: object) -> None:
        if self._context is not None:
            self._context.pythonExec = _DEFAULT


@functools.cache
def keep_imports() -> None:
    """Exempt a worker's imported modules from garbage collection; called where its first task begins.

    PySpark collects garbage after each task, before the worker takes the next one. Walking over the modules of
    Headgate, numba and Arrow takes some 70 ms each time, and none of them is ever freed.
    """
    gc.freeze()


def check_session_interpreter(spark: SparkSession) -> None:
    """Raise the error of `check_interpreter` for a session; on a cluster the interpreter is one of other machines."""
    context = getattr(spark, "_sc", None)
    if context is not None and str(context.master).startswith("local") and context.pythonExec != _DEFAULT:
        check_interpreter(str(context.pythonExec))


def check_interpreter(chosen: str) -> None:
    """Raise SparkSetupError where a Python that was chosen for workers lacks Headgate.

    Without it Spark fails later, with the traceback of a worker, or says that there is no data source `headgate`.
    Starts that Python once if it is another one than this.
    """
    if shutil.which(chosen) == sys.executable:
        return
    try:
        found = subprocess.run(
            [chosen, "-c", _FIND, "headgate", "pyarrow"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        reason = f"it cannot be started: {error}"
    else:
        if found.returncode == 0:
            return
        reason = found.stderr.strip()
    raise SparkSetupError(
        f"Spark runs its Python workers under {chosen} (PYSPARK_PYTHON), and {reason}; set PYSPARK_PYTHON to "
        f"{sys.executable}, or leave it unset, before the session is made"
    )
