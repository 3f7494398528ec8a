"""Topics, queues and subscriptions on a running server, made as administration makes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from headgate.broker import Entities, Entity, EntityDeclaration, any_target
from headgate.errors import HeadgateError
from headgate.topic import RuleDefinition, SubscriptionSettings, TopicKind, TopicSettings
from server.running import RunningServer
from waiting import LIMIT_S

QUEUE = TopicSettings(kind=TopicKind.QUEUE)


class ServedEntities:
    """Makes and changes entities of a server; each call waits for its answer, and raises the error."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server

    @property
    def _entities(self) -> Entities:
        return self.server.context.broker.entities

    def told(self, call: Callable[..., None], *given: Any, **named: Any) -> Any:
        """What a call of `Entities` answers."""
        done: Future[Entity | HeadgateError | None] = Future()
        if "check_target" in inspect.signature(call).parameters:
            named.setdefault("check_target", any_target)
        self.server.call(lambda: call(*given, done.set_result, **named))
        answer = done.result(LIMIT_S)
        if isinstance(answer, HeadgateError):
            raise answer
        return answer

    def topic(self, name: str, **rules: str | RuleDefinition | None) -> str:
        """A topic with subscriptions by name: with a filter as text, a rule, or the true filter."""
        self.told(self._entities.create, EntityDeclaration(name))
        for subscription, rule in rules.items():
            self.subscription(name, subscription, rule)
        return name

    def subscription(self, topic: str, name: str, rule: str | RuleDefinition | None = None, **settings: Any) -> str:
        """A subscription, and its address."""
        definition = RuleDefinition("r", sql=rule) if isinstance(rule, str) else rule
        self.told(
            self._entities.create_subscription, topic, name, SubscriptionSettings(**settings),
            rules=None if definition is None else [definition],
        )  # fmt: skip
        return f"{topic}/Subscriptions/{name}"

    def queue(self, name: str, **settings: Any) -> str:
        """A queue."""
        self.told(self._entities.create, EntityDeclaration(name, QUEUE, delivery=SubscriptionSettings(**settings)))
        return name

    def change(self, name: str, settings: TopicSettings) -> None:
        """Gives a topic other settings."""
        self.told(self._entities.update, EntityDeclaration(name, settings))

    def delete(self, name: str) -> None:
        """Deletes a topic or a queue."""
        self.told(self._entities.delete, name)
