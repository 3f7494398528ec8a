"""The pages on the Spark source, the sink and pipeline files are what the code gives today."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from headgate.spark.option_declarations import COLUMNS
from headgate.spark.option_reader import FLAG, Option
from headgate.spark.pipeline.configuration import check

PROJECT = Path(__file__).parent.parent
PAGES = PROJECT / "docs" / "reference"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spark_pages", PROJECT / "tools" / "spark_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["spark-source", "spark-sink", "pipeline-files"])
def test_page_is_up_to_date(tool: ModuleType, name: str) -> None:
    written = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert written == tool.WRITERS[f"{name}.md"](), "run: make docs"
    assert "{{" not in written


def test_every_option_column_and_key_says_what_it_means(tool: ModuleType) -> None:
    rows = [line for write in tool.WRITERS.values() for line in write().splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert [row for row in rows if row.endswith("|  |")] == []


def test_a_new_option_is_on_the_page_and_a_changed_default_too(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = Option("colour", FLAG, "Whether the rows are red.", "true", default="false")
    monkeypatch.setattr(tool, "SOURCE_OPTIONS", {"Looks": (option,)})
    assert "| `colour` | `true` or `false` | `false` | `true` | Whether the rows are red. |" in tool.source_page()


def test_the_source_has_all_columns_and_the_sink_says_what_it_takes(tool: ModuleType) -> None:
    source, sink = tool.source_page(), tool.sink_page()
    for column in COLUMNS:
        assert f"\n| `{column}` | " in source.partition("## Columns")[2]
        assert f"\n| `{column}` | " in sink
    assert "| `header.priority` | `tinyint`, `smallint`, `int`, `bigint` |" in sink
    assert "| `properties.content_type` | `string` |" in sink
    assert "| `decimal(p,s)` |" not in sink
    assert "| `timestamp_ntz` | timestamp |" in sink
    assert "| `string` | `char`, `string`, `symbol` |" in source


def test_the_pipeline_of_the_page_is_one(tool: ModuleType) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", tool.pipeline_page(), flags=re.DOTALL)
    pipeline = check(tomllib.loads(text))
    assert [job.name for job in pipeline.jobs] == ["ingest", "dear", "customer-events"]


def test_checking_names_the_stale_page(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in PAGES.glob("*.template.md"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(tool, "PAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["spark_pages.py", "--check"])
    assert tool.main() == 1
    assert capsys.readouterr().out == "not up to date: spark-source.md, spark-sink.md, pipeline-files.md\n"
    monkeypatch.setattr(sys, "argv", ["spark_pages.py"])
    assert tool.main() == 0
    assert (tmp_path / "spark-sink.md").read_text(encoding="utf-8") == tool.sink_page()
