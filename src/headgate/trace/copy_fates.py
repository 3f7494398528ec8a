"""What became of each copy: what the ledger tells of it, and of the places that it was moved to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.broker import ReadCopies
from headgate.broker.delivery import Movement, TargetKind
from headgate.broker.topics import FAILED_RULES, outlived, sequence_number
from headgate.clock import shown_time
from headgate.errors import MessageError
from headgate.ledger import (
    IN_SESSION,
    TracedCopies,
    TraceEvent,
    TraceKind,
    copy_number,
    offset_of,
    rule_of,
)
from headgate.log import Stream, stream_folder
from headgate.message import EncodedMessages, FieldReference, Message, Section
from headgate.topic import (
    FIRST_NUMBER_ANNOTATION,
    Subscription,
    dead_letters_folder,
    deferred_folder,
    folded,
)
from headgate.trace.facts import ConnectedConsumer
from headgate.trace.parts import (
    AnsweredCopy,
    AnsweredEvent,
    Fate,
)
from headgate.trace.selection import Selection, TopicQuestion
from headgate.trace.small_streams import FoundMessage, find_copy, find_forwarded

_MOST_OFFSETS = 4
_FIRST_NUMBER = FieldReference(Section.MESSAGE_ANNOTATIONS, key=FIRST_NUMBER_ANNOTATION.encode())


def fates_of(
    question: TopicQuestion, subscription: Subscription, selected: Selection, traced: TracedCopies
) -> tuple[AnsweredCopy, ...]:
    """The copies that a subscription has of the message, each with its fate. Raises LogError."""
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
    if rule_of(copy) == FAILED_RULES and (view is None or copy not in view.seen):
        return asked.answer(Fate.MOVING, "it becomes a dead letter as soon as a server decides the topic up to here")
    if view is None:
        return _waiting(asked, "no server has opened the topic since the subscription was made, so it has no ledger")
    if copy < view.from_copy:
        return asked.answer(Fate.BEFORE, f"the subscription gets copies from offset {offset_of(view.from_copy)} on")
    rows = view.rows().rows_between(copy, copy + 1)
    if len(rows):
        return _unsettled(asked, int(rows.claims[0]), int(rows.attempts[0]), int(rows.untils[0]))
    if copy in view.seen:
        return _settled(asked)
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
        text += f"; {_counted(len(receivers), 'receiver')} connected, {ready} with credit"
    settings = subscription.settings
    if not settings.status.gives_copies:
        text += f"; the subscription is {settings.status}"
    elif not asked.topic.history.settings.status.gives_copies:
        text += f"; the topic is {asked.topic.history.settings.status}"
    elif settings.requires_session:
        text += "; it is given to the receiver of its session only"
    return asked.answer(Fate.AVAILABLE, text, attempts=attempts)


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
    offsets: list[int] = []
    if target is not None:
        number = _first_number(asked)
        copy = movement.marked(asked.encoded)
        offsets = find_forwarded(target, copy, number, since_ms=moved.at_ms, now_ms=asked.topic.now_ms)
    offset = offsets[0] if len(offsets) == 1 else None
    where = repr(name) + (f", offset {_either(offsets)}" if offsets else "")
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


def _counted(count: int, what: str) -> str:
    return f"{count} {what} is" if count == 1 else f"{count} {what}s are"


def _either(offsets: Sequence[int]) -> str:
    """`7`, or `7 or 9, which are equal copies`: where a copy is, of those that cannot be told apart."""
    shown = " or ".join(map(str, offsets[:_MOST_OFFSETS]))
    more = f" or {len(offsets) - _MOST_OFFSETS} more" if len(offsets) > _MOST_OFFSETS else ""
    return f"{shown}{more}, which are equal copies" if len(offsets) > 1 else shown


def _kept(
    asked: _CopyQuestion, kind: TargetKind, found: FoundMessage | None, movement: Movement, at_ms: int
) -> AnsweredCopy:
    """A copy in a small stream of its subscription: a dead letter, or deferred."""
    at = f" at {shown_time(at_ms)}" if at_ms else ""
    offset = None if found is None else found.offset
    if kind is TargetKind.DEFERRED:
        if found is None:
            return asked.answer(Fate.SETTLED, f"deferred{at}, and settled since", attempts=0)
        fate, standing = standing_of(found, "it")
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
        standing = f"{standing_of(found, 'the dead letter')[1]} (offset {offset} there)"
    text = f"dead-lettered{at}{why}; {standing}"
    return asked.answer(
        Fate.DEAD_LETTERED, text, reason=reason, description=description, target=target, target_offset=offset
    )


def _why(movement: Movement) -> str:
    reason = movement.reason or "without a reason"
    return f": {reason}" + (f", {movement.description}" if movement.description else "")


def standing_of(found: FoundMessage, what: str) -> tuple[Fate, str]:
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
        is_again = bool(last.change) and Movement.decode(last.change).is_resubmission
        did = "resubmitted" if is_again else "moved"
        return fate, f"{what} was {did} to {place} at {shown_time(last.at_ms)}"
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
