"""The code tour tells the truth: its commands run, and the bytes it shows are those on disk."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from command_line import Run

TOUR = (Path(__file__).parent.parent.parent / "docs" / "tour.md").read_text(encoding="utf-8")
TIMESTAMP = slice(8 + 8, 8 + 16)


def test_commands_of_the_tour_write_the_bytes_it_shows(run: Run, tmp_path: Path) -> None:
    create, published, tail = re.findall(r"headgate (stream create .*|publish .*|tail .*)", TOUR)[:3]
    message = re.search(r"echo '(\{.*\})' \|", TOUR)
    assert message is not None
    assert run(*shlex.split(create)).status == 0
    assert run(*shlex.split(published), stdin=message[1] + "\n").status == 0
    shown = re.findall(r"^[0-9a-f]{8}: ((?:[0-9a-f]{2,4} )+)", TOUR, re.MULTILINE)
    expected = bytearray.fromhex("".join(shown))
    found = bytearray(next((tmp_path / "root").rglob("*.segment")).read_bytes())
    expected[TIMESTAMP] = found[TIMESTAMP]
    assert found == expected
    line = run(*shlex.split(tail)).out
    assert line.split("\t")[2:] == ["order.created", '{"region":"EMEA","price":120.5}', '{"id": 7}\n']
    assert line.split("\t", 2)[2] in TOUR
