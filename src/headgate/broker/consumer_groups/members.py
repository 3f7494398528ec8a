"""Members of consumer groups, the subscriptions of groups, and the queues that a member has locked for itself.

Members send a heartbeat every few seconds, with their subscriptions. A group has one subscription for a topic: the
newest of its members. A member that is silent for too long, or leaves, is removed; the others are told, as they divide
the queues among themselves. Source: rocketmq_wire, B2 and B5; rocketmq_filters, section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headgate.broker.consumer_groups.expression_registry import ExpressionRegistry, Refusal
from headgate.derived.match_index import Announcement
from headgate.errors import FilterError
from headgate.evaluate import Filter

SILENCE_MS = 120_000
"""After this time without a heartbeat a member is removed."""

LOCK_MS = 60_000
"""After this time a member's lock of a queue ends, unless it is renewed."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a group for a topic: without a filter all messages; with a `refusal`, its reason, none."""

    announcement: Announcement
    filter: Filter | None
    refusal: Refusal | None = None


@dataclass(slots=True)
class _Member:
    heard_ms: int
    topics: frozenset[str]
    changed: Callable[[], None]
    by: object


@dataclass(slots=True)
class _Lock:
    member: str
    until_ms: int


@dataclass(slots=True)
class _Group:
    members: dict[str, _Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    locks: dict[str, _Lock] = field(default_factory=dict)
    """By stream."""
    is_shared: bool = True


class Members:
    """The members of all consumer groups of a broker; in its thread only."""

    def __init__(self, expressions: ExpressionRegistry) -> None:
        self._expressions = expressions
        self._groups: dict[str, _Group] = {}
        self._watching: dict[tuple[str, str], dict[Callable[[], None], None]] = {}
        """Group and topic → functions to call when the subscription changes."""

    def heartbeat(
        self,
        group: str,
        member: str,
        subscriptions: Mapping[str, Announcement] | None,
        *,
        now_ms: int,
        changed: Callable[[], None],
        is_shared: bool = True,
        by: object = None,
    ) -> None:
        """Take the heartbeat of a member with its subscriptions by topic; None: the same as last time.

        `changed` is called when other members come or go; `is_shared` says whether members share the messages, or each
        gets all; `by` is the connection. The mapping must not change any more. Cost: comparing it with the last one.
        """
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = _Group()
        found.is_shared = is_shared
        known = found.members.get(member)
        if known is not None:
            known.heard_ms, known.changed, known.by = now_ms, changed, by
        else:
            found.members[member] = _Member(now_ms, frozenset(), changed, by)
            self._tell(found)
        if subscriptions is not None:
            self._subscribe(group, found, member, subscriptions)

    def leave(self, group: str, member: str) -> None:
        """A member is gone; again is harmless."""
        found = self._groups.get(group)
        if found is None or found.members.pop(member, None) is None:
            return
        self._expressions.leave(group, member)
        for stream in [stream for stream, lock in found.locks.items() if lock.member == member]:
            del found.locks[stream]
        if found.members:
            self._forget_topics(group, found)
            self._tell(found)
        else:
            del self._groups[group]

    def lost(self, group: str, member: str, by: object) -> None:
        """A connection is gone: its member leaves, unless a later heartbeat came by another connection."""
        found = self._groups.get(group)
        known = None if found is None else found.members.get(member)
        if known is not None and known.by is by:
            self.leave(group, member)

    def tick(self, now_ms: int) -> None:
        """Remove members that were silent for too long. Cost: a look at each member."""
        for group, found in list(self._groups.items()):
            for member, each in list(found.members.items()):
                if now_ms - each.heard_ms > SILENCE_MS:
                    self.leave(group, member)

    # what is known of groups

    def of(self, group: str) -> list[str]:
        """The members of a group, in order of their coming."""
        found = self._groups.get(group)
        return [] if found is None else list(found.members)

    def groups(self) -> list[str]:
        """The groups that have members, in order."""
        return sorted(self._groups)

    def is_shared(self, group: str) -> bool:
        """Whether a group has members, and they share the messages."""
        found = self._groups.get(group)
        return found is not None and found.is_shared

    def topics(self, group: str) -> list[str]:
        """The topics that a group subscribes to."""
        found = self._groups.get(group)
        return [] if found is None else list(found.subscriptions)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """The subscription of a group for a topic; None without one."""
        found = self._groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def watch(self, group: str, topic: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` when the group's subscription for the topic changes; gives a function that ends this."""
        key = (group, topic)
        self._watching.setdefault(key, {})[changed] = None

        def end() -> None:
            watching = self._watching.get(key)
            if watching is not None:
                watching.pop(changed, None)
                if not watching:
                    del self._watching[key]

        return end

    # queues for one member

    def lock(self, group: str, member: str, streams: Iterable[str], *, now_ms: int) -> list[str]:
        """Lock queues for a member, or renew its locks; gives the queues that it holds then."""
        found = self._groups.get(group)
        if found is None or member not in found.members:
            return []
        held = []
        for stream in streams:
            lock = found.locks.get(stream)
            if lock is None or lock.member == member or lock.until_ms <= now_ms:
                found.locks[stream] = _Lock(member, now_ms + LOCK_MS)
                held.append(stream)
        return held

    def unlock(self, group: str, member: str, streams: Iterable[str]) -> None:
        """Unlock queues of a member; locks of other members stay."""
        found = self._groups.get(group)
        if found is None:
            return
        for stream in streams:
            lock = found.locks.get(stream)
            if lock is not None and lock.member == member:
                del found.locks[stream]

    def has_locks(self, group: str, *, now_ms: int) -> bool:
        """Whether a member of the group has locked a queue."""
        found = self._groups.get(group)
        return found is not None and any(lock.until_ms > now_ms for lock in found.locks.values())

    # inside

    def _subscribe(self, group: str, found: _Group, member: str, subscriptions: Mapping[str, Announcement]) -> None:
        refused = self._expressions.announce(group, member, subscriptions)
        found.members[member].topics = frozenset(subscriptions)
        for topic, announcement in subscriptions.items():
            known = found.subscriptions.get(topic)
            if known is None or announcement.version > known.announcement.version:
                self._change(group, found, topic, known, announcement, refused.get(topic))
        self._forget_topics(group, found)

    def _change(
        self,
        group: str,
        found: _Group,
        topic: str,
        known: Subscription | None,
        announcement: Announcement,
        refusal: Refusal | None,
    ) -> None:
        if known is not None and announcement.says_the_same(known.announcement):
            found.subscriptions[topic] = Subscription(announcement, known.filter, known.refusal)
        else:
            found.subscriptions[topic] = self._subscription(group, topic, announcement, refusal)
        # Also for a newer version of the same: a pull with it may wait for this.
        for changed in list(self._watching.get((group, topic), ())):
            changed()

    def _subscription(
        self, group: str, topic: str, announcement: Announcement, refusal: Refusal | None
    ) -> Subscription:
        if refusal is not None or not announcement.text:
            return Subscription(announcement, None, refusal)
        if not announcement.is_registered:
            try:
                return Subscription(announcement, Filter.subscribed(announcement.text, announcement.dialect))
            except FilterError as error:
                return Subscription(announcement, None, error)
        expression = self._expressions.expression(group, topic)
        return Subscription(announcement, None if expression is None else expression.filter)

    def _forget_topics(self, group: str, found: _Group) -> None:
        """Forget topics that no member subscribes to any more."""
        wanted = frozenset[str]().union(*(member.topics for member in found.members.values()))
        for topic in [topic for topic in found.subscriptions if topic not in wanted]:
            del found.subscriptions[topic]
            for changed in list(self._watching.get((group, topic), ())):
                changed()

    @staticmethod
    def _tell(found: _Group) -> None:
        for member in list(found.members.values()):
            member.changed()
