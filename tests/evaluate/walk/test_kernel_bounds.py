"""The kernel reads nothing outside a message and its slack: an unreadable page stands behind each message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.kernels import load

HERE = Path(__file__).parent
VECTORS = HERE.parents[1] / "vectors"
MESSAGES = (
    VECTORS / "rabbitmq_messages.jsonl",
    *(VECTORS / "own" / f"{name}_messages.jsonl" for name in ("amqp", "body")),
)

pytestmark = pytest.mark.skipif(load("headgate.evaluate.kernel") is None, reason="kernels cannot be compiled here")


def look_at_guarded_messages(changes: int) -> int:
    command = [sys.executable, str(HERE / "guarded_kernel.py"), str(changes), *map(str, MESSAGES)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr[-2000:]}"
    return int(ended.stdout)


def test_truncated_changed_and_hostile_messages_are_never_read_beyond_their_slack() -> None:
    assert look_at_guarded_messages(10_000) > 90_000


@pytest.mark.long
def test_very_many_changed_messages_are_never_read_beyond_their_slack() -> None:
    assert look_at_guarded_messages(1_000_000) > 1_000_000


def test_the_unreadable_page_is_really_unreadable() -> None:
    code = "from guarded_kernel import GuardedBuffer; b = GuardedBuffer(1); print(b.mapping[b.size])"
    ended = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, check=False, timeout=60)
    assert ended.returncode < 0
