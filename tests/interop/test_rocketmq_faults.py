"""kill -9 while clients of RocketMQ send and receive over both protocols; what is left as the clients see it."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interop.programs import JAVA_ROCKETMQ, JAVA_ROCKETMQ_CLASSIC, PYTHON_ROCKETMQ, ClientError, Program
from interop.rocketmq import RocketMq, again_until, of_server
from interop.servers import ServerProcess
from waiting import LIMIT_S, eventually

pytestmark = [pytest.mark.faults, pytest.mark.slow]

TOPIC = "orders"
_STEPS = 30
"""A round is killed when so many messages more were sent, and so many acknowledged."""
_AHEAD = 200
"""Senders wait for who acknowledges when they are so far ahead: what is left at the end is received within a minute."""


@dataclass
class Account:
    """What clients were told in all rounds."""

    generation: int = 0
    """How often the server has begun."""
    sent: set[str] = field(default_factory=set)
    """What was sent and answered."""
    perhaps: set[str] = field(default_factory=set)
    """What was being sent when the server was killed: it may be there, or be there twice."""
    acknowledged: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    """What was to be acknowledged: where no answer came it may have been, or comes again."""
    pushed: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    ends: threading.Event = field(default_factory=threading.Event)


def _send(program: Program, name: str, account: Account) -> None:
    """One message after the other until the end."""
    number = 0
    while not account.ends.is_set():
        if len(account.sent) - len(account.asked) > _AHEAD:
            account.ends.wait(0.01)
            continue
        body = f"{name} {number}"
        generation = account.generation
        try:
            program.ask("send", topic=TOPIC, messages=[{"body": body, "tag": "a", "properties": {"n": str(number)}}])
            is_sent = True
        except ClientError:
            is_sent = False
        if generation != account.generation or not is_sent:
            account.perhaps.add(body)
        if is_sent:
            account.sent.add(body)
        else:
            account.ends.wait(0.05)
        number += 1


def _acknowledge(program: Program, account: Account) -> None:
    """Receive and acknowledge; what was acknowledged never comes again."""
    while not account.ends.is_set() or not account.sent <= account.asked:
        try:
            found = program.ask("receive", id="simple", count=16, invisible_seconds=10)
        except ClientError:
            continue
        for message in found:
            body = message["body"]
            if body in account.acknowledged and body not in account.perhaps:
                account.faults.append(f"{body} came again, it was acknowledged")
            account.asked.add(body)
            with contextlib.suppress(ClientError):
                program.ask("ack", id="simple", numbers=[message["number"]])
                account.acknowledged.add(body)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path, {"timeouts": {"linger_s": 1.0}})
    yield server
    server.close()


@pytest.mark.parametrize("rounds", [1, pytest.param(30, marks=pytest.mark.long)], ids=["short", "long"])
def test_nothing_is_lost_when_the_server_is_killed(process: ServerProcess, rounds: int) -> None:
    place = of_server(process.start())
    place.topic(TOPIC, queues=2)
    account = Account()
    senders = [place.connected(client) for client in (PYTHON_ROCKETMQ, JAVA_ROCKETMQ_CLASSIC)]
    members = [place.connected(client) for client in (PYTHON_ROCKETMQ, JAVA_ROCKETMQ_CLASSIC)]
    simple = place.connected(JAVA_ROCKETMQ)
    programs = [*senders, *members, simple]
    try:
        for member in members:
            # One group of both protocols; a wait that is short, so that a lost pull does not hold the test.
            member.ask("push", id="push", group="mixed", topics={TOPIC: {"sql": "n IS NOT NULL"}})
        puller = members[1]
        puller.ask("pull", id="lite", group="lite", topics={TOPIC: {"tag": "*"}})
        simple.ask("open", id="simple", group="simple", topics={TOPIC: {"tag": "a"}}, wait_seconds=5)
        works = [
            *(threading.Thread(target=_send, args=(sender, str(n), account)) for n, sender in enumerate(senders)),
            threading.Thread(target=_acknowledge, args=(simple, account)),
        ]
        for work in works:
            work.start()
        try:
            for offset in range(1, rounds + 1):
                _work_on(account)
                eventually(lambda offset=offset: _commits(puller, offset))
                account.generation += 1
                process.kill()
                process.start()
                account.generation += 1
                assert _committed(puller) == offset
            _work_on(account)
        finally:
            account.ends.set()
        for work in works:
            work.join(LIMIT_S)
        assert not any(work.is_alive() for work in works), account.sent - account.asked
        _wait_for_members(place, members, account)
        assert account.faults == []
        assert account.asked <= account.sent | account.perhaps
        assert set(account.pushed) <= account.sent | account.perhaps
    finally:
        account.ends.set()
        for program in programs:
            program.stop()


def _commits(puller: Program, offset: int) -> bool:
    """Whether the pull consumer's group is where it says; the client says nothing of a queue that it has not yet."""
    puller.ask("commit", id="lite", topic=TOPIC, queue=0, offset=offset)
    return _committed(puller) == offset


def _committed(puller: Program) -> int:
    """Where the pull consumer's group is."""
    offset: int = again_until(puller, "committed", "connect|closed|timeout", id="lite", topic=TOPIC, queue=0)
    return offset


def _work_on(account: Account) -> None:
    """Wait until clients have found the server again and have done their share of a round."""
    sent, acknowledged = len(account.sent) + _STEPS, len(account.acknowledged) + _STEPS
    eventually(
        lambda: len(account.sent) >= sent and len(account.acknowledged) >= acknowledged,
        lambda: f"{len(account.sent)} were sent, {len(account.acknowledged)} acknowledged",
    )


def _wait_for_members(place: RocketMq, members: list[Program], account: Account) -> None:
    """All that was sent has come to one of the members of the group."""

    def are_all_there() -> bool:
        for member in members:
            account.pushed.update(message["body"] for message in member.ask("take", id="push", until=[]))
        return account.sent <= set(account.pushed)

    eventually(are_all_there, lambda: f"{sorted(account.sent - set(account.pushed))} did not come")
