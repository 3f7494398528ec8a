"""RocketMQ's side of a server: where clients connect, topics and consumer groups; clients that work side by side."""

from __future__ import annotations

import base64
import json
import os
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from interop import rocketmq_original
from interop.programs import Client, ClientError, Program, start
from interop.servers import Served
from waiting import LIMIT_S, eventually

ORIGINAL = "HEADGATE_INTEROP_ROCKETMQ"
"""Ports of a running RocketMQ, such as `grpc=18081,names=19876,broker=20911`: what the tests expect is then proved on
the original. Its broker needs `recallMessageEnable=true`."""

DIFFERENCES = {
    "illegal filters": "refused with the settings of a client, not when it receives (`check_filters`); those for "
    "JavaScript and Go wait for ever then",
    "acknowledged twice": "what was acknowledged is held by no handle any more: 40013, where the original says OK",
    "recalled twice": "a message that was recalled is gone: the second time says so, the original does not look",
}
"""Where Headgate answers clients otherwise than the original, and why."""

_LOGIN = "Basic " + base64.b64encode(b"guest:guest").decode()


@dataclass(frozen=True, slots=True)
class RocketMq:
    """Where clients of both protocols connect."""

    host: str
    grpc: int
    names: int
    http: int = 0
    broker: int = 0

    @property
    def is_original(self) -> bool:
        return self.broker > 0

    def differs(self, what: str) -> bool:
        """Whether this is Headgate, which differs there."""
        assert what in DIFFERENCES
        return not self.is_original

    def topic(self, name: str, queues: int = 4, accepts: str = "normal") -> str:
        """A new topic for one kind of messages: normal, fifo or delay."""
        if self.is_original:
            rocketmq_original.declare_topic(self.broker, name, queues, accepts.upper())
        else:
            self._put("topics", name, {"queues": queues, "accepts": [accepts]})
        return name

    def group(self, name: str, *, fifo: bool = False, max_attempts: int = 17, backoff_ms: Sequence[int] = ()) -> str:
        """A consumer group with settings of its own; the original has one table of delays for all groups."""
        if self.is_original:
            rocketmq_original.declare_group(self.broker, name, fifo, max_attempts - 1)
        else:
            backoff = {"backoff_ms": list(backoff_ms)} if backoff_ms else {}
            self._put("groups", name, {"fifo": fifo, "max_attempts": max_attempts, **backoff})
        return name

    def _put(self, what: str, name: str, body: object) -> None:
        request = urllib.request.Request(
            f"http://{self.host}:{self.http}/api/rocketmq/{what}/{urllib.parse.quote(name, safe='')}",
            data=json.dumps(body).encode(),
            headers={"Authorization": _LOGIN},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=LIMIT_S).close()

    def connected(self, client: Client) -> Program:
        """A program with that client, which connects when it is first used."""
        program = start(client)
        port = self.names if "Classic" in client.command[-1] or "classic" in client.command[-1] else self.grpc
        program.ask("connect", host=self.host, port=port)
        return program


def original() -> RocketMq | None:
    """The running RocketMQ that the environment names."""
    text = os.environ.get(ORIGINAL)
    if text is None:
        return None
    ports = {name: int(port) for name, _, port in (entry.partition("=") for entry in text.split(","))}
    return RocketMq("127.0.0.1", **ports)


def of_server(served: Served) -> RocketMq:
    """RocketMQ's side of a running Headgate."""
    # Clients say in their answers and logs which address they were given: numbers, as the original has them.
    return RocketMq("127.0.0.1", served.ports["rocketmq"], served.ports["rocketmq_names"], served.http)


def error_of(program: Program, do: str, **fields: Any) -> str:
    """What the client's library says of a command that must fail."""
    with pytest.raises(ClientError) as raised:
        program.ask(do, **fields)
    return str(raised.value)


def again_until(program: Program, do: str, until: str, **fields: Any) -> Any:
    """A command that may fail at first with what `until` matches: what it is about comes to be in the background."""
    answers: list[Any] = []

    def works() -> bool:
        try:
            answers.append(program.ask(do, **fields))
        except ClientError as error:
            if not re.search(until, str(error)):
                raise
        return bool(answers)

    eventually(works)
    return answers[0]


Step = Callable[[Any], None]


class Walks:
    """Runs the steps of each client in a thread of its own, so that what clients wait for is waited for together."""

    def __init__(self, place: RocketMq, walks: Sequence[tuple[Client, Sequence[Step], Callable[..., Any]]]) -> None:
        """Each walk is a client, its steps, and what makes the object that they are called with."""
        self._place = place
        self._walks = walks
        self._programs: list[Program] = []
        self._results = {(client, step): Future[None]() for client, steps, _ in walks for step in steps}

    @contextmanager
    def running(self) -> Iterator[Walks]:
        """Begin the walks; at the end their programs end."""
        with ThreadPoolExecutor(max(1, len(self._walks))) as pool:
            for number, walk in enumerate(self._walks):
                pool.submit(self._walk, f"{int(time.time())}-{number}", *walk)
            yield self
        for program in self._programs:
            program.stop()

    def _walk(self, name: str, client: Client, steps: Sequence[Step], made: Callable[..., Any]) -> None:
        walk = None
        for number, step in enumerate(steps):
            try:
                if number == 0:
                    program = self._place.connected(client)
                    self._programs.append(program)
                    walk = made(self._place, client, program, name)
                step(walk)
                self._results[client, step].set_result(None)
            except BaseException as error:
                # It is the test's; a skip is one, too. Without its first step a walk has nothing to go on.
                for missed in steps[number:] if number == 0 else [step]:
                    self._results[client, missed].set_exception(error)
                if number == 0:
                    return

    def result(self, client: Client, step: Step) -> None:
        """Wait for a step; raise what it raised."""
        self._results[client, step].result(120)


def wanted_walks(items: Iterable[pytest.Item]) -> list[tuple[Client, Sequence[Step], Callable[..., Any]]]:
    """The walks that the chosen tests are about, of all modules with steps."""
    found = {}
    for item in items:
        module, parameters = getattr(item, "module", None), getattr(item, "callspec", None)
        if parameters is not None and "step" in parameters.params and hasattr(module, "STEPS"):
            client = parameters.params["client"]
            found[client] = (client, module.STEPS, module.Walk)
    return list(found.values())
