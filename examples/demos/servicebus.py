"""Service Bus in a minute: a server, its entities, and the program that would run against the cloud.

    make demo-servicebus

Starts `headgate serve --in-memory` with the entities of `entities.toml`, runs `orders.py` with the connection string of
that server and nothing else, looks at the topic from the command line, and stops the server.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


@contextlib.contextmanager
def server() -> Iterator[dict[str, int]]:
    """`headgate serve --in-memory` on free ports; stopped as an operator would stop it."""
    listeners = ("AMQP", "STREAM", "STOMP", "HTTP", "SERVICEBUS", "ROCKETMQ", "ROCKETMQ_NAMES", "ROCKETMQ_CLASSIC")
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "serve", "--in-memory", "--config", str(HERE / "entities.toml")],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            **{f"HEADGATE_SERVER__LISTENERS__{name}": "0" for name in listeners},
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


def main() -> None:
    """Serve, run the program, look, stop."""
    with server() as ports:
        connection = (
            f"Endpoint=sb://localhost:{ports['amqp']};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )
        print(f"\n$ SERVICEBUS_CONNECTION_STRING='{connection}' python examples/servicebus/orders.py", flush=True)
        environment = {**os.environ, "SERVICEBUS_CONNECTION_STRING": connection}
        subprocess.run([sys.executable, str(HERE / "orders.py")], env=environment, check=True)
        for command in (
            ("rule", "ls", "orders", "red"),
            ("subscription", "ls", "orders"),
        ):
            print("\n$ headgate " + " ".join(command), flush=True)
            where = ("--server", f"localhost:{ports['stream']}")
            subprocess.run([sys.executable, "-m", "headgate.cli", *command, *where], check=True)
        print()


if __name__ == "__main__":
    main()
