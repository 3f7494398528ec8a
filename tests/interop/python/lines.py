"""Lets a test drive a client library in a process of its own: commands are lines of JSON, each is answered by one."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def serve(commands: Mapping[str, Callable[..., Any]]) -> None:
    """Answer commands from standard input, in order, until it ends; what a library prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        fields = json.loads(line)
        try:
            reply = {"ok": commands[fields.pop("do")](**fields)}
        except Exception as error:
            traceback.print_exc()
            code = getattr(error, "code", None)
            told = f" (code {int(code)})" if isinstance(code, int) else ""
            reply = {"error": f"{type(error).__name__}: {error}{told}"}
        replies.write(json.dumps(reply) + "\n")
    # Threads of a library may not end by themselves.
    os._exit(0)


class Inbox:
    """What a consumer has received and nobody has taken yet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: list[dict[str, Any]] = []

    def put(self, message: dict[str, Any]) -> None:
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def take(self, until: Iterable[str], seconds: float) -> list[dict[str, Any]]:
        """Everything received since the last call, once all bodies of `until` are among it."""
        deadline = time.monotonic() + seconds
        wanted = set(until)
        with self._changed:
            while not wanted <= {message["body"] for message in self._messages}:
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    bodies = [message["body"] for message in self._messages]
                    raise TimeoutError(f"did not receive {sorted(wanted)}, but {bodies}")
            taken, self._messages = self._messages, []
        return taken
