"""The page on filtering CloudEvents tells the truth: its commands run, and show what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from command_line import Run

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "filter-cloudevents.md").read_text(encoding="utf-8")


def block(language: str, number: int) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number].splitlines()


def test_the_commands_of_the_page_filter_its_events(run: Run) -> None:
    for command in block("sh", 0):
        assert run(*shlex.split(command)[1:]).status == 0, command
    assert run("publish", "shop", stdin="\n".join(block("json", 0)) + "\n").status == 0
    shown = [run(*shlex.split(command)[1:]).out for command in block("sh", 1)]
    offsets = [[line.split("\t")[0] for line in out.splitlines()[1:]] for out in shown[:2]]
    assert offsets == [["0", "2"], ["1"]]
    assert block("text", 0)[0] in shown[2]
    for text in ("type LIKE '%.paid' AND priority > 5", "[cloudEvents_type] = 'order.paid' AND body.total > 100"):
        dialect = "amqp" if "body" in text else "cesql"
        found = run("tail", "shop", "--offsets", "--dialect", dialect, "--filter", text)
        assert found.lines == (["0", "2"] if dialect == "cesql" else ["0"])
