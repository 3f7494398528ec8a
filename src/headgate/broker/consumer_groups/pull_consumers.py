"""Members that read queues for themselves, as clients of RocketMQ's classic protocol do: their places and retries.

A member reports now and then up to which offset it is done. That is kept in memory and written down within a second;
messages whose report a killed broker lost are given again. Messages that a member could not consume come again through
one retry queue for the whole group. It is no stream: it holds the messages that the views of the group's topics give
again, in the order in which they were taken. Reasons: docs/design/consumer-groups.md.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.broker.consumer_groups.group_view import GroupView
from headgate.broker.consumer_groups.group_views import GroupViews
from headgate.broker.consumer_groups.pulled_queue import PulledQueue
from headgate.broker.consumer_groups.receive_requests import PendingReceive, Received, ReceivedMessage, ReceiveRequest
from headgate.broker.delivery import Settled, nobody_asks
from headgate.errors import BrokerError, HeadgateError, LogError, PreconditionFailedError

WRITTEN_MS = 500
"""How often the places of members are written down."""

HELD_MS = 60_000
"""After this time a message that came again is taken from its member, unless it was renewed."""

_RENEWED_MS = 20_000
_IDLE_MS = 60_000
"""After this time without a member that asks a retry queue is closed; its messages come again after their time."""

_MOST_HELD = 1_000
_MOST_HELD_BYTES = 8 << 20
_NUMBERS_A_MS = 1 << 12
"""Numbers of a retry queue begin at the time × this, so all numbers of the last process are lower."""

logger = logging.getLogger("headgate.broker")


@dataclass(slots=True)
class Again:
    """A message that came again: its number in the retry queue, and its stream."""

    number: int
    stream: str
    message: ReceivedMessage


class RetryQueue:
    """The messages that come again for members of one group that read for themselves; in the broker's thread only."""

    def __init__(self, group: str, views: GroupViews, now_ms: Callable[[], int]) -> None:
        self.group = group
        self.next_number = now_ms() * _NUMBERS_A_MS
        """The number of the next message."""
        self._views = views
        self._now_ms = now_ms
        self._held: OrderedDict[int, Again] = OrderedDict()
        self._held_bytes = 0
        self._receiving: PendingReceive | None = None
        self._streams: list[str] = []
        """The streams that it receives from."""
        self._waiting: dict[Callable[[], None], None] = {}
        self._asked_ms = self._renewed_ms = now_ms()

    @property
    def first_number(self) -> int:
        """The number of the first unsettled message."""
        return next(iter(self._held), self.next_number)

    @property
    def is_idle(self) -> bool:
        """Whether no member has asked for `_IDLE_MS`."""
        return self._now_ms() - self._asked_ms > _IDLE_MS

    def from_number(self, number: int, count: int, max_bytes: int, reads: Callable[[str], bool]) -> list[Again]:
        """The messages from a number on, of streams that the asking member `reads`.

        Within both limits, but at least one.
        """
        found: list[Again] = []
        size = 0
        for each in self._held.values():
            if each.number < number or not reads(each.stream):
                continue
            size += len(each.message.message)
            if len(found) == count or (found and size > max_bytes):
                break
            found.append(each)
        return found

    def wait(self, streams: Sequence[str], ready: Callable[[], None]) -> Callable[[], None]:
        """Call `ready` when messages of these streams come again; gives a function that ends this."""
        self._asked_ms = self._now_ms()
        self._waiting[ready] = None
        if self._receiving is None:
            self._receive(streams)
        else:
            # Members of a group may have rights of their own.
            self.include(streams)

        def end() -> None:
            self._waiting.pop(ready, None)
            if not self._waiting and self._receiving is not None:
                receiving, self._receiving = self._receiving, None
                receiving.close()

        return end

    def _receive(self, streams: Sequence[str]) -> None:
        room = _MOST_HELD - len(self._held)
        self._streams = used = [stream for stream in streams if self._is_used(stream)]
        if room <= 0 or self._held_bytes >= _MOST_HELD_BYTES or not used:
            return

        def received(result: Received | HeadgateError) -> None:
            if self._receiving is receiving:
                self._receiving = None
            if isinstance(result, HeadgateError):
                logger.info("group %r is given nothing again: %s", self.group, result)
                return
            self._hold(used, result.messages)

        request = ReceiveRequest(self.group, used, None, None, min(room, 32), HELD_MS, received, takes_new=False)
        receiving: PendingReceive | None = None
        try:
            receiving = self._receiving = self._views.receive(request)
        except (BrokerError, LogError) as error:
            logger.info("group %r is given nothing again: %s", self.group, error)

    def include(self, streams: Sequence[str]) -> None:
        """Let waiting members also get messages that come again from these streams."""
        more = [stream for stream in streams if stream not in self._streams and self._is_used(stream)]
        if self._waiting and more:
            receiving, self._receiving = self._receiving, None
            if receiving is not None:
                receiving.close()
            self._receive([*self._streams, *more])

    def _is_used(self, stream: str) -> bool:
        try:
            return self._views.find_view(stream, self.group) is not None
        except (BrokerError, LogError):
            return False

    def _hold(self, streams: Sequence[str], messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self._held[self.next_number] = Again(self.next_number, streams[message.queue], message)
            self._held_bytes += len(message.message)
            self.next_number += 1
        waiting, self._waiting = self._waiting, {}
        for ready in waiting:
            ready()

    # settling

    def complete_below(self, number: int, reads: Callable[[str], bool], then: Settled = nobody_asks) -> None:
        """Settle the messages below a number, of streams that the member `reads`.

        `then` is as for `GroupView.change`, for the messages of one stream.
        """
        below = [each for each in self._held.values() if each.number < number]
        readable = {stream for stream in {each.stream for each in below} if reads(stream)}
        done = [each for each in below if each.stream in readable]
        for each in done:
            self._drop(each)
        self._by_stream(done, lambda view, tokens, told: view.complete(tokens, told), then)

    def token_of(self, stream: str, offset: int) -> bytes | None:
        """The token of a message of a stream that came again and is not settled; None for another one."""
        held = self._find(stream, offset)
        return None if held is None else held.message.token

    def forget(self, stream: str, offset: int) -> None:
        """Drop a message that was sent back once more."""
        held = self._find(stream, offset)
        if held is not None:
            self._drop(held)

    def _find(self, stream: str, offset: int) -> Again | None:
        return next(
            (each for each in self._held.values() if (each.stream, each.message.offset) == (stream, offset)), None
        )

    def _drop(self, each: Again) -> None:
        del self._held[each.number]
        self._held_bytes -= len(each.message.message)

    def _by_stream(
        self,
        messages: Sequence[Again],
        change: Callable[[GroupView, list[bytes], Settled], None],
        then: Settled,
    ) -> None:
        by_stream: dict[str, list[bytes]] = {}
        for each in messages:
            by_stream.setdefault(each.stream, []).append(each.message.token)
        if not by_stream:
            then([])
            return
        told = then
        for stream, tokens in by_stream.items():
            try:
                view = self._views.find_view(stream, self.group)
            except (BrokerError, LogError) as error:
                told(error)
            else:
                if view is None:
                    told([False] * len(tokens))
                else:
                    change(view, tokens, told)
            told = nobody_asks

    def tick(self, now_ms: int) -> None:
        """Renew the messages of members, as long as members ask."""
        if self._held and not self.is_idle and now_ms - self._renewed_ms >= _RENEWED_MS:
            self._renewed_ms = now_ms
            held = list(self._held.values())
            self._by_stream(held, lambda view, tokens, told: view.change_invisible(tokens, HELD_MS, told), nobody_asks)

    def close(self) -> None:
        """The members have gone: their messages come again when their time is over."""
        if self._receiving is not None:
            self._receiving.close()
        self._held.clear()
        self._waiting.clear()


class PullConsumers:
    """The places of members that read for themselves, in the queues of all streams; in the broker's thread only."""

    def __init__(self, views: GroupViews, now_ms: Callable[[], int]) -> None:
        self._views = views
        self._now_ms = now_ms
        self._done: dict[tuple[str, str], int] = {}
        """Stream and group → the offset below which members are done, until it is written down."""
        self._retries: dict[str, RetryQueue] = {}
        self._written_ms = now_ms()

    def pulled(self, stream: str, group: str, offset: int) -> PulledQueue:
        """A member reads a queue from an offset on; a group new to the queue begins there.

        Raises ResourceNotFoundError, StreamLockedError, LogError.
        """
        queue = PulledQueue(self._views.view_from(stream, group, offset))
        queue.pulled()
        retries = self._retries.get(group)
        if retries is not None:
            retries.include([stream])
        return queue

    def place(self, stream: str, group: str) -> int | None:
        """The offset below which a group is done with a queue; None where it was never there. Errors as `pulled`."""
        view, said = self._views.find_view(stream, group), self._done.get((stream, group))
        if view is None:
            return said
        return max(PulledQueue(view).first_unseen, said or 0, view.stream.first_offset)

    def begins_at(self, stream: str, group: str) -> int:
        """Where a group begins in a queue that is new to it, as the settings say. Errors as `pulled`."""
        return self._views.start_of(stream, group)

    def done(self, stream: str, group: str, offset: int, then: Settled | None = None) -> None:
        """A member is done with all messages below an offset; this is written down soon, with `then` at once.

        A lower offset than the known one changes nothing: a late report of a member that lost the queue to another.
        """
        key = (stream, group)
        if then is None:
            self._done[key] = max(offset, self._done.get(key, 0))
            return
        try:
            self._complete(stream, group, max(offset, self._done.pop(key, 0)), then)
        except (BrokerError, LogError) as error:
            then(error)

    def _complete(self, stream: str, group: str, offset: int, then: Settled = nobody_asks) -> None:
        view = self._views.view_from(stream, group, min(offset, self._views.next_offset(stream)))
        PulledQueue(view).complete_below(offset, then)

    def retries(self, group: str) -> RetryQueue:
        """The retry queue of a group's members that read for themselves."""
        found = self._retries.get(group)
        if found is None:
            found = self._retries[group] = RetryQueue(group, self._views, self._now_ms)
        return found

    def send_back(
        self, stream: str, group: str, offset: int, *, delay_ms: Callable[[int], int | None], then: Settled
    ) -> None:
        """A member could not consume a message: it comes again later, or becomes a dead letter.

        `delay_ms` is called with the number of its earlier retries, and gives the delay, or None for a dead letter.
        Raises the errors of `pulled`, PreconditionFailedError for an offset without a message.
        """
        view = self._views.view_from(stream, group, offset)
        if not view.stream.first_offset <= offset < view.stream.next_offset:
            raise PreconditionFailedError(f"look message by offset failed, {offset}", subject=stream)
        retries = self._retries.get(group)
        token = None if retries is None else retries.token_of(stream, offset)
        if retries is not None and token is not None:
            retries.forget(stream, offset)
        queue = PulledQueue(view)
        again = max(queue.attempts(offset) - 1, 0)
        queue.send_back(offset, delay_ms(again), then, token=token)

    def forget_place(self, stream: str, group: str) -> None:
        """A group goes on elsewhere: forget the places that its members reported."""
        self._done.pop((stream, group), None)

    def forget(self, stream: str) -> None:
        """A stream was deleted: forget its places."""
        for key in [key for key in self._done if key[0] == stream]:
            del self._done[key]

    def tick(self, now_ms: int) -> None:
        """Write down places and renew retries when they are due."""
        if 0 <= now_ms - self._written_ms < WRITTEN_MS:
            return
        self._written_ms = now_ms
        self.write()
        for group, retries in list(self._retries.items()):
            retries.tick(now_ms)
            if retries.is_idle:
                retries.close()
                del self._retries[group]

    def write(self) -> None:
        """Write down the places of members."""
        done, self._done = self._done, {}
        for (stream, group), offset in done.items():
            try:
                self._complete(stream, group, offset)
            except (BrokerError, LogError) as error:
                logger.info("it is not written down where group %r is in %r: %s", group, stream, error)
