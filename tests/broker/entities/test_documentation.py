"""The page on topics and queues says what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

from headgate.server.configuration import load_settings
from headgate.topic import TopicSettings

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "entities.md").read_text(encoding="utf-8")


def test_the_table_of_properties_is_the_record() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", PAGE, flags=re.MULTILINE)
    default = TopicSettings()
    assert rows == [
        (name, msgspec.json.encode(getattr(default, name)).decode()) for name in TopicSettings.__struct_fields__
    ]


def test_the_configuration_of_the_page_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert set(tomllib.loads(text)) == {"queue", "topic"}
    (tmp_path / "headgate.toml").write_text(text, encoding="utf-8")
    assert load_settings(tmp_path / "headgate.toml", {}).topic[0].subscription[0].name == "red"
