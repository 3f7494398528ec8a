"""The names that `headgate` offers, and the page that shows how they are used."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

import headgate

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "python.md"


def test_examples_of_the_page_on_python_run_as_shown() -> None:
    test = doctest.DocTestParser().get_doctest(PAGE.read_text(encoding="utf-8"), {}, "python.md", str(PAGE), 0)
    assert len(test.examples) > 20
    shown: list[str] = []
    result = doctest.DocTestRunner().run(test, out=shown.append)
    assert result.failed == 0, "".join(shown)


@pytest.mark.parametrize("name", headgate.__all__)
def test_offered_name_is_there_and_listed(name: str) -> None:
    assert getattr(headgate, name) is not None
    assert name in dir(headgate)


def test_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Filters'"):
        headgate.Filters  # noqa: B018


def test_names_for_filters_and_topics_import_nothing_heavy() -> None:
    code = (
        "from headgate import Action, Filter, Message, Rule, Subscription, Topic\n"
        "Filter.parse('a = 1').matches(Message(b''), now_ms=0)\n"
        "import sys\n"
        "print({'numba', 'pyarrow', 'pyspark'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
