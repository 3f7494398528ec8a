"""What a pipeline knows of sinks: the table of guarantees, and what is refused before Spark starts."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.spark.pipeline.configuration import check
from headgate.spark.pipeline.sinks import KINDS, Guarantee, guarantee_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "sinks.md"
JDBC = {"format": "jdbc", "options": {"url": "jdbc:sqlite:x", "dbtable": "lines"}}


def test_the_page_on_sinks_gives_each_kind_the_guarantee_that_the_code_knows() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", PAGE.read_text(), re.MULTILINE)
    assert listed == [(name, guarantee.value) for name, guarantee in KINDS.items()]


def test_a_format_that_is_not_known_has_an_unknown_guarantee_and_case_says_nothing() -> None:
    assert guarantee_of("mongodb") is Guarantee.UNKNOWN
    assert guarantee_of("Parquet") is Guarantee.EXACTLY_ONCE


def pipeline(*sinks: dict[str, Any], **more: object) -> dict[str, Any]:
    source = {"name": "events", "format": "parquet", "path": "events"}
    return {"name": "p", "source": [source], "sink": [{"input": "events", **sink} for sink in sinks], **more}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({**JDBC, "options": {"url": "jdbc:sqlite:x"}}, "dbtable is missing"),
    ({**JDBC, "options": {"dbtable": "lines"}}, "url is missing"),
    ({**JDBC, "options": {**JDBC["options"], "dbtable": "(SELECT 1) AS t"}}, "expected the name of a table"),  # type: ignore[dict-item]
    ({**JDBC, "options": {**JDBC["options"], "numPartitions": 1, "lowerBound": 5}}, "lowerBound is for reading"),  # type: ignore[dict-item]
    ({**JDBC, "path": "here"}, "path: "),
    ({**JDBC, "key": ["a", "a"]}, "key is"),
    ({**JDBC, "key": ["a"], "mode": "complete"}, "key: is for mode append"),
    ({"format": "parquet", "path": "x", "key": ["a"]}, "key: is for format jdbc"),
    ({"format": "parquet", "path": "x", "partition_by": ["a"]}, "partition_by: is for format delta"),
    ({"format": "delta"}, "path: is missing"),
    ({"format": "delta", "path": "s3://bucket/table"}, "path is 's3://bucket/table'"),
    ({"format": "delta", "path": "x", "options": {"mergeSchema": True}}, "options: .*mergeSchema"),
    ({"format": "Delta", "path": "x", "partition_by": ["a", "a"]}, "partition_by is"),
    ({"format": "parquet", "path": "x", "stall_timeout": "soon"}, "stall_timeout: .*soon"),
    ({"format": "parquet", "path": "x", "stall_timeout": "1m", "mode": "complete"}, "stall_timeout: is for mode"),
    ({"stream": "s", "stall_timeout": "1m"}, "stall_timeout: is for sinks that are no streams"),
    ({"format": "parquet", "path": "events"}, "writes the path that it reads"),
    ({"format": "parquet", "path": "."}, "writes the path that it reads"),
]


@pytest.mark.parametrize(("sink", "reason"), WRONG)
def test_what_is_wrong_with_a_sink_is_named_with_it(sink: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"sink 'out'.*{reason}"):
        check(pipeline({"name": "out", **sink}))


def test_a_delta_sink_without_the_package_is_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError, match=r"pip install 'headgate\[delta\]'"):
        check(pipeline({"name": "out", "format": "delta", "path": "x"}))


def test_sinks_side_by_side_are_at_least_one() -> None:
    with pytest.raises(ConfigError, match="sinks_at_once is 0"):
        check(pipeline({"name": "out", "format": "noop"}, sinks_at_once=0))


def test_a_sink_is_needed_by_what_reads_below_its_path_or_its_stream_and_by_nothing_else() -> None:
    content = pipeline(
        {"name": "late", "input": "again", "format": "noop"},
        {"name": "other", "input": "copied", "format": "noop"},
        {"name": "files", "format": "parquet", "path": "written"},
        {"name": "copies", "stream": "copied"},
    )
    content["source"] += [
        {"name": "again", "format": "parquet", "path": "written/*.parquet"},
        {"name": "copied", "stream": ["copied", "elsewhere"]},
    ]
    checked = check(content)
    needed = {job.name: [other.name for other in checked.needed_by(job)] for job in checked.jobs}
    assert needed == {"files": [], "late": ["files"], "copies": [], "other": ["copies"]}
