"""Properties of other types than they are declared with: null, an error, or converted; counted and warned of once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headgate.errors import ConfigError, MismatchError
from headgate.message import Message
from headgate.spark import counters, last_scan, scans, stream_schema
from headgate.spark.options import SourceOptions
from headgate.spark.scans import Scan
from headgate.spark.source import BatchReader

from ..client.fake_server import HEADGATE, fake_server
from .conftest import write_stream

VALUES = (1, "two", 3.5, 99_999_999_999, "7", None)
MESSAGES = [Message(application_properties={"v": value}).encode() for value in VALUES] + [Message(b"").encode()]


def options(root: Path, **more: str) -> dict[str, str]:
    given = {"root": str(root), "stream": "in", "columns": "offset,application_properties", "properties": "v int"}
    return given | more


def rows(given: dict[str, str], scan: Scan | None = None) -> list[Any]:
    """The values of a read in this process."""
    parsed = SourceOptions.parse(given)
    reader = BatchReader(stream_schema(parsed.columns, parsed.properties), given, scan)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    cells = [cell for batch in batches for cell in batch.column("application_properties").to_pylist()]
    return [cell and cell["v"] for cell in cells]


@pytest.mark.parametrize(
    ("more", "found", "left"),
    [
        ({}, [1, *[None] * 6], 4),
        ({"on_mismatch": "null"}, [1, *[None] * 6], 4),
        ({"on_mismatch": "cast"}, [1, None, None, None, 7, None, None], 3),
    ],
)
def test_values_that_do_not_fit_are_null_or_converted_and_counted(
    root: Path, capfd: pytest.CaptureFixture[str], more: dict[str, str], found: list[int | None], left: int
) -> None:
    write_stream(root, "in", MESSAGES)
    assert rows(options(root, counters="read", **more)) == found
    assert counters("read", root=root)["properties_mismatched"] == left
    (line,) = capfd.readouterr().err.splitlines()
    assert "stream in, offset 1: application property 'v' is of type string (\"two\"), declared int" in line
    assert ("cast converts" in line) == ("cast" not in more.values())


def test_fail_names_the_first_value_that_does_not_fit(root: Path) -> None:
    write_stream(root, "in", MESSAGES[:1] * 60)
    write_stream(root, "other", MESSAGES[3:])
    given = options(root, stream="in,other", on_mismatch="fail", partitions="1")
    with pytest.raises(MismatchError) as raised:
        rows(given)
    assert (raised.value.stream, raised.value.offset) == ("other", 0)
    assert str(raised.value) == (
        "stream other, offset 0: application property 'v' is of type long (99999999999), declared int"
    )
    assert rows(options(root, on_mismatch="fail")) == [1] * 60


def test_what_is_absent_or_null_is_no_mismatch(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_stream(root, "in", [MESSAGES[0], *MESSAGES[5:]])
    assert rows(options(root, on_mismatch="fail")) == [1, None, None]
    assert capfd.readouterr().err == ""


def test_a_server_gives_the_same(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with fake_server(HEADGATE) as server:
        server.append("in", list(MESSAGES), [None] * len(MESSAGES))
        given = {name: value for name, value in options(root).items() if name != "root"}
        given |= {"server": server.address, "counters": "read", "counters_root": str(root)}
        assert rows(given) == [1, *[None] * 6]
        assert counters("read", root=root)["properties_mismatched"] == 4
        assert rows(given | {"on_mismatch": "cast"}) == [1, None, None, None, 7, None, None]
        with pytest.raises(MismatchError, match=r"stream in, offset 1: .*declared int"):
            rows(given | {"on_mismatch": "fail"})
    assert len(capfd.readouterr().err.splitlines()) == 2


def test_one_read_warns_once_whatever_its_processes(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stream(root, "in", MESSAGES)
    folder = tmp_path / "scans"
    folder.mkdir()
    for scan, lines in ((Scan(str(folder), "one"), 1), (Scan(str(folder), "one"), 0), (Scan(str(folder), "two"), 1)):
        # Another process knows nothing of this one's warnings but what lies in the folder.
        monkeypatch.setattr(scans, "_warned", set())
        rows(options(root), scan)
        assert len(capfd.readouterr().err.splitlines()) == lines


def test_an_unknown_way_to_deal_with_them_is_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match="option on_mismatch: found 'ignore', expected null or fail or cast"):
        SourceOptions.parse(options(root, on_mismatch="ignore"))


@pytest.mark.spark
def test_spark_shows_what_was_found_and_the_count(spark: SparkSession, root: Path) -> None:
    write_stream(root, "in", MESSAGES)
    read = spark.read.format("headgate").options(**options(root, on_mismatch="cast")).load()
    assert [row.v for row in read.select("application_properties.v").collect()] == [1, None, None, None, 7, None, None]
    found = last_scan(spark)
    assert found is not None
    assert found.counters["properties_mismatched"] == 3
    with pytest.raises(PySparkException, match="offset 1: application property 'v' is of type string"):
        spark.read.format("headgate").options(**options(root, on_mismatch="fail")).load().collect()
