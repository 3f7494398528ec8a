"""One consumer group on one queue: it gives the queue's messages to members, and settles them.

never looked at ──► read with the filter of who asks ──┐
came back (its invisible time ended) ──────────────────┴──► claim ──► commit ──► given
message groups: what is read is noted first, and claimed when its message group is free
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import total
from headgate.broker.consumer_groups.declarations import GroupSettings
from headgate.broker.consumer_groups.message_order import INDEXED_BYTES, MessageOrder
from headgate.broker.consumer_groups.new_messages import NewMessages
from headgate.broker.consumer_groups.receive_requests import RECEIVED_BYTES, PendingReceive
from headgate.broker.consumers import MessageConsumer
from headgate.broker.delivery import (
    NO_COPIES,
    Consumption,
    GivenCopies,
    LeaseCounters,
    Leases,
    ReadCopies,
    Settled,
    StreamSource,
    TargetKind,
    drop_copies,
    nobody_asks,
)
from headgate.broker.intervals import is_over
from headgate.broker.stream import BrokerStream
from headgate.errors import HeadgateError, LogError, ResourceNotFoundError
from headgate.evaluate import Filter
from headgate.ledger import Tokens, View, copy_number, offset_of
from headgate.scan import ScanBatch, ScanCounters

logger = logging.getLogger("headgate.broker")

MAX_UNSETTLED = 10_000
"""Limit: messages of a queue that members have; at the limit they are given no new ones, as in RocketMQ."""

LOOK_AHEAD = 2_048
"""Limit: messages that are noted and wait for others of their message groups."""

NOTED_AFTER = 8_192
"""After this many passed offsets they are written down without waiting for a claim."""

PULLED_MS = 30_000
"""After this time without a read by a member that reads the queue for itself, others are given new messages."""

REST_MS = 10_000
"""After this time without use a view frees its memory for reading."""

DEAD_LETTER_PREFIX = "%DLQ%"


@dataclass(slots=True)
class GroupCounts:
    """Messages of a queue by their state in a group: `unseen` were never looked at, `available` ones came back.

    `claimed` ones are with members, `moving` ones on their way to the dead letters.
    """

    unseen: int = 0
    available: int = 0
    claimed: int = 0
    moving: int = 0

    @property
    def lag(self) -> int:
        """How many messages are unsettled, as far as is known without the filter."""
        return self.unseen + self.available + self.claimed


@dataclass(slots=True)
class GroupCounters(LeaseCounters):
    """Counters of one queue in a consumer group, since the broker opened it."""

    filtered: int = 0
    """Offsets that were passed over, also offsets without messages."""
    lost: int = 0
    """Offsets that retention deleted before the group came to them."""


def dead_letters_of(group: str) -> str:
    """The stream of the dead letters of a consumer group."""
    return DEAD_LETTER_PREFIX + group


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """The policy of a consumer group; see `Policy`."""

    group: str
    settings: Callable[[], GroupSettings]
    """Gives the settings in force."""

    @property
    def max_attempts(self) -> int:
        """See `Policy`."""
        return self.settings().max_attempts

    @property
    def dead_letters(self) -> str:
        """See `Policy`."""
        return TargetKind.STREAM.named(dead_letters_of(self.group))

    @property
    def exhausted(self) -> None:
        """See `Policy`."""
        return None

    def backoff_ms(self, _attempt: int) -> int:
        """See `Policy`: the invisible time of a message is its backoff."""
        return 0


class GroupView(Leases[PendingReceive]):
    """The place of one consumer group in one queue; in the broker's thread only. From `ConsumerGroups.view`.

    It is closed when its stream is deleted or its group removed, or after some seconds without use: get a new one for
    each use.
    """

    def __init__(
        self,
        group: str,
        stream: BrokerStream,
        view: View,
        source: StreamSource,
        consumption: Consumption,
        policy: GroupPolicy,
        *,
        new_messages: Callable[[GroupView], NewMessages],
        offer: Callable[[GroupView], None],
        claimed: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`new_messages` makes the reader of messages that were not given yet.

        `offer` is called when there may be messages for a waiting member. `claimed` is called when a claim is to be
        committed, and gives its number, counted over all views.
        """
        super().__init__(group, view, source, consumption, now_ms)
        self.policy: GroupPolicy = policy
        self.counters: GroupCounters = GroupCounters()
        self.group = group
        self.stream = stream
        self.is_closed = False
        self.given_last = 0
        """The number of its last claim, counted over all views."""
        self._pulled_until_ms = 0
        self._pulled_with: dict[MessageConsumer, None] = {}
        self._pulled = ScanCounters()
        """Counters of members that have stopped reading the queue for themselves."""
        self.waiting: dict[PendingReceive, None] = {}
        """The requests that wait for messages, in order."""
        self._offer = offer
        self._claimed = claimed
        self._order: MessageOrder | None = None
        """The order of message groups, for a group that keeps it; made at the first use."""
        self.new_messages = new_messages(self)
        self._counted = self.new_messages.position
        """Below this offset the passed offsets are counted."""

    # what it has

    @property
    def committed_offset(self) -> int:
        """The lowest offset that is not settled."""
        floor = self.view.floor
        return self.new_messages.position if floor == self.view.next_copy else offset_of(floor)

    @property
    def position(self) -> int:
        """The offset behind all messages that were given or passed over."""
        return self.new_messages.position

    def counts(self) -> GroupCounts:
        """The number of messages by state. Cost: microseconds, and a few nanoseconds for each unsettled one."""
        rows = self.view.counts()
        unseen = self.stream.messages_from(self.position)
        return GroupCounts(unseen, rows.available + rows.waiting, rows.claimed, self._moving)

    @property
    def _moving(self) -> int:
        return len(self._consumption.ledger.moves().get(self.policy.dead_letters, ()))

    @property
    def reader(self) -> MessageConsumer | None:
        """The consumer that reads for it: its own one, or that of a member that reads for itself; None without one."""
        return self.new_messages.consumer or next(iter(self._pulled_with), None)

    @property
    def scan_counters(self) -> ScanCounters:
        """Counters of the messages examined, skipped and kept, by itself and by members that read for themselves."""
        counters = self.new_messages.counters
        counters.add(self._pulled)
        for consumer in self._pulled_with:
            counters.add(consumer.counters)
        return counters

    @property
    def filtered(self) -> int:
        """How many offsets were passed over."""
        return self.counters.filtered

    @property
    def trouble(self) -> LogError | None:
        """Why nothing can be settled or given out now; None without trouble."""
        return self._consumption.trouble

    @property
    def is_in_use(self) -> bool:
        """Whether a request waits or is about to be given messages, or a member reads for itself."""
        return bool(self.waiting or self._given) or self.is_pulled

    # who waits

    def add(self, receiving: PendingReceive) -> None:
        """Add a waiting request."""
        self.used_ms = self.now_ms()
        self.waiting[receiving] = None
        self._consumption.receiving[self] = None
        self.touch()

    def left(self, receiver: PendingReceive) -> None:
        """See `Leases`; again is harmless."""
        if self.waiting.pop(receiver, self) is self:
            return
        self.used_ms = self.now_ms()
        if not self.waiting:
            self._consumption.receiving.pop(self, None)
            self.new_messages.rest()

    @property
    def is_wanted(self) -> bool:
        """See `ViewDispatcher`."""
        return bool(self.waiting)

    def wake(self) -> None:
        """See `ViewDispatcher`."""
        if self.waiting:
            self.touch()

    def end(self, error: HeadgateError) -> None:
        """See `ViewDispatcher`: waiting requests go on without this view."""
        for receiving in list(self.waiting):
            receiving.failed(self, error)

    def rest(self, now_ms: int) -> None:
        """Free memory that was not used for a while."""
        if not self.waiting and is_over(self.used_ms, REST_MS, now_ms):
            self.new_messages.close()

    def note_passed(self) -> None:
        """Write down which offsets were passed over. Raises LogError."""
        if not self.is_closed:
            self._note_passed(1)

    def close(self, error: HeadgateError) -> None:
        """Close the view; requests that wait for it get the error."""
        self.is_closed = True
        self.end(error)
        given, self._given = self._given, []
        for receiving, _ in given:
            receiving.lost(error)
        self.new_messages.close()

    # members that read the queue for themselves: `PulledQueue`

    @property
    def is_pulled(self) -> bool:
        """Whether a member reads the queue for itself; then others are given only messages that come again."""
        return self.now_ms() < self._pulled_until_ms

    def pulled(self) -> None:
        """Note that a member reads the queue for itself now."""
        self.used_ms = self.now_ms()
        self._pulled_until_ms = self.used_ms + PULLED_MS

    def pulled_with(self, consumer: MessageConsumer) -> None:
        """A member reads with a consumer, until `ends_pulling`; its work counts for the group."""
        self._pulled_with[consumer] = None

    def ends_pulling(self, consumer: MessageConsumer) -> None:
        """A member stops reading with a consumer; again is harmless."""
        if self._pulled_with.pop(consumer, self) is not self:
            self._pulled.add(consumer.counters)

    def skip_to(self, offset: int) -> None:
        """Look at no more messages below an offset."""
        if offset > self.new_messages.position:
            self.new_messages.go_to(offset)
            self._counted = self.new_messages.position

    def learn_order_anew(self) -> None:
        """Learn the order again: a message of an unknown message group may have come back."""
        self._order = None

    # finding

    def dispatch(self, now_ms: int) -> bool:
        """Look for wanted messages, a bounded number; see `ViewDispatcher`."""
        if not self.waiting:
            return False
        if self.policy.settings().fifo:
            if self._order is None:
                self._order = MessageOrder(self.view, self.source)
            if not self._order.is_known:
                self._order.learn()
                return True
        else:
            self._order = None
        has_more = False
        takers = [] if self.is_pulled else [each for each in self.waiting if each.request.takes_new]
        if takers:
            count = sum(receiving.left for receiving in takers)
            wanted, order = takers[0].request.filter, self._order
            has_more = self._look(wanted, count) if order is None else self._look_ahead(order, wanted, count)
        else:
            self.new_messages.rest()
        self._count_passed()
        self._note_passed(NOTED_AFTER)
        if self._may_give:
            self._offer(self)
        else:
            for receiving in list(self.waiting):
                receiving.looked()
        return has_more

    @property
    def is_looking(self) -> bool:
        """Whether messages that waiting requests may want are soon to be looked at."""
        if self.trouble is not None:
            return False
        if self.is_queued or not self._is_ordered:
            return True
        return not self.is_pulled and self._look_room > 0 and self.new_messages.is_behind

    def _look(self, wanted: Filter | None, count: int) -> bool:
        room = self._room
        if room <= 0:
            self.new_messages.rest()
            return False
        return self.new_messages.look(wanted, min(count, room))

    def _count_passed(self, given: int = 0) -> None:
        """Count the offsets passed over since the last count; `given` of them were taken."""
        self.counters.filtered += self.new_messages.position - self._counted - given
        self._counted = self.new_messages.position

    def overtaken(self, offsets: int) -> None:
        """Count and log offsets that retention deleted before the group came to them."""
        self.counters.lost += offsets
        self._counted += offsets
        logger.warning(
            "group %r: %d messages of stream %r were deleted before its members came to them",
            self.group,
            offsets,
            self.stream.name,
        )

    @property
    def _room(self) -> int:
        """How many more messages its members may have; moves to dead letters count too, as they are in memory."""
        return MAX_UNSETTLED - self.view.counts().claimed - self._moving

    @property
    def _look_room(self) -> int:
        """How many more messages may be found for its members, given or noted."""
        if self._order is None:
            return self._room
        return min(LOOK_AHEAD - self.view.counts().available, self._room)

    @property
    def _is_ordered(self) -> bool:
        """Whether the order of message groups is known, if the settings of the group now ask for it."""
        if self._order is None:
            return not self.policy.settings().fifo
        return self._order.is_known

    @property
    def _may_give(self) -> bool:
        """Whether there seem to be messages for a waiting request."""
        if not (self.waiting and self._is_ordered):
            return False
        if self._order is not None:
            return self._order.has_free
        return bool(len(self.view.returned(1))) or (not self.is_pulled and self._has_new)

    @property
    def _has_new(self) -> bool:
        taker = next((each for each in self.waiting if each.request.takes_new), None)
        return taker is not None and self.new_messages.has_some(taker.request.filter)

    def _note_passed(self, least: int) -> None:
        """Write down passed offsets if they are at least `least`; fewer are written with a claim."""
        start, stop = self.view.next_copy, copy_number(self.new_messages.position)
        if stop - start >= copy_number(least) and self._consumption.trouble is None:
            self.view.postpone((), 0, covered=[(start, stop)])

    def _look_ahead(self, order: MessageOrder, wanted: Filter | None, count: int) -> bool:
        """Note new messages with their message groups, until a group is free or many messages wait."""
        room = self._look_room
        if order.has_free or room <= 0 or self._consumption.trouble is not None:
            return False
        has_more = self.new_messages.look(wanted, min(max(count, 32), room))
        batch = self.new_messages.take(wanted, room, INDEXED_BYTES)
        if batch is None:
            return has_more
        self._count_passed(len(batch))
        order.note(self._never_given(batch), self._covered())
        return not order.has_free

    # giving

    def serve(self, now_ms: int) -> None:
        """Give the found messages to waiting requests, in order of their coming."""
        for receiving in list(self.waiting):
            if not self._may_give:
                break
            if receiving in self.waiting and not receiving.collect(now_ms) and receiving.request.takes_new:
                break
        if not self._may_give:
            self.wake()

    def give(self, receiving: PendingReceive, now_ms: int) -> None:
        """Claim messages for a request. Raises LogError where the messages are damaged."""
        if not self._is_ordered:
            self.wake()
        elif self._consumption.takes_more:
            with self.stream.guarded():
                if self._order is None:
                    self._give_any(receiving, now_ms)
                else:
                    self._give_in_order(self._order, receiving, now_ms)

    def _give_any(self, receiving: PendingReceive, now_ms: int) -> None:
        request, left_bytes = receiving.request, RECEIVED_BYTES
        while receiving.left > 0 and left_bytes > 0 and len(copies := self.view.returned(receiving.left)):
            left_bytes -= self._claim(receiving, self._again(copies, request.filter_again), now_ms)
        takes_new = request.takes_new and not self.is_pulled
        while takes_new and receiving.left > 0 and left_bytes > 0 and (room := self._room) > 0:
            batch = self.new_messages.take(request.filter, min(receiving.left, room), left_bytes)
            if batch is None:
                break
            self._count_passed(len(batch))
            left_bytes -= self._claim(receiving, self._never_given(batch), now_ms, covered=self._covered())

    def _never_given(self, batch: ScanBatch) -> ReadCopies:
        """The messages read, except messages that a member reading for itself has sent back."""
        found = ReadCopies(batch.offsets * copy_number(1), batch.timestamps_ms, batch.messages)
        if not len(found) or self.view.seen_until <= int(found.copies[0]):
            return found
        return found.take(self.view.unseen(found.copies))

    def _give_in_order(self, order: MessageOrder, receiving: PendingReceive, now_ms: int) -> None:
        left_bytes = RECEIVED_BYTES
        while left_bytes > 0 and (wanted := min(receiving.left, self._room)) > 0:
            copies = order.take(wanted)
            if not len(copies):
                break
            found = NO_COPIES
            try:
                found = self._again(copies, receiving.request.filter_again)
            finally:
                order.changed(np.setdiff1d(copies, found.copies))
            left_bytes -= self._claim(receiving, found, now_ms)

    def _claim(
        self, receiving: PendingReceive, found: ReadCopies, now_ms: int, *, covered: Sequence[tuple[int, int]] = ()
    ) -> int:
        """Claim messages for a request; gives their size in bytes."""
        if not len(found):
            return 0
        until_ms = now_ms + receiving.request.invisible_ms
        claim = self.view.claim(found.copies, until_ms, covered=covered)
        receiving.claimed(len(found))
        self._lease(receiving, GivenCopies(found, claim.tokens, claim.attempts, until_ms))
        self.given_last = self._claimed()
        return total(found.messages.lengths)

    def _covered(self) -> list[tuple[int, int]]:
        """The range that was looked at and is not noted yet."""
        start, stop = self.view.next_copy, copy_number(self.new_messages.position)
        return [(start, stop)] if stop > start else []

    def _again(self, copies: NDArray[np.int64], wanted: Filter | None) -> ReadCopies:
        """Read the first of these available messages; keeps each one that the filter matches. Raises LogError.

        Messages that do not match, or that retention deleted, are settled.
        """
        if not len(copies):
            return NO_COPIES
        found, _ = self._read_available(copies, RECEIVED_BYTES)
        if wanted is None or not len(found):
            return found
        kept = wanted.over(self.stream.stream.body_schema).mask(found.messages, now_ms=self.now_ms())
        self.counters.filtered += int(np.count_nonzero(~kept))
        drop_copies(self.view, found.copies[~kept])
        return found.take(kept)

    def _hand_over(self, receiver: PendingReceive, given: GivenCopies) -> None:
        if receiver.is_done:
            self._give_back(given)
        else:
            self._count_delivered(given)
            receiver.deliver(self, given)

    # settling

    def change(self, tokens: Sequence[bytes], then: Settled, change: Callable[[Tokens], NDArray[np.bool_]]) -> None:
        """See `Leases.change`; `then` may get ResourceNotFoundError, too."""
        if self.is_closed:
            then(ResourceNotFoundError("the consumer group has no place in the queue any more", subject=self.group))
            return
        super().change(tokens, then, change)
        # There may be messages to give now, as fewer are claimed or a message group is free.
        self.wake()

    def change_invisible(self, tokens: Sequence[bytes], invisible_ms: int, then: Settled = nobody_asks) -> None:
        """Messages come again `invisible_ms` from now (0: at once) unless they are settled first. As `change`."""
        until_ms = self.now_ms() + invisible_ms

        def change(given: Tokens) -> NDArray[np.bool_]:
            return self.view.renew(given, until_ms) if invisible_ms > 0 else self._fail(given, 0)

        self.change(tokens, then, change)

    def claim_again(self, tokens: Sequence[bytes], invisible_ms: int, then: Settled = nobody_asks) -> list[bytes]:
        """As `change_invisible`, but with new tokens; gives these, which are valid once `then` is called."""
        until_ms = self.now_ms() + invisible_ms
        made: list[bytes] = []

        def change(given: Tokens) -> NDArray[np.bool_]:
            held, again = self.view.claim_again(given, until_ms)
            made.extend(again.pack())
            return held

        self.change(tokens, then, change)
        return made

    def take_back(self, tokens: Sequence[bytes]) -> None:
        """Release messages that were not delivered: they come again at once, and the attempt does not count."""
        self.change(tokens, nobody_asks, lambda given: self.view.release(given, counts=False))

    def dead_letter(self, tokens: Sequence[bytes], then: Settled = nobody_asks) -> None:
        """Turn messages into dead letters of the group. As `change`."""
        self.change(tokens, then, lambda given: self.dead_letter_held(given, None))

    # time

    def ended_locks(self) -> None:
        """See `ViewDispatcher`: waiting messages may be available now."""
        if self._order is not None:
            self._order.look_at_held()
