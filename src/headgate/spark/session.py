"""Spark sessions that know Headgate: one that is made here with all it needs, or one the user made.

Nothing here runs at import. A session made here finds or provides Java (see `java.py`), runs its Python workers under
this interpreter, lets Spark push simple filters down, and has missing kernels compiled from the start of the JVM on.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from headgate import kernels
from headgate.spark.interpreter import check_interpreter, check_session_interpreter, this_interpreter
from headgate.spark.java import choose_java
from headgate.spark.queries import HANDSHAKE
from headgate.spark.scans import scans_folder

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

DEFAULTS: Mapping[str, str] = {
    PUSHDOWN: "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
}
"""The settings of every session made here, unless the caller gives others."""

_QUIET_LOG = Path(__file__).with_name("quiet.log4j2.properties")

LOCAL_DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={_QUIET_LOG}"',
}
"""Additional settings of a session inside this process: ports on the loopback only, little memory, quiet."""


def session(
    app_name: str = "headgate", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session with source and sink registered; the one that exists already, if there is one.

    `master` is `local[*]` unless given, or set by spark-submit or SPARK_REMOTE; a `sc://` address makes a Connect
    session. `config` wins over the defaults here. Raises SparkSetupError where no Java fits and none can be provided,
    and as `register` does.
    """
    existing = SparkSession.getActiveSession()
    chosen = dict(config or {})
    if existing is None:
        remote = _remote_address(master)
        builder = SparkSession.builder.appName(app_name)
        if remote is not None:
            builder = builder.remote(remote)
            chosen = {**DEFAULTS, **chosen}
        else:
            master = master or (None if _submitted() else "local[*]")
            if master is not None:
                builder = builder.master(master)
            chosen = {**_defaults(master), **chosen}
            _prepare_process(master, chosen)
        for name, value in chosen.items():
            builder = builder.config(name, value)
        with compiling_kernels() if remote is None else contextlib.nullcontext():
            existing = builder.getOrCreate()
    else:
        for name, value in chosen.items():
            existing.conf.set(name, value)
    register(existing)
    return existing


def register(spark: SparkSession) -> None:
    """Make `format("headgate")` and the SQL function `headgate_match` known to a session.

    Repeat it after switching Spark's filter push-down on or off: a reader that takes filters from Spark fails where the
    switch is off, so which reader is registered depends on it. Raises SparkSetupError where the session runs workers
    under a Python without Headgate.
    """
    from headgate.spark.backtest import HeadgateBackTest
    from headgate.spark.columns import register_match
    from headgate.spark.copy import HeadgateCopy
    from headgate.spark.derived import HeadgateDerived
    from headgate.spark.route import HeadgateRoute
    from headgate.spark.source import HeadgateSource, HeadgateSourceWithPushdown

    check_session_interpreter(spark)
    pushes = (spark.conf.get(PUSHDOWN, "false") or "false").lower() == "true"
    with this_interpreter(spark):
        source = HeadgateSourceWithPushdown if pushes else HeadgateSource
        recording = source.recording(scans_folder(spark))
        for each in (recording, HeadgateCopy, HeadgateDerived, HeadgateRoute, HeadgateBackTest):
            spark.dataSource.register(each)
    register_match(spark)


@contextlib.contextmanager
def compiling_kernels() -> Iterator[None]:
    """Begin to compile the kernels that are not in the cache, in the background.

    A JVM that is started within tells its Python workers to take kernels from the cache only: until they are there the
    reference implementations are used, and no worker compiles a kernel a second time.
    """
    wanted = kernels.kernel_modules()
    if not kernels.missing(wanted) or kernels.SWITCH in os.environ:
        yield
        return
    kernels.load_in_background(wanted)
    if os.environ.get("PYSPARK_PYTHON") != sys.executable:
        # Workers of another interpreter have a separate cache, which no other process fills.
        yield
        return
    os.environ[kernels.SWITCH] = kernels.CACHED
    try:
        yield
    finally:
        del os.environ[kernels.SWITCH]


def _remote_address(master: str | None) -> str | None:
    if master is not None:
        return master if master.startswith("sc://") else None
    return os.environ.get("SPARK_REMOTE") or None


def _submitted() -> bool:
    """Whether spark-submit started this process: then master and Java are decided."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _defaults(master: str | None) -> dict[str, str]:
    if master is None or not master.startswith("local"):
        return dict([*DEFAULTS.items(), HANDSHAKE])
    cores = os.cpu_count() or 1
    count = master.removeprefix("local").strip("[]").split(",")[0]
    shuffles = int(count) if count.isdigit() else 1 if not count else cores
    return dict(
        [*DEFAULTS.items(), HANDSHAKE, *LOCAL_DEFAULTS.items(), ("spark.sql.shuffle.partitions", str(shuffles))]
    )


def _prepare_process(master: str | None, chosen: dict[str, str]) -> None:
    """Set the environment that the JVM and through it the workers inherit: in this process, before the JVM starts."""
    if _submitted():
        return
    choice = choose_java()
    if choice.java_home is not None:
        os.environ["JAVA_HOME"] = str(choice.java_home)
    if choice.remark is not None:
        print(f"headgate: {choice.remark}", file=sys.stderr)
    if "spark.pyspark.python" not in chosen:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = str(Path(kernels.__file__).parent.parent.parent)
    if folder not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        if folder not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([folder, *paths])
    for name in ("HEADGATE_CACHE", "HEADGATE_REMOTE_CACHE", "HEADGATE_REMOTE_CACHE_BYTES"):
        if os.environ.get(name):
            chosen.setdefault(f"spark.executorEnv.{name}", os.environ[name])
    if master is not None and master.startswith("local") and "spark.pyspark.python" not in chosen:
        check_interpreter(os.environ["PYSPARK_PYTHON"])
