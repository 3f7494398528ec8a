"""Resubmission of dead letters: page by page they are examined by the rules of their target, and moved there.

    page of dead letters ──► as they will be published ──► rules of the target ──► taken: moved, exactly once
                                                                               └─► taken by none: stays, unless allowed

A dry run does the same up to the last step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from headgate.broker.delivery import Movement, ReadCopy, TargetKind
from headgate.broker.environment import Environment, run_here
from headgate.broker.jobs import Job, JobState, JobWork, fail
from headgate.broker.message_topics import MessageTopics
from headgate.broker.stream import BrokerStream
from headgate.broker.topics import Topics
from headgate.errors import ConfigError, HeadgateError, PreconditionFailedError, ResourceNotFoundError
from headgate.ledger import offset_of, rule_of
from headgate.message import AmqpType, amqp_value, from_plain_or_typed
from headgate.topic import RuleHistory, source_of

if TYPE_CHECKING:
    from headgate.topic.trial import Taken, Takers

Moved: TypeAlias = Callable[[list[int] | HeadgateError], None]
"""Called once, with the copies that are on their way, or the error."""

MOST_ON_THEIR_WAY = 2048
"""Limit: dead letters of one subscription on their way to one target: those that wait are in memory."""

_CONTAINERS = (AmqpType.LIST, AmqpType.MAP, AmqpType.ARRAY, AmqpType.DESCRIBED)

COPIES_SHOWN = 100
"""Limit: dead letters, by offset, in an entry of the audit stream."""

UNTAKEN_SHOWN = 1_000
"""Limit: dead letters that no rule takes, by offset, in the answer of a dry run."""


@dataclass(frozen=True, slots=True)
class Resubmission:
    """A request to publish dead letters again.

    `copies` are the chosen ones, by their place among the dead letters, None: all that there are now. `to` is a topic,
    queue or stream. `properties`, plain or typed JSON, are set, and those in `removed` are taken away.
    `includes_untaken`: dead letters that no rule takes are published, too.
    """

    to: str | None
    copies: Sequence[int] | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    includes_untaken: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a page: the stream that each goes to, None where it takes none, and what its rules say."""

    targets: Sequence[str | None]
    taken: Taken


@dataclass(slots=True)
class ResubmissionTrial:
    """What a resubmission would do: `copies` that were examined, by which rules they are taken, or by none."""

    copies: int = 0
    taken: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    failing: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    taken_by_none: list[int] = field(default_factory=list)
    """The first of them, at most `UNTAKEN_SHOWN`."""
    num_taken_by_none: int = 0
    is_complete: bool = False
    """Whether all chosen dead letters were examined."""

    def add(self, page: Sequence[ReadCopy], decision: Decision) -> None:
        """Add a page and what becomes of it."""
        taken = decision.taken
        self.copies += len(page)
        self.taken.update(taken.by)
        self.failing.update(taken.failing)
        untaken = [each.copy for each, is_taken in zip(page, taken.is_taken.tolist(), strict=True) if not is_taken]
        self.num_taken_by_none += len(untaken)
        self.taken_by_none += untaken[: UNTAKEN_SHOWN - len(self.taken_by_none)]

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "copies": self.copies,
            "taken": _by_rule(self.taken),
            "failing": _by_rule(self.failing),
            "taken_by_none": [{"offset": offset_of(copy), "rule": rule_of(copy)} for copy in self.taken_by_none],
            "num_taken_by_none": self.num_taken_by_none,
            "is_complete": self.is_complete,
        }


def _by_rule(counts: Counter[tuple[str, str | None]]) -> list[dict[str, Any]]:
    return [
        {"subscription": subscription, "rule": rule, "copies": count}
        for (subscription, rule), count in sorted(counts.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    ]


class DeadLetters(Protocol):
    """The dead letters of a subscription or of a consumer group."""

    @property
    def stop(self) -> int:
        """The copy behind all dead letters that there are now."""

    @property
    def unsettled(self) -> int:
        """How many there are."""

    def peek(self, from_copy: int, limit: int) -> tuple[list[ReadCopy], int]:
        """At most `limit` at or above a copy, and the copy before which there are no others."""

    def read(self, copies: Sequence[int]) -> list[ReadCopy]:
        """The first of some, ascending, that are there; at least one if there is any."""

    def resubmit(self, copies: Sequence[int], target: str, movement: Movement, then: Moved) -> None:
        """Move some, ascending, to a stream; `then` gets those that are on their way."""

    def waiting_moves(self, target: str) -> int:
        """How many are on their way to a target."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where dead letters are taken from: `find` gives them, or None where there never were any.

    `subscription` is the number of the subscription that they belong to, 0 for a group. `check` raises
    AccessRefusedError once the user may not do this any more, `check_writes` unless the user may publish to a topic.
    """

    find: Callable[[], DeadLetters | None]
    check: Callable[[], None]
    check_writes: Callable[[str], None]
    subscription: int = 0


class Resubmitter:
    """Dead letters on their way to a target, page by page; in the broker's thread.

    Only the calls that `decision` gives may run in another one, not two at once. Raises ResourceNotFoundError for the
    subscription or the target, EntityDisabledError for a target that takes no messages, PreconditionFailedError for a
    subscription as target, ConfigError for properties that no message can have, AccessRefusedError, LogError.
    """

    def __init__(
        self,
        topics: Topics,
        message_topics: MessageTopics,
        environment: Environment,
        origin: Origin,
        request: Resubmission,
    ) -> None:
        _check_properties(request.properties)
        self._topics = topics
        self._message_topics = message_topics
        self._environment = environment
        self._origin = origin
        self._request = request
        self._takers: Takers | None = None
        self._targets: set[str] = set()
        """The streams that something was moved to."""
        self._next = 0
        """The next dead letter of all, or the place of the next among the chosen ones."""
        self.check()
        letters = origin.find()
        self._chosen = None if request.copies is None else sorted(set(request.copies))
        self._stop = 0 if letters is None else letters.stop
        self.total = (0 if letters is None else letters.unsettled) if self._chosen is None else len(self._chosen)
        self.missing = 0
        """How many chosen dead letters are not there any more."""
        self._movement = Movement(
            properties=request.properties,
            removed=request.removed,
            subscription=origin.subscription,
            is_resubmission=True,
        )

    # the target

    def check(self) -> None:
        """Raise the error if the user may not go on, or the target takes nothing; see the class."""
        self._origin.check()
        if self._request.to is not None:
            self._origin.check_writes(self._request.to)
            for name in self._streams_of(self._request.to):
                self._check_takes(name)

    def _check_takes(self, name: str) -> BrokerStream:
        """The stream of that name if it takes messages. Raises ResourceNotFoundError, EntityDisabledError, LogError."""
        found = self._environment.find(name)
        if found is None:
            raise ResourceNotFoundError("no such topic, queue or stream to resubmit to", subject=name)
        self._topics.know_status(found)
        if found.refuses_with is not None:
            raise found.refuses_with
        return found

    def _streams_of(self, to: str) -> Sequence[str]:
        """The streams of a target: of a topic of RocketMQ its queues. Raises as `check`."""
        if self._environment.find(to) is not None:
            return (to,)
        topic = self._message_topics.find(to)
        if topic is not None:
            return topic.streams
        if self._topics.subscription_of(to) is not None:
            raise PreconditionFailedError(
                "a single subscription takes no messages: its copies are made by its rules from the messages of its"
                " topic, and are settled there by offset; resubmit to the topic, or to a queue or stream",
                subject=to,
            )
        raise ResourceNotFoundError("no such topic, queue or stream to resubmit to", subject=to)

    @property
    def why_not(self) -> str:
        """Why dead letters stay that are not taken."""
        if self._request.to is None:
            return "the queues that they came from take none now, or not from this user"
        return "no rule of the target takes them"

    def _target_of(self, letter: ReadCopy) -> str | None:
        """The stream that a dead letter goes to; None where that takes none, or not from this user."""
        if self._request.to is not None:
            streams = self._streams_of(self._request.to)
            return streams[offset_of(letter.copy) % len(streams)]
        name = source_of(letter.message)
        try:
            if name is None:
                return None
            self._origin.check_writes(self._message_topics.queue_of(name)[0])
            return self._check_takes(name).name
        except HeadgateError:
            return None

    # pages

    @property
    def is_over(self) -> bool:
        """Whether every dead letter was in a page."""
        return self._next >= (self._stop if self._chosen is None else len(self._chosen))

    @property
    def on_their_way(self) -> int:
        """How many dead letters are to be appended to their targets."""
        letters = self._origin.find()
        return 0 if letters is None else sum(map(letters.waiting_moves, self._targets))

    def page(self, limit: int) -> list[ReadCopy]:
        """The next dead letters, at most `limit`; may be empty before the end. Raises LogError for damaged ones."""
        letters = self._origin.find()
        if letters is None:
            self.missing += 0 if self._chosen is None else len(self._chosen) - self._next
            self._next = self._stop if self._chosen is None else len(self._chosen)
            return []
        if self._chosen is None:
            found, behind = letters.peek(self._next, limit)
            self._next = min(behind, self._stop)
            return [each for each in found if each.copy < self._stop]
        chosen = self._chosen[self._next : self._next + limit]
        read = letters.read(chosen)
        # Messages have many bytes: the rest has its turn later.
        passed = [copy for copy in chosen if copy <= read[-1].copy] if read else chosen
        self._next += len(passed)
        self.missing += len(passed) - len(read)
        return read

    def decision(self, page: Sequence[ReadCopy]) -> Callable[[], Decision]:
        """A call for any thread that decides what becomes of a page that is published now. Raises as `check`."""
        from headgate.topic.trial import Taken

        targets = [self._target_of(letter) for letter in page]
        to, now_ms = self._request.to, self._environment.now_ms()
        found = None if to is None else self._environment.find(to)
        if found is None or not self._topics.is_topic(found):
            taken = Taken(np.array([target is not None for target in targets], dtype=np.bool_))
            return lambda: Decision(targets, taken)
        rules, offset = self._topics.get(found.name).history, found.next_offset
        return lambda: Decision(targets, self._decided(page, rules, offset=offset, now_ms=now_ms))

    def _decided(self, page: Sequence[ReadCopy], rules: RuleHistory, *, offset: int, now_ms: int) -> Taken:
        from headgate.topic.trial import Takers

        if self._takers is None or self._takers.history is not rules:
            assert self._request.to is not None
            self._takers = Takers(rules, self._request.to)
        messages = [self._movement.published_again(each.message) for each in page]
        return self._takers.take(messages, offset=offset, now_ms=now_ms)

    def move(self, page: Sequence[ReadCopy], decision: Decision, then: Moved) -> None:
        """Move the dead letters of a page that a rule takes, or all; `then` gets those that are on their way."""
        letters = self._origin.find()
        wanted: dict[str, list[int]] = defaultdict(list)
        for each, target, is_taken in zip(page, decision.targets, decision.taken.is_taken.tolist(), strict=True):
            if target is not None and (is_taken or self._request.includes_untaken):
                wanted[target].append(each.copy)
        if letters is None or not wanted:
            then([])
            return
        moved: list[int] = []
        answers: list[list[int] | HeadgateError] = []

        def told(result: list[int] | HeadgateError) -> None:
            answers.append(result)
            if not isinstance(result, HeadgateError):
                moved.extend(result)
            if len(answers) == len(wanted):
                failed = next((each for each in answers if isinstance(each, HeadgateError)), None)
                then(sorted(moved) if failed is None else failed)

        for name, copies in wanted.items():
            target = TargetKind.STREAM.named(name)
            self._targets.add(target)
            letters.resubmit(copies, target, self._movement, told)


def _check_properties(properties: Mapping[str, Any]) -> None:
    """Raise ConfigError for application properties that clients could not read: their values are simple ones."""
    for name, given in properties.items():
        value = amqp_value(from_plain_or_typed(given))
        if not name or value.type in _CONTAINERS:
            raise ConfigError(f"set: found {name!r} with a {value.type.value}, expected a name and a simple value")


class ResubmissionWork(JobWork):
    """A resubmission as the work of a job."""

    def __init__(self, resubmitter: Resubmitter, environment: Environment) -> None:
        self._resubmitter = resubmitter
        self._run = environment.workers.urgent or run_here
        self._is_busy = False
        self._missing = 0
        self._moved_first: list[int] = []

    @property
    def total(self) -> int:
        """See `JobWork`."""
        return self._resubmitter.total

    def step(self, job: Job, limit: int) -> int:
        """See `JobWork`."""
        resubmitter = self._resubmitter
        if self._is_busy:
            return 0
        if resubmitter.is_over:
            if not resubmitter.on_their_way:
                job.state = JobState.DONE
            return 0
        resubmitter.check()
        if resubmitter.on_their_way >= MOST_ON_THEIR_WAY:
            return 0
        page = resubmitter.page(limit)
        if resubmitter.missing > self._missing:
            job.failed += resubmitter.missing - self._missing
            job.error = "some of the chosen dead letters are not there any more"
            self._missing = resubmitter.missing
        if page:
            self._begin(job, page)
        return len(page)

    def summary(self, job: Job) -> dict[str, Any]:
        """What the job did, for the audit stream: the counts, and the first dead letters that were resubmitted."""
        copies = [offset_of(copy) for copy in self._moved_first]
        return {"done": job.done, "failed": job.failed, "error": job.error, "copies": copies}

    def _begin(self, job: Job, page: Sequence[ReadCopy]) -> None:
        self._is_busy = True
        decide = self._resubmitter.decision(page)
        decided: list[Decision] = []

        def ended(error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                if job.is_running:
                    taken = decided[0].taken
                    self._resubmitter.move(page, decided[0], lambda moved: self._moved(job, page, taken, moved))
                    return
            except HeadgateError as failed:
                fail(job, failed)
            except BaseException as failed:
                job.state, job.error = JobState.FAILED, f"{type(failed).__name__} in the server; its log has more"
                raise
            self._is_busy = False

        self._run(lambda: decided.append(decide()), ended)

    def _moved(self, job: Job, page: Sequence[ReadCopy], taken: Taken, moved: list[int] | HeadgateError) -> None:
        self._is_busy = False
        if isinstance(moved, HeadgateError):
            fail(job, moved)
            return
        job.done += len(moved)
        self._moved_first += moved[: COPIES_SHOWN - len(self._moved_first)]
        left = len(page) - len(moved)
        if left:
            job.failed += left
            untaken = int((~taken.is_taken).sum())
            job.error = (
                f"{untaken} of the last {len(page)} dead letters stay: {self._resubmitter.why_not}"
                if untaken
                else f"{left} of the last {len(page)} dead letters stay: receivers or other jobs hold them"
            )
