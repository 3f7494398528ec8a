"""Service Bus in a minute: a server, its entities, and the program that would run against the cloud.

    make demo-servicebus

Starts `headgate serve --in-memory` with the entities of `entities.toml`, runs `orders.py` with the connection string of
that server and nothing else, looks at the topic from the command line, and stops the server.
"""

from __future__ import annotations

import os
import subprocess
import sys

from serving import EXAMPLES, headgate, server

HERE = EXAMPLES / "servicebus"


def main() -> None:
    """Serve, run the program, look, stop."""
    with server("--in-memory", "--config", str(HERE / "entities.toml")) as ports:
        connection = (
            f"Endpoint=sb://localhost:{ports['amqp']};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )
        print(f"\n$ SERVICEBUS_CONNECTION_STRING='{connection}' python examples/servicebus/orders.py", flush=True)
        environment = {**os.environ, "SERVICEBUS_CONNECTION_STRING": connection}
        subprocess.run([sys.executable, str(HERE / "orders.py")], env=environment, check=True)
        where = ("--server", f"localhost:{ports['stream']}")
        headgate("rule", "ls", "orders", "red", *where)
        headgate("subscription", "ls", "orders", *where)
        print()


if __name__ == "__main__":
    main()
