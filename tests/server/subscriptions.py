"""Topics on a running server, for the protocols that read their subscriptions as queues."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from headgate.broker import Session
from headgate.errors import HeadgateError
from headgate.topic import AddRule, Change, CreateSubscription, RuleDefinition, SubscriptionName, SubscriptionSettings
from server.running import RunningServer
from waiting import LIMIT_S

T = TypeVar("T")

RED = AddRule("red", RuleDefinition("Red", sql="color = 'red'", action="SET priority = 'high'"))
"""The copies of red messages are marked by an action."""


@dataclass(slots=True)
class ServedTopic:
    """A topic with a subscription `red`."""

    server: RunningServer
    name: str

    @property
    def queue(self) -> str:
        """The subscription as a queue."""
        return f"{self.name}/Subscriptions/red"

    @property
    def dead_letters(self) -> str:
        """Its dead letters as a queue."""
        return f"{self.queue}/$DeadLetterQueue"

    def change(self, *changes: Change) -> None:
        """Changes rules, and waits until that is in force."""
        done: Future[int | HeadgateError] = Future()
        self._call(lambda session: session.change_topic(self.name, changes, done.set_result))
        assert isinstance(done.result(LIMIT_S), int), done.result()

    def depth(self, queue: str) -> tuple[int, int]:
        """Messages that wait in a queue, and its consumers."""
        name = SubscriptionName.parse(queue)
        assert name is not None
        found = self._call(lambda session: session.queue_depth(name))
        return found.message_count, found.consumer_count

    def counts(self) -> tuple[int, int, int]:
        """Copies of the subscription that are available, that are claimed, and its dead letters."""
        topic = self.server.call(lambda: self.server.context.broker.topics.get(self.name))
        info = self.server.call(lambda: topic.subscriptions.info("red"))
        return info.counts.active, info.counts.locked, info.dead_lettered

    def delete(self) -> None:
        """Deletes the topic."""
        self._call(lambda session: session.delete_stream(self.name))

    def _call(self, call: Callable[[Session], T]) -> T:
        """What a call gives, in a session of its own that ends with it."""

        def run() -> T:
            session = self.server.context.broker.open_session("guest", protocol="test", connection="test")
            with contextlib.closing(session):
                return call(session)

        return self.server.call(run)


def served_topic(server: RunningServer, name: str, settings: SubscriptionSettings | None = None) -> ServedTopic:
    """Makes a topic on a server."""
    topic = ServedTopic(server, name)
    topic._call(lambda session: session.create_topic(name))
    topic.change(CreateSubscription("red", settings=settings or SubscriptionSettings()), RED)
    return topic


def address(queue: str) -> str:
    """The address of a queue in AMQP 1.0."""
    return "/queues/" + urllib.parse.quote(queue, safe="")
