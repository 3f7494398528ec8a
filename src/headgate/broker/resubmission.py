"""Resubmission of dead letters: page by page they are examined by the rules of their target, and moved there.

    page of dead letters ──► as they will be published ──► rules of the target ──► taken: moved, exactly once
                                                                               └─► taken by none: stays, unless allowed

A dry run does the same up to the last step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.broker.delivery import Movement, ReadCopy, TargetKind
from headgate.broker.environment import Environment, run_here
from headgate.broker.jobs import Job, JobState, JobWork, fail
from headgate.broker.stream import BrokerStream
from headgate.broker.topics import BrokerTopic, DeadLetterDispatcher, Topics
from headgate.errors import ConfigError, HeadgateError, PreconditionFailedError, ResourceNotFoundError
from headgate.ledger import offset_of, rule_of
from headgate.message import AmqpType, amqp_value, from_plain_or_typed
from headgate.topic import RuleHistory, SubscriptionName

if TYPE_CHECKING:
    from headgate.topic.trial import Taken, Takers

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

    to: str
    copies: Sequence[int] | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    includes_untaken: bool = False


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

    def add(self, page: Sequence[ReadCopy], taken: Taken) -> None:
        """Add a page and what the rules say to it."""
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


class Resubmitter:
    """The dead letters of one subscription on their way to one target, page by page; in the broker's thread.

    Only `decide` may run in another one, not twice at once. `check` raises AccessRefusedError once the user may not do
    this any more. Raises ResourceNotFoundError for the subscription or the target, EntityDisabledError for a target
    that takes no messages, PreconditionFailedError for a subscription as target, ConfigError for properties that no
    message can have, LogError.
    """

    def __init__(
        self,
        topics: Topics,
        environment: Environment,
        name: SubscriptionName,
        request: Resubmission,
        *,
        check: Callable[[], None],
    ) -> None:
        self._topics = topics
        self._environment = environment
        self._name = name
        self._request = request
        _check_properties(request.properties)
        self._check = check
        self._takers: Takers | None = None
        self._next = 0
        """The next dead letter of all, or the place of the next among the chosen ones."""
        self.target = TargetKind.STREAM.named(request.to)
        self.check()
        letters = self._letters()
        self._chosen = None if request.copies is None else sorted(set(request.copies))
        self._stop = 0 if letters is None else letters.stop
        self.total = _unsettled(letters) if self._chosen is None else len(self._chosen)
        self.missing = 0
        """How many chosen dead letters are not there any more."""
        number = self._topic.subscriptions.find(name.subscription).version.number
        self._movement = Movement(
            properties=request.properties, removed=request.removed, subscription=number, is_resubmission=True
        )

    @property
    def _topic(self) -> BrokerTopic:
        return self._topics.get(self._name.topic)

    def _letters(self) -> DeadLetterDispatcher | None:
        return self._topic.dead_letters(self._name.subscription)

    def check(self) -> None:
        """Raise the error if the user may not go on, or the target takes nothing; see the class."""
        self._check()
        found = self._found()
        if found.refusal is not None:
            raise found.refusal
        if found.stopped_by is not None:
            raise found.stopped_by

    def _found(self) -> BrokerStream:
        """The target. Raises as `check`."""
        to = self._request.to
        found = self._environment.find(to)
        if found is None:
            if self._topics.subscription_of(to) is not None:
                raise PreconditionFailedError(
                    "a single subscription takes no messages: its copies are made by its rules from the messages of its"
                    " topic, and are settled there by offset; resubmit to the topic, or to a queue or stream",
                    subject=to,
                )
            raise ResourceNotFoundError("no such topic, queue or stream to resubmit to", subject=to)
        self._topics.know_status(found)
        return found

    @property
    def is_over(self) -> bool:
        """Whether every dead letter was in a page."""
        return self._next >= (self._stop if self._chosen is None else len(self._chosen))

    @property
    def on_their_way(self) -> int:
        """How many dead letters are to be appended to the target."""
        letters = self._letters()
        return 0 if letters is None else letters.waiting_moves(self.target)

    def page(self, limit: int) -> list[ReadCopy]:
        """The next dead letters, at most `limit`; may be empty before the end. Raises LogError for damaged ones."""
        letters = self._letters()
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

    def rules(self) -> RuleHistory | None:
        """The rules in force at the target; None for a stream without rules. Raises as `check`."""
        found = self._found()
        return self._topics.get(found.name).history if self._topics.is_topic(found) else None

    def decide(self, page: Sequence[ReadCopy], rules: RuleHistory | None, *, offset: int, now_ms: int) -> Taken:
        """What the rules would do with a page that is published now; in any thread."""
        from headgate.topic.trial import Takers

        if self._takers is None or self._takers.history is not rules:
            self._takers = Takers(rules, self._request.to)
        messages = [self._movement.published_again(each.message) for each in page]
        return self._takers.take(messages, offset=offset, now_ms=now_ms)

    def decision(self, page: Sequence[ReadCopy]) -> Callable[[], Taken]:
        """The call of `decide`, for any thread, with the rules, the next offset and the time of now."""
        rules, offset, now_ms = self.rules(), self._found().next_offset, self._environment.now_ms()
        return lambda: self.decide(page, rules, offset=offset, now_ms=now_ms)

    def move(self, page: Sequence[ReadCopy], taken: Taken, then: Callable[[list[int] | HeadgateError], None]) -> None:
        """Move the dead letters of a page that a rule takes, or all; `then` gets those that are on their way."""
        letters = self._letters()
        wanted = [
            each.copy
            for each, is_taken in zip(page, taken.is_taken.tolist(), strict=True)
            if is_taken or self._request.includes_untaken
        ]
        if letters is None or not wanted:
            then([])
            return
        letters.resubmit(wanted, self.target, self._movement, then)


def _check_properties(properties: Mapping[str, Any]) -> None:
    """Raise ConfigError for application properties that clients could not read: their values are simple ones."""
    for name, given in properties.items():
        value = amqp_value(from_plain_or_typed(given))
        if not name or value.type in _CONTAINERS:
            raise ConfigError(f"set: found {name!r} with a {value.type.value}, expected a name and a simple value")


def _unsettled(letters: DeadLetterDispatcher | None) -> int:
    if letters is None:
        return 0
    counts = letters.counts()
    return counts.active + counts.locked + counts.waiting


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
        decided: list[Taken] = []

        def ended(error: BaseException | None) -> None:
            if error is None and job.is_running:
                self._resubmitter.move(page, decided[0], lambda moved: self._moved(job, page, decided[0], moved))
                return
            self._is_busy = False
            if isinstance(error, HeadgateError):
                fail(job, error)
            elif error is not None:
                job.state, job.error = JobState.FAILED, f"{type(error).__name__} in the server; its log has more"
                raise error

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
                f"{untaken} of the last {len(page)} dead letters stay: no rule of the target takes them"
                if untaken
                else f"{left} of the last {len(page)} dead letters stay: receivers hold them"
            )
