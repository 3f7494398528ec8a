"""Changing the rules of a topic: checked, in the stream's order, all of a change or nothing of it.

A change is made under the stream's writer lock and is in force from the next offset: messages already in the stream are
decided by the rules before it, later ones by the rules after it. It is on disk when the call returns.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from headgate.errors import (
    ConfigError,
    LogError,
    RuleError,
    RuleExistsError,
    RuleNotFoundError,
    StreamNotFoundError,
    did_you_mean,
)
from headgate.log import (
    DiskFile,
    OpenFile,
    Pin,
    Stream,
    StreamArguments,
    Wait,
    Writer,
    check_root,
    list_streams,
    no_wait,
    remove_file,
    root_of,
    storage_error,
    stream_folder,
    stream_names,
)
from headgate.topic import model
from headgate.topic import record as r
from headgate.topic.folders import QUEUE_SUBSCRIPTION, state_folders
from headgate.topic.forwarding import check_no_loop, forward_targets, target_not_found
from headgate.topic.history import RuleHistory
from headgate.topic.journal import JOURNAL_NAME, JournalEnd, append_line, read_lines, write_head
from headgate.topic.limits import DEFAULT_LIMITS, TopicLimits
from headgate.topic.rule import Rule
from headgate.topic.settings import (
    DEFAULT_SETTINGS,
    DEFAULT_TOPIC_SETTINGS,
    SubscriptionSettings,
    TopicKind,
    TopicSettings,
)

_REWRITE_AFTER = 1000
"""After more changes than this, and more than the topic has rules, a journal gets a new head."""


class TopicEditor:
    """Changes one topic. Holds the stream's writer, which it opens or is given; not for several threads at once."""

    def __init__(self, writer: Writer, *, open_file: OpenFile = DiskFile, owns_writer: bool = False) -> None:
        """An editor beside a writer that the caller holds and closes. Raises RuleNotFoundError, LogError."""
        self._writer = writer
        self._owns_writer = owns_writer
        self._open_file = open_file
        self._path = writer.stream.path / JOURNAL_NAME
        self._end: JournalEnd | None = None
        self._must_rewrite = False
        self._load()

    @staticmethod
    def open(stream: Stream, *, now_ms: int, wait: Wait = no_wait, open_file: OpenFile = DiskFile) -> TopicEditor:
        """Take the stream's writer lock and be ready to change its rules; `close` gives it back.

        Raises RuleNotFoundError for a stream that is not a topic, StreamLockedError that names the holder, LogError.
        """
        RuleHistory.load(stream)
        writer = Writer.open(stream, now_ms=now_ms, wait=wait)
        try:
            return TopicEditor(writer, open_file=open_file, owns_writer=True)
        except BaseException:
            writer.close()
            raise

    def __enter__(self) -> TopicEditor:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the writer back if it was opened here; again is harmless."""
        if self._owns_writer:
            self._writer.close()

    def writes_with(self, writer: Writer) -> bool:
        """Whether this is an editor beside that writer."""
        return self._writer is writer

    @property
    def history(self) -> RuleHistory:
        """The rules as they are now."""
        return self._history

    @property
    def topic(self) -> model.Topic:
        """The topic as it is for the messages to come."""
        return self._history.current

    def _load(self) -> None:
        """Read the history from disk; after a failure, without unconfirmed changes."""
        found = read_lines(self._path, size_bytes=None if self._end is None else self._end.size_bytes)
        if found is None:
            raise RuleNotFoundError("the stream is no topic", topic=self._writer.stream.name)
        self._history = RuleHistory.of_lines(found.lines, self._path, self._writer.stream.body_schema)
        # Bytes after the last whole line must not be written over beside a reader: the next change is a new file.
        self._must_rewrite = self._must_rewrite or found.is_torn
        self._end = found.end

    # changes

    def create_subscription(self, subscription: model.Subscription, *, now_ms: int) -> int:
        """Add a subscription with its rules; the offset from which it gets messages. Raises RuleError and its kinds."""
        return self.apply(creation_of(subscription), now_ms=now_ms)

    def change_subscription(self, name: str, given: Mapping[str, object], *, now_ms: int) -> int:
        """Give a subscription the properties in a JSON object, and in it the `settings`; all else stays, and its rules.

        Raises ConfigError that names a wrong key or value, RuleError and its kinds. Settings are in force for every
        copy at once; properties from the offset that this gives.
        """
        before = self._history.subscription(name)
        return self.apply([r.ChangeSubscription.of(before, given, name=name)], now_ms=now_ms)

    def remove_subscription(self, name: str, *, now_ms: int) -> int:
        """Remove a subscription and its rules."""
        return self.apply([r.RemoveSubscription(name)], now_ms=now_ms)

    def add_rule(self, subscription: str, rule: Rule, *, now_ms: int) -> int:
        """Add a rule; the offset from which it is in force. Raises RuleExistsError, RuleNotFoundError, RuleError."""
        return self.apply([r.AddRule(subscription, rule.definition)], now_ms=now_ms)

    def replace_rule(self, subscription: str, rule: Rule, *, now_ms: int) -> int:
        """Replace filter and action of the rule of that name; no message is lost or doubled between old and new."""
        return self.apply([r.ReplaceRule(subscription, rule.definition)], now_ms=now_ms)

    def remove_rule(self, subscription: str, name: str, *, now_ms: int) -> int:
        """Remove a rule."""
        return self.apply([r.RemoveRule(subscription, name)], now_ms=now_ms)

    def change_limits(self, limits: TopicLimits, *, now_ms: int) -> int:
        """Give the topic other limits; existing subscriptions and rules stay."""
        return self.apply([r.ChangeLimits(limits)], now_ms=now_ms)

    def declare(
        self,
        topic: model.Topic,
        *,
        now_ms: int,
        in_force_from: int | None = None,
        planned: Mapping[str, model.Topic] | None = None,
    ) -> int | None:
        """Make the topic equal to `topic`, in one change; gives the offset of the change, None if nothing differs.

        `planned` are topics that will be declared as well: forwarding is checked against them, not against their
        present state. `in_force_from` as in `apply`.
        """
        topic.check(compile_rules=False)
        changes = list(differences(self._history, topic))
        if not changes:
            return None
        return self.apply(changes, now_ms=now_ms, in_force_from=in_force_from, planned=planned)

    def apply(
        self,
        changes: Sequence[r.Change],
        *,
        now_ms: int,
        in_force_from: int | None = None,
        planned: Mapping[str, model.Topic] | None = None,
    ) -> int:
        """Make changes that are in force together; the offset from which they are.

        `in_force_from`, an earlier offset, is for the first change of a topic only: nothing was decided before it.
        Raises RuleError and its kinds, ConfigError, StorageFullError, LogError; then nothing is changed.
        """
        offset = self._writer.next_offset
        if in_force_from is not None:
            if in_force_from < 0:
                raise ConfigError(f"in_force_from is {in_force_from}; expected 0 or more")
            if self._history.versions() or self._history.subscriptions() or self._history.last_change:
                raise ConfigError(
                    f"in_force_from {in_force_from}: the topic has rules already; only the first may look back"
                )
            offset = min(offset, in_force_from)
        before = self._counts()
        try:
            for change in changes:
                self._check(change, planned or {})
                self._history.apply_change(change, offset, now_ms)
            model.check_growth(before, self._counts(), self._history.limits, self._history.topic_name)
            self._commit(r.Record(offset, now_ms, tuple(changes)))
        except BaseException:
            self._load()
            raise
        if any(isinstance(change, r.ChangeLimits) for change in changes):
            self._adjust_pin()
        return offset

    def prune(self, below: int) -> None:
        """Delete versions that were in force only below an offset; messages below it can no longer be decided."""
        self._rewrite(min(below, self._writer.next_offset))

    # inside

    def _check(self, change: r.Change, planned: Mapping[str, model.Topic]) -> None:
        history = self._history
        match change:
            case r.ChangeLimits():
                change.limits.check()
            case r.ChangeTopic():
                self._check_settings(change.settings)
            case r.CreateSubscription() | r.ChangeSubscription():
                self._check_subscription(change, planned)
            case r.RemoveSubscription():
                history.subscription(change.name)
                if history.settings.kind is TopicKind.QUEUE:
                    raise RuleError("a queue has one subscription, which goes with it", topic=history.topic_name)
            case r.AddRule() | r.ReplaceRule():
                subscription = history.subscription(change.subscription)
                if isinstance(change, r.ReplaceRule):
                    history.rule(subscription.name, change.rule.name)
                elif history.has_rule(subscription.name, change.rule.name):
                    there = history.rule(subscription.name, change.rule.name).rule.name
                    raise model.already_exists(change.rule.name, there, history.topic_name, subscription.name)
                if subscription.fall_through:
                    raise RuleError(
                        "a fall-through subscription gets what no other one took and has no rules",
                        topic=history.topic_name,
                        subscription=subscription.name,
                        rule=change.rule.name,
                    )
                model.check_rule_name(change.rule.name, history.topic_name, subscription.name, history.limits)
                model.check_compiles(Rule.of(change.rule), history.topic_name, subscription.name, history.limits)
            case r.RemoveRule():
                history.rule(change.subscription, change.rule)

    def _check_settings(self, settings: TopicSettings) -> None:
        history = self._history
        settings.check(history.topic_name)
        for name in ("kind", "requires_duplicate_detection"):
            if getattr(settings, name) != getattr(history.settings, name):
                raise RuleError(f"{name} cannot be changed after the topic was made", topic=history.topic_name)

    def _check_subscription(self, change: r.SubscriptionProperties, planned: Mapping[str, model.Topic]) -> None:
        history, topic = self._history, self._history.topic_name
        rules: tuple[Rule, ...] = ()
        if isinstance(change, r.ChangeSubscription):
            before = history.subscription(change.name)
            if change.settings.requires_session != before.settings.requires_session:
                raise RuleError(
                    "requires_session cannot be changed after the subscription was made",
                    topic=topic,
                    subscription=before.name,
                )
            rules = (
                tuple(Rule.of(version.rule) for version in history.rules(change.name)) if change.fall_through else ()
            )
        elif history.settings.kind is TopicKind.QUEUE or change.name == QUEUE_SUBSCRIPTION:
            raise RuleError(
                "a queue has one subscription, and a topic none of that name", topic=topic, subscription=change.name
            )
        elif history.has_subscription(change.name):
            raise model.already_exists(change.name, history.subscription(change.name).name, topic, None)
        wanted = model.Subscription(change.name, rules, **_properties(change))
        model.check_subscription(wanted, topic, history.limits)
        first = next(
            (
                each
                for each in history.subscriptions()
                if each.fall_through and model.folded(each.name) != model.folded(change.name)
            ),
            None,
        )
        if change.fall_through and first is not None:
            raise model.second_fall_through(topic, change.name, first.name)
        if change.forward_to is not None or change.settings.forward_dead_letters_to is not None:
            self._check_forwarding(wanted, planned)

    def _check_forwarding(self, wanted: model.Subscription, planned: Mapping[str, model.Topic]) -> None:
        root = root_of(self._writer.stream.path.resolve())

        def find(name: str) -> model.Topic | None:
            return planned.get(name) or _topic_of(root, name)

        name = self._history.topic_name
        target, dead_letters = wanted.forward_to, wanted.settings.forward_dead_letters_to
        if target is not None and find(target) is None:
            raise target_not_found(name, wanted.name, target)
        if dead_letters is not None and find(dead_letters) is None and dead_letters not in stream_names(root):
            raise target_not_found(name, wanted.name, dead_letters, kind="topic or stream")
        others = [
            model.Subscription(each.name, (), forward_to=each.forward_to, settings=each.settings)
            for each in self._history.subscriptions()
            if model.folded(each.name) != model.folded(wanted.name)
        ]
        check_no_loop(model.Topic(name, (wanted, *others)), find)

    def _counts(self) -> model.TopicCounts:
        filters = self._history.counts
        return model.TopicCounts(len(self._history.subscriptions()), filters.sql, filters.correlation)

    def _commit(self, record: r.Record) -> None:
        """Put a change that the history has taken over on disk."""
        # No message below the offset of the change may be lost by a power failure that the change survives.
        self._writer.sync()
        history = self._history
        history.changes_since_head += 1
        if history.changes_since_head > max(_REWRITE_AFTER, history.counts.sql + history.counts.correlation):
            self._rewrite(self._writer.stream.first_offset())
        elif self._must_rewrite or any(_has_secrets(change) for change in record.changes):
            self._rewrite(history.pruned_below)
        else:
            self._must_rewrite = True
            assert self._end is not None
            self._end = append_line(self._path, msgspec.json.encode(record), end=self._end, open_file=self._open_file)
            self._must_rewrite = False

    def _adjust_pin(self) -> None:
        """Give the pin the present limit `unsettled_bytes` as its quota."""
        pinned, quota_bytes = self._writer.pinned, self._history.limits.unsettled_bytes
        if pinned is not None and pinned.quota_bytes != quota_bytes:
            # The change is made already; the next raise of the pin writes the quota again.
            with contextlib.suppress(LogError):
                self._writer.pin(Pin(pinned.offset, quota_bytes))

    def _rewrite(self, below: int) -> None:
        head = self._history.head(pruned_below=below)
        self._end = write_head(self._path, msgspec.json.encode(head), is_private=head.settings.has_secrets)
        self._history = RuleHistory(head, self._path, self._writer.stream.body_schema)
        self._must_rewrite = False


def create_topic(
    root: str | Path,
    name: str,
    *,
    now_ms: int,
    limits: TopicLimits = DEFAULT_LIMITS,
    settings: TopicSettings = DEFAULT_TOPIC_SETTINGS,
    queue: SubscriptionSettings = DEFAULT_SETTINGS,
    arguments: StreamArguments | None = None,
    wait: Wait = no_wait,
) -> Stream:
    """Make the stream of that name a topic without subscriptions; a missing stream is created with `arguments`.

    If `settings` say that it is a queue, its subscription, with the settings `queue`, is part of the same write. Raises
    RuleExistsError for an existing topic, RuleError for its name or settings, ConfigError, LogError.
    """
    limits.check()
    model.check_topic_name(name, limits)
    settings.check(name)
    if settings.kind is TopicKind.QUEUE:
        model.check_subscription(model.Subscription(QUEUE_SUBSCRIPTION, settings=queue), name, limits)
    folder = stream_folder(root, name)
    try:
        stream = Stream.open(folder)
    except StreamNotFoundError:
        stream = Stream.create(folder, name=name, now_ms=now_ms, arguments=arguments, wait=wait)
    with Writer.open(stream, now_ms=now_ms, wait=wait) as writer:
        if read_lines(folder / JOURNAL_NAME) is not None:
            raise RuleExistsError("there is a topic of that name already", topic=name)
        # State of an earlier topic whose removal was interrupted: its subscriptions' numbers are given again.
        _remove_state(stream)
        history = RuleHistory(
            r.Head(topic=name, created_ms=now_ms, limits=limits, settings=settings), folder / JOURNAL_NAME
        )
        if settings.kind is TopicKind.QUEUE:
            for change in creation_of(model.Subscription(QUEUE_SUBSCRIPTION, settings=queue)):
                history.apply_change(change, writer.next_offset, now_ms)
        head = msgspec.json.encode(history.head(pruned_below=0))
        write_head(history.path, head, is_private=settings.has_secrets)
    return stream


def remove_topic(root: str | Path, name: str, *, now_ms: int, wait: Wait = no_wait) -> None:
    """Make a topic a plain stream again: its subscriptions and rules go, its messages stay.

    Raises RuleNotFoundError, RuleError if another topic forwards to it, LogError.
    """
    check_removable(root, name)
    stream = topic_stream(root, name)
    with Writer.open(stream, now_ms=now_ms, wait=wait) as writer:
        remove_file(stream.path / JOURNAL_NAME)
        writer.pin(None)
        _remove_state(stream)


def check_removable(root: str | Path, name: str) -> None:
    """Raise RuleError if another topic forwards to that one."""
    for other in topics_forwarding_to(root, name):
        raise RuleError(f"topic {other!r} forwards to it", topic=name)


def topics_forwarding_to(root: str | Path, name: str) -> list[str]:
    """The other topics that forward to a topic or stream; topics that cannot be read are left out."""
    found = []
    for stream in list_streams(root):
        with contextlib.suppress(LogError):
            other = RuleHistory.find(stream)
            if other is not None and other.topic_name != name and name in forward_targets(other.current):
                found.append(other.topic_name)
    return found


def _remove_state(stream: Stream) -> None:
    """Delete the postings, the ledger and the subscriptions' own streams. Raises LogError."""
    for folder in state_folders(stream):
        try:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)
        except OSError as error:
            raise storage_error(error, folder) from error


def list_topics(root: str | Path) -> list[RuleHistory]:
    """The topics under a root, by name."""
    found = (RuleHistory.find(stream) for stream in list_streams(root))
    return [history for history in found if history is not None]


def topic_stream(root: str | Path, name: str) -> Stream:
    """The stream of a topic under a root. Raises RuleNotFoundError if there is no topic of that name."""
    try:
        stream = Stream.open(stream_folder(root, name))
    except StreamNotFoundError as error:
        near = did_you_mean(name, stream_names(root))
        try:
            check_root(root)
        except LogError as wrong_root:
            near = f"; {wrong_root}"
        raise RuleNotFoundError(f"there is no such topic{near}", topic=name) from error
    RuleHistory.load(stream)
    return stream


def _topic_of(root: Path, name: str) -> model.Topic | None:
    try:
        history = RuleHistory.find(Stream.open(stream_folder(root, name)))
    except StreamNotFoundError:
        return None
    return None if history is None else history.current


def _has_secrets(change: r.Change) -> bool:
    return isinstance(change, r.ChangeTopic) and change.settings.has_secrets


def _properties(of: model.Subscription | r.SubscriptionProperties | r.SubscriptionVersion) -> dict[str, Any]:
    return {name: getattr(of, name) for name in r.SUBSCRIPTION_PROPERTIES}


def creation_of(subscription: model.Subscription) -> list[r.Change]:
    """The changes that add a subscription with its rules."""
    rules = (r.AddRule(subscription.name, rule.definition) for rule in subscription.rules)
    return [r.CreateSubscription(subscription.name, **_properties(subscription)), *rules]


def differences(history: RuleHistory, wanted: model.Topic) -> Iterator[r.Change]:
    """The changes that turn a topic into the wanted one; removals come first, so that limits and names are free.

    The topic's own settings are not compared.
    """
    names = {model.folded(subscription.name) for subscription in wanted.subscriptions}
    if history.limits != wanted.limits:
        yield r.ChangeLimits(wanted.limits)
    for version in history.subscriptions():
        if model.folded(version.name) not in names:
            yield r.RemoveSubscription(version.name)
    existing = [each for each in wanted.subscriptions if history.has_subscription(each.name)]
    for subscription in existing:
        kept = {model.folded(rule.name) for rule in subscription.rules}
        for rule in history.rules(subscription.name):
            if model.folded(rule.rule.name) not in kept:
                yield r.RemoveRule(subscription.name, rule.rule.name)
    # The fall-through is handed over: it is given up before another subscription takes it.
    for subscription in sorted(existing, key=lambda each: each.fall_through):
        change = r.ChangeSubscription(subscription.name, **_properties(subscription))
        version = history.subscription(subscription.name)
        if change != r.ChangeSubscription(version.name, **_properties(version)):
            yield change
    for subscription in existing:
        there = {model.folded(version.rule.name): version.rule for version in history.rules(subscription.name)}
        for wanted_rule in subscription.rules:
            before = there.get(model.folded(wanted_rule.name))
            if before is None:
                yield r.AddRule(subscription.name, wanted_rule.definition)
            elif before != wanted_rule.definition:
                yield r.ReplaceRule(subscription.name, wanted_rule.definition)
    for subscription in wanted.subscriptions:
        if not history.has_subscription(subscription.name):
            yield from creation_of(subscription)
