"""kill -9 at any instant: what was confirmed is there once, in order, also where a named publisher resends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brokers import open_broker, open_session, stored

pytestmark = pytest.mark.faults

CHILD = Path(__file__).with_name("publishing_child.py")


def confirmed_until_killed(
    root: Path, first_unnamed: int, first_named: int, lines: int, *options: str
) -> list[tuple[str, int, int]]:
    """Let a child publish, kill it after so many confirms; what it confirmed."""
    paths = [str(CHILD.parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(root), str(first_unnamed), str(first_named), *options],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    try:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        said += child.stdout.readlines()
    finally:
        child.kill()
        child.wait(timeout=30)
        if child.stdout is not None:
            child.stdout.close()
    confirmed = []
    for line in said:
        if line.endswith("\n"):  # the last one may be cut
            kind, first, stop = line.split()
            confirmed.append((kind, int(first), int(stop)))
    assert len(confirmed) >= lines
    return confirmed


def check_lives(root: Path, lives: list[int], *options: str) -> None:
    session = open_session(open_broker(root))
    session.declare_stream("s", {"stream-max-segment-size-bytes": 200_000})
    confirmed: dict[str, set[int]] = {"u": set(), "p": set()}
    next_unnamed = 0
    for number, lines in enumerate(lives):
        # The named publisher repeats all that it was not told about; the other one begins something new.
        next_named = max(confirmed["p"], default=0) + 1
        for kind, first, stop in confirmed_until_killed(root, next_unnamed, next_named, lines, *options):
            confirmed[kind].update(range(first, stop))
        next_unnamed = (number + 1) * 10_000_000
        bodies = stored(root, "s")
        unnamed = [int(body[1:]) for body in bodies if body.startswith(b"u")]
        named = [int(body[1:]) for body in bodies if body.startswith(b"p")]
        assert named == list(range(1, len(named) + 1))
        assert unnamed == sorted(set(unnamed))
        assert confirmed["u"] <= set(unnamed) and max(confirmed["p"], default=0) <= len(named)
        assert session.last_sequence("s", "p") == (len(named) or None)


def test_killed_brokers_keep_every_confirmed_message_once_and_in_order(tmp_path: Path) -> None:
    check_lives(tmp_path, [5, 60, 23])


@pytest.mark.long
def test_brokers_killed_many_times_keep_every_confirmed_message_once_and_in_order(tmp_path: Path) -> None:
    check_lives(tmp_path, [1 + (number * 37) % 211 for number in range(25)])


def test_a_disk_that_is_full_now_and_then_and_a_kill_lose_nothing_that_was_confirmed(tmp_path: Path) -> None:
    check_lives(tmp_path, [40], "full")


@pytest.mark.long
def test_a_disk_that_is_full_now_and_then_and_many_kills_lose_nothing_that_was_confirmed(tmp_path: Path) -> None:
    check_lives(tmp_path, [1 + (number * 37) % 211 for number in range(25)], "full")
