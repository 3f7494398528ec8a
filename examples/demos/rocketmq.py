"""RocketMQ in a minute: a server, a program of RocketMQ, and what is left of it for others.

    make demo-rocketmq

Starts `headgate serve` over a folder of its own with the topics of `topics.toml`, runs `orders.py` with the address of
that server and nothing else, looks at groups and at what was calculated ahead for them, reads the topic in Spark, and
stops the server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from serving import EXAMPLES, headgate, server

HERE = EXAMPLES / "rocketmq"


def run(shown: str, *command: str, **more: str) -> None:
    """Run a program, as a user would type it."""
    print(f"\n$ {shown}", flush=True)
    subprocess.run([sys.executable, *command], env={**os.environ, **more}, check=True)


def show_ahead(*where: str) -> None:
    """How many of the examined messages had their verdict from when they were written."""
    command = [sys.executable, "-m", "headgate.cli", "rocketmq", "group", "show", "billing", "--json", *where]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    reading = [place["reading"] for place in told["places"]]
    ahead, evaluated = (sum(each[f"messages_{how}"] for each in reading) for how in ("decided_by_index", "evaluated"))
    print(f"\n{ahead + evaluated} examined for 'billing': {ahead} decided ahead, {evaluated} when it received")
    if not ahead:
        print("(nothing ahead: this machine was too busy to calculate it within the program's pause)")


def main() -> None:
    """Serve, run the program, look, read in Spark, stop."""
    with (
        tempfile.TemporaryDirectory() as folder,
        server("--root", folder, "--config", str(HERE / "topics.toml")) as ports,
    ):
        endpoint = f"127.0.0.1:{ports['rocketmq']}"
        program = f"ROCKETMQ_ENDPOINT={endpoint} python examples/rocketmq/orders.py"
        run(program, str(HERE / "orders.py"), ROCKETMQ_ENDPOINT=endpoint)
        headgate("rocketmq", "group", "show", "billing", "--server", f"localhost:{ports['stream']}")
        show_ahead("--server", f"localhost:{ports['stream']}")
        headgate("index", "ls", "orders-0", "--root", folder)
        run(f"python examples/rocketmq/read.py {folder}", str(HERE / "read.py"), folder)
        print()


if __name__ == "__main__":
    main()
