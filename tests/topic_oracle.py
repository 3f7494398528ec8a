"""What a message gives the subscriptions of a topic, by the reference evaluator: offset, rule, and what fails."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.errors import MessageError
from headgate.evaluate import copies_of
from headgate.message import Message
from headgate.topic import Topic
from headgate.topic.deciding import Postings

NO_MESSAGE = b"\x00\x53\x99 no message"

Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class Expected:
    """Copies and failures by number of the subscription, as pairs of offset and rule, in order.

    Failures are those that make dead letters; rule 0 stands for all rules, which fail on bytes that are no message.
    """

    copies: dict[int, Pairs] = field(default_factory=dict)
    failures: dict[int, Pairs] = field(default_factory=dict)

    def add(self, topic: Topic, offset: int, data: bytes) -> None:
        """The next message, decided by the rules of a topic of which everything has a number."""
        taken = False
        for each in topic.subscriptions:
            copies, failures = (one.setdefault(each.number, []) for one in (self.copies, self.failures))
            numbers = {rule.name: rule.number for rule in each.rules}
            try:
                message = Message.decode(data)
            except MessageError:
                if each.dead_letter_on_errors and numbers:
                    failures.append((offset, 0))
                continue
            found = copies_of(each.rules, message, now_ms=0, identity_of=lambda _: b"")
            copies += sorted((offset, 0 if copy.rule is None else numbers[copy.rule]) for copy in found.copies)
            taken |= bool(found.copies)
            if each.dead_letter_on_errors:
                failures += sorted((offset, numbers[failure.rule]) for failure in found.failures)
        for each in topic.subscriptions:
            if each.fall_through and not taken:
                self.copies[each.number].append((offset, 0))

    def check(self, postings: Postings, *, first: int = 0, counts_gone: bool = False) -> None:
        """Postings say the same of all offsets from `first` to where they end."""
        for number in self.copies:
            # What is asked for is compared with the stream, and may turn out to be stale.
            _ = list(postings.runs(number, first))
        stop = postings.decided_until(first)
        counts = postings.counts()
        for number, copies in self.copies.items():
            wanted = [pair for pair in copies if first <= pair[0] < stop]
            assert [pair for runs in postings.runs(number, first) for pair in runs.pairs()] == wanted
            failures = [pair for pair in self.failures[number] if first <= pair[0] < stop]
            assert [pair for runs in postings.failures(number, first) for pair in runs.pairs()] == failures
            assert postings.first_at_or_after(number, first) == (wanted[0] if wanted else None)
            if not counts_gone:
                # Blocks behind one that is missing count as well.
                decided = sum(postings.decided_until(offset) > offset for offset, _ in copies)
                assert postings.count(number) == decided
                assert number >= len(counts) or counts[number] == decided
