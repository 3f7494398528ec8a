"""The places of all consumer groups in all queues: opened at their first use, with one turn for all."""

from __future__ import annotations

import logging
from collections.abc import Callable

from headgate.broker.consumer_groups.dead_letters import DeadLetterStreams
from headgate.broker.consumer_groups.declarations import GroupSettings, GroupStart
from headgate.broker.consumer_groups.group_dead_letters import GroupDeadLetters
from headgate.broker.consumer_groups.group_view import GroupView, dead_letters_of
from headgate.broker.consumer_groups.receive_requests import PendingReceive, ReceiveRequest
from headgate.broker.consumer_groups.stream_groups import GROUPS_FOLDER, GroupCalls, StreamGroups
from headgate.broker.consumers import ConsumerOptions, Consumers, MessageConsumer
from headgate.broker.delivery import Settled
from headgate.broker.environment import Environment
from headgate.broker.intervals import is_over
from headgate.broker.startup import Startup
from headgate.broker.stream import BrokerStream
from headgate.errors import BrokerError, EntityDisabledError, HeadgateError, LogError, ResourceNotFoundError

YOUNG_BYTES = 1 << 30
"""A queue of at most this size that has lost no message is young: a new group may begin at its first message."""

_LOOK_MS = 1_000
"""How often unused views and ledgers are looked for."""

_OPENED_A_TICK = 1
"""Ledgers opened per tick after a start, so that dead letters are moved and claims end without a client."""

logger = logging.getLogger("headgate.broker")


class GroupViews:
    """The views of a broker's consumer groups; in its thread only."""

    def __init__(
        self,
        environment: Environment,
        consumers: Consumers,
        dead_letter_streams: DeadLetterStreams,
        *,
        settings_of: Callable[[str], GroupSettings],
        start_of: Callable[[str], GroupStart],
        keep_pinned: Callable[[BrokerStream], bool],
    ) -> None:
        """For `keep_pinned` see `GroupCalls`."""
        self.dead_letter_streams = dead_letter_streams
        self.settings_of = settings_of
        self._calls = GroupCalls(
            settings_of,
            dead_letter_streams,
            self._open_consumer,
            keep_pinned,
            touch=self._touch,
            offer=self._offer,
            claimed=self._claimed,
        )
        self._environment = environment
        self._start_of = start_of
        self._consumers = consumers
        self._now_ms = environment.now_ms
        self._opened: dict[BrokerStream, StreamGroups] = {}
        self.touched: dict[StreamGroups, None] = {}
        """The streams whose groups wait for their turn."""
        self._offered: dict[GroupView, None] = {}
        """Views that may have messages for waiting requests."""
        self._claims = 0
        self._to_commit: dict[StreamGroups, None] = {}
        self._startup = Startup(
            environment.root,
            GROUPS_FOLDER,
            self._groups_of,
            _OPENED_A_TICK,
            "the consumer groups of stream %r cannot be looked after",
        )
        self._looked_ms = self._now_ms()

    # for who consumes

    def receive(self, request: ReceiveRequest) -> PendingReceive:
        """Give messages to a member of a group, as soon as there are some; see `ReceiveRequest`.

        Streams that cannot be used are passed over if another one can. If none can, raises the error of the last one:
        ResourceNotFoundError, StreamLockedError, other LogErrors.
        """
        receiving = PendingReceive(request)
        views: list[tuple[int, GroupView]] = []
        error: HeadgateError = ResourceNotFoundError("no queue to receive from", subject=request.group)
        for queue, name in enumerate(request.streams):
            try:
                views.append((queue, self.view(name, request.group)))
            except (BrokerError, LogError) as failed:
                if len(request.streams) > 1:
                    logger.warning("group %r receives nothing from %r: %s", request.group, name, failed)
                error = failed
        if not views:
            raise error
        receiving.wait_at(views)
        return receiving

    def view(self, stream: str, group: str) -> GroupView:
        """The place of a group in a queue; a new one begins as its settings say. Errors as `receive`."""
        return self._groups_of(stream).view(group, lambda found: self._start(found, group))

    def view_from(self, stream: str, group: str, offset: int) -> GroupView:
        """The place of a group in a queue; a new one begins at the offset that a member gave.

        Errors as `receive`.
        """
        return self._groups_of(stream).view(group, lambda _stream: offset)

    def find_view(self, stream: str, group: str) -> GroupView | None:
        """The place of a group in a queue; None where it has none. Errors as `receive`."""
        return self._groups_of(stream).find(group) if self._has_groups(stream) else None

    def views(self, stream: str) -> list[GroupView]:
        """The places of all groups in a queue. Errors as `receive`."""
        return list(self._groups_of(stream)) if self._has_groups(stream) else []

    def known(self) -> list[GroupView]:
        """The places of groups in streams whose ledgers are open."""
        return [view for groups in self._opened.values() for view in groups]

    def dead_letters(self, group: str) -> GroupDeadLetters | None:
        """The dead letters of a group; None where it never had any. Errors as `receive`."""
        name = dead_letters_of(group)
        return None if self._environment.find(name) is None else self._groups_of(name).dead_letters()

    def removed(self, group: str) -> None:
        """A group was removed: forget its places in all queues. Raises LogError.

        Cost: opening the ledger of each stream that groups ever used.
        """
        gone = ResourceNotFoundError("the consumer group was removed", subject=group)
        for name in self.streams():
            self._groups_of(name).drop(group, gone)

    def changed(self, group: str) -> None:
        """The settings of a group changed: its waiting requests are looked at again, or refused if it is disabled."""
        is_enabled = self.settings_of(group).enabled
        for groups in self._opened.values():
            view = groups.find(group)
            if view is not None and is_enabled:
                view.wake()
            elif view is not None:
                view.end(EntityDisabledError("the consumer group is disabled", subject=group))

    def reset(self, stream: str, group: str, offset: int, then: Settled) -> None:
        """Set the offset at which a group goes on in a queue, and forget its settlements; `then` follows the commit.

        Errors as `receive`.
        """
        groups = self._groups_of(stream)
        groups.drop(group, ResourceNotFoundError("the consumer group begins elsewhere", subject=group))
        groups.view(group, lambda _stream: offset)
        groups.consumption.answer(then, [])

    def start_of(self, stream: str, group: str) -> int:
        """The offset at which a group new to a queue begins. Raises ResourceNotFoundError, LogError."""
        return self._start(self._found(stream), group)

    def next_offset(self, stream: str) -> int:
        """The offset behind a queue. Raises ResourceNotFoundError, LogError."""
        return self._found(stream).next_offset

    def _start(self, stream: BrokerStream, group: str) -> int:
        """The offset at which a new group begins."""
        start = self._start_of(group)
        stream.look()
        is_young = stream.first_offset == 0 and stream.size_bytes() <= YOUNG_BYTES
        if start is GroupStart.FIRST or (start is GroupStart.FIRST_WHILE_YOUNG and is_young):
            return 0
        return stream.next_offset

    # opening

    def _has_groups(self, name: str) -> bool:
        stream = self._found(name)
        return stream in self._opened or (stream.stream.path / GROUPS_FOLDER).exists()

    def _found(self, name: str) -> BrokerStream:
        stream = self._environment.find(name)
        if stream is None:
            raise ResourceNotFoundError("no such stream", subject=name)
        return stream

    def _groups_of(self, name: str) -> StreamGroups:
        stream = self._found(name)
        groups = self._opened.get(stream)
        if groups is None:
            with stream.guarded():
                ledger = stream.storage.ledger(stream.stream, now_ms=self._now_ms(), folder=GROUPS_FOLDER)
            try:
                groups = StreamGroups(stream, ledger, self._calls, self._environment)
            except BaseException:
                ledger.close()
                raise
            self._opened[stream] = groups
            groups.consumption.expire(self._now_ms())
            self._touch(groups)
        return groups

    def streams(self) -> list[str]:
        """The streams that groups ever used, in order."""
        return self._startup.names()

    def _open_consumer(self, stream: BrokerStream, options: ConsumerOptions) -> MessageConsumer:
        """A consumer that reads a stream for a view, as the stream is now. Raises LogError."""
        stream.look()
        consumer = self._consumers.message_consumer(stream, options)
        self._environment.watch(stream)
        return consumer

    # the turn

    def _touch(self, groups: StreamGroups) -> None:
        """Give the groups of a stream a turn next time."""
        if not self.touched:
            self._environment.wake()
        self.touched[groups] = None

    def _offer(self, view: GroupView) -> None:
        """A view may have messages for waiting requests."""
        self._offered[view] = None

    def turn(self) -> None:
        """Take back expired claims, look for messages, give them out, commit, answer; at the end of the loop's turn."""
        now_ms = self._now_ms()
        touched, self.touched = list(self.touched), {}
        for groups in touched:
            groups.look(now_ms)
        offered, self._offered = self._offered, {}
        for view in offered:
            view.serve(now_ms)
        # A request may have taken messages of other queues as well.
        claimed, self._to_commit = self._to_commit, {}
        for groups in dict.fromkeys([*touched, *claimed]):
            groups.commit(now_ms)
            if (error := groups.consumption.broken_by) is not None:
                self._open_again(groups, error)

    def _claimed(self, groups: StreamGroups) -> int:
        """Messages of a stream were claimed; gives a number that rises with every call."""
        self._to_commit[groups] = None
        self._claims += 1
        return self._claims

    def tick(self, now_ms: int) -> None:
        """Look after the open ledgers, open the others after a start, close unused ones.

        Cost: microseconds for each open ledger; about once a second a look at each of their groups.
        """
        for groups in self._opened.values():
            groups.tick(now_ms)
        if is_over(self._looked_ms, _LOOK_MS, now_ms):
            self._looked_ms = now_ms
            self._rest(now_ms)
        self._startup.tick()

    def _rest(self, now_ms: int) -> None:
        """Free unused memory, and close unused ledgers."""
        for stream, groups in list(self._opened.items()):
            groups.rest(now_ms)
            if groups.is_idle(now_ms):
                del self._opened[stream]
                self.touched.pop(groups, None)
                groups.close(ResourceNotFoundError("the ledger was closed", subject=stream.name))

    def _open_again(self, groups: StreamGroups, error: HeadgateError) -> None:
        logger.error("the consumer groups of stream %r are opened again: %s", groups.stream.name, error)
        self.forget(groups.stream, error)
        self._startup.again(groups.stream.name)

    def forget(self, stream: BrokerStream, error: HeadgateError) -> None:
        """A stream is deleted, or its ledger cannot be used any more."""
        groups = self._opened.pop(stream, None)
        if groups is not None:
            self.touched.pop(groups, None)
            groups.end(error)

    def close(self) -> None:
        """Close all of them."""
        for stream, groups in list(self._opened.items()):
            groups.close(ResourceNotFoundError("the broker ends", subject=stream.name))
        self._opened.clear()
