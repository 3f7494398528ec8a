"""Subscriptions and queues: the rules in force, the copies that they made of the message, and the fate of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headgate.broker import ReadCopies
from headgate.broker.delivery import Movement, TargetKind
from headgate.broker.topics import FAILED_RULES, outlived, sequence_number
from headgate.clock import shown_time
from headgate.errors import MessageError
from headgate.evaluate import CopyRule, Verdict, copies_of, evaluate
from headgate.language import EvaluationFailed
from headgate.ledger import (
    IN_SESSION,
    TracedCopies,
    TraceEvent,
    TraceKind,
    copy_number,
    offset_of,
    rule_of,
    trace_copies,
)
from headgate.log import Stream, stream_folder
from headgate.message import EncodedMessages, FieldReference, Message, Section
from headgate.topic import (
    FIRST_NUMBER_ANNOTATION,
    QUEUE_SUBSCRIPTION,
    Rule,
    RuleHistory,
    Subscription,
    SubscriptionName,
    Topic,
    copy_identity,
    dead_letters_folder,
    deferred_folder,
    folded,
    view_key,
)
from headgate.topic.trial import RuleExplanation, explain_rule
from headgate.trace.decisions import decision_of_rule, why_not
from headgate.trace.facts import ConnectedConsumer, Facts
from headgate.trace.parts import (
    AnsweredCopy,
    AnsweredEvent,
    ConsumerAnswer,
    ConsumerKind,
    Decision,
    Fate,
    Stage,
    State,
    Step,
)
from headgate.trace.small_streams import FoundMessage, find_copy, find_forwarded
from headgate.trace.storage import Located, steps_of

MOST_RULES = 100
"""Limit: rules that one answer explains; rules that select the message come first."""

_NAMED_RULES = 3
_FIRST_NUMBER = FieldReference(Section.MESSAGE_ANNOTATIONS, key=FIRST_NUMBER_ANNOTATION.encode())


@dataclass(frozen=True, slots=True)
class TopicQuestion:
    """A message of a topic that is asked about, and where to look."""

    root: Path
    stream: Stream
    history: RuleHistory
    located: Located
    facts: Facts
    now_ms: int

    @property
    def offset(self) -> int:
        """The offset of the message."""
        return self.located.stored.offset

    @property
    def arrived_ms(self) -> int:
        """When it arrived."""
        return self.located.stored.timestamp_ms

    def name_of(self, subscription: str, *, dead_letters: bool = False) -> str:
        """The name of a subscription for clients, `orders/Subscriptions/red`, or of its dead letters."""
        return str(SubscriptionName(self.history.topic_name, subscription, dead_letters))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A subscription as it was in force at the offset, and what it selects of the message."""

    subscription: Subscription
    selected: _Selection


def subscription_answers(question: TopicQuestion, names: Sequence[str]) -> list[ConsumerAnswer]:
    """The answers for subscriptions by their names, without case, in order; of a queue `$queue`.

    The ledger of the topic is read once. Raises RuleNotFoundError, OffsetOutOfRangeError where the rules are pruned,
    LogError.
    """
    offset = question.offset
    lives = [question.history.lives(name, offset, offset + 1) for name in names]
    topic = question.history.at(offset)
    by_number = {each.number: each for each in topic.subscriptions}
    asked = [
        None if not life else _Asked(by_number[life[0][2]], _select(question, topic, by_number[life[0][2]]))
        for life in lives
    ]
    copies = {
        view_key(each.subscription.number): [copy_number(offset, rule) for rule in each.selected.copies]
        for each in asked
        if each is not None
    }
    traced = trace_copies(question.stream, copies, now_ms=question.now_ms)
    return [_answer(question, name, each, traced) for name, each in zip(names, asked, strict=True)]


def _answer(
    question: TopicQuestion, name: str, asked: _Asked | None, traced: Mapping[str, TracedCopies]
) -> ConsumerAnswer:
    kind = ConsumerKind.QUEUE if folded(name) == folded(QUEUE_SUBSCRIPTION) else ConsumerKind.SUBSCRIPTION
    shown = question.history.topic_name if kind is ConsumerKind.QUEUE else name
    stored = steps_of(question.stream, question.located)
    if asked is None:
        text = _outside(question, name)
        steps = (*stored, Step("in force", State.NO, text), Step("fate", State.NO, text))
        return ConsumerAnswer(shown, kind, Fate.BEFORE, text, steps)
    subscription, selected = asked.subscription, asked.selected
    copies = _fates(question, subscription, selected, traced[view_key(subscription.number)])
    shown = shown if kind is ConsumerKind.QUEUE else subscription.name
    decided = Step("decided", State.YES if selected.copies else State.NO, selected.text)
    steps = (*stored, _in_force(question, subscription, selected), decided)
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


def _copy_name(copy: AnsweredCopy) -> str:
    return "the plain copy" if copy.rule_name is None else f"the copy of rule {copy.rule_name!r}"


def dead_letters_answer(question: TopicQuestion, name: str) -> ConsumerAnswer:
    """The answer for the dead letters of a subscription: is the message among them, and what became of it there."""
    (answer,) = subscription_answers(question, [name])
    shown = question.name_of(name, dead_letters=True)
    letters = [copy for copy in answer.copies if copy.fate is Fate.DEAD_LETTERED]
    if not letters:
        text = f"it is no dead letter: {answer.summary}"
        steps = (*(step for step in answer.steps if step.step != "fate"), Step("fate", State.NO, text))
        return replace(answer, name=shown, kind=ConsumerKind.DEAD_LETTERS, summary=text, steps=steps)
    found = find_copy(_dead_letters(question, name), _number_of(question, letters[0]), now_ms=question.now_ms)
    fate, text = Fate.SETTLED, "the dead letter is not there any more: it was received, deleted, or sent elsewhere"
    if found is not None:
        fate, text = _standing(found, "the dead letter")
    step = Step("fate", State.YES if fate in (Fate.CLAIMED, Fate.COMPLETED) else State.NO, text)
    return replace(
        answer, name=shown, kind=ConsumerKind.DEAD_LETTERS, fate=fate, summary=text, steps=(*answer.steps, step)
    )


def _dead_letters(question: TopicQuestion, name: str) -> Path:
    _, _, number = question.history.lives(name, question.offset, question.offset + 1)[0]
    return dead_letters_folder(question.stream, number)


def _number_of(question: TopicQuestion, copy: AnsweredCopy) -> int:
    return copy_number(question.offset, copy.rule)


# which rules, which copies


@dataclass(frozen=True, slots=True)
class _Selection:
    """The copies of the message for a subscription, by rule number with their bytes; and what the rules say."""

    copies: dict[int, bytes]
    decisions: tuple[Decision, ...]
    text: str
    num_rules: int


def _select(question: TopicQuestion, topic: Topic, subscription: Subscription) -> _Selection:
    if subscription.fall_through:
        return _fall_through(question, topic)
    explained, left_out = _explained(question, subscription)
    versions = {
        version.number: version
        for _, version in question.history.versions(subscription.name)
        if version.subscription == subscription.number
        and version.from_offset <= question.offset
        and (version.to_offset is None or question.offset < version.to_offset)
    }
    decisions = tuple(decision_of_rule(each, versions.get(each.rule.number)) for each in explained)
    copies, failures = _copies(question, subscription)
    if failures and subscription.dead_letter_on_errors:
        copies[FAILED_RULES] = question.located.encoded
    return _Selection(copies, decisions, _summary(decisions, left_out, copies), len(subscription.rules))


def _explained(question: TopicQuestion, subscription: Subscription) -> tuple[list[RuleExplanation], int]:
    """The explanations of the rules, those that select the message first, and how many rules are left out."""
    rules: Sequence[Rule] = subscription.rules
    if len(rules) > MOST_RULES:
        rules = sorted(rules, key=lambda rule: not _is_true(question, rule))[:MOST_RULES]
    explained = [
        explain_rule(
            rule,
            question.located.encoded,
            now_ms=question.arrived_ms,
            identity=copy_identity(question.stream.name, question.offset, subscription.number, rule.number),
        )
        for rule in rules
    ]
    explained.sort(key=lambda each: each.filter.verdict is not Verdict.TRUE)
    return explained, len(subscription.rules) - len(rules)


def _is_true(question: TopicQuestion, rule: Rule) -> bool:
    try:
        return evaluate(rule.filter.tree, Message.decode(question.located.encoded), question.arrived_ms) is True
    except (EvaluationFailed, MessageError):
        return False


def _copies(question: TopicQuestion, subscription: Subscription) -> tuple[dict[int, bytes], bool]:
    """The copies of the message by rule, and whether a rule failed."""
    encoded = question.located.encoded
    try:
        message = Message.decode(encoded)
    except MessageError:
        return {}, bool(subscription.rules)

    numbers = {rule.name: rule.number for rule in subscription.rules}

    def identity_of(rule: CopyRule) -> bytes:
        return copy_identity(question.stream.name, question.offset, subscription.number, numbers[rule.name])

    made = copies_of(subscription.rules, message, now_ms=question.arrived_ms, identity_of=identity_of)
    copies = {0 if each.rule is None else numbers[each.rule]: each.message.encode() for each in made.copies}
    return copies, bool(made.failures)


def _fall_through(question: TopicQuestion, topic: Topic) -> _Selection:
    """The copy of the fall-through subscription, which gets what no other one took."""
    taker = next(
        (each.name for each in topic.subscriptions if not each.fall_through and _copies(question, each)[0]), None
    )
    if taker is None:
        text = "no other subscription took the message, so the fall-through subscription has it"
        return _Selection({0: question.located.encoded}, (), text, 0)
    return _Selection({}, (), f"subscription {taker!r} took it: a fall-through gets what no other one took", 0)


def _summary(decisions: Sequence[Decision], left_out: int, copies: dict[int, bytes]) -> str:
    selecting = [each for each in decisions if each.verdict == "true" and each.failure is None]
    if selecting:
        names = ", ".join(repr(each.name) for each in selecting[:_NAMED_RULES])
        more = f" and {len(selecting) - _NAMED_RULES} more" if len(selecting) > _NAMED_RULES else ""
        rules = "rules" if len(selecting) > 1 else "rule"
        changed = sum(rule not in (0, FAILED_RULES) for rule in copies)
        change = f"; {changed} changed by an action" if changed else ""
        return f"{rules} {names}{more} selected the message{change}"
    if not decisions:
        return "the subscription had no rules: it selects nothing"
    texts = "; ".join(map(why_not, decisions[:_NAMED_RULES]))
    more_rules = len(decisions) + left_out - _NAMED_RULES
    more = f"; and {more_rules} more rules that do not select it" if more_rules > 0 else ""
    kept = "; a rule that fails makes a dead letter of the message" if FAILED_RULES in copies else ""
    return texts + more + kept


def _in_force(question: TopicQuestion, subscription: Subscription, selected: _Selection) -> Step:
    if subscription.fall_through:
        return Step("in force", State.YES, f"{subscription.name!r} was a fall-through subscription, without rules")
    rules = [
        f"{each.name!r} ({each.language or 'no text'}, since offset {each.from_offset}, {shown_time(each.since_ms)})"
        for each in selected.decisions[:_NAMED_RULES]
        if each.from_offset is not None and each.since_ms is not None
    ]
    more = f", and {selected.num_rules - len(rules)} more" if selected.num_rules > len(rules) else ""
    count = f"{selected.num_rules} rule{'s' * (selected.num_rules != 1)}"
    return Step("in force", State.YES, f"{count} at offset {question.offset}: {', '.join(rules)}{more}")


def _outside(question: TopicQuestion, name: str) -> str:
    """Why a subscription had no rules at the offset: it was made later, or removed before."""
    history, offset = question.history, question.offset
    if history.has_subscription(name):
        version = history.subscription(name)
        begin = history.created()[version.number]
        if begin > offset:
            at = shown_time(version.created_ms or version.at_ms)
            return f"subscription {version.name!r} was created after the message: it begins at offset {begin}, {at}"
    return f"subscription {name!r} did not exist when the message came: it was removed before, or made later"


# what became of each copy


def _fates(
    question: TopicQuestion, subscription: Subscription, selected: _Selection, traced: TracedCopies
) -> tuple[AnsweredCopy, ...]:
    names = {rule.number: rule.name for rule in subscription.rules}
    return tuple(
        _fate(
            _CopyQuestion(question, subscription, traced, copy_number(question.offset, rule), encoded, names.get(rule))
        )
        for rule, encoded in selected.copies.items()
    )


@dataclass(frozen=True, slots=True)
class _CopyQuestion:
    """One copy of the message, and what the ledger tells of it."""

    topic: TopicQuestion
    subscription: Subscription
    traced: TracedCopies
    copy: int
    encoded: bytes
    rule_name: str | None

    @property
    def events(self) -> list[TraceEvent]:
        return self.traced.events.get(self.copy, [])

    @property
    def receivers(self) -> list[ConnectedConsumer]:
        """The connected receivers of the subscription."""
        own = folded(self.topic.name_of(self.subscription.name))
        return [each for each in self.topic.facts.receivers if folded(each.name) == own]

    def is_outlived(self, at_ms: int) -> bool:
        """Whether its time to live was over at a time."""
        settings = self.subscription.settings, self.topic.history.settings
        given = (each.default_time_to_live_ms for each in settings)
        default_ms = min((each for each in given if each is not None), default=None)
        read = ReadCopies(
            np.array([self.copy], dtype=np.int64),
            np.array([self.topic.arrived_ms], dtype=np.int64),
            EncodedMessages.of([self.encoded]),
        )
        return outlived(read, default_ms, at_ms) is not None

    def answer(self, fate: Fate, text: str, **more: object) -> AnsweredCopy:
        """The answer for this copy."""
        events = tuple(answered_event(each) for each in self.events)
        attempts = max((each.attempt for each in self.events), default=0)
        given = {"attempts": attempts, "events": events, **more}
        return AnsweredCopy(rule_of(self.copy), self.rule_name, fate, text, **given)  # type: ignore[arg-type]


def _fate(asked: _CopyQuestion) -> AnsweredCopy:
    view, copy = asked.traced.view, asked.copy
    pending = [
        move
        for move in asked.traced.state.pending_moves()
        if view is not None and move.view == view.number and move.copy == copy
    ]
    if pending:
        target = _target_name(asked, pending[-1].target)
        text = f"it was given up and is on its way to {target}, where it has not arrived yet"
        return asked.answer(Fate.MOVING, text, target=target)
    moved = next((each for each in reversed(asked.events) if each.kind is TraceKind.MOVED), None)
    if moved is not None:
        return _moved(asked, moved)
    if view is None:
        return _waiting(asked, "no server has opened the topic since the subscription was made, so it has no ledger")
    if copy < view.from_copy:
        return asked.answer(Fate.BEFORE, f"the subscription gets copies from offset {offset_of(view.from_copy)} on")
    rows = view.rows().rows_between(copy, copy + 1)
    if len(rows):
        return _unsettled(asked, int(rows.claims[0]), int(rows.attempts[0]), int(rows.untils[0]))
    if copy in view.seen:
        return _settled(asked)
    if rule_of(copy) == FAILED_RULES:
        return asked.answer(Fate.MOVING, "it becomes a dead letter as soon as a server decides the topic up to here")
    floor = view.floor()
    behind = f"; the oldest copy that is not settled is that of offset {offset_of(floor)}" if floor < copy else ""
    return _waiting(asked, f"it was never given to a receiver{behind}")


def _waiting(asked: _CopyQuestion, text: str, *, attempts: int = 0) -> AnsweredCopy:
    """A copy that a receiver could have now."""
    subscription = asked.subscription
    if asked.is_outlived(asked.topic.now_ms):
        gone = "becomes a dead letter" if subscription.settings.dead_letter_on_expiration else "is dropped"
        return asked.answer(Fate.EXPIRED, f"its time to live is over: it {gone} when a server looks at it next")
    if subscription.forward_to is not None:
        return asked.answer(Fate.AVAILABLE, f"it waits to be forwarded to {subscription.forward_to!r}; {text}")
    if asked.topic.facts.is_known:
        receivers = asked.receivers
        ready = sum(each.credit > 0 for each in receivers)
        text += f"; {len(receivers)} receivers are connected, {ready} of them with credit"
    settings = subscription.settings
    if not settings.status.gives_copies:
        text += f"; the subscription is {settings.status}"
    elif not asked.topic.history.settings.status.gives_copies:
        text += f"; the topic is {asked.topic.history.settings.status}"
    elif settings.requires_session:
        text += "; it is given to the receiver of its session only"
    return asked.answer(Fate.AVAILABLE, f"available: {text}", attempts=attempts)


def _unsettled(asked: _CopyQuestion, claim: int, attempts: int, until_ms: int) -> AnsweredCopy:
    most = asked.subscription.settings.max_delivery_count
    if claim:
        return _claimed(asked, attempts, until_ms)
    if until_ms:
        text = f"it waits until {shown_time(until_ms)}, after {attempts} of {most} attempts"
        return asked.answer(Fate.DELAYED, text, attempts=attempts, until_ms=until_ms)
    return _waiting(asked, f"it came back after {attempts} of {most} attempts", attempts=attempts)


def _claimed(asked: _CopyQuestion, attempts: int, until_ms: int) -> AnsweredCopy:
    view, session = asked.traced.view, None
    assert view is not None
    by = "a receiver"
    receivers = asked.receivers
    if len(receivers) == 1:
        by = f"the only receiver, {receivers[0].place}"
    elif receivers:
        by = f"one of {len(receivers)} receivers"
    end: int | None = until_ms
    if until_ms == IN_SESSION:
        name = (view.session_of or {}).get(asked.copy, b"")
        session = name.decode(errors="backslashreplace")
        held = (view.sessions or {}).get(name)
        end = None if held is None else held.until_ms
        by += f" of session {session!r}"
    until = "" if end is None else f" until {shown_time(end)}"
    most = asked.subscription.settings.max_delivery_count
    text = f"{by} has it: locked{until}, attempt {attempts} of {most}"
    return asked.answer(Fate.CLAIMED, text, attempts=attempts, until_ms=end, session=session)


def _settled(asked: _CopyQuestion) -> AnsweredCopy:
    last = next((each for each in reversed(asked.events) if each.kind is TraceKind.SETTLED), None)
    if last is not None and last.was_claimed:
        text = f"a receiver completed it at {shown_time(last.at_ms)}, at attempt {last.attempt}"
        return asked.answer(Fate.COMPLETED, text)
    if last is not None:
        if asked.is_outlived(last.at_ms):
            return asked.answer(Fate.EXPIRED, f"its time to live was over: it was dropped at {shown_time(last.at_ms)}")
        return asked.answer(Fate.PURGED, f"it was purged at {shown_time(last.at_ms)}, without being given to anybody")
    # The ledger keeps the settlements since its last snapshot only.
    folders = (
        (dead_letters_folder(asked.topic.stream, asked.subscription.number), TargetKind.DEAD_LETTERS),
        (deferred_folder(asked.topic.stream, asked.subscription.number), TargetKind.DEFERRED),
    )
    for folder, kind in folders:
        found = find_copy(folder, asked.copy, now_ms=asked.topic.now_ms)
        if found is not None:
            return _kept(asked, kind, found, Movement(*found.reason), 0)
    text = "it is settled: completed, purged or expired; the ledger keeps no more of settlements that old"
    return asked.answer(Fate.SETTLED, text)


def _moved(asked: _CopyQuestion, moved: TraceEvent) -> AnsweredCopy:
    """A copy that left its subscription."""
    kind, name = TargetKind.parse(moved.target)
    movement = Movement.decode(moved.change) if moved.change else Movement()
    if not kind.is_elsewhere:
        folder = dead_letters_folder if kind is TargetKind.DEAD_LETTERS else deferred_folder
        place = folder(asked.topic.stream, asked.subscription.number)
        found = find_copy(place, asked.copy, now_ms=asked.topic.now_ms)
        return _kept(asked, kind, found, movement, moved.at_ms)
    target = Stream.find(stream_folder(asked.topic.root, name))
    offset = None
    if target is not None:
        number = _first_number(asked)
        offset = find_forwarded(target, number, since_ms=moved.at_ms, now_ms=asked.topic.now_ms)
    where = f"{name!r}" + ("" if offset is None else f", offset {offset}")
    at = shown_time(moved.at_ms)
    if kind is TargetKind.WAITING:
        text = f"forwarded at {at} to {name!r}, where it waits for its time"
        return asked.answer(Fate.FORWARDED, text, target=name)
    if movement.is_forward:
        return asked.answer(Fate.FORWARDED, f"forwarded at {at} to {where}", target=name, target_offset=offset)
    why = _why(movement)
    text = f"dead-lettered at {at}{why}; dead letters are forwarded to {where}"
    return asked.answer(
        Fate.DEAD_LETTERED,
        text,
        reason=movement.reason,
        description=movement.description,
        target=name,
        target_offset=offset,
    )


def _kept(
    asked: _CopyQuestion, kind: TargetKind, found: FoundMessage | None, movement: Movement, at_ms: int
) -> AnsweredCopy:
    """A copy in a small stream of its subscription: a dead letter, or deferred."""
    at = f" at {shown_time(at_ms)}" if at_ms else ""
    offset = None if found is None else found.offset
    if kind is TargetKind.DEFERRED:
        if found is None:
            return asked.answer(Fate.SETTLED, f"deferred{at}, and settled since", attempts=0)
        fate, standing = _standing(found, "it")
        fate = Fate.DEFERRED if fate is Fate.AVAILABLE else fate
        number = sequence_number(asked.copy)
        text = f"deferred{at}: a receiver has to ask for sequence number {number}; {standing}"
        return asked.answer(fate, text, target_offset=offset)
    target = asked.topic.name_of(asked.subscription.name, dead_letters=True)
    reason, description = movement.reason, movement.description
    if found is not None:
        reason, description = (one or other for one, other in zip(found.reason, (reason, description), strict=True))
    why = _why(Movement(reason, description))
    if found is None:
        standing = "the dead letter has been settled since"
    else:
        standing = f"{_standing(found, 'the dead letter')[1]} (offset {offset} there)"
    text = f"dead-lettered{at}{why}; {standing}"
    return asked.answer(
        Fate.DEAD_LETTERED, text, reason=reason, description=description, target=target, target_offset=offset
    )


def _why(movement: Movement) -> str:
    reason = movement.reason or "without a reason"
    return f": {reason}" + (f", {movement.description}" if movement.description else "")


def _standing(found: FoundMessage, what: str) -> tuple[Fate, str]:
    """The fate of a message in a small stream, by its own ledger."""
    until_ms = found.claimed_until_ms
    if until_ms is not None:
        return Fate.CLAIMED, f"{what} is locked by a receiver" + (f" until {shown_time(until_ms)}" if until_ms else "")
    if not found.is_settled:
        return Fate.AVAILABLE, f"{what} waits for a receiver"
    last = next(iter(reversed(found.events)), None)
    if last is None:
        return Fate.SETTLED, f"{what} is settled"
    if last.kind is TraceKind.MOVED:
        kind, name = TargetKind.parse(last.target)
        fate = Fate.DEAD_LETTERED if kind is TargetKind.DEAD_LETTERS else Fate.FORWARDED
        place = "the dead letters" if kind is TargetKind.DEAD_LETTERS else repr(name)
        return fate, f"{what} was moved to {place} at {shown_time(last.at_ms)}"
    if last.was_claimed:
        return Fate.COMPLETED, f"{what} was completed at {shown_time(last.at_ms)}"
    return Fate.PURGED, f"{what} was deleted at {shown_time(last.at_ms)}"


def _first_number(asked: _CopyQuestion) -> int:
    """The sequence number that a forwarded copy keeps: that of its first topic."""
    try:
        typed = Message.decode(asked.encoded).value(_FIRST_NUMBER)
    except MessageError:
        typed = None
    return sequence_number(asked.copy) if typed is None else int(typed.value)


def _target_name(asked: _CopyQuestion, target: str) -> str:
    kind, name = TargetKind.parse(target)
    if kind is TargetKind.DEAD_LETTERS:
        return asked.topic.name_of(asked.subscription.name, dead_letters=True)
    return "the deferred copies" if kind is TargetKind.DEFERRED else name


def answered_event(event: TraceEvent) -> AnsweredEvent:
    """An event of the ledger, with its sentence."""
    until = "" if event.until_ms is None else f" until {shown_time(event.until_ms)}"
    texts = {
        TraceKind.FOUND: "looked at",
        TraceKind.CLAIMED: f"given to a receiver, attempt {event.attempt}, locked{until or ' by its session'}",
        TraceKind.RENEWED: f"its lock was renewed{until}",
        TraceKind.RELEASED: f"came back after attempt {event.attempt}" + (f", waiting{until}" if until else ""),
        TraceKind.POSTPONED: "noted" + (f", waiting{until}" if until else ""),
        TraceKind.SETTLED: "completed by its receiver" if event.was_claimed else "dropped",
        TraceKind.MOVED: f"moved to {event.target}",
    }
    return AnsweredEvent(event.at_ms, event.kind.value, event.attempt, event.until_ms, texts[event.kind])
