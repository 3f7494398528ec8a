"""The parts of an answer, and the words that they use; `Answer` shows them as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ConsumerKind(StrEnum):
    """What a consumer is; each knows other things of a message."""

    SUBSCRIPTION = "subscription"
    QUEUE = "queue"
    DEAD_LETTERS = "dead-letters"
    """The dead letters of a subscription or a queue."""
    GROUP = "group"
    """A consumer group of RocketMQ's clients."""
    CONSUMER = "consumer"
    """A consumer of a stream that is connected to the server that was asked."""
    STORED_OFFSET = "stored-offset"
    """A name under which consumers of a stream stored an offset."""
    FILTER = "filter"
    """No consumer: a filter that was given with the question."""


class Fate(StrEnum):
    """What became of the message for a consumer."""

    NOT_STORED = "not-stored"
    """The stream has no message at the offset yet."""
    NO_MESSAGE = "no-message"
    """The offset belongs to bookkeeping, or to a message that was damaged and given up."""
    DELETED = "deleted"
    """Retention deleted it."""
    FILTERED_OUT = "filtered-out"
    """Filter or rules do not select it."""
    MATCHES = "matches"
    """The given filter selects it; nothing says who read it."""
    PASSED = "passed"
    """The reader is behind it: it was delivered before."""
    AHEAD = "ahead"
    """The reader has not come to it."""
    BEFORE = "before"
    """The subscription or the place of the group began later, or was removed before."""
    AVAILABLE = "available"
    """A copy waits for a receiver."""
    DELAYED = "delayed"
    """A copy waits for its time: a backoff, or a delay."""
    SCHEDULED = "scheduled"
    """The message waits outside of the stream until it is due."""
    CLAIMED = "claimed"
    """A receiver has it."""
    DEFERRED = "deferred"
    COMPLETED = "completed"
    EXPIRED = "expired"
    DEAD_LETTERED = "dead-lettered"
    NO_DEAD_LETTER = "no-dead-letter"
    """Of dead letters: the subscription has a copy, which was not given up."""
    FORWARDED = "forwarded"
    MOVING = "moving"
    """It was given up, and is not in its target yet."""
    SETTLED = "settled"
    """It is settled, and the ledger does not say how any more."""
    PURGED = "purged"
    """It was settled without being given to anybody."""


class Stage(StrEnum):
    """What decided about the message."""

    BLOOM_FILTER = "chunk Bloom filter"
    FILTER_VALUE = "filter value"
    MATCH_INDEX = "match index"
    LOOKUP = "lookup"
    COLUMNS = "column files"
    EXPRESSION = "expression"
    RULES = "rules"


class State(StrEnum):
    """The answer of one step."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Step:
    """One question of the many that the answer is made of: `stored`, `confirmed`, `in force`, `decided`, `fate`."""

    step: str
    state: State
    text: str


@dataclass(frozen=True, slots=True)
class Publisher:
    """A named publisher with messages in the chunk of the message, and its last sequence in that chunk."""

    name: str
    sequence: int


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """Where the message lies: `segment` and `chunk` by their first offsets, `position` of the chunk in the file."""

    offset: int
    timestamp_ms: int
    id: str | None
    size_bytes: int
    filter_value: str | None
    segment: int
    file: str
    position: int
    chunk: int
    chunk_messages: int
    place: str
    publishers: tuple[Publisher, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """How the message was looked for. `messages_searched` were in the searched range, `messages_examined` were read.

    `using` are the kinds of derived files that spared reading. Where it is not complete, the time was over.
    """

    by: str
    text: str
    using: tuple[str, ...] = ()
    messages_examined: int = 0
    messages_searched: int = 0
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class AnsweredClause:
    """A clause of a filter with its verdict, as `headgate.evaluate.Clause`."""

    text: str
    span: tuple[int, int]
    verdict: str
    note: str
    operands: tuple[AnsweredClause, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedField:
    """A field that an action changes; values as typed JSON."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Decision:
    """A rule or a filter that was in force for the message, and its verdict."""

    kind: str
    name: str | None
    text: str
    language: str | None
    verdict: str
    clauses: AnsweredClause | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    from_offset: int | None = None
    since_ms: int | None = None
    action: str | None = None
    failure: str | None = None
    changes: tuple[ChangedField, ...] | None = None


@dataclass(frozen=True, slots=True)
class AnsweredEvent:
    """One event of a copy, from the ledger."""

    at_ms: int
    kind: str
    attempt: int
    until_ms: int | None
    text: str


@dataclass(frozen=True, slots=True)
class AnsweredCopy:
    """One copy of the message and its fate; rule 0 is the plain copy."""

    rule: int
    rule_name: str | None
    fate: Fate
    text: str
    attempts: int = 0
    until_ms: int | None = None
    session: str | None = None
    reason: str | None = None
    description: str | None = None
    target: str | None = None
    target_offset: int | None = None
    events: tuple[AnsweredEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerAnswer:
    """What became of the message for one consumer."""

    name: str
    kind: ConsumerKind
    fate: Fate
    summary: str
    steps: tuple[Step, ...] = ()
    stage: Stage | None = None
    decisions: tuple[Decision, ...] = ()
    copies: tuple[AnsweredCopy, ...] = ()
    next_offset: int | None = None
