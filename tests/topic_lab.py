"""A broker with a topic, in process: turns of its loop, and a peer's end of receivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from brokers import Background, SetClock, open_broker, open_session, publish
from headgate.broker import Broker, Delivery, Receiver, ReceiverCalls, Session
from headgate.broker.environment import RunInWorker
from headgate.broker.settings import BrokerSettings
from headgate.errors import HeadgateError
from headgate.ledger import offset_of
from headgate.log import DiskFile, Durability, OpenFile
from headgate.message import Message
from headgate.topic import AddRule, Change, CreateSubscription, RuleDefinition, SubscriptionName

RED, BLUE = (Message(b"b", application_properties={"color": color}).encode() for color in ("red", "blue"))
MOST_TURNS = 50
NO_MESSAGE = b"\x00\x53\x99"
RED_ONLY = (CreateSubscription("red"), AddRule("red", RuleDefinition("Red", sql="color = 'red'")))


@dataclass(slots=True)
class Link:
    """A peer's end of a receiver: what it was given, and what it was answered."""

    session: Session
    deliveries: list[Delivery] = field(default_factory=list)
    ends: list[HeadgateError] = field(default_factory=list)
    answers: list[object] = field(default_factory=list)
    receiver: Receiver = field(init=False)

    def open(self, name: str, **more: object) -> Link:
        parsed = SubscriptionName.parse(name)
        assert parsed is not None
        self.receiver = self.session.receiver(parsed, ReceiverCalls(deliver=self.take, ended=self.ends.append, **more))
        return self

    def take(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries += deliveries

    @property
    def tokens(self) -> list[bytes]:
        return [each.token for each in self.deliveries]

    @property
    def offsets(self) -> list[int]:
        return [offset_of(each.copy) for each in self.deliveries]


class Lab:
    """A broker with one topic, and turns of its loop."""

    def __init__(self, root: Path, *, open_file: OpenFile = DiskFile) -> None:
        self.root = root
        self.settings = BrokerSettings(open_file=open_file)
        self.worker: RunInWorker | None = None
        self.clock = SetClock()
        self._is_woken = False
        self.broker: Broker = self.opened()

    def opened(self) -> Broker:
        self.broker = open_broker(
            self.root, clock=self.clock, settings=self.settings, wake=self._wake, run_in_worker=self.worker
        )
        self.session = open_session(self.broker)
        return self.broker

    def restart(self) -> None:
        self.broker.close()
        self.opened()

    def restart_to_disk(self) -> Background:
        """From now on appends and commits wait for the device: the worker that makes them."""
        worker = self.worker = Background()
        self.settings = replace(self.settings, durability=Durability.DISK)
        self.restart()
        return worker

    def topic(self, *changes: Change) -> None:
        self.session.create_topic("orders")
        self.change(*changes)

    def change(self, *changes: Change, topic: str = "orders") -> list[object]:
        """What a change of rules was answered."""
        answers: list[object] = []
        if changes:
            self.session.change_topic(topic, changes, answers.append)
            self.turn()
            assert len(answers) == 1
        return answers

    def publish(self, *messages: bytes) -> None:
        publisher = self.session.publisher("orders")
        error = publish(self.broker, publisher, messages)
        assert error is None, error
        self.turn()

    def turn(self, after_ms: int = 0) -> None:
        self.clock.now += after_ms
        self.broker.tick(self.clock.now)
        for _ in range(MOST_TURNS):
            self._is_woken = False
            self.broker.write_queued()
            self.broker.end_turn()
            if not self._is_woken:
                return
        raise AssertionError("the loop does not come to rest")

    def pass_time(self, after_ms: int) -> None:
        """So much time, second by second."""
        for _ in range(after_ms // 1_000):
            self.turn(after_ms=1_000)
        self.turn(after_ms=after_ms % 1_000)

    def _wake(self) -> None:
        self._is_woken = True

    def link(self, name: str = "orders/Subscriptions/red", want: int = 0, **more: object) -> Link:
        link = Link(self.session).open(name, **more)
        if want:
            link.receiver.want(want)
        self.turn()
        return link

    def counts(self, name: str = "red") -> tuple[int, int, int, int]:
        """Active, locked, waiting, dead letters."""
        info = self.broker.topics.get("orders").subscriptions.info(name)
        return info.counts.active, info.counts.locked, info.counts.waiting, info.dead_lettered
