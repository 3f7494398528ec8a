"""A broker at work for consumer groups until it is killed; it says what it was told.

Each line of its output is a JSON list:

    now T                                            its clock, before everything that happens at that time
    published QUEUE FIRST STOP                       confirmed
    given GROUP QUEUE UNTIL [[NUMBER, ATTEMPT] …]    one answer to a request, one queue's part of it, held until then
                                                     at least
    asked GROUP QUEUE WHAT NUMBERS                   before a member settles
    done GROUP QUEUE WHAT NUMBERS                    acknowledged
    drained                                          nothing is left
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from brokers import batch
from group_lab import number_of
from headgate.broker import Broker
from headgate.broker.consumer_groups import (
    GroupSettings,
    PendingReceive,
    Received,
    ReceivedMessage,
    ReceiveRequest,
    group_view,
)
from headgate.broker.settings import BrokerSettings
from headgate.errors import HeadgateError
from headgate.evaluate import Filter
from headgate.ledger import ledger as ledger_module
from headgate.log import Durability
from headgate.message import Message
from log_streams import quick_folder
from nursery import dying, say, serve_lives, silence

MAX_ATTEMPTS = 3
MOST_STILL = 200
"""While it drains, less is left after so many turns at most."""

INVISIBLE_MS = (1_000, 4_000)
QUEUES = ("q0", "q1")
FILTERS = {"plain": None, "choosy": Filter.parse("color = 'red'", "servicebus"), "ordered": None}


@dataclass
class GroupLife:
    """What a life begins with: the first numbers that were not confirmed before, and the time."""

    root: str
    seed: int
    now: int
    numbers: list[int] = field(default_factory=lambda: [0, 0])
    last_write: int = 0
    in_worker: bool = False
    to_disk: bool = False
    drain: bool = False


@functools.cache
def kind_of(queue: int, number: int) -> tuple[str, str]:
    """Color and message group of a message: always the same."""
    kind = hashlib.sha256(f"{queue} {number}".encode()).digest()[0]
    return ("red", "blue")[kind % 2], "abcde"[kind % 5]


def message_of(queue: int, number: int) -> bytes:
    color, group = kind_of(queue, number)
    return Message(b"%d" % number, group_id=group, application_properties={"color": color}).encode()


class Member:
    """One member of a group: a request at a time, and what it holds."""

    def __init__(self, child: GroupChild, group: str) -> None:
        self.child = child
        self.group = group
        self.receiving: PendingReceive | None = None
        self.held: list[dict[int, bytes]] = [{} for _ in QUEUES]

    def ask(self, count: int) -> None:
        invisible_ms = self.child.random.choice(INVISIBLE_MS)
        until = self.child.now + invisible_ms

        def then(answer: Received | HeadgateError) -> None:
            self.receiving = None
            if isinstance(answer, HeadgateError):
                return
            parts: dict[int, list[ReceivedMessage]] = defaultdict(list)
            for each in answer.messages:
                parts[each.queue].append(each)
            for queue, messages in parts.items():
                numbers = [(number_of(each.message), each.attempt) for each in messages]
                say("given", self.group, queue, until, numbers)
                self.held[queue].update({number_of(each.message): each.token for each in messages})

        request = ReceiveRequest(self.group, QUEUES, FILTERS[self.group], None, count, invisible_ms, then)
        self.receiving = self.child.broker.consumer_groups.receive(request)

    def act(self, random: Random, *, drain: bool) -> None:
        if self.receiving is None:
            self.ask(100 if drain else random.choice([1, 3, 20]))
        elif not drain and random.random() < 0.1:
            receiving, self.receiving = self.receiving, None
            # Who is gone may have been given something: it comes back when its time is over, at the latest.
            (receiving.close if random.random() < 0.3 else receiving.end)()
        for queue, held in enumerate(self.held):
            while held and (drain or random.random() < 0.7):
                numbers = sorted(random.sample(sorted(held), min(len(held), 1_000 if drain else random.randint(1, 4))))
                weights = [1, 0, 0, 0, 0] if drain else [10, 2, 1, 2, 1]
                what = random.choices(["settle", "release", "dead letter", "change", "forget"], weights)[0]
                self.settle(queue, what, numbers)

    def settle(self, queue: int, what: str, numbers: list[int]) -> None:
        tokens = [self.held[queue].pop(number) for number in numbers]
        say("asked", self.group, queue, what, numbers)

        def then(result: list[bool] | HeadgateError) -> None:
            if not isinstance(result, HeadgateError):
                say("done", self.group, queue, what, [n for n, held in zip(numbers, result, strict=True) if held])

        place = self.child.broker.consumer_groups.view(QUEUES[queue], self.group)
        match what:
            case "settle":
                place.complete(tokens, then)
            case "dead letter":
                place.dead_letter(tokens, then)
            case "release" | "change":
                place.change_invisible(tokens, 0 if what == "release" else 1_500, then)


class GroupChild:
    """One life."""

    def __init__(self, life: GroupLife) -> None:
        self.life = life
        self.now = life.now
        self.random = Random(f"{life.seed} {life.numbers}")
        self.thread = ThreadPoolExecutor(1)
        self.results: list[tuple[Future[object], Callable[..., None]]] = []
        self.numbers = list(life.numbers)
        self.broker = Broker(
            Path(life.root),
            now_ms=lambda: self.now,
            settings=BrokerSettings(
                durability=Durability.DISK if life.to_disk else Durability.PROCESS, open_file=dying(life)
            ),
            run_in_worker=self.run_in_thread if life.in_worker else None,
        )
        self.session = self.broker.open_session("guest", protocol="test", connection="child")
        for name in QUEUES:
            self.session.declare_stream(name, {})
        for group in FILTERS:
            settings = GroupSettings(max_attempts=MAX_ATTEMPTS, fifo=group == "ordered")
            if self.broker.consumer_groups.find(group) != settings:
                self.broker.consumer_groups.declare(group, settings)
        self.members = [Member(self, group) for group in FILTERS for _ in range(2)]

    def run_in_thread(self, work: Callable[[], object], then: Callable[..., None]) -> None:
        self.results.append((self.thread.submit(work), then))

    def turn(self) -> None:
        self.broker.tick(self.now)
        while self.results and (self.life.drain or self.results[0][0].done()):
            future, then = self.results.pop(0)
            then(future.exception())
        self.broker.write_queued()
        self.broker.end_turn()

    def live(self, turns: int) -> None:
        publishers = [self.session.publisher(name, reference="p") for name in QUEUES]
        for _ in range(turns):
            random = self.random
            self.now += random.choices([1, 300, 2_000, 5_000], [20, 5, 2, 1])[0]
            say("now", self.now)
            for queue, publisher in enumerate(publishers):
                if random.random() < 0.4:
                    first = self.numbers[queue]
                    stop = self.numbers[queue] = first + random.choice([1, 1, 2, 7, 30])
                    bodies = [message_of(queue, number) for number in range(first, stop)]
                    told = self.told(queue, first, stop)
                    publisher.publish(batch(bodies, told, sequences=range(first, stop)))
            for member in self.members:
                if random.random() < 0.7:
                    member.act(random, drain=False)
            self.turn()

    def told(self, queue: int, first: int, stop: int) -> Callable[[HeadgateError | None], None]:
        def published(error: HeadgateError | None) -> None:
            assert error is None, error
            say("published", queue, first, stop)

        return published

    def drain(self) -> None:
        """Receive and settle all that is left, but for dead letters."""
        quiet = still = 0
        least: int | None = None
        while quiet < 3:
            self.now += 6_000
            say("now", self.now)
            for member in self.members:
                member.act(self.random, drain=True)
            self.turn()
            counts = [self.broker.consumer_groups.view(name, group).counts() for name in QUEUES for group in FILTERS]
            left = sum(each.lag + each.moving for each in counts)
            is_held = any(any(each.held) for each in self.members)
            quiet = 0 if left or is_held else quiet + 1
            still = 0 if quiet or least is None or left < least else still + 1
            least = left if least is None else min(least, left)
            assert still < MOST_STILL, f"there is always something left: {counts}"
        self.broker.close()
        say("drained")


def live(described: dict[str, Any]) -> None:
    life = GroupLife(**described)
    child = GroupChild(life)
    if life.drain:
        child.drain()
    else:
        # It is killed long before.
        child.live(5_000)


def main() -> None:
    ledger_module.LEAST_BYTES_BETWEEN_SNAPSHOTS = 4_000
    ledger_module.SEGMENT_BYTES = 4_000
    group_view.MAX_UNSETTLED, group_view.LOOK_AHEAD, group_view.NOTED_AFTER = 40, 16, 8
    with silence(), quick_folder() as folder:
        # What is loaded or compiled at first use is so before the first life.
        child = GroupChild(GroupLife(folder, 0, now=1_000_000, drain=True))
        child.live(40)
        child.drain()
    serve_lives(live)


if __name__ == "__main__":
    main()
