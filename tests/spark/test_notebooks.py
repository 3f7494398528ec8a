"""The notebooks of `examples/notebooks`: their cells in order give the values that are stored, and nothing else is."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from pyspark.sql import SparkSession

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def _code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.spark
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_give_the_values_that_are_stored(
    path: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run in the tests' session of Spark, by IPython without a kernel; plots are drawn and not looked at."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shell = InteractiveShell()
    shell.display_formatter.active_types = ["text/plain"]
    for number, cell in enumerate(_code_cells(path), 1):
        source = "".join(cell["source"])
        ran = shell.run_cell(source, store_history=False)
        ran.raise_error()
        stored = ["".join(each["data"]["text/plain"]) for each in cell["outputs"] if "execute_result" in each.values()]
        silent = ran.result is None or source.endswith(";")
        given = [] if silent else [shell.display_formatter.format(ran.result)[0]["text/plain"]]
        assert given == stored, f"cell {number} of {path.name}; after a change on purpose: make notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_plots_and_values_without_paths_or_warnings(path: Path) -> None:
    outputs = [output for cell in _code_cells(path) for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"execute_result", "display_data"}
    assert any("image/png" in output["data"] for output in outputs)
    texts = "".join("".join(output["data"]["text/plain"]) for output in outputs)
    assert str(Path.home()) not in texts and tempfile.gettempdir() not in texts and "/" not in texts
    assert path.stat().st_size < 100_000
