"""A Delta sink that is killed at each step of a batch: its table is that of a run that nobody disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.spark.pipeline import delta
from headgate.spark.pipeline.delta import query_id

from ..conftest import order, write_stream
from ..sink_faults import COUNT, EXPECTED, Faults, pipeline

pytestmark = [pytest.mark.spark, pytest.mark.faults]


def rows(path: Path) -> list[tuple[int, str]]:
    table = DeltaTable(path).to_pyarrow_table()
    return sorted(zip(table["number"].to_pylist(), table["region"].to_pylist(), strict=True))


def files(path: Path, folder: str) -> set[Path]:
    return {each for each in (path / folder).rglob("*") if each.is_file()}


def test_a_delta_table_has_each_row_once_whatever_step_of_a_batch_the_driver_dies_at(
    tmp_path: Path, faults: Faults
) -> None:
    write_stream(tmp_path / "root", "in", [order(n) for n in range(COUNT)])
    path = tmp_path / "lines"
    lines = {"name": "lines", "format": "delta", "path": str(path), "partition_by": ["region"]}
    content = pipeline(tmp_path, lines, spark={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})

    faults.die_at("staged:2", content, tmp_path, delta)
    assert rows(path) == EXPECTED[:200]
    assert len(files(path, "headgate")) == 2 * 3
    assert len(files(path, "_headgate")) == 1

    faults.die_at("finished:1", content, tmp_path, delta)
    assert rows(path) == EXPECTED[:400]
    assert len(files(path, "headgate")) == 2 * 3
    assert len(files(path, "_headgate")) == 1

    faults.die_at("completed:1", content, tmp_path, delta)
    assert rows(path) == EXPECTED
    faults.run(content)
    assert rows(path) == EXPECTED
    assert files(path, "_headgate") == set()
    table = DeltaTable(path)
    assert files(path, "headgate") == {Path(uri.removeprefix("file://")) for uri in table.file_uris()}
    query = query_id(tmp_path / "root" / ".headgate" / "pipelines" / "sinks" / "checkpoints" / "lines")
    assert table.transaction_version(query) == 2
