"""The page on routing by a field of the body tells the truth: its commands run, and show what it shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from command_line import Run

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "route-by-body-field.md").read_text(encoding="utf-8")


def block(language: str, number: int) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number].splitlines()


def test_the_commands_of_the_page_route_its_messages(run: Run) -> None:
    for command in block("sh", 0):
        assert run(*shlex.split(command)[1:]).status == 0, command
    assert run("publish", "orders", stdin="\n".join(block("json", 0)) + "\n").status == 0
    shown = [run(*shlex.split(command)[1:]).out for command in block("sh", 1)]
    offsets = [[line.split("\t")[0] for line in out.splitlines()[1:]] for out in shown[:2]]
    assert offsets == [["0"], ["1"]]
    for line, out in zip(block("text", 0), shown[2:], strict=True):
        assert line in out
    tried = run(
        "rule", "add", "orders", "large", "a", "--dialect", "amqp", "--sql", "body.order.total > 1", "--dry-run"
    )
    assert ["unreadable_bodies", "1"] in [line.split() for line in tried.out.splitlines()]


def test_a_tail_by_a_path_gives_the_messages_that_the_rule_gives(run: Run) -> None:
    assert run("stream", "create", "plain").status == 0
    assert run("publish", "plain", stdin="\n".join(block("json", 0)) + "\n").status == 0
    command = re.search(r"`headgate (tail orders .*?)`", PAGE)
    assert command is not None
    assert run(*shlex.split(command[1].replace("orders", "plain", 1)), "--offsets").lines == ["0"]


def test_a_declared_path_skips_chunks_and_loses_nothing(run: Run) -> None:
    create, publish, tail = block("sh", 2)
    assert shlex.split(publish)[3:] == ["<", "orders.json"]
    shown = "\n".join(block("json", 1)) + "\n"
    assert run(*shlex.split(create)[1:]).status == 0
    assert run(*shlex.split(publish)[1:3], stdin=shown).status == 0
    assert run(*shlex.split(tail)[1:], "--offsets").lines == ["0"]
    orders = [("AMER", 120.5), ("EMEA", 99), ("EMEA", 200), ("APJ", 300), ("\u00c9", 400), (5, 500)]
    for region, total in orders:
        line = json.dumps({"body": json.dumps({"order": {"region": region, "total": total}})})
        assert run("publish", "regional", stdin=line + "\n").status == 0
    found = run(*shlex.split(tail)[1:], "--offsets")
    assert found.lines == ["0", "4"]
    assert found.err.startswith("stage 1: 7 chunks examined, 2 skipped unread")
    assert run("stream", "verify", "regional").status == 0
