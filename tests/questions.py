"""Questions about messages in the folders of a lab, at the time of its clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokers import SetClock
from headgate.trace import Answer, ConsumerAnswer, Facts, Question, Selector, ask, streams_of


@dataclass(frozen=True, slots=True)
class LabClock:
    """The clock of a lab; `monotonic_s` goes on by itself only if the test moves the clock."""

    clock: SetClock

    def now_ms(self) -> int:
        return self.clock.now

    def monotonic_s(self) -> float:
        return self.clock.now / 1_000


def asked(
    root: Path,
    clock: SetClock,
    name: str = "orders",
    *,
    consumer: str | None = None,
    facts: Facts | None = None,
    **by: Any,
) -> Answer:
    """The answer to a question; `by` is what a `Selector` takes."""
    question = Question(name, Selector(**by), consumer)
    question.check()
    return ask(question, streams_of(name, root), root, clock=LabClock(clock), facts=facts or Facts())


def asked_for(root: Path, clock: SetClock, consumer: str, **more: Any) -> ConsumerAnswer:
    """The answer for one consumer."""
    (found,) = asked(root, clock, consumer=consumer, **more).consumers
    return found
