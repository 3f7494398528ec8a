"""`headgate key`."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Run
from headgate.broker import AccessKeys


def stored(tmp_path: Path) -> AccessKeys:
    return AccessKeys(tmp_path / "root" / ".headgate" / "keys.json")


def test_secrets_are_shown_when_they_are_made_and_not_again(run: Run, tmp_path: Path) -> None:
    tmp_path.joinpath("root").mkdir()
    assert "no keys" in run("key", "ls").err
    (made,) = run("key", "add", "app", "--send", "^orders", "--listen", ".*", "--json").json
    key = stored(tmp_path).get("app")
    assert made == {"name": "app", "primary": key.primary, "secondary": key.secondary}
    added = run("key", "add", "other", "--manage", "^a")
    assert [line.split()[0] for line in added.lines] == ["name", "primary", "secondary"]
    listed = run("key", "ls", "--json")
    assert listed.json == [
        {"name": "app", "send": "^orders", "listen": ".*", "manage": ""},
        {"name": "other", "send": "", "listen": "", "manage": "^a"},
    ]
    assert run("key", "ls").lines[1].split("\t") == ["app", "^orders", ".*", ""]
    assert key.primary not in listed.out + run("key", "ls").out


def test_a_key_is_rotated_and_removed(run: Run, tmp_path: Path) -> None:
    run("key", "add", "app", "--secret-stdin", stdin="mine\nrest\n")
    assert stored(tmp_path).get("app").primary == "mine"
    (rotated,) = run("key", "rotate", "app", "--json").json
    assert rotated["secondary"] == "mine" and rotated["primary"] == stored(tmp_path).get("app").primary
    shown = run("key", "rotate", "app", "--secret-stdin", stdin="other").out
    assert stored(tmp_path).get("app").primary == "other" and rotated["primary"] in shown
    # Without the option nothing is read.
    run("key", "add", "random", stdin="mine\n")
    assert stored(tmp_path).get("random").primary != "mine"
    assert run("key", "rm", "app").status == 0
    assert list(stored(tmp_path)) == ["random"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (("add", "app"), "", "app: there is such a key already"),
        (("add", "new", "--secret-stdin"), "", "found no secret"),
        (("add", "new", "--secret-stdin"), "hidden;x\n", "a secret has printable characters"),
        (("add", "new", "--send", "("), "", "is no regular expression"),
        (("add", "a;b"), "", "the name of a key"),
        (("rotate", "nobody"), "", "nobody: no such key"),
        (("rm", "nobody"), "", "nobody: no such key"),
    ],
)
def test_what_cannot_be_done_is_said(run: Run, arguments: tuple[str, ...], stdin: str, expected: str) -> None:
    run("key", "add", "app")
    shown = run("key", *arguments, stdin=stdin)
    assert shown.status in (1, 2) and expected in shown.err and "hidden" not in shown.err
    assert [row["name"] for row in run("key", "ls", "--json").json] == ["app"]
