"""The question, and the order in which it is answered: which message, stored where, for whom, and then what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from headgate.broker.consumer_groups import declared_groups
from headgate.broker.topics import due_of
from headgate.clock import Clock, SystemClock, shown_time
from headgate.errors import ConfigError, ResourceNotFoundError, did_you_mean
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.log import Stream, read_tracking
from headgate.tables import default_root
from headgate.topic import (
    DEAD_LETTER_QUEUE,
    QUEUE_SUBSCRIPTION,
    RuleHistory,
    SubscriptionName,
    TopicKind,
    folded,
    waiting_folder,
)
from headgate.trace.answer import MOST_CONSUMERS, Answer
from headgate.trace.facts import NO_FACTS, ConnectedConsumer, Facts
from headgate.trace.groups import group_answers, groups_of
from headgate.trace.parts import ConsumerAnswer, ConsumerKind, Fate, State, Step
from headgate.trace.readers import NO_FILTER, ReaderFilter, connected_answer, filter_answer, stored_offset_answer
from headgate.trace.search import Progress, Selector, Sought, find, not_found
from headgate.trace.selection import TopicQuestion
from headgate.trace.small_streams import message_at
from headgate.trace.sources import streams_of
from headgate.trace.storage import Located, Missing, locate
from headgate.trace.subscriptions import dead_letters_answer, subscription_answers

MOST_NAMED = 20
"""Limit: names that an error lists."""

BUDGET_S = 60.0
"""How long a message is looked for, unless the question says otherwise."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question: which message of the stream, topic or queue `name`, and for whom.

    `consumer` is the name of a subscription (`red`, `orders/Subscriptions/red`, `…/$DeadLetterQueue`), a queue, a
    consumer group, a connected consumer, or of stored offsets; None asks for all that are known. `wanted` is a filter
    that is asked instead, or, with a name of stored offsets, as the filter of that consumer.
    """

    name: str
    selector: Selector
    consumer: str | None = None
    wanted: ReaderFilter = NO_FILTER
    budget_s: float = BUDGET_S

    def check(self) -> None:
        """Raise ConfigError or FilterError for a question that is wrong in itself."""
        self.selector.check()
        if not self.name:
            raise ConfigError("no name of a stream or topic is given")


def why(
    stream: str | Path,
    *,
    id: str | None = None,
    offset: int | None = None,
    where: str | None = None,
    consumer: str | None = None,
    language: str | None = None,
    filter: str | Filter | None = None,
    filter_language: str = DEFAULT_DIALECT,
    filter_values: Iterable[str] = (),
    match_unfiltered: bool = False,
    root: str | Path | None = None,
    budget_s: float = BUDGET_S,
    progress: Progress | None = None,
) -> Answer:
    """Why a consumer got a message, or did not: where it is stored, which rules or filter were in force, and its fate.

    The message of `stream` (a name under `root`, or the path of a folder) is given by its message `id`, its `offset`,
    or a filter `where`, in `language`, that selects it alone. `consumer` is a subscription, a queue, the dead letters
    of either, a consumer group, or a name of stored offsets; without it every one that the files know is answered for.
    For a stream without any, a `filter` or `filter_values` are asked. The files are read as they are now: no server is
    asked, so consumers without a stored offset are not known. Looking for a message ends after `budget_s`.

    Raises ConfigError, FilterError, StreamNotFoundError, ResourceNotFoundError for a message or a consumer that is not
    there, with similar names, PreconditionFailedError for an ambiguous id or filter, LogError.
    """
    wanted = ReaderFilter(
        Filter.parse(filter, filter_language) if isinstance(filter, str) else filter,
        tuple(value.encode() for value in filter_values),
        match_unfiltered,
    )
    selector = Selector(id=id, offset=offset, where=where, language=language)
    question = Question(str(stream), selector, consumer, wanted, budget_s)
    folder = default_root() if root is None else Path(root)
    question.check()
    return ask(question, streams_of(question.name, folder), folder, clock=SystemClock(), progress=progress)


def ask(
    question: Question,
    streams: Sequence[Stream],
    root: Path,
    *,
    clock: Clock,
    facts: Facts = NO_FACTS,
    progress: Progress | None = None,
) -> Answer:
    """The answer to a question, which was checked, about a stream of a root, or about the queues of a topic; see `why`.

    May run in any thread, beside a server, which gives the `facts`.
    """
    now_ms = clock.now_ms()
    consumer = question.consumer
    named = SubscriptionName.parse(question.name)
    if consumer is None and named is not None and streams[0].name != question.name:
        # `why orders/Subscriptions/red` asks about the message of `orders`, for `red`.
        consumer = question.name
    selector = question.selector
    sought = find(streams, selector, now_ms=now_ms, clock=clock, budget_s=question.budget_s, progress=progress)
    if sought is None:
        return _scheduled(question, root, streams, consumer, clock, now_ms)
    asked = _Asked(root, sought, facts, now_ms, question.wanted)
    consumers = asked.resolved(consumer)
    return asked.answer(locate(sought.stream, sought.offset), consumers)


@dataclass(frozen=True, slots=True)
class _Consumer:
    """A consumer that is asked about: its name for users and what it is; of a connected one all that is known."""

    name: str
    kind: ConsumerKind
    subscription: str = ""
    connected: ConnectedConsumer | None = None
    stored: int | None = None


class _Asked:
    """A message that was found, and everything that the consumers of its stream are found in."""

    def __init__(self, root: Path, sought: Sought, facts: Facts, now_ms: int, wanted: ReaderFilter) -> None:
        self.root = root
        self.stream = sought.stream
        self.search = sought.search
        self.facts = facts
        self.now_ms = now_ms
        self.wanted = wanted
        self.history = RuleHistory.find(sought.stream)

    def answer(self, found: Located | Missing, consumers: Sequence[_Consumer]) -> Answer:
        """The answer for some consumers, or why there is no message."""
        shown = consumers[:MOST_CONSUMERS]
        return Answer(
            stream=self.stream.name,
            topic=None if self.history is None else self.history.topic_name,
            asked_ms=self.now_ms,
            search=self.search,
            message=None if isinstance(found, Missing) else found.stored,
            missing=found.text if isinstance(found, Missing) else None,
            consumers=tuple(
                [_missing(each, found) for each in shown] if isinstance(found, Missing) else self._answers(found, shown)
            ),
            left_out=len(consumers) - len(shown),
        )

    def _answers(self, located: Located, consumers: Sequence[_Consumer]) -> list[ConsumerAnswer]:
        """The answers in order; those of subscriptions, and of groups, are made together."""
        of_kinds = (ConsumerKind.SUBSCRIPTION, ConsumerKind.QUEUE)
        names = [each.subscription for each in consumers if each.kind in of_kinds]
        groups = [each.name for each in consumers if each.kind is ConsumerKind.GROUP]
        of_subscriptions = iter(subscription_answers(self._topic(located), names) if names else ())
        of_groups = iter(
            group_answers(self.stream, located, groups, self.facts, root=str(self.root), now_ms=self.now_ms)
        )
        answers = []
        for each in consumers:
            if each.kind in of_kinds:
                answers.append(next(of_subscriptions))
            elif each.kind is ConsumerKind.GROUP:
                answers.append(next(of_groups))
            else:
                answers.append(self._of_one(each, located))
        return answers

    def _of_one(self, consumer: _Consumer, located: Located) -> ConsumerAnswer:
        if consumer.kind is ConsumerKind.DEAD_LETTERS:
            return dead_letters_answer(self._topic(located), consumer.subscription)
        if consumer.connected is not None:
            return connected_answer(self.stream, located, consumer.connected, consumer.stored, now_ms=self.now_ms)
        if consumer.stored is not None:
            return stored_offset_answer(
                self.stream, located, consumer.name, consumer.stored, self.wanted, now_ms=self.now_ms
            )
        return filter_answer(self.stream, located, self.wanted, now_ms=self.now_ms)

    def _topic(self, located: Located) -> TopicQuestion:
        assert self.history is not None
        return TopicQuestion(self.root, self.stream, self.history, located, self.facts, self.now_ms)

    # for whom

    def resolved(self, name: str | None) -> list[_Consumer]:
        """The consumers that a question means: the first that has the name, or all. Raises ResourceNotFoundError."""
        if name is None:
            return [_Consumer("the filter", ConsumerKind.FILTER)] if self.wanted.is_given else self._all()
        found = self._subscription(name) or self._reader(name)
        if found is None:
            known = sorted({each.name for each in self._all()})
            near = did_you_mean(name, known)
            listed = f"; there are: {', '.join(map(repr, known[:MOST_NAMED]))}" if known and not near else ""
            if not self.facts.is_known:
                listed += "; connected consumers are known to their server only"
            raise ResourceNotFoundError(
                f"stream {self.stream.name!r} has no subscription, consumer group, consumer or stored offset of that "
                f"name{near}{listed}",
                subject=name,
            )
        return [found]

    def _all(self) -> list[_Consumer]:
        found: list[_Consumer] = []
        if self.history is not None:
            found += [self._of_subscription(each.name) for each in self.history.subscriptions()]
        found += [_Consumer(name, ConsumerKind.GROUP) for name in self._groups]
        found += [self._of_connected(each) for each in self._connected]
        own = {each.name for each in self._connected}
        found += [
            _Consumer(name, ConsumerKind.STORED_OFFSET, stored=stored)
            for name, stored in self._offsets.items()
            if name not in own
        ]
        return found

    def _subscription(self, name: str) -> _Consumer | None:
        if self.history is None:
            return None
        topic = self.history.topic_name
        is_dead = folded(name).endswith(folded(f"/{DEAD_LETTER_QUEUE}"))
        bare = name[: -len(DEAD_LETTER_QUEUE) - 1] if is_dead else name
        parsed = SubscriptionName.parse(bare)
        subscription = parsed.subscription if parsed is not None and folded(parsed.topic) == folded(topic) else bare
        if folded(bare) == folded(topic) and self.history.settings.kind is TopicKind.QUEUE:
            subscription = QUEUE_SUBSCRIPTION
        ever = [each.name for each in self.history.subscriptions()]
        # Removed ones, as long as their rules are not pruned.
        ever += [of for of, _ in self.history.versions()]
        known = next((each for each in ever if folded(each) == folded(subscription)), None)
        return None if known is None else self._of_subscription(known, is_dead=is_dead)

    def _of_subscription(self, name: str, *, is_dead: bool = False) -> _Consumer:
        assert self.history is not None
        if is_dead:
            return _Consumer(name, ConsumerKind.DEAD_LETTERS, name)
        if name == QUEUE_SUBSCRIPTION:
            return _Consumer(self.history.topic_name, ConsumerKind.QUEUE, name)
        return _Consumer(name, ConsumerKind.SUBSCRIPTION, name)

    def _reader(self, name: str) -> _Consumer | None:
        if name in self._groups or name in declared_groups(self.root):
            return _Consumer(name, ConsumerKind.GROUP)
        connected = next((each for each in self._connected if name in (each.name, each.tag)), None)
        if connected is not None:
            return self._of_connected(connected)
        stored = self._offsets.get(name)
        return None if stored is None else _Consumer(name, ConsumerKind.STORED_OFFSET, stored=stored)

    def _of_connected(self, consumer: ConnectedConsumer) -> _Consumer:
        stored = self._offsets.get(consumer.name) if consumer.name else None
        return _Consumer(consumer.name or consumer.tag, ConsumerKind.CONSUMER, connected=consumer, stored=stored)

    @cached_property
    def _groups(self) -> list[str]:
        return groups_of(self.stream, self.facts, now_ms=self.now_ms)

    @cached_property
    def _connected(self) -> list[ConnectedConsumer]:
        return [each for each in self.facts.consumers if each.stream == self.stream.name]

    @cached_property
    def _offsets(self) -> dict[str, int]:
        written = {
            name.decode(errors="backslashreplace"): offset
            for name, offset in read_tracking(self.stream).offsets.items()
        }
        return written | {name: offset for stream, name, offset in self.facts.offsets if stream == self.stream.name}


def _missing(consumer: _Consumer, found: Missing) -> ConsumerAnswer:
    """The answer where there is no message: the same for everybody."""
    step = Step("stored", State.NO, found.text)
    return ConsumerAnswer(consumer.name, consumer.kind, found.fate, found.text, (step,))


def _scheduled(
    question: Question, root: Path, streams: Sequence[Stream], consumer: str | None, clock: Clock, now_ms: int
) -> Answer:
    """The answer for a message among the scheduled messages of a stream. Raises ResourceNotFoundError."""
    for stream in streams:
        waiting = Stream.find(waiting_folder(stream))
        if waiting is None:
            continue
        sought = find([waiting], question.selector, now_ms=now_ms, clock=clock, budget_s=question.budget_s)
        if sought is None:
            continue
        found = message_at(waiting, sought.offset, now_ms=now_ms)
        missing = Missing(Fate.SETTLED, "it was scheduled; it was canceled since, or published and then deleted")
        if not found.is_settled:
            due = shown_time(due_of(found.encoded))
            missing = Missing(Fate.SCHEDULED, f"scheduled: it waits outside of the stream until {due}")
        asked = _Asked(root, replace(sought, stream=stream), NO_FACTS, now_ms, question.wanted)
        return asked.answer(missing, asked.resolved(consumer))
    raise not_found(streams, question.selector)
