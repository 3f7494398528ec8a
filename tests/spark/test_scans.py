"""What the last read of a session did: ranges, filters taken from Spark, counters of planning and tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.errors import ConfigError
from headgate.scan import OffsetRange
from headgate.spark import last_scan
from headgate.spark.scans import SCANS, Scan, scans_folder

from .conftest import order, subject_values, write_stream


class Settings:
    """A session as far as its settings go."""

    def __init__(self) -> None:
        self.conf = self
        self._values: dict[str, str] = {}

    def get(self, name: str, default: str | None) -> str | None:
        return self._values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self._values[name] = value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "scans"
    made.mkdir()
    return made


def session_of(folder: Path) -> SparkSession:
    settings = Settings()
    settings.set(SCANS, str(folder))
    return settings  # type: ignore[return-value]


def test_the_read_that_was_planned_last_counts_and_older_ones_are_forgotten(folder: Path) -> None:
    session = session_of(folder)
    assert last_scan(session) is None
    for number in range(40):
        scan = Scan(str(folder))
        scan.plan({"in": OffsetRange(number, 100)}, ["offset >= 3"])
        scan.record("planning", {"chunks_skipped": 5}, partitions=2)
        scan.record("task-0", {"chunks_skipped": number}, partitions_read=1)
        scan.record("task-0", {"chunks_skipped": number}, partitions_read=1)
        found = last_scan(session)
        assert found is not None
        assert (found.ranges, found.filters) == ({"in": (number, 100)}, ("offset >= 3",))
        assert (found.partitions, found.partitions_read) == (2, 1)
        assert found.counters == {"chunks_skipped": 5 + number}
    assert len(list(folder.glob("*.json"))) == len(list((folder / ".headgate/counters").iterdir())) == 32


def test_batches_of_a_streaming_query_are_one_read(folder: Path) -> None:
    scan = Scan(str(folder))
    for batch in range(70):
        scan.plan({"in": OffsetRange(10 * batch, 10 * batch + 10)}, ())
        scan.record(f"{batch}-planning", {}, partitions=1)
        scan.record(f"{batch}-0", {"messages_matched": 10}, partitions_read=1)
        scan.fold()
    scan.plan({"other": OffsetRange(0, 1)}, ())
    found = last_scan(session_of(folder))
    assert found is not None
    assert found.ranges == {"in": (0, 700), "other": (0, 1)}
    assert (found.partitions, found.partitions_read, found.counters) == (70, 70, {"messages_matched": 700})
    assert len(list((folder / ".headgate/counters" / scan.name).iterdir())) < 70


def test_who_does_not_see_the_folder_records_nothing_and_fails_nothing(tmp_path: Path) -> None:
    scan = Scan(str(tmp_path / "elsewhere"))
    scan.plan({"in": OffsetRange(0, 1)}, ())
    scan.record("task", {"chunks_skipped": 1})
    scan.fold()
    assert not (tmp_path / "elsewhere").exists()


def test_a_session_has_one_folder_or_the_one_that_it_was_given(folder: Path) -> None:
    assert scans_folder(session_of(folder)) == str(folder)
    fresh = Settings()
    with pytest.raises(ConfigError, match=r"call headgate\.spark\.register\(spark\)"):
        last_scan(fresh)  # type: ignore[arg-type]
    made = scans_folder(fresh)  # type: ignore[arg-type]
    assert scans_folder(fresh) == made  # type: ignore[arg-type]
    assert Path(made).is_dir()


@pytest.mark.spark
def test_last_scan_tells_what_batch_and_streaming_reads_did(spark: SparkSession, root: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(400)], filter_values=subject_values(400))
    read = spark.read.format("headgate").options(root=str(root), stream="in", filter_values="order.created").load()
    assert read.where("offset >= 120 AND properties.subject = 'order.created'").count() == 180
    found = last_scan(spark)
    assert found is not None
    assert found.ranges == {"in": (120, 400)}
    assert set(found.filters) == {"offset >= 120", "properties.subject IN ('order.created')"}
    assert (found.partitions, found.partitions_read) == (1, 1)
    assert found.counters["chunks_skipped"] == 2
    assert found.counters["bytes_skipped"] > 0
    assert found.counters["messages_matched"] == 180

    streaming = spark.readStream.format("headgate").options(
        root=str(root), stream="in", columns="offset", filter="number < 7", max_messages_per_batch="100"
    )
    streaming.load().writeStream.format("noop").option("checkpointLocation", str(root / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    found = last_scan(spark)
    assert found is not None
    assert found.ranges == {"in": (0, 400)}
    assert found.partitions == found.partitions_read == 4
    assert (found.counters["messages_evaluated"], found.counters["messages_matched"]) == (400, 7)

    with pytest.raises(ConfigError, match="register"):
        last_scan(spark.newSession())
