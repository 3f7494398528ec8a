"""One consumer group on one queue: what its members are given of it, and what settling that does.

never looked at ──► read with the filter of who asks ──┐
came back (its invisible time ended) ──────────────────┴──► claim ──► commit ──► given
message groups: what is read is noted first, and claimed when its message group is free
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.broker.consumer_groups.declarations import GroupSettings
from headgate.broker.consumer_groups.fresh import FreshMessages
from headgate.broker.consumer_groups.message_order import INDEXED_BYTES, MessageOrder, drop_copies
from headgate.broker.consumer_groups.receiving import RECEIVED_BYTES, Receiving
from headgate.broker.consumers import MessageConsumer
from headgate.broker.consumption import Consumption, Settled
from headgate.broker.stream import BrokerStream
from headgate.broker.timing import is_over
from headgate.broker.topics import GivenCopies, ReadCopies, StreamSource, TargetKind, nobody_asks
from headgate.columns import total
from headgate.errors import HeadgateError, LogError, PreconditionFailedError, ResourceNotFoundError
from headgate.evaluate import Filter
from headgate.ledger import Expired, Tokens, View, copy_number, offset_of
from headgate.message import EncodedMessages
from headgate.scan import ScanBatch, ScanCounters

MAX_UNSETTLED = 10_000
"""While members have so many messages of a queue, they are given no fresh ones; as in the original."""

LOOK_AHEAD = 2_048
"""At most so many messages wait, noted, behind others of their message groups."""

NOTED_AFTER = 8_192
"""Offsets that were passed over and are written down without waiting for a claim."""

PULLED_MS = 30_000
"""After this time without a read by the member that has a queue for itself, others are given its fresh messages."""

REST_MS = 10_000
"""After this time without use its memory for reading is given back."""

DEAD_LETTER_PREFIX = "%DLQ%"

_NO_COPIES = ReadCopies(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), EncodedMessages.of([]))


@dataclass(slots=True)
class GroupCounts:
    """Messages of a queue as a group has them: `unseen` were never looked at, `available` ones came back.

    `claimed` ones are with members, `moving` ones on their way to the dead letters.
    """

    unseen: int = 0
    available: int = 0
    claimed: int = 0
    moving: int = 0

    @property
    def lag(self) -> int:
        """How many are not settled, as far as that is known without the filter."""
        return self.unseen + self.available + self.claimed


@dataclass(slots=True)
class GroupCounters:
    """What became of the messages of a group on a queue since the broker opened it."""

    delivered: int = 0
    delivered_bytes: int = 0
    filtered: int = 0
    """Offsets that were passed over, those without messages among them."""
    completed: int = 0
    expired: int = 0
    dead_lettered: int = 0


def dead_letters_of(group: str) -> str:
    """The stream of the dead letters of a consumer group."""
    return DEAD_LETTER_PREFIX + group


class GroupView:
    """The place of one consumer group in one queue; in the broker's thread only. From `ConsumerGroups.view`.

    It is of no use any more when its stream is deleted or its group removed, or after some seconds without use: ask for
    it where it is needed.
    """

    def __init__(
        self,
        group: str,
        stream: BrokerStream,
        view: View,
        source: StreamSource,
        consumption: Consumption,
        *,
        settings: Callable[[], GroupSettings],
        fresh: Callable[[GroupView], FreshMessages],
        offer: Callable[[GroupView], None],
        claimed: Callable[[GroupView], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`fresh` makes the reader of messages that were not given yet.

        `offer` is called when there is something for a waiting member. `claimed` is called when a claim is to be
        committed, and gives its number, over all views.
        """
        self.group = group
        self.stream = stream
        self.view = view
        self.counters = GroupCounters()
        self.is_queued = False
        self.is_closed = False
        self.given_last = 0
        """The number of what it gave last, over all views."""
        self.used_ms = now_ms()
        self._pulled_until_ms = 0
        self._pulled_with: dict[MessageConsumer, None] = {}
        self._pulled = ScanCounters()
        """Of members that read the queue for themselves and have ended that."""
        self.waiting: dict[Receiving, None] = {}
        """The requests that wait for messages, in order."""
        self._source = source
        self._consumption = consumption
        self._settings = settings
        self._offer = offer
        self._claimed = claimed
        self.now_ms = now_ms
        self._given: list[tuple[Receiving, GivenCopies]] = []
        self._order: MessageOrder | None = None
        """Of a group that keeps the order of message groups, once it is used."""
        self.fresh = fresh(self)
        self._counted = self.fresh.position
        """Below this offset it is counted what was passed over."""

    # what it has

    @property
    def committed_offset(self) -> int:
        """The lowest offset that is not settled."""
        floor = self.view.floor
        return self.fresh.position if floor == self.view.next_copy else offset_of(floor)

    @property
    def position(self) -> int:
        """The offset behind all that was given, or passed over."""
        return self.fresh.position

    def counts(self) -> GroupCounts:
        """How many messages are there, by state. Cost: microseconds, and a few nanoseconds for each unsettled one."""
        rows = self.view.counts()
        unseen = self.stream.messages_from(self.position)
        return GroupCounts(unseen, rows.available + rows.waiting, rows.claimed, self._moving)

    @property
    def _moving(self) -> int:
        return len(self._consumption.ledger.moves().get(self._dead_letters, ()))

    @property
    def reader(self) -> MessageConsumer | None:
        """What reads for it, by itself or for a member that reads on its own; None while nothing does."""
        return self.fresh.consumer or next(iter(self._pulled_with), None)

    @property
    def scan_counters(self) -> ScanCounters:
        """What reading for it examined, skipped and kept, by itself and by members that read for themselves."""
        counters = self.fresh.counters
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
        """Why nothing is settled or given out now; None where it is."""
        return self._consumption.trouble

    @property
    def is_in_use(self) -> bool:
        """Whether somebody waits, is about to be given something, or reads for itself."""
        return bool(self.waiting or self._given) or self.is_pulled

    # who waits

    def add(self, receiving: Receiving) -> None:
        """A request waits here."""
        self.used_ms = self.now_ms()
        self.waiting[receiving] = None
        self._consumption.receiving[self] = None
        self._consumption.ready(self)

    def remove(self, receiving: Receiving) -> None:
        """A request waits no more; again is harmless."""
        if self.waiting.pop(receiving, self) is self:
            return
        self.used_ms = self.now_ms()
        if not self.waiting:
            self._consumption.receiving.pop(self, None)
            self.fresh.rest()

    @property
    def is_wanted(self) -> bool:
        """See `ViewDispatcher`."""
        return bool(self.waiting)

    def wake(self) -> None:
        """See `ViewDispatcher`."""
        if self.waiting:
            self._consumption.ready(self)

    def end(self, error: HeadgateError) -> None:
        """See `ViewDispatcher`: those that wait go on without it."""
        for receiving in list(self.waiting):
            receiving.failed(self, error)

    def rest(self, now_ms: int) -> None:
        """Give memory back that was not used for a while."""
        if not self.waiting and is_over(self.used_ms, REST_MS, now_ms):
            self.fresh.close()

    def note_passed(self) -> None:
        """Write down what was passed over. Raises LogError."""
        if not self.is_closed:
            self._note_passed(1)

    def close(self, error: HeadgateError) -> None:
        """It is no more."""
        self.is_closed = True
        self.end(error)
        given, self._given = self._given, []
        for receiving, _ in given:
            receiving.lost(error)
        self.fresh.close()

    # members that read the queue for themselves: `PulledQueue`

    @property
    def is_pulled(self) -> bool:
        """Whether a member reads the queue for itself: others are given only what comes again."""
        return self.now_ms() < self._pulled_until_ms

    def pulled(self) -> None:
        """A member reads the queue for itself, now."""
        self.used_ms = self.now_ms()
        self._pulled_until_ms = self.used_ms + PULLED_MS

    def pulled_with(self, consumer: MessageConsumer) -> None:
        """A member reads with this, until `ends_pulling`: what that costs counts as the group's."""
        self._pulled_with[consumer] = None

    def ends_pulling(self, consumer: MessageConsumer) -> None:
        """A member reads no more with this; again is harmless."""
        if self._pulled_with.pop(consumer, self) is not self:
            self._pulled.add(consumer.counters)

    def skip_to(self, offset: int) -> None:
        """Messages below an offset are not looked at any more."""
        if offset > self.fresh.position:
            self.fresh.go_to(offset)
            self._counted = self.fresh.position

    def learn_order_anew(self) -> None:
        """A message may have come back whose message group is not known."""
        self._order = None

    # finding

    def dispatch(self, now_ms: int) -> bool:
        """Look for what is wanted, a bounded amount; see `ViewDispatcher`."""
        if not self.waiting:
            return False
        if self._settings().fifo:
            if self._order is None:
                self._order = MessageOrder(self.view, self._source)
            if not self._order.is_known:
                self._order.learn()
                return True
        else:
            self._order = None
        has_more = False
        takers = [] if self.is_pulled else [each for each in self.waiting if each.request.takes_fresh]
        if takers:
            count = sum(receiving.left for receiving in takers)
            wanted, order = takers[0].request.filter, self._order
            has_more = self._look(wanted, count) if order is None else self._look_ahead(order, wanted, count)
        else:
            self.fresh.rest()
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
        """Whether there may be something for those that wait that was not looked at, and soon is."""
        if self.trouble is not None:
            return False
        if self.is_queued or not self._is_ordered:
            return True
        return not self.is_pulled and self._look_room > 0 and self.fresh.is_behind

    def _look(self, wanted: Filter | None, count: int) -> bool:
        room = self._room
        if room <= 0:
            self.fresh.rest()
            return False
        return self.fresh.look(wanted, min(count, room))

    def _count_passed(self, given: int = 0) -> None:
        """Count the offsets that were passed over since the last count, in which `given` messages were taken."""
        self.counters.filtered += self.fresh.position - self._counted - given
        self._counted = self.fresh.position

    @property
    def _room(self) -> int:
        """How many messages more its members may have; what waits to be a dead letter counts: it is in memory."""
        return MAX_UNSETTLED - self.view.counts().claimed - self._moving

    @property
    def _look_room(self) -> int:
        """How many messages more may be found for its members, given or noted."""
        if self._order is None:
            return self._room
        return min(LOOK_AHEAD - self.view.counts().available, self._room)

    @property
    def _is_ordered(self) -> bool:
        """Whether it is known which messages may be given, as the settings of the group are now."""
        if self._order is None:
            return not self._settings().fifo
        return self._order.is_known

    @property
    def _may_give(self) -> bool:
        """Whether there seems to be something for somebody who waits."""
        if not (self.waiting and self._is_ordered):
            return False
        if self._order is not None:
            return self._order.has_free
        return bool(len(self._came_back(1))) or (not self.is_pulled and self._has_fresh)

    @property
    def _has_fresh(self) -> bool:
        taker = next((each for each in self.waiting if each.request.takes_fresh), None)
        return taker is not None and self.fresh.has_some(taker.request.filter)

    def _came_back(self, limit: int) -> NDArray[np.int64]:
        """Available messages that were given before, the first ones."""
        return self.view.returned(limit)

    def _note_passed(self, least: int) -> None:
        """Write down that offsets were passed over, if they are many; else that comes with a claim."""
        start, stop = self.view.next_copy, copy_number(self.fresh.position)
        if stop - start >= copy_number(least) and self._consumption.trouble is None:
            self.view.postpone((), 0, covered=[(start, stop)])

    def _look_ahead(self, order: MessageOrder, wanted: Filter | None, count: int) -> bool:
        """Note fresh messages with their message groups, until enough of these are free or many wait."""
        room = self._look_room
        if order.has_free or room <= 0 or self._consumption.trouble is not None:
            return False
        has_more = self.fresh.look(wanted, min(max(count, 32), room))
        batch = self.fresh.take(wanted, room, INDEXED_BYTES)
        if batch is None:
            return has_more
        self._count_passed(len(batch))
        order.note(self._never_given(batch), self._covered())
        return not order.has_free

    def _changed(self, copies: Sequence[int] | NDArray[np.int64]) -> None:
        """Something became of messages that somebody had."""
        if self._order is not None:
            self._order.changed(copies)

    # giving

    def serve(self, now_ms: int) -> None:
        """Give what was found to those that wait, who came first first."""
        for receiving in list(self.waiting):
            if not self._may_give:
                break
            if receiving in self.waiting and not receiving.collect(now_ms) and receiving.request.takes_fresh:
                break
        if not self._may_give:
            self.wake()

    def give(self, receiving: Receiving, now_ms: int) -> None:
        """Claim messages for a request. Raises LogError where the messages are damaged."""
        if not self._is_ordered:
            self.wake()
        elif self._consumption.takes_more:
            with self.stream.guarded():
                if self._order is None:
                    self._give_any(receiving, now_ms)
                else:
                    self._give_in_order(self._order, receiving, now_ms)

    def _give_any(self, receiving: Receiving, now_ms: int) -> None:
        request, left_bytes = receiving.request, RECEIVED_BYTES
        while receiving.left > 0 and left_bytes > 0 and len(copies := self._came_back(receiving.left)):
            left_bytes -= self._claim(receiving, self._again(copies, request.filter_again), now_ms)
        takes_fresh = request.takes_fresh and not self.is_pulled
        while takes_fresh and receiving.left > 0 and left_bytes > 0 and (room := self._room) > 0:
            batch = self.fresh.take(request.filter, min(receiving.left, room), left_bytes)
            if batch is None:
                break
            self._count_passed(len(batch))
            left_bytes -= self._claim(receiving, self._never_given(batch), now_ms, covered=self._covered())

    def _never_given(self, batch: ScanBatch) -> ReadCopies:
        """What was read, without what members that read for themselves gave back before others came there."""
        found = ReadCopies(batch.offsets * copy_number(1), batch.timestamps_ms, batch.messages)
        if not len(found) or self.view.seen_until <= int(found.copies[0]):
            return found
        return found.take(self.view.unseen(found.copies))

    def _give_in_order(self, order: MessageOrder, receiving: Receiving, now_ms: int) -> None:
        left_bytes = RECEIVED_BYTES
        while left_bytes > 0 and (wanted := min(receiving.left, self._room)) > 0:
            copies = order.take(wanted)
            if not len(copies):
                break
            found = _NO_COPIES
            try:
                found = self._again(copies, receiving.request.filter_again)
            finally:
                order.changed(np.setdiff1d(copies, found.copies))
            left_bytes -= self._claim(receiving, found, now_ms)

    def _claim(
        self, receiving: Receiving, found: ReadCopies, now_ms: int, *, covered: Sequence[tuple[int, int]] = ()
    ) -> int:
        """Claim messages that were read for a request; gives how many bytes they have."""
        if not len(found):
            return 0
        until_ms = now_ms + receiving.request.invisible_ms
        claim = self.view.claim(found.copies, until_ms, covered=covered)
        receiving.claimed(len(found))
        self._given.append((receiving, GivenCopies(found, claim.tokens, claim.attempts, until_ms)))
        self._consumption.give(self)
        self.given_last = self._claimed(self)
        return total(found.messages.lengths)

    def _covered(self) -> list[tuple[int, int]]:
        """What was looked at and is not noted."""
        start, stop = self.view.next_copy, copy_number(self.fresh.position)
        return [(start, stop)] if stop > start else []

    def _again(self, copies: NDArray[np.int64], wanted: Filter | None) -> ReadCopies:
        """Some of these available messages, read, the first ones, if a filter is true for them. Raises LogError.

        Those that it is not true for, or that retention deleted, are settled.
        """
        if not len(copies):
            return _NO_COPIES
        found = self._source.read(copies, max_bytes=RECEIVED_BYTES)
        last = int(found.copies[-1]) if len(found) else int(copies[-1])
        drop_copies(self.view, np.setdiff1d(copies[copies <= last], found.copies))
        found = self._not_over(found)
        if wanted is None or not len(found):
            return found
        kept = wanted.mask(found.messages, now_ms=self.now_ms())
        self.counters.filtered += int(np.count_nonzero(~kept))
        drop_copies(self.view, found.copies[~kept])
        return found.take(kept)

    def _not_over(self, found: ReadCopies) -> ReadCopies:
        """Those that were not given too often yet; the others become dead letters.

        That is so for claims that ended while nothing could be written, and where fewer attempts are allowed now.
        """
        over = self.view.attempts_of(found.copies) >= self._settings().max_attempts
        if not over.any():
            return found
        self._move_available(found.copies[over])
        return found.take(~over)

    def _move_available(self, copies: NDArray[np.int64]) -> None:
        self.view.move_available(copies, self._dead_letters, b"")
        self.counters.dead_lettered += len(copies)

    def deliver(self, *, check: bool) -> None:
        """See `ViewDispatcher`."""
        given, self._given = self._given, []
        for receiving, part in given:
            if check and part.tokens is not None:
                part = part.take(self.view.holds(part.tokens))
            if receiving.is_done:
                self._give_back(part)
                continue
            self.counters.delivered += len(part)
            self.counters.delivered_bytes += total(part.read.messages.lengths)
            receiving.deliver(self, part)

    def _give_back(self, part: GivenCopies) -> None:
        """Nobody waits any more: as if it had not been claimed."""
        if part.tokens is not None and self._consumption.trouble is None:
            self.view.release(part.tokens, counts=False)
            self._changed(part.tokens.copies)
            self._consumption.touch()
            self.wake()

    # settling

    def settle(self, tokens: Sequence[bytes], then: Settled = nobody_asks) -> None:
        """Settle the messages with these tokens as consumed.

        `then` gets for each token whether its claim still stood, or the error for which nothing was settled: LogError,
        PreconditionFailedError, ResourceNotFoundError.
        """

        def settle(given: Tokens) -> NDArray[np.bool_]:
            held = self.view.complete(given)
            self.counters.completed += int(np.count_nonzero(held))
            return held

        self._settle(tokens, then, settle)

    def change_invisible(self, tokens: Sequence[bytes], invisible_ms: int, then: Settled = nobody_asks) -> None:
        """The messages come again after so long from now, 0: at once, unless they are settled before. As `settle`."""
        until_ms = self.now_ms() + invisible_ms

        def change(given: Tokens) -> NDArray[np.bool_]:
            return self.view.renew(given, until_ms) if invisible_ms > 0 else self._release(given)

        self._settle(tokens, then, change)

    def claim_again(self, tokens: Sequence[bytes], invisible_ms: int, then: Settled = nobody_asks) -> list[bytes]:
        """As `change_invisible`, but with other tokens from now on; gives these, of use once `then` was told."""
        until_ms = self.now_ms() + invisible_ms
        made: list[bytes] = []

        def change(given: Tokens) -> NDArray[np.bool_]:
            held, again = self.view.claim_again(given, until_ms)
            made.extend(again.pack())
            return held

        self._settle(tokens, then, change)
        return made

    def take_back(self, tokens: Sequence[bytes]) -> None:
        """The messages, as far as they are still held, were not given to anybody: they come at once, uncounted."""
        self._settle(tokens, nobody_asks, lambda given: self.view.release(given, counts=False))

    def _release(self, tokens: Tokens) -> NDArray[np.bool_]:
        """They come again at once, those that were given too often as dead letters."""
        attempts = self.view.attempts(tokens)
        over = attempts >= self._settings().max_attempts
        held = self.move(tokens.take(over)) if over.any() else np.zeros(0, dtype=np.bool_)
        released = np.zeros(len(tokens), dtype=np.bool_)
        released[over] = held
        released[~over] = self.view.release(tokens.take(~over), counts=True)
        return released

    def dead_letter(self, tokens: Sequence[bytes], then: Settled = nobody_asks) -> None:
        """The messages become dead letters of the group. As `settle`."""
        self._settle(tokens, then, self.move)

    def move(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Messages that somebody has become dead letters of the group; whether each was held. Raises LogError."""
        held = self.view.move(tokens, self._dead_letters, b"")
        self.counters.dead_lettered += int(np.count_nonzero(held))
        return held

    @property
    def _dead_letters(self) -> str:
        return TargetKind.STREAM.named(dead_letters_of(self.group))

    def _settle(self, tokens: Sequence[bytes], then: Settled, settle: Callable[[Tokens], NDArray[np.bool_]]) -> None:
        def change() -> list[bool]:
            given = Tokens.unpack(tokens)
            held = settle(given)
            self._changed(given.copies)
            result: list[bool] = held.tolist()
            return result

        self.change(change, then)

    def change(self, change: Callable[[], list[bool]], then: Settled) -> None:
        """Do something with messages that members had; `then` gets what it gives, behind the commit. As `settle`."""
        self.used_ms = self.now_ms()
        if self.is_closed:
            then(ResourceNotFoundError("the consumer group has no place in the queue any more", subject=self.group))
            return
        try:
            result = change()
        except (LogError, ValueError) as error:
            then(error if isinstance(error, LogError) else PreconditionFailedError(str(error), subject=self.group))
            return
        self._consumption.answer(then, result)
        # Where many were held, or a message group was, there may be something to give now.
        self.wake()

    # time

    def expired(self, expired: Expired) -> None:
        """See `ViewDispatcher`: messages come again, or are dead letters after too many attempts."""
        self.counters.expired += len(expired.copies)
        over = expired.copies[expired.attempts >= self._settings().max_attempts]
        if len(over) and self._consumption.trouble is None:
            self._move_available(over)
        self._changed(expired.copies)
        self.wake()

    def ended_locks(self) -> None:
        """See `ViewDispatcher`: messages may have waited until now."""
        if self._order is not None:
            self._order.look_at_held()
