"""A trial: batch by batch, the copies that the rules of a topic make of the messages, and another version's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import Filter, Verdict, unreadable_bodies
from headgate.language.tree import And, Node, Or
from headgate.message import EncodedMessages
from headgate.message.body_schema import BodySchema
from headgate.topic.copies import PLAIN, Copies, copy_identity
from headgate.topic.dead_letters import failure_of
from headgate.topic.model import Topic
from headgate.topic.router import Router
from headgate.topic.trial.comparison import Comparison, Side
from headgate.topic.trial.findings import (
    MOST_SAMPLES_KEPT,
    Findings,
    Overlaps,
    Sample,
    SampleKind,
    described,
    sample_key,
)
from headgate.topic.trial.request import TrialRequest

Int64Array = NDArray[np.int64]

_MOST_MESSAGES = 1 << 16
_MOST_PAIRS = 1 << 24
_VERDICTS = 4
_NAMES_IN_A_NOTE = 8


class Trial:
    """Tries the rules of a request; the findings grow with every batch. Not for several threads at once."""

    def __init__(self, request: TrialRequest) -> None:
        self._request = request
        topic = _without_dead_letters(request.topic) if request.exact else request.topic
        self._router = Router(topic, stream=request.stream, exact=request.exact)
        self._slot_rules = self._router.slot_rules
        self._clauses = [clauses_of(rule.filter) for _, rule in self._slot_rules] if request.clauses else []
        self._before: Router | None = None
        self._comparison: Comparison | None = None
        if request.against is not None:
            self._before = Router(_without_dead_letters(request.against), stream=request.stream)
            self._comparison = Comparison(request, self._before, self._router)
        self._looks_into_bodies = any(rule.filter.has_body_paths for _, rule in self._slot_rules)
        self._schema = None if request.body_schema is None else BodySchema.parse(request.body_schema)
        self._any_message = Filter.parse("TRUE", "rabbitmq")
        self.findings = self._no_findings()

    @property
    def most_messages(self) -> int:
        """At most this many messages may be tried at once: rules evaluated alone hold all answers in memory."""
        if not self._request.exact:
            return _MOST_MESSAGES
        return max(256, min(_MOST_MESSAGES, _MOST_PAIRS // (len(self._slot_rules) + 1)))

    def take(self) -> Findings:
        """The findings since the last call."""
        taken, self.findings = self.findings, self._no_findings()
        return taken

    def add(self, batch: EncodedMessages, offsets: Int64Array, timestamps_ms: Int64Array) -> None:
        """Try messages; `offsets` and `timestamps_ms`, when they arrived, are `(messages,)`. Never raises for them."""
        findings, request = self.findings, self._request
        times = timestamps_ms
        if request.as_of_ms is not None:
            times = np.full(len(batch), request.as_of_ms, dtype=np.int64)
        samples = _Samples(findings, request.samples, batch, offsets, timestamps_ms)
        findings.messages += len(batch)
        # A filter without conditions fails only where there is no message.
        is_message = self._any_message.verdicts(batch, now_ms=0) != Verdict.ERROR
        findings.malformed += int((~is_message).sum())
        if self._looks_into_bodies:
            findings.unreadable_bodies += len(unreadable_bodies(batch.take(np.flatnonzero(is_message)), self._schema))
        decided = self._router.decide(batch, times)
        side = Side(decided, self._router.copies(decided, batch, offsets, times))
        findings.by_rules.count(np.bincount(decided.rows, minlength=len(batch)))
        findings.rule_overlaps.count(decided.rows, decided.slots, offsets)
        samples.keep(SampleKind.MATCHED, decided.slots, decided.rows)
        self._count_rules(findings, side)
        self._count_copies(findings, side.copies, samples, offsets)
        self._keep_failures(samples, side, batch, offsets, times)
        for counts, clauses in zip(findings.clauses, self._clauses, strict=True):
            for verdict_counts, clause in zip(counts, clauses, strict=True):
                _add(verdict_counts, np.bincount(verdicts_at(clause, batch, times), minlength=_VERDICTS))
        if self._before is not None and self._comparison is not None:
            decided = self._before.decide(batch, times)
            before = Side(decided, self._before.copies(decided, batch, offsets, times))
            for kind, place, rows in self._comparison.count(findings, before, side, len(batch)):
                samples.keep(kind, np.full(len(rows), place), rows)

    def _no_findings(self) -> Findings:
        request, exact = self._request, self._request.exact
        rules, subscriptions = len(self._slot_rules), len(request.topic.subscriptions)
        wants_errors = [exact or subscription.dead_letter_on_errors for subscription, _ in request.rules]
        return Findings(
            matched=[0] * rules,
            failed_actions=[0] * rules,
            errors=[0 if wanted else -1 for wanted in wants_errors],
            unknown=[0 if exact else -1] * rules,
            clauses=[[[0] * _VERDICTS for _ in clauses] for clauses in self._clauses],
            received=[0] * subscriptions,
            copies=[0] * subscriptions,
            rule_overlaps=Overlaps(rules),
            subscription_overlaps=Overlaps(subscriptions),
            rule_changes=[[0] * 3 for _ in request.compared_rules],
            subscription_changes=[[0] * 4 for _ in request.compared_subscriptions],
        )

    def _count_rules(self, findings: Findings, side: Side) -> None:
        counters, decided = side.copies.counters, side.decided
        _add(findings.matched, counters.matched)
        _add(findings.failed_actions, counters.failed_actions)
        if decided.unknown is not None:
            _add(findings.unknown, decided.unknown)
        for slot in np.flatnonzero(counters.errors).tolist():
            if findings.errors[slot] >= 0:
                findings.errors[slot] += int(counters.errors[slot])

    def _count_copies(self, findings: Findings, copies: Copies, samples: _Samples, offsets: Int64Array) -> None:
        subscriptions, rows = copies.subscriptions, copies.rows
        is_first = np.ones(len(copies), dtype=np.bool_)
        is_first[1:] = (np.diff(subscriptions) != 0) | (np.diff(rows) != 0)
        _add(findings.copies, np.bincount(subscriptions, minlength=len(findings.copies)))
        _add(findings.received, np.bincount(subscriptions[is_first], minlength=len(findings.received)))
        taken = np.bincount(rows, minlength=len(offsets))
        findings.by_copies.count(taken)
        findings.subscription_overlaps.count(rows, subscriptions, offsets)
        none, several = np.flatnonzero(taken == 0), np.flatnonzero(taken > 1)
        samples.keep(SampleKind.NONE, np.zeros(len(none), dtype=np.int64), none)
        samples.keep(
            SampleKind.SEVERAL,
            np.zeros(len(several), dtype=np.int64),
            several,
            lambda row, _: self._takers(subscriptions[rows == row]),
        )

    def _takers(self, places: Int64Array) -> str:
        names = [self._request.topic.subscriptions[place].name for place in places.tolist()]
        rest = [f"{len(names) - _NAMES_IN_A_NOTE} more"] if len(names) > _NAMES_IN_A_NOTE else []
        return ", ".join(names[:_NAMES_IN_A_NOTE] + rest)

    def _keep_failures(
        self, samples: _Samples, side: Side, batch: EncodedMessages, offsets: Int64Array, times: Int64Array
    ) -> None:
        decided = side.decided

        def failure(row: int, slot: int) -> str:
            place, rule = self._slot_rules[slot]
            number = self._request.topic.subscriptions[place].number
            identity = copy_identity(self._request.stream, int(offsets[row]), number, rule.number)
            return failure_of(rule, batch.message(row), now_ms=int(times[row]), identity=identity) or ""

        samples.keep(SampleKind.ERROR, decided.error_slots, decided.error_rows, failure)
        if not side.copies.counters.failed_actions.any():
            return
        made = {
            (place, number, row)
            for place, number, row in zip(
                side.copies.subscriptions.tolist(), side.copies.rules.tolist(), side.copies.rows.tolist(), strict=True
            )
            if number != PLAIN
        }
        failing = side.copies.counters.failed_actions[decided.slots] > 0
        pairs = [
            (slot, row)
            for slot, row in zip(decided.slots[failing].tolist(), decided.rows[failing].tolist(), strict=True)
            if (self._slot_rules[slot][0], self._slot_rules[slot][1].number, row) not in made
        ]
        slots, rows = (np.array(each, dtype=np.int64) for each in zip(*pairs, strict=True))
        samples.keep(SampleKind.FAILED_ACTION, slots, rows, failure)


class _Samples:
    """Keeps the first messages of each kind and place of one batch, in the findings."""

    def __init__(
        self,
        findings: Findings,
        most: int,
        batch: EncodedMessages,
        offsets: Int64Array,
        timestamps_ms: Int64Array,
    ) -> None:
        self._kept = findings.samples
        self._most = most
        self._batch = batch
        self._offsets = offsets
        self._timestamps_ms = timestamps_ms
        self._left = MOST_SAMPLES_KEPT - sum(map(len, self._kept.values()))
        self._described: dict[int, dict[str, Any]] = {}

    def keep(
        self,
        kind: SampleKind,
        places: Int64Array,
        rows: NDArray[np.integer[Any]],
        note: Callable[[int, int], str] | None = None,
    ) -> None:
        """Keep samples of pairs of place and row, which come by ascending row; `note` says why, of row and place."""
        if not self._most or not len(rows):
            return
        order = np.argsort(places, kind="stable")
        places, rows = places[order], rows[order]
        starts = np.flatnonzero(np.diff(places, prepend=places[0] - 1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
            if self._left <= 0:
                return
            place = int(places[start])
            key = sample_key(kind, place)
            wanted = self._most - len(self._kept.get(key, ()))
            for row in rows[start : min(stop, start + wanted)].tolist() if wanted > 0 else ():
                why = None if note is None else note(row, place)
                self._kept.setdefault(key, []).append(self._sample(row, why))
                self._left -= 1

    def _sample(self, row: int, note: str | None) -> Sample:
        if row not in self._described:
            self._described[row] = described(self._batch.message(row))
        return Sample(int(self._offsets[row]), int(self._timestamps_ms[row]), self._described[row], note)


def _without_dead_letters(topic: Topic) -> Topic:
    """The topic without dead letters: a trial counts and shows errors itself."""
    return replace(
        topic, subscriptions=tuple(replace(each, dead_letter_on_errors=False) for each in topic.subscriptions)
    )


def clauses_of(whole: Filter) -> list[Filter]:
    """The operands of the outermost AND or OR of a filter, each a filter of its own; else the filter itself."""
    if not isinstance(whole.tree, And | Or):
        return [whole]
    return [Filter(node, whole.text, whole.dialect) for node in _operands(whole.tree, type(whole.tree))]


def clause_text(clause: Filter) -> str:
    """The part of the filter's text that a clause is."""
    start, stop = clause.tree.span
    return " ".join((clause.text[start:stop] or clause.text).split())


def _operands(node: Node, junction: type[And] | type[Or]) -> Iterator[Node]:
    if isinstance(node, junction):
        for operand in node.operands:
            yield from _operands(operand, junction)
    else:
        yield node


def verdicts_at(given: Filter, batch: EncodedMessages, times: Int64Array) -> NDArray[np.uint8]:
    """The verdicts of a filter, with a time of its own for each message: `(messages,)` uint8."""
    if not given.uses_time:
        return given.verdicts(batch, now_ms=0)
    starts = np.flatnonzero(np.diff(times, prepend=times[:1] - 1)).tolist()
    parts = [
        given.verdicts(batch.take(slice(start, stop)), now_ms=int(times[start]))
        for start, stop in zip(starts, [*starts[1:], len(batch)], strict=True)
        if start < stop
    ]
    return np.concatenate([np.empty(0, dtype=np.uint8), *parts])


def _add(counts: list[int], more: NDArray[np.integer[Any]]) -> None:
    for place in np.flatnonzero(more).tolist():
        counts[place] += int(more[place])
