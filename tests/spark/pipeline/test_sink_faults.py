"""Sinks that are queries of their own: killed, blocked or failing, each keeps its guarantee and stops no other."""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headgate.errors import PipelineError
from headgate.spark.pipeline import Report, jdbc, run
from headgate.spark.pipeline.configuration import check

from ... import jars
from ..conftest import order, write_stream
from ..sink_faults import COUNT, EXPECTED, Faults, kill_when, pipeline

pytestmark = [pytest.mark.spark, pytest.mark.faults]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    if not jars.fits(jars.SQLITE):
        pytest.skip(f"the jar of {jars.SQLITE} could not be fetched")
    path = tmp_path / "orders.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE lines (number BIGINT, region VARCHAR(10), noted TEXT DEFAULT 'new')")
        connection.execute("CREATE TABLE regions (region VARCHAR(10) PRIMARY KEY, number BIGINT)")
    return path


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def jdbc_sink(database: Path, name: str, **more: object) -> dict[str, Any]:
    options = {
        "url": f"jdbc:sqlite:{database}?busy_timeout=60000",
        "driver": "org.sqlite.JDBC",
        "dbtable": name,
    }
    return {"name": name, "format": "jdbc", "options": options, **more}


def with_jar(content: dict[str, Any]) -> dict[str, Any]:
    options = "-XX:TieredStopAtLevel=1"
    return {
        **content,
        "spark": {"spark.jars": str(jars.jar_of(jars.SQLITE)), "spark.driver.extraJavaOptions": options},
    }


def test_a_table_of_a_database_has_each_row_once_whatever_step_of_a_batch_the_driver_dies_at(
    tmp_path: Path, database: Path, faults: Faults
) -> None:
    write_stream(tmp_path / "root", "in", [order(n) for n in range(COUNT)])
    content = with_jar(pipeline(tmp_path, jdbc_sink(database, "lines")))
    faults.die_at("staged:2", content, tmp_path, jdbc)
    assert rows(database, "SELECT number, region FROM lines ORDER BY rowid") == EXPECTED[:200]
    faults.die_at("completed:2", content, tmp_path, jdbc)
    assert rows(database, "SELECT count(*) FROM lines") == [(COUNT,)]
    faults.run(content)
    assert rows(database, "SELECT number, region FROM lines ORDER BY rowid") == EXPECTED
    assert rows(database, "SELECT DISTINCT noted FROM lines") == [("new",)]
    assert rows(database, "SELECT batch FROM headgate_batches") == [(2,)]
    assert rows(database, "SELECT name FROM sqlite_master WHERE name LIKE 'headgate_staging%'") == []


def test_a_row_replaces_the_one_with_its_key_and_the_last_of_a_batch_stays(
    tmp_path: Path, database: Path, spark: SparkSession
) -> None:
    write_stream(tmp_path / "root", "in", [order(n) for n in range(COUNT)])
    run(check(pipeline(tmp_path, jdbc_sink(database, "regions", key=["region"]))), spark=spark)
    last = [("AMER", COUNT - 3), ("APJ", COUNT - 1), ("EMEA", COUNT - 2)]
    assert rows(database, "SELECT region, number FROM regions ORDER BY region") == last


def test_files_of_a_batch_that_died_are_not_read(tmp_path: Path, spark: SparkSession, faults: Faults) -> None:
    write_stream(tmp_path / "root", "in", [order(n) for n in range(COUNT)])
    output = tmp_path / "lines"
    content = pipeline(tmp_path, {"name": "lines", "format": "parquet", "path": str(output)})

    def writing() -> bool:
        done = sum(path.name.isdigit() for path in (output / "_spark_metadata").glob("*"))
        return len(list(output.rglob("*.parquet"))) > done > 0

    if faults.kills:
        kill_when(writing, content, tmp_path)
    else:
        faults.run(content)
        # As if the driver had died between the files of the last batch and the entry that names them.
        checkpoint = tmp_path / "root" / ".headgate" / "pipelines" / "sinks" / "checkpoints" / "lines"
        for log in (output / "_spark_metadata", checkpoint / "commits"):
            (log / "2").unlink()
            (log / ".2.crc").unlink()
        assert len(list(output.rglob("*.parquet"))) == 3
    assert run(check(content), spark=spark).sinks[0].rows_written < COUNT
    found = [(row.number, row.region) for row in spark.read.parquet(str(output)).orderBy("number").collect()]
    assert found == EXPECTED


def obstructed() -> type[DataSource]:
    """A sink that first takes a lock on the file of its option `gate`; a missing file makes it fail."""

    class Writer(DataSourceStreamWriter):
        def __init__(self, gate: str) -> None:
            self.gate = gate

        def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            with open(self.gate) as gate:
                fcntl.flock(gate, fcntl.LOCK_SH)
            return WriterCommitMessage()

    class Obstructed(DataSource):
        @classmethod
        def name(cls) -> str:
            return "obstructed"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return Writer(self.options["gate"])

    return Obstructed


class Ends:
    """A watcher that keeps who failed and who finished, in order; makes a call when all `wanted` are among them."""

    def __init__(self, wanted: Collection[str] = (), call: Callable[[], None] = lambda: None) -> None:
        self.ended: list[str] = []
        self._wanted = set(wanted)
        self._call = call

    def _end(self, name: str) -> None:
        self.ended.append(name)
        if name in self._wanted and self._wanted <= set(self.ended):
            self._call()

    def spark_starts(self) -> None:
        pass

    def sink_started(self, name: str, *, continued: bool) -> None:
        return None

    def sink_progressed(self, name: str, rows: int) -> None:
        return None

    def sink_finished(self, report: Any) -> None:
        self._end(report.name)

    def topic_finished(self, report: Any) -> None:
        self._end(report.name)

    def retried(self, name: str) -> None:
        self.ended.append(f"{name} retried")

    def failed(self, failure: Any) -> None:
        self._end(f"{failure.name} failed")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[Callable[[], None]]:
    """A new file that nobody else may lock, until the call that this gives is made."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield lambda: fcntl.flock(file, fcntl.LOCK_UN)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def test_a_sink_that_blocks_and_one_that_fails_stop_no_other_and_the_next_run_continues_them(
    tmp_path: Path, spark: SparkSession
) -> None:
    spark.dataSource.register(obstructed())
    write_stream(tmp_path / "root", "in", [order(n) for n in range(COUNT)])
    blocked, missing = tmp_path / "blocked", tmp_path / "missing"
    sinks: list[dict[str, Any]] = [
        {"name": "stuck", "format": "obstructed", "options": {"gate": str(blocked)}, "stall_timeout": "2s"},
        {"name": "broken", "format": "obstructed", "options": {"gate": str(missing)}},
        {"name": "files", "format": "parquet", "path": str(tmp_path / "files")},
        {"name": "copies", "stream": "out", "input": "orders"},
    ]
    watching = Ends()
    with locked(blocked), pytest.raises(PipelineError) as caught:
        run(check(pipeline(tmp_path, *sinks)), spark=spark, watcher=watching)
    # Where a worker of Python is late, as on a busy machine, a sink is tried once more.
    assert {end for end in watching.ended if not end.endswith(" retried")} == {
        "stuck failed",
        "broken failed",
        "files",
        "copies",
    }
    stuck, broken = str(caught.value).splitlines()[0], str(caught.value).partition("\n")[2]
    assert "sink 'stuck': no batch ended within its stall_timeout of 2s" in stuck
    assert "sink 'broken': " in broken and "missing" in broken
    report = caught.value.report
    assert isinstance(report, Report)
    assert {sink.name: sink.rows_written for sink in report.sinks} == {"copies": COUNT, "files": COUNT}
    assert [failure["name"] for failure in report.as_dict()["failed"]] == ["stuck", "broken"]  # type: ignore[attr-defined]

    missing.touch()
    del sinks[0]["stall_timeout"]
    with locked(blocked) as unlock:
        watching = Ends({"broken", "files", "copies"}, unlock)
        # If the others waited for the one that blocks, it would be let go first.
        waiting = threading.Timer(60, unlock)
        waiting.start()
        again = run(check(pipeline(tmp_path, *sinks)), spark=spark, watcher=watching)
        waiting.cancel()
    assert watching.ended[-1] == "stuck"
    written = {sink.name: (sink.rows_written, sink.continued) for sink in again.sinks}
    assert written["stuck"][0] == written["broken"][0] == COUNT
    assert written["files"] == written["copies"] == (0, True)
