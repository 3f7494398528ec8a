"""Readers of a stream: a filter, a stored offset, a connected consumer. Is the message selected; were they past it?"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.derived import sources_of
from headgate.evaluate import Filter, Verdict
from headgate.log import Stream
from headgate.message import parse_field
from headgate.scan import OffsetRange, ScanRequest, savings
from headgate.trace.decisions import decision_of_filter, why_not
from headgate.trace.facts import ConnectedConsumer
from headgate.trace.parts import ConsumerAnswer, ConsumerKind, Decision, Fate, Stage, State, Step
from headgate.trace.storage import Located, steps_of

_STAGES = {stage.value: stage for stage in (Stage.MATCH_INDEX, Stage.LOOKUP, Stage.COLUMNS)}
"""By the names of sources of answers."""


@dataclass(frozen=True, slots=True)
class ReaderFilter:
    """The filter of a reader: wanted filter values (stage 1) and an expression (stage 2), either of them, or none."""

    filter: Filter | None = None
    filter_values: tuple[bytes, ...] = ()
    match_unfiltered: bool = False
    since_ms: int | None = None

    @property
    def is_given(self) -> bool:
        """Whether it selects at all."""
        return self.filter is not None or bool(self.filter_values)


NO_FILTER = ReaderFilter()


@dataclass(frozen=True, slots=True)
class Selected:
    """Whether a reader's filter selects the message, what decided, and in words why."""

    is_selected: bool
    stage: Stage | None
    text: str
    decisions: tuple[Decision, ...] = ()


def select(stream: Stream, located: Located, wanted: ReaderFilter, *, now_ms: int) -> Selected:
    """Apply the stages to one message as a reader does. Reads the header of its chunk, and parts of derived files."""
    if not wanted.is_given:
        return Selected(True, None, "no filter: every message is selected")
    offset = located.stored.offset
    own = None if wanted.filter is None else wanted.filter.over(stream.body_schema)
    request = ScanRequest(
        filter=own,
        filter_values=wanted.filter_values,
        match_unfiltered=wanted.match_unfiltered,
        now_ms=now_ms,
        sources=sources_of(),
    )
    spared = savings(stream, request, OffsetRange(offset, offset + 1))
    decisions: tuple[Decision, ...] = ()
    verdict = True
    if own is not None:
        declared = None if stream.settings is None else stream.settings.filter_source
        explanation = own.explain(
            located.encoded,
            now_ms=now_ms,
            filter_values=wanted.filter_values,
            match_unfiltered=wanted.match_unfiltered,
            filter_value=located.filter_value,
            declared_source=None if declared is None else parse_field(declared),
        )
        language = own.dialect
        decisions = (decision_of_filter(own.text, language, explanation, since_ms=wanted.since_ms),)
        verdict = explanation.verdict is Verdict.TRUE
    if spared[0].chunks_skipped:
        values = _shown(wanted.filter_values)
        of = f"wanted: {values}" if values else "derived from the filter"
        text = f"stage 1 skips its chunk {located.stored.chunk} unread: no wanted filter value is in it ({of})"
        return Selected(False, Stage.BLOOM_FILTER, text, decisions)
    if wanted.filter is None:
        return _by_value(located, wanted)
    decided = next((_STAGES.get(each.source) for each in spared[1:] if each.messages_decided), None)
    stage = decided or Stage.EXPRESSION
    return Selected(verdict, stage, f"stage 2: {why_not(decisions[0])}", decisions)


def _by_value(located: Located, wanted: ReaderFilter) -> Selected:
    """The decision of a reader with filter values only: its client leaves out other messages of the chunk."""
    value = located.filter_value
    is_wanted = value in wanted.filter_values if value else wanted.match_unfiltered or b"" in wanted.filter_values
    own = f"filter value {located.stored.filter_value!r}" if value else "no filter value that the files tell"
    text = f"the message has {own}, wanted: {_shown(wanted.filter_values)}"
    if not is_wanted:
        text += "; its chunk is delivered for others, and clients of filter values leave the message out"
    return Selected(is_wanted, Stage.FILTER_VALUE, text)


def _shown(values: tuple[bytes, ...]) -> str:
    return ", ".join(repr(value.decode(errors="backslashreplace")) for value in values)


def filter_answer(stream: Stream, located: Located, wanted: ReaderFilter, *, now_ms: int) -> ConsumerAnswer:
    """The answer for a filter that was given with the question."""
    selected = select(stream, located, wanted, now_ms=now_ms)
    fate = Fate.MATCHES if selected.is_selected else Fate.FILTERED_OUT
    steps = (
        *steps_of(stream, located),
        Step("in force", State.YES, "the filter is the one given with the question"),
        _decided(selected),
    )
    text = wanted.filter.text if wanted.filter is not None else f"filter values {_shown(wanted.filter_values)}"
    return ConsumerAnswer(text, ConsumerKind.FILTER, fate, selected.text, steps, selected.stage, selected.decisions)


def stored_offset_answer(
    stream: Stream, located: Located, name: str, stored: int, wanted: ReaderFilter, *, now_ms: int
) -> ConsumerAnswer:
    """The answer for a name of stored offsets; `wanted` is a filter that was given with the question, or none.

    A stored offset is the last one that the consumer was done with: it goes on behind it.
    """
    offset, behind = located.stored.offset, stored + 1
    selected = select(stream, located, wanted, now_ms=now_ms)
    steps = [*steps_of(stream, located)]
    if wanted.is_given:
        steps.append(Step("in force", State.UNKNOWN, "the filter given with the question; stored offsets keep none"))
        steps.append(_decided(selected))
    else:
        steps.append(
            Step("in force", State.UNKNOWN, "stored offsets do not say with which filter a consumer reads; give it")
        )
    if wanted.is_given and not selected.is_selected:
        fate, summary = Fate.FILTERED_OUT, selected.text
        steps.append(Step("fate", State.NO, f"not given to {name!r}: {selected.text}"))
    elif offset < behind:
        fate = Fate.PASSED
        summary = f"{name!r} has read past it: its stored offset is {stored}"
        but = "" if wanted.is_given else ", unless the consumer's own filter left it out"
        steps.append(Step("fate", State.YES, f"{summary}; the message was given to it before{but}"))
    else:
        fate = Fate.AHEAD
        summary = f"{name!r} has not come to it: its stored offset is {stored}, {offset - stored} before the message"
        steps.append(Step("fate", State.NO, f"{summary}; it goes on at offset {behind}"))
    return ConsumerAnswer(
        name,
        ConsumerKind.STORED_OFFSET,
        fate,
        summary,
        tuple(steps),
        selected.stage,
        selected.decisions,
        next_offset=behind,
    )


def connected_answer(
    stream: Stream, located: Located, consumer: ConnectedConsumer, stored: int | None, *, now_ms: int
) -> ConsumerAnswer:
    """The answer for a connected consumer: its filter in force, and how far it is."""
    wanted = filter_of(consumer)
    selected = select(stream, located, wanted, now_ms=now_ms)
    offset = located.stored.offset
    steps = [*steps_of(stream, located)]
    if consumer.filter is not None:
        text = f"the filter of this consumer{in_language(consumer.filter)}: {consumer.filter.text}"
    elif consumer.filter_values:
        text = f"the filter values of this consumer: {_shown(consumer.filter_values)}"
    else:
        text = "this consumer has no filter"
    steps.append(Step("in force", State.YES, f"{text} ({consumer.place})"))
    steps.append(_decided(selected))
    at = consumer.next_offset
    kept = "" if stored is None else f"; its stored offset is {stored}"
    if not selected.is_selected:
        fate, summary, state = Fate.FILTERED_OUT, selected.text, State.NO
    elif at is None or offset >= at:
        fate, state = Fate.AHEAD, State.NO
        place = "it has not begun to read" if at is None else f"it reads offset {at} next"
        waits = " and has no credit: its client takes nothing now" if not consumer.credit else ""
        summary = f"it has not come to the message: {place}{waits}"
    elif consumer.begun_at is not None and offset < consumer.begun_at:
        fate, state = Fate.BEFORE, State.NO
        summary = f"it began to read at offset {consumer.begun_at}, behind the message"
    else:
        fate, state = Fate.PASSED, State.YES
        summary = f"it is past the message: it reads offset {at} next"
        if stored is not None and stored < offset:
            summary += ", and has not stored an offset behind the message yet"
    steps.append(Step("fate", state, summary + kept))
    return ConsumerAnswer(
        consumer.name or consumer.tag,
        ConsumerKind.CONSUMER,
        fate,
        summary,
        tuple(steps),
        selected.stage,
        selected.decisions,
        next_offset=at,
    )


def filter_of(consumer: ConnectedConsumer) -> ReaderFilter:
    """The filter of a connected consumer."""
    return ReaderFilter(consumer.filter, consumer.filter_values, consumer.match_unfiltered)


def in_language(filter_: Filter) -> str:
    """`, in rocketmq`: the language of a filter that is a text in one."""
    return "" if filter_.dialect is None else f", in {filter_.dialect}"


def _decided(selected: Selected) -> Step:
    return Step("decided", State.YES if selected.is_selected else State.NO, selected.text)
