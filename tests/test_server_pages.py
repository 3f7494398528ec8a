"""The pages on configuration, requests and metrics are what the code gives today."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("server_pages", PROJECT / "tools" / "server_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["configuration.md", "http.md", "metrics.md"])
def test_page_of_the_server_is_up_to_date(tool: ModuleType, name: str) -> None:
    written = (PROJECT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == tool.WRITERS[name](), "run: make docs"


def test_every_key_and_every_metric_says_what_it_means(tool: ModuleType) -> None:
    pages = [line for write in tool.WRITERS.values() for line in write().splitlines() if line.startswith("| `")]
    assert len(pages) > 80
    assert [line for line in pages if line.endswith("|  |")] == []


def test_checking_names_the_stale_page(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "PAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["server_pages.py", "--check"])
    assert tool.main() == 1
    assert capsys.readouterr().out == "not up to date: configuration.md, http.md, metrics.md\n"
    monkeypatch.setattr(sys, "argv", ["server_pages.py"])
    assert tool.main() == 0
    assert (tmp_path / "metrics.md").read_text(encoding="utf-8") == tool.metrics_page()
