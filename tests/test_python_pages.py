"""The page on the Python packages; tests/test_faces.py compares it with what the faces offer today."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest
import python_pages


@pytest.fixture(scope="module")
def page() -> str:
    return python_pages.python_page()


@pytest.mark.parametrize("package", ["headgate", "headgate.client", "headgate.testing"])
def test_page_has_every_class_and_function_that_a_package_offers(page: str, package: str) -> None:
    face = importlib.import_module(package)
    offered = {name for name in dir(face) if name[0] != "_" and name != "lazy"}
    described = set(re.findall(rf"^### `{re.escape(package)}\.(\w+)`$", page, re.MULTILINE))
    found = {name: getattr(face, name) for name in offered}
    assert described == {name for name, each in found.items() if inspect.isclass(each) or inspect.isfunction(each)}


def test_long_signature_has_a_line_for_each_parameter(page: str) -> None:
    assert "read(\n    stream: str | Path,\n    *,\n    columns: str | Iterable[str] | None = None,\n" in page
    assert "```python\nMessage(\n" in page
