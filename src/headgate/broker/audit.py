"""The audit stream: administrative changes are recorded there, whoever asks for them and over whichever protocol.

    session command, endpoint, administration ──► attempt ──► entry ──► next turn: appended like any message

Recording never delays or fails an action: entries wait in memory for the next turn, and what cannot be written is
counted and logged.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from headgate.broker.audit_entries import AuditEntry
from headgate.broker.backlog import Backlog
from headgate.broker.batches import PublishBatch
from headgate.broker.environment import Environment
from headgate.broker.publishers import Publisher
from headgate.broker.repeated_failure import RepeatedFailure
from headgate.broker.stream import BrokerStream
from headgate.broker.stream_writes import StreamWrites
from headgate.broker.streams import Streams
from headgate.broker.users import AUDIT_STREAM
from headgate.errors import (
    AccessRefusedError,
    HeadgateError,
    ResourceExistsError,
    ResourceNotFoundError,
    RuleExistsError,
    RuleNotFoundError,
)
from headgate.log import Entries
from headgate.topic import (
    AddRule,
    Change,
    ChangeSubscription,
    CreateSubscription,
    RemoveRule,
    RemoveSubscription,
    ReplaceRule,
    SubscriptionName,
)

MOST_WAITING = 10_000
"""Limit: entries that wait to be written; more are left out, and counted."""

REFUSALS_A_SECOND = 20
"""Limit: recorded attempts that were refused or failed: they cost their client nothing, and would push out the rest."""

_PROBES = (ResourceExistsError, ResourceNotFoundError, RuleExistsError, RuleNotFoundError)
"""Errors that clients meet when they find out what is there: nothing was changed, and nothing is recorded."""

Result = TypeVar("Result")

logger = logging.getLogger("headgate.broker")


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Limits of the audit stream when it is made, as arguments of streams."""

    max_age: str = "1Y"
    max_length_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a user, or the name of an access key, over a protocol, from a connection."""

    user: str
    protocol: str
    connection: str


@dataclass(slots=True)
class AuditCounters:
    """Entries since the broker began; `lost` ones could not be written, `left_out` were too many."""

    written: int = 0
    lost: int = 0
    left_out: int = 0


@dataclass(slots=True)
class Attempt:
    """An action that goes on. A caller whose action changes nothing says so, and no entry is made.

    `subject` may be named by the action itself: a token has its id only when it is made.
    """

    subject: str
    detail: dict[str, Any] = field(default_factory=dict)
    is_change: bool = True
    is_answered_later: bool = False


class Audit:
    """The audit stream of one broker, or nothing without `settings`; in the broker's thread only."""

    def __init__(
        self, settings: AuditSettings | None, environment: Environment, streams: Streams, writes: StreamWrites
    ) -> None:
        self.counters = AuditCounters()
        self._settings = settings
        self._environment = environment
        self._streams = streams
        self._writes = writes
        self._waiting: list[bytes] = []
        self._failure = RepeatedFailure()
        self._backlog = Backlog()
        self._second, self._refusals = 0, 0

    @property
    def is_on(self) -> bool:
        """Whether anything is recorded."""
        return self._settings is not None

    @property
    def has_waiting(self) -> bool:
        """Whether entries wait for the next turn."""
        return bool(self._waiting)

    @contextlib.contextmanager
    def attempt(
        self, actor: Actor, action: str, subject: str, detail: Mapping[str, Any] | None = None
    ) -> Iterator[Attempt]:
        """Record what is done inside, with its outcome."""
        attempt = Attempt(subject, dict(detail or {}))
        try:
            yield attempt
        except HeadgateError as error:
            self._failed(actor, action, attempt.subject, attempt.detail, error)
            raise
        if attempt.is_change and not attempt.is_answered_later:
            self.record(actor, action, attempt.subject, detail=attempt.detail)

    def answered(
        self,
        actor: Actor,
        action: str,
        subject: str,
        detail: Mapping[str, Any],
        then: Callable[[Result | HeadgateError], None],
        *,
        described: Callable[[Result], Mapping[str, Any]] = lambda _result: {},
    ) -> Callable[[Result | HeadgateError], None]:
        """`then`, recording the outcome that it is given; `described` gives more detail of a result."""

        def told(result: Result | HeadgateError) -> None:
            if isinstance(result, HeadgateError):
                self._failed(actor, action, subject, detail, result)
            else:
                self.record(actor, action, subject, detail={**detail, **described(result)})
            then(result)

        return told

    def _failed(self, actor: Actor, action: str, subject: str, detail: Mapping[str, Any], error: HeadgateError) -> None:
        if isinstance(error, _PROBES):
            return
        second = self._environment.now_ms() // 1000
        if second != self._second:
            self._second, self._refusals = second, 0
        self._refusals += 1
        if self._refusals > REFUSALS_A_SECOND:
            self.counters.left_out += 1
            return
        outcome = "refused" if isinstance(error, AccessRefusedError) else "failed"
        self.record(actor, action, subject, outcome=outcome, detail={**detail, "error": str(error)})

    def record(
        self,
        actor: Actor,
        action: str,
        subject: str,
        *,
        outcome: str = "done",
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Record one action, in the next turn. Never raises for want of room or a full disk."""
        if self._settings is None:
            return
        if len(self._waiting) >= MOST_WAITING:
            self.counters.left_out += 1
            return
        entry = AuditEntry(
            user=actor.user,
            protocol=actor.protocol,
            connection=actor.connection,
            action=action,
            subject=subject,
            outcome=outcome,
            detail=dict(detail or {}),
        )
        self._waiting.append(entry.encode())
        self._environment.wake()

    def write(self) -> None:
        """Queue the waiting entries for the stream, made if missing; before the queued messages are written."""
        if not self._waiting:
            return
        entries, self._waiting = self._waiting, []
        try:
            stream = self._stream()
            stream.open_writer(now_ms=self._environment.now_ms())
            self._environment.watch(stream)
            # It is no client's publisher: lists, counts and the stream's writer do not know it.
            Publisher(
                stream.name,
                reference=None,
                backlog=self._backlog,
                refused=stream.refused,
                queue=functools.partial(self._writes.queue, stream),
                closed=lambda _publisher: None,
            ).publish(PublishBatch(Entries.of(entries), functools.partial(self._written, len(entries))))
        except HeadgateError as error:
            self._written(len(entries), error)

    def _stream(self) -> BrokerStream:
        found = self._environment.find(AUDIT_STREAM)
        if found is None:
            assert self._settings is not None
            arguments = {"max-age": self._settings.max_age, "max-length-bytes": self._settings.max_length_bytes}
            self._streams.catalogue.declare(
                AUDIT_STREAM, arguments, now_ms=self._environment.now_ms(), numbers_as_text=False
            )
            found = self._streams.catalogue.get(AUDIT_STREAM)
        return found

    def _written(self, count: int, error: HeadgateError | None) -> None:
        if error is None:
            self.counters.written += count
            self._failure.clear()
            return
        self.counters.lost += count
        self._failure.note("entries of the audit stream are lost", error, self._environment.now_ms())


_ACTIONS: Mapping[type[Change], str] = {
    AddRule: "rule.create",
    ReplaceRule: "rule.change",
    RemoveRule: "rule.delete",
    CreateSubscription: "subscription.create",
    ChangeSubscription: "subscription.change",
    RemoveSubscription: "subscription.delete",
}

_CHANGES_SHOWN = 20


def described_changes(topic: str, changes: Sequence[Change]) -> tuple[str, str, dict[str, Any]]:
    """Action, subject and detail of changes of a topic that are made together: those of the first, and all of them."""
    first = changes[0] if changes else None
    action = "topic.change" if first is None else _ACTIONS.get(type(first), "topic.change")
    subject = topic
    if isinstance(first, AddRule | ReplaceRule | RemoveRule):
        rule = first.rule if isinstance(first, RemoveRule) else first.rule.name
        subject = f"{SubscriptionName(topic, first.subscription)}/Rules/{rule}"
    elif isinstance(first, CreateSubscription | ChangeSubscription | RemoveSubscription):
        subject = str(SubscriptionName(topic, first.name))
    shown = [msgspec.to_builtins(each, enc_hook=str) for each in changes[:_CHANGES_SHOWN]]
    return action, subject, {"changes": shown, "count": len(changes)}
