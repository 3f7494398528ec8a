"""Consumer groups of RocketMQ's clients: the expression of the group, and its place in the queue of the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headgate.broker.consumer_groups import GROUPS_FOLDER, dead_letters_of
from headgate.broker.delivery import TargetKind
from headgate.clock import shown_time
from headgate.derived.match_index import FilterRegistry, RegisteredFilter
from headgate.errors import LogError
from headgate.ledger import TracedCopies, TraceKind, copy_number, offset_of, read_ledger, trace_copies
from headgate.log import Stream, stream_folder
from headgate.topic import SOURCE_ANNOTATION
from headgate.trace.copy_fates import answered_event
from headgate.trace.facts import Facts
from headgate.trace.parts import AnsweredCopy, ConsumerAnswer, ConsumerKind, Fate, State, Step
from headgate.trace.readers import ReaderFilter, Selected, in_language, select
from headgate.trace.small_streams import COPY_FILTER, find_noted
from headgate.trace.storage import Located, steps_of


class _Answering(Protocol):
    def __call__(self, fate: Fate, text: str, **more: object) -> AnsweredCopy: ...


def groups_of(stream: Stream, facts: Facts, *, now_ms: int) -> list[str]:
    """The consumer groups that a stream knows: with a place in it, with an expression, or reading now."""
    found = dict.fromkeys(read_ledger(stream, now_ms=now_ms, folder=GROUPS_FOLDER).by_key)
    found.update(dict.fromkeys(each.id.partition("#")[0] for each in _registered(stream)))
    found.update(dict.fromkeys(each.name for each in facts.readers if each.stream == stream.name))
    return list(found)


def _registered(stream: Stream) -> list[RegisteredFilter]:
    """The expressions of groups that are registered with a stream; the id of one is `GROUP#TOPIC`."""
    try:
        return [each for each in FilterRegistry(stream).read().filters if "#" in each.id and not each.standing]
    except LogError:
        return []


def group_answers(
    stream: Stream, located: Located, groups: Sequence[str], facts: Facts, *, root: str, now_ms: int
) -> list[ConsumerAnswer]:
    """The answers for some consumer groups, in order. Raises LogError."""
    if not groups:
        return []
    copies = {group: [copy_number(located.stored.offset)] for group in groups}
    traced = trace_copies(stream, copies, now_ms=now_ms, folder=GROUPS_FOLDER)
    return [_group_answer(stream, located, group, traced[group], facts, root=root, now_ms=now_ms) for group in groups]


def _group_answer(
    stream: Stream, located: Located, group: str, traced: TracedCopies, facts: Facts, *, root: str, now_ms: int
) -> ConsumerAnswer:
    """The answer for a consumer group; `traced` is what the ledger of the groups tells of the message.

    Raises LogError.
    """
    copy = copy_number(located.stored.offset)
    wanted, in_force = _filter_in_force(stream, located, group, facts)
    selected = None if wanted is None else select(stream, located, wanted, now_ms=now_ms)
    steps = [*steps_of(stream, located), in_force]
    if selected is not None:
        steps.append(Step("decided", State.YES if selected.is_selected else State.NO, selected.text))
    answered = _copy(traced, copy, selected, group=group, queue=stream.name, root=root, now_ms=now_ms)
    is_given = answered.fate in (Fate.COMPLETED, Fate.CLAIMED)
    steps.append(Step("fate", State.YES if is_given else State.NO, answered.text))
    view = traced.view
    return ConsumerAnswer(
        group,
        ConsumerKind.GROUP,
        answered.fate,
        answered.text,
        tuple(steps),
        None if selected is None else selected.stage,
        () if selected is None else selected.decisions,
        (answered,),
        next_offset=None if view is None else offset_of(view.seen.first_gap()),
    )


def _filter_in_force(stream: Stream, located: Located, group: str, facts: Facts) -> tuple[ReaderFilter | None, Step]:
    """The filter of a group, None where nobody knows it, and how well it is known."""
    reader = next((each for each in facts.readers if each.stream == stream.name and each.name == group), None)
    if reader is not None:
        text = "its members take every message"
        if reader.filter is not None:
            text = f"its members ask for{in_language(reader.filter)}: {reader.filter.text}"
        return ReaderFilter(reader.filter), Step("in force", State.YES, f"{text} (now; earlier ones are not recorded)")
    found = next((each for each in _registered(stream) if each.id.partition("#")[0] == group), None)
    if found is None:
        text = "no expression of the group is recorded here: its members take everything, or ask for tags"
        return None, Step("in force", State.UNKNOWN, text)
    since = f"since {shown_time(found.born_ms)}"
    until = "" if found.dead_ms is None else f", without members since {shown_time(found.dead_ms)}"
    text = f"the group's expression, in {found.dialect}, {since}{until}: {found.text}"
    is_known = found.born_ms <= located.stored.timestamp_ms
    if not is_known:
        text += "; the message is older, and what was in force then is not recorded"
    state = State.YES if is_known else State.UNKNOWN
    return ReaderFilter(found.parsed(), since_ms=found.born_ms), Step("in force", state, text)


def _copy(
    traced: TracedCopies, copy: int, selected: Selected | None, *, group: str, queue: str, root: str, now_ms: int
) -> AnsweredCopy:
    """What the ledger of the stream's groups tells of the message."""
    events = traced.events.get(copy, [])
    answered = tuple(map(answered_event, events))
    attempts = max((each.attempt for each in events), default=0)

    def answer(fate: Fate, text: str, **more: object) -> AnsweredCopy:
        return AnsweredCopy(0, None, fate, text, events=answered, **{"attempts": attempts, **more})  # type: ignore[arg-type]

    view = traced.view
    is_out = selected is not None and not selected.is_selected
    if view is None:
        return answer(Fate.BEFORE, f"group {group!r} has no place in this queue: none of its members ever read it")
    pending = any(move.view == view.number and move.copy == copy for move in traced.state.pending_moves())
    if pending:
        text = f"it was given up and is on its way to {dead_letters_of(group)!r}"
        return answer(Fate.MOVING, text, target=dead_letters_of(group))
    moved = next((each for each in reversed(events) if each.kind is TraceKind.MOVED), None)
    if moved is not None:
        target = TargetKind.parse(moved.target)[1]
        offset = _dead_letter_offset(target, queue, copy, root=root, since_ms=moved.at_ms, now_ms=now_ms)
        where = f"{target!r}" + ("" if offset is None else f", offset {offset}")
        text = f"a dead letter since {shown_time(moved.at_ms)}, after {moved.attempt} attempts; it is in {where}"
        return answer(Fate.DEAD_LETTERED, text, target=target, target_offset=offset)
    if copy < view.from_copy:
        text = f"the group begins in this queue at offset {offset_of(view.from_copy)}, behind the message"
        return answer(Fate.BEFORE, text)
    rows = view.rows().rows_between(copy, copy + 1)
    if len(rows):
        claim, attempt, until_ms = int(rows.claims[0]), int(rows.attempts[0]), int(rows.untils[0])
        if claim:
            text = f"a member has it until {shown_time(until_ms)}, attempt {attempt}"
            return answer(Fate.CLAIMED, text, attempts=attempt, until_ms=until_ms)
        if until_ms:
            text = f"it waits until {shown_time(until_ms)}, after {attempt} attempts"
            return answer(Fate.DELAYED, text, attempts=attempt, until_ms=until_ms)
        return answer(Fate.AVAILABLE, f"it waits for a member, after {attempt} attempts", attempts=attempt)
    if copy not in view.seen:
        next_offset = offset_of(view.seen.first_gap())
        if is_out:
            assert selected is not None
            return answer(Fate.FILTERED_OUT, f"the group comes to it later, and does not take it: {selected.text}")
        return answer(Fate.AHEAD, f"the group has not come to it: it looks at offset {next_offset} next")
    return _seen(traced, copy, selected, answer)


def _seen(traced: TracedCopies, copy: int, selected: Selected | None, answer: _Answering) -> AnsweredCopy:
    """A message that the group is done with."""
    events = traced.events.get(copy, [])
    last = next(iter(reversed(events)), None)
    if last is not None and last.kind is TraceKind.SETTLED and last.was_claimed:
        return answer(Fate.COMPLETED, f"a member acknowledged it at {shown_time(last.at_ms)}, attempt {last.attempt}")
    if selected is not None and not selected.is_selected:
        return answer(Fate.FILTERED_OUT, f"passed over: {selected.text}")
    if last is not None and last.kind is TraceKind.FOUND:
        text = f"passed over at {shown_time(last.at_ms)}: the expression in force then did not select it"
        return answer(Fate.FILTERED_OUT, text)
    if last is not None:
        text = f"a member that reads the queue itself reported at {shown_time(last.at_ms)} that it is done with it"
        return answer(Fate.PASSED, text)
    text = "the group is done with it: acknowledged, or passed over; the ledger keeps no more of times that old"
    return answer(Fate.SETTLED, text)


def _dead_letter_offset(target: str, queue: str, copy: int, *, root: str, since_ms: int, now_ms: int) -> int | None:
    """The offset of a dead letter of a queue in the stream of its group; None if it is not found soon.

    Messages of all queues lie there, and each queue has its own numbers.
    """
    stream = Stream.find(stream_folder(root, target))
    if stream is None:
        return None
    quoted = queue.replace("'", "''")
    text = f"{COPY_FILTER.format(number=copy)} AND m.[{SOURCE_ANNOTATION}] = '{quoted}'"
    return find_noted(stream, text, since_ms=since_ms, now_ms=now_ms)
