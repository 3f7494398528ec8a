"""The answer to "why not?": one message, and what became of it for each consumer that was asked about.

`Answer.as_dict()` is what the command line prints with `--json`, what HTTP answers and what the console shows:

    {"stream": "orders", "topic": null | "orders",           the stream that holds the message; its topic, if it is one
     "asked_ms": 1764…,
     "search": {"by": "id" | "offset" | "where", "text": "42", "using": ["lookup"], "messages_examined": 4096,
                "messages_searched": 100000000, "is_complete": true},
     "message": null | {"offset": 42, "timestamp_ms": …, "id": "a-42", "size_bytes": 213, "filter_value": "EMEA",
                "segment": 0, "file": "…/00000000000000000000.segment", "position": 8, "chunk": 40,
                "chunk_messages": 12, "place": "local" | "remote",
                "publishers": [{"name": "app-1", "sequence": 17}]},
     "missing": null | "passed over by retention …",        why there is no message
     "consumers": [CONSUMER, …],                             one where `for` was given, else all, in a short text
     "left_out": 0}                                          consumers beyond `MOST_CONSUMERS`

    CONSUMER = {"name": "red", "kind": "subscription",       a `ConsumerKind`
     "fate": "filtered-out",                                 a `Fate`
     "summary": "rule 'Red' is false: `color = 'red'` …",    one sentence
     "stage": null | "expression",                           a `Stage`: what decided
     "steps": [{"step": "stored", "state": "yes" | "no" | "unknown", "text": "…"}, …],   the answer, in order
     "decisions": [DECISION, …], "copies": [COPY, …],
     "next_offset": null | 1200}                             of a reader: the offset that it reads next

    DECISION = {"kind": "rule" | "filter", "name": "Red", "text": "color = 'red'", "language": "servicebus",
     "from_offset": 0, "since_ms": …,                        null: not known
     "verdict": "true" | "false" | "unknown" | "error", "clauses": CLAUSE | null, "reasons": […], "warnings": […],
     "action": null | "SET …", "failure": null | "…",        why the action failed
     "changes": null | [{"field": "…", "before": …, "after": …}]}
    CLAUSE = {"text": "…", "span": [0, 13], "verdict": "false", "note": "color is string 'blue'", "operands": [CLAUSE…]}

    COPY = {"rule": 0, "rule_name": null, "fate": "claimed", "text": "…", "attempts": 2, "until_ms": null | …,
     "session": null | "…", "reason": null | "…", "description": null | "…",     of a dead letter
     "target": null | "orders/Subscriptions/red/$DeadLetterQueue", "target_offset": null | 7,
     "events": [{"at_ms": …, "kind": "claimed", "attempt": 1, "until_ms": …, "text": "…"}, …]}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from headgate.errors import DataError
from headgate.trace.description import described
from headgate.trace.parts import ConsumerAnswer, Search, StoredMessage

MOST_CONSUMERS = 50
"""Limit: consumers in the answer to a question without a name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question; `str` is the text for people."""

    stream: str
    topic: str | None
    asked_ms: int
    search: Search
    message: StoredMessage | None
    missing: str | None
    consumers: tuple[ConsumerAnswer, ...]
    left_out: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The JSON object that the head of the module shows."""
        described: dict[str, Any] = msgspec.to_builtins(self)
        return described

    @staticmethod
    def of_dict(described: object) -> Answer:
        """The answer that `as_dict` gave, perhaps of a server. Raises DataError for another object."""
        try:
            return msgspec.convert(described, Answer)
        except msgspec.ValidationError as error:
            raise DataError(f"not an answer to `why`: {error}") from error

    def __str__(self) -> str:
        return described(
            self.stream,
            search=self.search,
            message=self.message,
            missing=self.missing,
            consumers=self.consumers,
            left_out=self.left_out,
        )
