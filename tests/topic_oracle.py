"""What a message gives the subscriptions of a topic, by the reference evaluator: offset, rule, and what fails."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headgate.errors import MessageError
from headgate.evaluate import copies_of
from headgate.message import Message, parse_field
from headgate.topic import Topic
from headgate.topic.decisions import Postings

NO_MESSAGE = b"\x00\x53\x99 no message"

GROUP_ID = parse_field("properties.group_id")

Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class Expected:
    """Copies and failures by number of the subscription, as pairs of offset and rule, in order.

    Failures are those that make dead letters; rule 0 stands for all rules, which fail on bytes that are no message.
    """

    copies: dict[int, Pairs] = field(default_factory=dict)
    failures: dict[int, Pairs] = field(default_factory=dict)
    sessions: dict[int, dict[tuple[int, int], str | None]] = field(default_factory=dict)
    """Session ids, of subscriptions whose copies are received by session."""

    def add(self, topic: Topic, offset: int, data: bytes) -> None:
        """The next message, decided by the rules of a topic of which everything has a number."""
        taken = False
        for each in topic.subscriptions:
            copies, failures = (one.setdefault(each.number, []) for one in (self.copies, self.failures))
            numbers = {rule.name: rule.number for rule in each.rules}
            if each.settings.requires_session:
                self.sessions.setdefault(each.number, {})
            try:
                message = Message.decode(data)
            except MessageError:
                if each.dead_letter_on_errors and numbers:
                    failures.append((offset, 0))
                continue
            found = copies_of(each.rules, message, now_ms=0, identity_of=lambda _: b"")
            made = {(offset, 0 if copy.rule is None else numbers[copy.rule]): copy.message for copy in found.copies}
            copies += sorted(made)
            if each.settings.requires_session:
                self.sessions[each.number].update((pair, session_of(copy)) for pair, copy in made.items())
            taken |= bool(found.copies)
            if each.dead_letter_on_errors:
                failures += sorted((offset, numbers[failure.rule]) for failure in found.failures)
        for each in topic.subscriptions:
            if each.fall_through and not taken:
                self.copies[each.number].append((offset, 0))
                if each.settings.requires_session:
                    self.sessions[each.number][offset, 0] = session_of(data)

    def check(self, postings: Postings, *, first: int = 0, counts_gone: bool = False) -> None:
        """Postings say the same of all offsets from `first` to where they end."""
        for number, copies in self.copies.items():
            # What is asked for is compared with the stream, and may turn out to be stale or damaged.
            _ = list(postings.runs(number, first))
            if number in self.sessions:
                _ = postings.session_ids(number, *_columns([pair for pair in copies if first <= pair[0]]))
        stop = postings.decided_until(first)
        counts = postings.counts()
        for number, copies in self.copies.items():
            wanted = [pair for pair in copies if first <= pair[0] < stop]
            assert [pair for runs in postings.runs(number, first) for pair in runs.pairs()] == wanted
            failures = [pair for pair in self.failures[number] if first <= pair[0] < stop]
            assert [pair for runs in postings.failures(number, first) for pair in runs.pairs()] == failures
            if number in self.sessions:
                for asked in (wanted, wanted[1::3]):
                    found = postings.session_ids(number, *_columns(asked))
                    assert found == [self.sessions[number][pair] for pair in asked]
            assert postings.first_at_or_after(number, first) == (wanted[0] if wanted else None)
            if not counts_gone:
                # Blocks behind one that is missing count as well.
                decided = sum(postings.decided_until(offset) > offset for offset, _ in copies)
                assert postings.count(number) == decided
                assert number >= len(counts) or counts[number] == decided


def _columns(pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and rules of copies, `(copies,)` each."""
    offsets, rules = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return offsets, rules


def session_of(message: Message | bytes) -> str | None:
    """The session id of a message; None without one, or for bytes that are none."""
    try:
        found = (Message.decode(message) if isinstance(message, bytes) else message).value(GROUP_ID)
    except MessageError:
        return None
    return None if found is None else str(found.value)
