"""Expressions that members of consumer groups announce, and their registration with the match index of each stream.

A heartbeat is compared with the one before: new expressions are checked at once, in memory, and registered in a worker
shortly after, with all others for a stream as one change of its registry. Versions and liveness follow
rocketmq_filters, section 9; an expression is alive as long as any member of its group lists the topic.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.broker.environment import Environment, run_here
from headgate.derived.match_index import REGISTRY_NAME, Announcement, FilterRegistry, IndexSettings
from headgate.errors import ConfigError, FilterError, HeadgateError, LogError, StreamNotFoundError, StreamReadOnlyError
from headgate.evaluate import Filter
from headgate.log import Stream, stream_folder

logger = logging.getLogger("headgate.broker")

LOOK_MS = 5_000
"""How often topics are checked for new queues."""

CLEAN_MS = 3_600_000
"""How often registries are checked for expressions that have been dead for a day."""

RETRY_MS = 30_000
"""After this time a failed registration is tried again."""

_STREAMS_A_JOB = 64
_KEPT_FILTERS = 1_024

Refusal = FilterError | ConfigError
Refusals = Mapping[str, Refusal]
"""Topic → the error for which its expression is no filter."""

_NOTHING_REFUSED: Refusals = {}


@dataclass(slots=True, frozen=True)
class Expression:
    """The expression of a group for a topic: the newest announcement that is a filter, and the filter."""

    announcement: Announcement
    filter: Filter


@dataclass(slots=True)
class _Heartbeat:
    """The last announcement of a member."""

    subscriptions: Mapping[str, Announcement]
    refused: Refusals


@dataclass(slots=True)
class _Topic:
    """The expressions of a topic by group, and the streams that they are registered with."""

    streams: tuple[str, ...]
    expressions: dict[str, Expression] = field(default_factory=dict)


@dataclass(slots=True)
class _Changes:
    """Pending changes of one stream's registry: id → announcement, None to forget it; and ids that are `gone`."""

    announced: dict[str, Announcement | None] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    not_before_ms: int = 0

    def announce(self, filter_id: str, announcement: Announcement | None) -> None:
        self.announced[filter_id] = announcement
        self.gone.discard(filter_id)

    def add_earlier(self, earlier: _Changes) -> None:
        """Queue failed changes again, before the newer ones."""
        self.gone |= earlier.gone - self.announced.keys()
        self.announced = {**earlier.announced, **self.announced}


class ExpressionRegistry:
    """The expressions of all consumer groups of a broker. All calls are made in its thread, and wait for no file.

    `streams_of` gives the streams that a topic has now, none for a missing topic. `settings` are for streams that have
    no registry yet.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        names: Callable[[], Sequence[str]],
        streams_of: Callable[[str], Sequence[str]],
        settings: IndexSettings,
        registered: Callable[[str], None],
    ) -> None:
        """`registered` is called with each stream whose registry was changed."""
        self._root = environment.root
        self._names = names
        self._streams_of = streams_of
        self._now_ms = environment.now_ms
        self._run_in_worker = environment.workers.background or run_here
        self._settings = settings
        self._registered = registered
        self._members: dict[str, dict[str, _Heartbeat]] = {}
        self._topics: dict[str, _Topic] = {}
        self._changes: dict[str, _Changes] = {}
        self._restarted: set[str] = set()
        """Streams whose registries have noted the start of this broker."""
        self._unclean: list[str] = []
        self._clean_due_ms = self._look_due_ms = self._now_ms()
        self._is_running = False

    # members

    def announce(self, group: str, client_id: str, subscriptions: Mapping[str, Announcement]) -> Refusals:
        """A heartbeat of a member with all its expressions, by topic; it has left topics that it does not list.

        Gives the errors of expressions that are no filters; these are not registered, nor are tags and empty
        expressions. The mapping is kept, and must not change any more. Cost: comparing it with the last one; about a
        millisecond for a new expression.
        """
        members = self._members.get(group)
        known = None if members is None else members.get(client_id)
        if known is not None and known.subscriptions == subscriptions:
            return known.refused
        before: Mapping[str, Announcement] = {} if known is None else known.subscriptions
        refused: dict[str, Refusal] = {}
        for topic, announcement in subscriptions.items():
            refusal = None
            if known is not None and before.get(topic) == announcement:
                refusal = known.refused.get(topic)
            elif announcement.is_registered:
                refusal = self._announce(group, topic, announcement)
            if refusal is not None:
                refused[topic] = refusal
        self._members.setdefault(group, {})[client_id] = _Heartbeat(subscriptions, refused or _NOTHING_REFUSED)
        self._retire(group, before, subscriptions)
        return refused

    def subscribe(self, group: str, client_id: str, topic: str, announcement: Announcement) -> Refusal | None:
        """The same for one topic, beside the member's others: an expression that came with a request.

        An expression that differs from the member's last one only in its version counts as that one.
        """
        known = self._members.get(group, {}).get(client_id)
        subscriptions: Mapping[str, Announcement] = {} if known is None else known.subscriptions
        last = subscriptions.get(topic)
        if known is not None and last is not None and announcement.says_the_same(last):
            return known.refused.get(topic)
        return self.announce(group, client_id, {**subscriptions, topic: announcement}).get(topic)

    def leave(self, group: str, client_id: str) -> None:
        """A member is gone; again is harmless."""
        members = self._members.get(group, {})
        known = members.pop(client_id, None)
        if known is None:
            return
        if not members:
            del self._members[group]
        self._retire(group, known.subscriptions, {})

    def expression(self, group: str, topic: str) -> Expression | None:
        """The expression of a group for a topic now; None without a member that announced a filter."""
        found = self._topics.get(topic)
        return None if found is None else found.expressions.get(group)

    def _announce(self, group: str, topic: str, announcement: Announcement) -> Refusal | None:
        """Take one expression, by the rules of the registry: the newest version of a group is in force."""
        found = self._topics.get(topic)
        old = None if found is None else found.expressions.get(group)
        wanted = parsed(announcement.text, announcement.dialect)
        is_newer = old is None or announcement.version > old.announcement.version
        if isinstance(wanted, Filter):
            if is_newer:
                if found is None:
                    found = self._topics[topic] = _Topic(self._queues(topic))
                found.expressions[group] = Expression(announcement, wanted)
                # The registry need not know a new version of the same text.
                if old is None or not announcement.says_the_same(old.announcement):
                    self._change(found.streams, f"{group}#{topic}", announcement)
            return None
        if is_newer and found is not None and old is not None:
            self._forget(topic, found, group)
            self._change(found.streams, f"{group}#{topic}", None)
        return wanted

    def _retire(self, group: str, before: Mapping[str, Announcement], now: Mapping[str, Announcement]) -> None:
        """Retire the expressions of topics that the member has stopped listing, and that no other member lists."""
        for topic in before.keys() - now.keys():
            found = self._topics.get(topic)
            if found is None or group not in found.expressions:
                continue
            others = self._members.get(group, {}).values()
            if any(topic in other.subscriptions for other in others):
                continue
            self._forget(topic, found, group)
            for stream in found.streams:
                self._changes.setdefault(stream, _Changes()).gone.add(f"{group}#{topic}")

    def _forget(self, topic: str, found: _Topic, group: str) -> None:
        del found.expressions[group]
        if not found.expressions:
            del self._topics[topic]

    def _queues(self, topic: str) -> tuple[str, ...]:
        """The streams of a topic; none while one of them is damaged, which is reported elsewhere."""
        try:
            return tuple(self._streams_of(topic))
        except LogError:
            return ()

    def _change(self, streams: Sequence[str], filter_id: str, announcement: Announcement | None) -> None:
        for stream in streams:
            self._changes.setdefault(stream, _Changes()).announce(filter_id, announcement)

    # registries

    def tick(self, now_ms: int) -> None:
        """Register due changes; called about once a second."""
        if now_ms >= self._look_due_ms:
            self._look_due_ms = now_ms + LOOK_MS
            for name, topic in self._topics.items():
                self._follow(name, topic)
        if now_ms >= self._clean_due_ms:
            self._clean_due_ms = now_ms + CLEAN_MS
            self._unclean = list(self._names())
        if self._is_running:
            return
        due = [name for name, changes in self._changes.items() if changes.not_before_ms <= now_ms][:_STREAMS_A_JOB]
        unclean = [name for name in self._unclean[-_STREAMS_A_JOB:] if self._has_registry(name)]
        del self._unclean[-_STREAMS_A_JOB:]
        if due or unclean:
            self._run({name: self._changes.pop(name) for name in due}, unclean)

    def _has_registry(self, name: str) -> bool:
        """Cost: a `stat`."""
        return (stream_folder(self._root, name) / REGISTRY_NAME).exists()

    def _follow(self, name: str, topic: _Topic) -> None:
        """Register all expressions of a topic with its new streams."""
        streams = self._queues(name)
        if streams == topic.streams:
            return
        fresh = [stream for stream in streams if stream not in topic.streams]
        topic.streams = streams
        for group, expression in topic.expressions.items():
            self._change(fresh, f"{group}#{name}", expression.announcement)

    def _run(self, changes: dict[str, _Changes], unclean: Sequence[str]) -> None:
        failed: dict[str, Exception] = {}
        now_ms = self._now_ms()
        new = {name for name in (*changes, *unclean) if name not in self._restarted}

        def work() -> None:
            for name in dict.fromkeys((*changes, *unclean)):
                try:
                    self._change_registry(name, changes.get(name), is_new=name in new, now_ms=now_ms)
                except (StreamNotFoundError, StreamReadOnlyError):
                    # It was deleted, or is read-only, so that it is not indexed.
                    continue
                except (HeadgateError, OSError) as error:
                    failed[name] = error

        def ended(error: BaseException | None) -> None:
            self._is_running = False
            if error is not None:
                raise error
            self._restarted |= new - failed.keys()
            for name in changes.keys() - failed.keys():
                self._registered(name)
            for name in failed.keys() & changes.keys():
                logger.warning("the expressions of stream %r are not registered yet: %s", name, failed[name])
                later = self._changes.setdefault(name, _Changes())
                later.add_earlier(changes[name])
                later.not_before_ms = now_ms + RETRY_MS

        self._is_running = True
        self._run_in_worker(work, ended)

    def _change_registry(self, name: str, changes: _Changes | None, *, is_new: bool, now_ms: int) -> None:
        """In a worker: apply the due changes of one stream as one change; without expressions no registry is made."""
        folder = stream_folder(self._root, name)
        has_registry = (folder / REGISTRY_NAME).exists()
        if not has_registry and (changes is None or not any(changes.announced.values())):
            return
        with FilterRegistry(Stream.open(folder)).changing() as change:
            if not has_registry:
                change.configure(self._settings)
            if is_new:
                change.restart(now_ms=now_ms)
            change.clean(now_ms=now_ms)
            if changes is None:
                return
            for filter_id, announcement in changes.announced.items():
                if announcement is None:
                    change.remove(filter_id)
                    continue
                try:
                    change.announce(filter_id, announcement, now_ms=now_ms)
                except ConfigError as error:
                    logger.warning("not registered with stream %r: %s", name, error)
            for filter_id in changes.gone:
                change.retire(filter_id, now_ms=now_ms)


@functools.lru_cache(_KEPT_FILTERS)
def parsed(text: str, dialect: str) -> Filter | Refusal:
    """The filter of a text, or the error for which it is none; the same object for the same text."""
    try:
        return Filter.parse(text, dialect)
    except (FilterError, ConfigError) as error:
        return error
