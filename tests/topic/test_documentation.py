"""The page on rules says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from headgate.topic import DEFAULT_SETTINGS, TopicLimits
from headgate.topic.limits import LIMIT_MEANINGS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")


def test_the_table_of_limits_is_the_record() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([^|]*) \|$", PAGE, flags=re.MULTILINE)
    defaults = TopicLimits()
    assert rows == [(name, str(getattr(defaults, name)), meaning) for name, meaning in LIMIT_MEANINGS.items()]


def test_the_table_of_settings_is_the_record() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|.*\| (?:`--|— \|)", PAGE, flags=re.MULTILINE)
    defaults = DEFAULT_SETTINGS.json_object()
    assert rows == [(name, msgspec.json.encode(value).decode()) for name, value in defaults.items()]


def test_the_python_of_the_page_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    scope: dict[str, object] = {}
    exec(compile(code, "rules.md", "exec"), scope)
    assert "topic" in scope
