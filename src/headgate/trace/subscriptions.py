"""Subscriptions and queues: the rules in force, the copies that they made of the message, and the fate of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.broker.topics import FAILED_RULES
from headgate.ledger import (
    TracedCopies,
    copy_number,
    trace_copies,
)
from headgate.topic import (
    QUEUE_SUBSCRIPTION,
    Subscription,
    dead_letters_folder,
    folded,
    view_key,
)
from headgate.trace.copy_fates import fates_of, standing_of
from headgate.trace.parts import (
    AnsweredCopy,
    ConsumerAnswer,
    ConsumerKind,
    Fate,
    Stage,
    State,
    Step,
)
from headgate.trace.selection import Selection, TopicQuestion, in_force_step, outside_text, select_copies
from headgate.trace.small_streams import find_copy
from headgate.trace.storage import steps_of


@dataclass(frozen=True, slots=True)
class _Asked:
    """A subscription as it was in force at the offset, and what it selects of the message."""

    subscription: Subscription
    selected: Selection


def subscription_answers(question: TopicQuestion, names: Sequence[str]) -> list[ConsumerAnswer]:
    """The answers for subscriptions by their names, without case, in order; of a queue `$queue`.

    The ledger of the topic is read once. Raises RuleNotFoundError, LogError.
    """
    offset = question.offset
    if offset < question.history.pruned_below:
        return [_pruned(question, name) for name in names]
    lives = [question.history.lives(name, offset, offset + 1) for name in names]
    topic = question.history.at(offset)
    by_number = {each.number: each for each in topic.subscriptions}
    asked = [
        None if not life else _Asked(by_number[life[0][2]], select_copies(question, topic, by_number[life[0][2]]))
        for life in lives
    ]
    copies = {
        view_key(each.subscription.number): [copy_number(offset, rule) for rule in each.selected.copies]
        for each in asked
        if each is not None
    }
    traced = trace_copies(question.stream, copies, now_ms=question.now_ms)
    return [_answer(question, name, each, traced) for name, each in zip(names, asked, strict=True)]


def _pruned(question: TopicQuestion, name: str) -> ConsumerAnswer:
    """The answer where the rules for the offset are not kept any more: every copy of it was settled before."""
    text = f"the rules for offset {question.offset} are pruned; they are known from {question.history.pruned_below} on"
    settled = "rules are kept as long as a message that they decide is unsettled, so whatever copy there was is settled"
    steps = (
        *steps_of(question.stream, question.located),
        Step("in force", State.UNKNOWN, text),
        Step("fate", State.UNKNOWN, settled),
    )
    return ConsumerAnswer(*_shown(question, name), Fate.SETTLED, text, steps)


def _shown(question: TopicQuestion, name: str) -> tuple[str, ConsumerKind]:
    """The name of a subscription for users, and what it is: of a queue that of its topic."""
    if folded(name) == folded(QUEUE_SUBSCRIPTION):
        return question.history.topic_name, ConsumerKind.QUEUE
    return name, ConsumerKind.SUBSCRIPTION


def _answer(
    question: TopicQuestion, name: str, asked: _Asked | None, traced: Mapping[str, TracedCopies]
) -> ConsumerAnswer:
    shown, kind = _shown(question, name)
    stored = steps_of(question.stream, question.located)
    if asked is None:
        text = outside_text(question, name)
        steps = (*stored, Step("in force", State.NO, text), Step("fate", State.NO, text))
        return ConsumerAnswer(shown, kind, Fate.BEFORE, text, steps)
    subscription, selected = asked.subscription, asked.selected
    copies = fates_of(question, subscription, selected, traced[view_key(subscription.number)])
    shown = shown if kind is ConsumerKind.QUEUE else subscription.name
    decided = Step("decided", State.YES if selected.copies else State.NO, selected.text)
    steps = (*stored, in_force_step(question, subscription, selected), decided)
    if not copies:
        fate = Step("fate", State.NO, f"{shown!r} has no copy of it")
        return ConsumerAnswer(
            shown, kind, Fate.FILTERED_OUT, selected.text, (*steps, fate), Stage.RULES, selected.decisions
        )
    first = min(copies, key=lambda copy: _INTEREST.index(copy.fate) if copy.fate in _INTEREST else len(_INTEREST))
    state = State.YES if first.fate in (Fate.COMPLETED, Fate.CLAIMED, Fate.FORWARDED) else State.NO
    fates = tuple(
        Step("fate", state, copy.text if len(copies) == 1 else f"{_copy_name(copy)}: {copy.text}") for copy in copies
    )
    return ConsumerAnswer(
        shown, kind, first.fate, first.text, (*steps, *fates), Stage.RULES, selected.decisions, copies
    )


_INTEREST = (
    Fate.DEAD_LETTERED,
    Fate.MOVING,
    Fate.EXPIRED,
    Fate.PURGED,
    Fate.CLAIMED,
    Fate.DELAYED,
    Fate.DEFERRED,
    Fate.AVAILABLE,
    Fate.FORWARDED,
    Fate.SETTLED,
    Fate.COMPLETED,
)
"""Of several copies the answer is that of the first of these: what an asker would rather know."""


_MAY_BE_DEAD = (Fate.MOVING, Fate.EXPIRED, Fate.SETTLED)
"""Fates of a copy that may become a dead letter soon, or was one before."""


def _copy_name(copy: AnsweredCopy) -> str:
    if copy.rule == FAILED_RULES:
        return "the dead letter of the rules that failed"
    return "the plain copy" if copy.rule_name is None else f"the copy of rule {copy.rule_name!r}"


def dead_letters_answer(question: TopicQuestion, name: str) -> ConsumerAnswer:
    """The answer for the dead letters of a subscription: is the message among them, and what became of it there."""
    (answer,) = subscription_answers(question, [name])
    shown = question.name_of(name, dead_letters=True)
    letters = [copy for copy in answer.copies if copy.fate is Fate.DEAD_LETTERED]
    if not letters:
        text = f"it is no dead letter: {answer.summary}"
        steps = (*(step for step in answer.steps if step.step != "fate"), Step("fate", State.NO, text))
        # That a copy waits, say, would mean that a dead letter does.
        fate = Fate.NO_DEAD_LETTER if answer.copies and answer.fate not in _MAY_BE_DEAD else answer.fate
        return replace(answer, name=shown, kind=ConsumerKind.DEAD_LETTERS, fate=fate, summary=text, steps=steps)
    found = find_copy(_dead_letters(question, name), _number_of(question, letters[0]), now_ms=question.now_ms)
    fate, text = Fate.SETTLED, "the dead letter is not there any more: it was received, deleted, or sent elsewhere"
    if found is not None:
        fate, text = standing_of(found, "the dead letter")
    step = Step("fate", State.YES if fate in (Fate.CLAIMED, Fate.COMPLETED) else State.NO, text)
    return replace(
        answer, name=shown, kind=ConsumerKind.DEAD_LETTERS, fate=fate, summary=text, steps=(*answer.steps, step)
    )


def _dead_letters(question: TopicQuestion, name: str) -> Path:
    _, _, number = question.history.lives(name, question.offset, question.offset + 1)[0]
    return dead_letters_folder(question.stream, number)


def _number_of(question: TopicQuestion, copy: AnsweredCopy) -> int:
    return copy_number(question.offset, copy.rule)
