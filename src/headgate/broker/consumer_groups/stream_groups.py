"""The consumer groups of one stream: a ledger beside it, in the folder `groups`, and a view for each group."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headgate.broker.consumer_groups.dead_letters import DeadLetters, DeadLetterStreams
from headgate.broker.consumer_groups.declarations import GroupSettings
from headgate.broker.consumer_groups.group_dead_letters import RESUBMITTED_VIEW, GroupDeadLetters
from headgate.broker.consumer_groups.group_view import GroupPolicy, GroupView
from headgate.broker.consumer_groups.new_messages import NewMessages
from headgate.broker.consumers import ConsumerOptions, MessageConsumer
from headgate.broker.delivery import Consumption, StreamSource
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream
from headgate.broker.topics import RetentionPin
from headgate.errors import HeadgateError, LogError
from headgate.ledger import NEVER, Ledger, View, copy_number, offset_of
from headgate.log import Pin
from headgate.scan import MessageReader

GROUPS_FOLDER = "groups"

UNLIMITED_BYTES = 1 << 62
"""The quota of a pin: messages that wait to be moved never block publishers."""

IDLE_MS = 10_000
"""After this time without use, and without waiting work, the files are closed."""


@dataclass(frozen=True, slots=True)
class GroupCalls:
    """The calls by which the groups of a stream reach other parts of the broker.

    `keep_pinned` tells the topic of a stream that the needed messages changed, and gives whether there is one.
    `touch` asks for a turn of the stream's groups. `offer` says that a view may have messages for waiting requests.
    `claimed` says that a claim is to be committed, and gives its number, counted over all streams.
    """

    settings_of: Callable[[str], GroupSettings]
    dead_letter_streams: DeadLetterStreams
    open_consumer: Callable[[BrokerStream, ConsumerOptions], MessageConsumer]
    keep_pinned: Callable[[BrokerStream], bool]
    touch: Callable[[StreamGroups], None]
    offer: Callable[[GroupView], None]
    claimed: Callable[[StreamGroups], int]


class StreamGroups:
    """The groups that use one stream, from `open` to `close`; in the broker's thread only."""

    def __init__(self, stream: BrokerStream, ledger: Ledger, calls: GroupCalls, environment: Environment) -> None:
        self.stream = stream
        self.consumption = Consumption(
            ledger,
            lambda: calls.touch(self),
            stream.guarded,
            environment.workers.commits,
            environment.delivered_of(stream),
        )
        self._calls = calls
        self._environment = environment
        self._now_ms = environment.now_ms
        self._reader = MessageReader(stream.stream)
        self._source = StreamSource(stream.stream, self._reader, lambda: stream.next_offset)
        self._views: dict[str, GroupView] = {}
        self._pinning = RetentionPin(stream)
        self._is_pinned = False
        self._used_ms = self._latest_ms = self._now_ms()
        self._is_closed = False
        for view in ledger.views():
            if view.key != RESUBMITTED_VIEW:
                self._add(view)
        self.consumption.mover = DeadLetters(stream, ledger, self._reader, calls.dead_letter_streams, environment)

    def __iter__(self) -> Iterator[GroupView]:
        return iter(list(self._views.values()))

    # views

    def find(self, group: str) -> GroupView | None:
        """The view of a group; None where it never used the stream."""
        self._used_ms = self._now_ms()
        return self._views.get(group)

    def view(self, group: str, start: Callable[[BrokerStream], int]) -> GroupView:
        """The view of a group; a new one begins where `start` says. Raises LogError."""
        found = self.find(group)
        if found is None:
            found = self._add(self.consumption.ledger.view(group, copy_number(start(self.stream))))
            self.consumption.touch()
        return found

    def dead_letters(self) -> GroupDeadLetters:
        """The messages of this stream as the dead letters of a group. Raises LogError."""
        self._used_ms = self._now_ms()
        view = self.consumption.ledger.view(RESUBMITTED_VIEW, 0)
        return GroupDeadLetters(view, self._source, self.consumption)

    def drop(self, group: str, error: HeadgateError) -> bool:
        """Forget the place of a group; whether it had one. Raises LogError."""
        found = self._views.pop(group, None)
        if found is None:
            return False
        found.close(error)
        self.consumption.remove(found.view)
        self.consumption.ledger.drop(group)
        self.consumption.touch()
        return True

    def _add(self, view: View) -> GroupView:
        group = view.key

        def settings() -> GroupSettings:
            return self._calls.settings_of(group)

        made = self._views[group] = GroupView(
            group,
            self.stream,
            view,
            self._source,
            self.consumption,
            GroupPolicy(group, settings),
            new_messages=self._new_messages,
            offer=self._calls.offer,
            claimed=lambda: self._calls.claimed(self),
            now_ms=self._now_ms,
        )
        self.consumption.add(made)
        return made

    def _new_messages(self, view: GroupView) -> NewMessages:
        return NewMessages(
            lambda options: self._calls.open_consumer(self.stream, options),
            offset_of(view.view.next_copy),
            group=view.group,
            woken=view.wake,
            failed=view.end,
            lost=view.overtaken,
            worker=self._environment.workers.urgent,
            storage=self._environment.workers.storage,
        )

    # the turn

    def look(self, now_ms: int) -> None:
        """Take back expired claims, and look for wanted messages."""
        if not self._is_closed:
            self.consumption.expire(now_ms)
            self.consumption.dispatch(now_ms)

    def commit(self, now_ms: int) -> None:
        """Commit changes, answer, carry dead letters to their streams."""
        if self._is_closed:
            return
        self.consumption.commit(now_ms)
        self.consumption.move(now_ms)
        self._keep_pinned(now_ms)

    def _keep_pinned(self, now_ms: int) -> None:
        """Pin the messages that wait to be moved; other messages may be deleted, and groups go on behind them."""
        stream = self.stream
        moving = [offset_of(move.copy) for moves in self.consumption.ledger.moves().values() for move in moves]
        needed = min(moving, default=None)
        if self._is_pinned and needed == stream.moved_from:
            return
        # The pin of an earlier process is checked once.
        self._is_pinned, stream.moved_from = True, needed
        if not self._calls.keep_pinned(stream):
            wanted = None if needed is None else Pin(needed, UNLIMITED_BYTES)
            self._pinning.keep(lambda _now_ms: wanted, now_ms)

    def tick(self, now_ms: int) -> None:
        """Ask for a turn when timed work is due. Cost: the same with any number of groups."""
        self._latest_ms = max(self._latest_ms, now_ms)
        if self.consumption.is_due(now_ms):
            self.consumption.touch()

    def rest(self, now_ms: int) -> None:
        """Free memory that was not used for a while. Cost: a look at each group."""
        for view in self._views.values():
            view.rest(now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether it has been unused for `IDLE_MS`, and nothing waits for its time."""
        consumption = self.consumption
        return (
            consumption.trouble is None
            and not consumption.is_behind
            and consumption.ledger.next_due_ms == NEVER
            and not consumption.ledger.moves()
            # Not while the clock is behind its latest time: a ledger opened then would find claims that had ended.
            and now_ms >= self._latest_ms
            and now_ms - self._used_ms >= IDLE_MS
            and all(now_ms - view.used_ms >= IDLE_MS and not view.is_in_use for view in self._views.values())
        )

    # ending

    def end(self, error: HeadgateError) -> None:
        """The stream is gone, or its ledger is broken: waiting requests get the error."""
        self.consumption.end(error)
        self._close(error)

    def close(self, error: HeadgateError) -> None:
        """Commit pending changes, and close all files. Again is harmless."""
        if self._is_closed:
            return
        self.consumption.stop()
        with contextlib.suppress(LogError):
            for view in self._views.values():
                view.note_passed()
        self.consumption.commit(self._now_ms())
        self._close(error)

    def _close(self, error: HeadgateError) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for view in self._views.values():
            view.close(error)
        self.consumption.close()
        self._reader.close()
