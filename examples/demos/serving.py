"""`headgate serve` for the demos."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).parents[1]

_LISTENERS = ("AMQP", "STREAM", "STOMP", "HTTP", "SERVICEBUS", "ROCKETMQ", "ROCKETMQ_NAMES", "ROCKETMQ_CLASSIC")


@contextlib.contextmanager
def server(*options: str) -> Iterator[dict[str, int]]:
    """`headgate serve` with some options, on free ports: gives them by listener; stopped as an operator would stop it.

    What it says goes to the terminal.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "serve", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            **{f"HEADGATE_SERVER__LISTENERS__{name}": "0" for name in _LISTENERS},
            "HEADGATE_SERVER__LISTENERS__HOST": "127.0.0.1",
            "HEADGATE_SERVER__LOG__LEVEL": "warning",
        },
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().strip()
        print(ready)
        yield {name: int(port) for name, port in re.findall(r"(\w+)=(\d+)", ready)}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        print("server stopped")


def headgate(*command: str) -> None:
    """Run a command of Headgate, as a user would type it."""
    print("\n$ headgate " + " ".join(f"'{word}'" if " " in word else word for word in command), flush=True)
    subprocess.run([sys.executable, "-m", "headgate.cli", *command], check=True)
