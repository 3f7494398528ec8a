"""The page of each language is what its template and its dialect record give today."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from headgate.language.registry import BUILT_IN

PROJECT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("language_pages", PROJECT / "tools" / "language_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", BUILT_IN)
def test_page_of_a_language_is_up_to_date(tool: ModuleType, name: str) -> None:
    written = (PROJECT / "docs" / "languages" / f"{name}.md").read_text(encoding="utf-8")
    assert written == tool.page(name), "run: make docs"
    assert "{{" not in written


def test_checking_says_which_page_is_stale(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (PROJECT / "docs" / "languages").glob("*.md"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "amqp.md").write_text("old", encoding="utf-8")
    monkeypatch.setattr(tool, "PAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["language_pages.py", "--check"])
    assert tool.main() == 1
    assert capsys.readouterr().out == "not up to date: amqp.md\n"
    monkeypatch.setattr(sys, "argv", ["language_pages.py"])
    assert tool.main() == 0
    assert (tmp_path / "amqp.md").read_text(encoding="utf-8") == tool.page("amqp")
