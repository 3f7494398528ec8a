"""Streaming queries on a busy machine: starts sources one after the other, and recognizes a start that was too slow.

Spark 4.3 gives the process of a Python source of a query ten seconds to connect, a constant of its
`PythonWorkerFactory.createSimpleWorker`. Importing PySpark takes one or two seconds of a core, so several that start at
once beside other load exceed it. All other workers are forked, or have the time of `HANDSHAKE`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

HANDSHAKE = ("spark.python.authenticate.socketTimeout", "120s")
"""The setting for the time within which a worker and the JVM must have connected; Spark's default is 15 s."""

_LATE = (
    "CANNOT_OPEN_SOCKET",
    "Python worker failed to connect back",
    "Python daemon failed to launch worker",
    "Timed out while waiting for the Python worker to connect back",
)
_INITIALIZING = "Initializing sources"
_POLL_S = 0.05
_LONGEST_START_S = 30.0

_starting = threading.Lock()


def start(begin: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Begin a query, and return when its sources have started or the query has ended; one query at a time."""
    with _starting:
        query = begin()
        end = time.monotonic() + _LONGEST_START_S
        while query.isActive and query.status["message"] == _INITIALIZING and time.monotonic() < end:
            time.sleep(_POLL_S)
        return query


def tried_again_when_late(attempt: Callable[[], None]) -> None:
    """Make an attempt, and one more if a Python worker was late: for work that writes nothing twice when repeated."""
    try:
        attempt()
    except (PySparkException, Py4JJavaError) as error:
        if not worker_was_late(str(error)):
            raise
        log.warning("a Python worker of Spark did not start in time; trying once more")
        attempt()


def worker_was_late(text: str) -> bool:
    """Whether the text of an error of Spark says that a Python worker did not connect in time."""
    return any(each in text for each in _LATE)
