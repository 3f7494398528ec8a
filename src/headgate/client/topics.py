"""Topics, subscriptions and rules of a Headgate server, and the copies of a subscription: received and settled.

All of it is requests and answers, so it needs no connection that stays open: `docs/reference/http.md` has them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.errors import PreconditionFailedError
from headgate.message import Message

Row = dict[str, Any]

Ask = Callable[[str, Sequence[str], Mapping[str, object], object], Any]
"""Answers a request: method, parts of the path, query, body (None: none). Raises BrokerError, RuleError, …"""

LONGEST_WAIT_S = 20.0
"""At most so long one request waits for copies."""

_COPIES_A_REQUEST = 1000


@dataclass(frozen=True, slots=True)
class ReceivedCopy:
    """One copy of a subscription, as its action made it: `encoded` are the bytes of its message.

    `rule` is 0 for a plain copy; `attempt` counts from 1. It is its receiver's until `locked_until_ms`, as the server's
    clock says, and `token` settles it.
    """

    token: str
    offset: int
    rule: int
    attempt: int
    timestamp_ms: int
    locked_until_ms: int
    encoded: bytes

    @property
    def message(self) -> Message:
        """The message. Raises MessageError for bytes that are not a message."""
        return Message.decode(self.encoded)


@dataclass(frozen=True, slots=True)
class ReadCopy:
    """One copy that was read without receiving it; otherwise as `ReceivedCopy`."""

    offset: int
    rule: int
    timestamp_ms: int
    encoded: bytes


@dataclass(frozen=True, slots=True)
class CopyPage:
    """Copies in order; the next page begins at `offset` and `rule`. The stream ends at `next_offset`."""

    copies: list[ReadCopy]
    offset: int
    rule: int
    next_offset: int


class Jobs:
    """Long work that a server does for its users."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def jobs(self) -> list[Row]:
        """The jobs of the user, of monitors all: those that run, and the last that ended."""
        return list(self._ask("GET", ["jobs"], {}, None))

    def job(self, job: str, *, wait_s: float = 0.0) -> Row:
        """One job, when it ends, or after `wait_s`, at most `LONGEST_WAIT_S`."""
        return dict(self._ask("GET", ["jobs", job], {"wait_s": wait_s}, None))

    def cancel_job(self, job: str) -> Row:
        """Let a job begin nothing more."""
        return dict(self._ask("DELETE", ["jobs", job], {}, None))


class Topics(Jobs):
    """Topics of a server (`Management.topics`), or of the files of a root.

    Every call raises ResourceNotFoundError or RuleNotFoundError for missing objects, AccessRefusedError,
    ConnectionLostError, and the errors in its own docstring.
    """

    # what there is

    def topics(self) -> list[Row]:
        """The topics that the user may read, with the sums over their subscriptions."""
        return list(self._ask("GET", ["topics"], {}, None))

    def topic(self, topic: str) -> Row:
        """One topic: limits, subscriptions with counts, rules."""
        return dict(self._ask("GET", ["topics", topic], {}, None))

    def subscription(self, topic: str, subscription: str) -> Row:
        """One subscription: settings, counts, its pin, rules."""
        return dict(self._ask("GET", _path(topic, subscription), {}, None))

    def history(self, topic: str) -> list[Row]:
        """Every version of every rule."""
        return list(self._ask("GET", ["topics", topic, "history"], {}, None))

    # changes; each gives the offset from which it is in force, and raises RuleError and its kinds

    def create_topic(self, topic: str, *, limits: Mapping[str, int] | None = None) -> None:
        """Make a stream a topic; a missing stream is created. Raises RuleExistsError."""
        self._ask("PUT", ["topics", topic], {"only": "new"}, {"limits": limits or {}})

    def remove_topic(self, topic: str) -> None:
        """Make a topic a plain stream again."""
        self._ask("DELETE", ["topics", topic], {}, None)

    def create_subscription(self, topic: str, subscription: str, given: Mapping[str, object]) -> int:
        """Add a subscription with properties, `settings` and `rules`; without these it has the rule `$Default`."""
        return _offset(self._ask("PUT", _path(topic, subscription), {"only": "new"}, given))

    def change_subscription(self, topic: str, subscription: str, given: Mapping[str, object]) -> int:
        """Change the given properties and `settings`; all else stays, and its rules."""
        return _offset(self._ask("PUT", _path(topic, subscription), {"only": "existing"}, given))

    def remove_subscription(self, topic: str, subscription: str) -> int:
        """Remove a subscription with its rules and dead letters."""
        return _offset(self._ask("DELETE", _path(topic, subscription), {}, None))

    def add_rule(self, topic: str, subscription: str, rule: Mapping[str, Any]) -> int:
        """Add a rule, in its written form."""
        return _offset(self._ask("PUT", _rule(topic, subscription, rule["name"]), {"only": "new"}, rule))

    def replace_rule(self, topic: str, subscription: str, rule: Mapping[str, Any]) -> int:
        """Replace the rule of that name."""
        return _offset(self._ask("PUT", _rule(topic, subscription, rule["name"]), {"only": "existing"}, rule))

    def remove_rule(self, topic: str, subscription: str, rule: str) -> int:
        """Remove a rule."""
        return _offset(self._ask("DELETE", _rule(topic, subscription, rule), {}, None))

    def dry_run(self, topic: str, subscription: str, rule: Mapping[str, Any], *, last: int, samples: int = 3) -> Row:
        """The messages at the `last` offsets that a rule would select, and the changes of its action."""
        body = {"rule": rule, "last": last, "samples": samples}
        return dict(self._ask("POST", [*_rule(topic, subscription, rule["name"]), "dry-run"], {}, body))

    # entities

    def entities(self) -> list[Row]:
        """Topics and queues as they are, each all in one."""
        return list(self._ask("GET", ["entities"], {}, None))

    def declare_entity(self, name: str, declaration: Mapping[str, Any]) -> None:
        """Make a topic or queue, or change an existing one to the declaration; subscriptions not named stay."""
        self._ask("PUT", ["entities", name], {}, declaration)

    # copies

    def copies(
        self, topic: str, subscription: str, *, offset: int = 0, rule: int = 0, limit: int = _COPIES_A_REQUEST
    ) -> CopyPage:
        """Copies that a subscription has, settled or not, from an offset and a rule on."""
        query = {"from": offset, "rule": rule, "limit": limit, "encoded": "true"}
        page = self._ask("GET", [*_path(topic, subscription), "copies"], query, None)
        return CopyPage(list(map(_read, page["messages"])), page["from"], page["rule"], page["next_offset"])

    def peek(
        self, topic: str, subscription: str, *, offset: int = 0, limit: int = 100, dead_letters: bool = False
    ) -> Iterator[ReadCopy]:
        """At most `limit` copies that are not settled, locked or not, from an offset on; requested in pages."""
        return _copies(self._ask, _path(topic, subscription, dead_letters), offset, limit)

    def purge(self, topic: str, subscription: str, *, dead_letters: bool = False) -> int:
        """Settle all present copies; gives their number."""
        return int(self._ask("DELETE", [*_path(topic, subscription, dead_letters), "messages"], {}, None)["purged"])

    # dead letters

    def dead_letters(self, topic: str, subscription: str) -> DeadLetters:
        """The dead letters of a subscription: looked at, published again, deleted."""
        return DeadLetters(self._ask, _path(topic, subscription, True))

    def receiver(self, topic: str, subscription: str, *, dead_letters: bool = False) -> SubscriptionReceiver:
        """Takes copies of a subscription, or of its dead letters, and settles them."""
        return SubscriptionReceiver(self._ask, _path(topic, subscription, dead_letters))


class DeadLetters(Jobs):
    """The dead letters of a subscription (`Topics.dead_letters`) or of a consumer group (`RocketTopics.dead_letters`).

    Each is known by its offset among them.
    """

    def __init__(self, ask: Ask, path: Sequence[str]) -> None:
        super().__init__(ask)
        self._path = path

    def peek(self, *, offset: int = 0, limit: int = 100) -> Iterator[ReadCopy]:
        """At most `limit` of them, from an offset on; requested in pages."""
        return _copies(self._ask, self._path, offset, limit)

    def try_resubmission(self, **request: object) -> Row:
        """What `resubmit` would do: `taken` by which rules, `failing`, and `taken_by_none`; nothing changes."""
        return dict(self._ask("POST", [*self._path, "resubmissions"], {}, {**_given(request), "dry_run": True}))

    def resubmit(self, **request: object) -> str:
        """Publish them again, as a job; gives its id. What no rule of the target takes stays.

        `request` are the keys of the body: `copies` (None: all), `to` (None: where they came from), `set`, `remove`,
        `rate_per_s`, `include_untaken`. Raises PreconditionFailedError.
        """
        return str(self._ask("POST", [*self._path, "resubmissions"], {}, _given(request))["job"])

    def delete(self, offsets: Sequence[int] | None = None) -> int:
        """Delete chosen ones, None: all; gives how many. Those that a receiver holds stay, unless all go."""
        copies = None if offsets is None else [{"offset": offset} for offset in offsets]
        return int(self._ask("POST", [*self._path, "delete"], {}, {"copies": copies})["deleted"])


class SubscriptionReceiver:
    """Takes copies of one subscription, or of its dead letters, and settles them; made by `Topics.receiver`.

    A copy that is not settled is available again when its lock ends. Settling gives for each copy whether its lock
    still held: a copy with a lost lock is delivered again.
    """

    def __init__(self, ask: Ask, path: Sequence[str]) -> None:
        self._ask = ask
        self._path = path

    def receive(self, count: int = 1, *, wait_s: float = 0.0) -> list[ReceivedCopy]:
        """At most `count` copies: the available ones, else the first that arrive within `wait_s`; possibly none.

        Raises PreconditionFailedError for a subscription that forwards its copies.
        """
        found: list[ReceivedCopy] = []
        while True:
            wanted = min(count - len(found), _COPIES_A_REQUEST)
            waits_s = 0.0 if found else min(wait_s, LONGEST_WAIT_S)
            body = {"count": wanted, "wait_s": waits_s, "encoded": True}
            rows = self._ask("POST", [*self._path, "receive"], {}, body)
            found += map(_received, rows)
            wait_s -= waits_s
            if len(found) >= count or (not rows and (found or wait_s <= 0)):
                return found

    def complete(self, copies: Iterable[ReceivedCopy | str]) -> list[bool]:
        """They are done with: they do not come back. Copies are given as they were received, or by their tokens."""
        return self.settle("complete", copies)

    def abandon(self, copies: Iterable[ReceivedCopy | str], *, delay_ms: int | None = None) -> list[bool]:
        """Give copies back, after `delay_ms` or the backoff; after too many attempts they become dead letters."""
        return self.settle("abandon", copies, delay_ms=delay_ms)

    def dead_letter(
        self,
        copies: Iterable[ReceivedCopy | str],
        *,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> list[bool]:
        """Put them among the dead letters; reason, description and properties become application properties."""
        return self.settle("dead-letter", copies, reason=reason, description=description, properties=properties)

    def defer(self, copies: Iterable[ReceivedCopy | str]) -> list[bool]:
        """Defer copies: they are no longer delivered."""
        return self.settle("defer", copies)

    def renew(self, copies: Iterable[ReceivedCopy | str]) -> list[bool]:
        """Keep them: their locks begin anew."""
        return self.settle("renew", copies)

    def settle(self, outcome: str, copies: Iterable[ReceivedCopy | str], **more: object) -> list[bool]:
        """Settle copies with an outcome by its name. Raises PreconditionFailedError for an invalid token."""
        tokens = [copy.token if isinstance(copy, ReceivedCopy) else copy for copy in copies]
        held: list[bool] = []
        for first in range(0, len(tokens), _COPIES_A_REQUEST):
            part = tokens[first : first + _COPIES_A_REQUEST]
            body = {
                "outcome": outcome,
                "tokens": part,
                **{key: value for key, value in more.items() if value is not None},
            }
            held += self._ask("POST", [*self._path, "settle"], {}, body)["settled"]
        return held


def _copies(ask: Ask, path: Sequence[str], offset: int, limit: int) -> Iterator[ReadCopy]:
    """The copies of a list, page by page."""
    rule = 0
    while limit > 0:
        query = {"from": offset, "rule": rule, "limit": min(limit, _COPIES_A_REQUEST), "encoded": "true"}
        rows = ask("GET", [*path, "messages"], query, None)
        if not rows:
            return
        yield from map(_read, rows)
        limit -= len(rows)
        offset, rule = rows[-1]["offset"], rows[-1]["rule"] + 1


def _given(request: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in request.items() if value is not None}


def _path(topic: str, subscription: str, dead_letters: bool = False) -> list[str]:
    for name, what in ((topic, "topic"), (subscription, "subscription")):
        if not name:
            raise PreconditionFailedError(f"found an empty name of a {what}")
    return ["topics", topic, "subscriptions", subscription, *(["dead-letters"] if dead_letters else [])]


def _rule(topic: str, subscription: str, rule: str) -> list[str]:
    return [*_path(topic, subscription), "rules", rule]


def _offset(answer: Mapping[str, Any]) -> int:
    return int(answer["in_force_from"])


def _read(row: Mapping[str, Any]) -> ReadCopy:
    return ReadCopy(row["offset"], row["rule"], row["timestamp_ms"], base64.b64decode(row["encoded"]))


def _received(row: Mapping[str, Any]) -> ReceivedCopy:
    fields = {name: row[name] for name in ("token", "offset", "rule", "attempt", "timestamp_ms", "locked_until_ms")}
    return ReceivedCopy(encoded=base64.b64decode(row["encoded"]), **fields)
