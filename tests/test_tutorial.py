"""Pages for beginners, run as they would: the commands in order, in a fresh folder, with the output that is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent


def _commands(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the page's console blocks, and what the page shows below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            end_of_input = each.find("\nEND\n") + len("\nEND") if "<<END\n" in each else each.index("\n")
            yield each[:end_of_input], each[end_of_input + 1 :]


def _is_as_shown(output: str, shown: str) -> bool:
    """Whether the output is what the page shows. A line of … stands for any lines, … within a line for any text."""
    lines = (
        "(?:.*\n)*?" if line == "…\n" else re.escape(line).replace("…", ".*")
        for line in shown.splitlines(keepends=True)
    )
    return re.fullmatch("".join(lines), output) is not None


@pytest.mark.slow
@pytest.mark.parametrize(("page", "at_least"), [("README.md", 3), ("docs/tutorial.md", 15)])
def test_commands_of_a_page_give_what_it_shows(tmp_path: Path, page: str, at_least: int) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "80"}
    environment.pop("HEADGATE_ROOT", None)
    commands = list(_commands((PROJECT / page).read_text(encoding="utf-8")))
    assert len(commands) >= at_least
    for command, shown in commands:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert _is_as_shown(ran.stdout, shown), f"$ {command}\n{ran.stdout}"
