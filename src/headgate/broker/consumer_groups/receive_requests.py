"""One request for messages: over some queues, answered once.

waits ──► claimed ──► the commits of its queues ──► `then(Received)`
  ├─ the time is over (`end`) ──► what is there is looked at to its end ──► `then`, without messages
  └─ its client is gone (`close`) ──► what was claimed for it goes back, and does not count
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from headgate.broker.delivery import GivenCopies
from headgate.errors import HeadgateError
from headgate.evaluate import Filter
from headgate.ledger import offset_of

if TYPE_CHECKING:
    from headgate.broker.consumer_groups.group_view import GroupView

RECEIVED_BYTES = 1 << 20
"""Limit: bytes given to one request; a single larger message goes alone."""


class ReceivedMessage(msgspec.Struct, gc=False):
    """One message: `queue` is the place of its stream in the request, `token` (16 bytes) settles it.

    `attempt` begins with 1; `message` is the encoded AMQP 1.0 message, stored at `timestamp_ms`.
    """

    queue: int
    offset: int
    timestamp_ms: int
    message: bytes
    attempt: int
    token: bytes


@dataclass(slots=True)
class Received:
    """The answer to a request; without messages, `was_filtered` says whether some were looked at and filtered out."""

    messages: list[ReceivedMessage] = field(default_factory=list)
    was_filtered: bool = False


@dataclass(slots=True)
class ReceiveRequest:
    """A request of one group member for at most `count` messages of some queues, for `invisible_ms`.

    `filter` is for new messages, `filter_again` for messages that come again; a message for which its filter is not
    true counts as consumed. Without `takes_new` only messages that come again are given. `then` is called once, in
    the broker's thread.
    """

    group: str
    streams: Sequence[str]
    filter: Filter | None
    filter_again: Filter | None
    count: int
    invisible_ms: int
    then: Callable[[Received | HeadgateError], None]
    takes_new: bool = True


class PendingReceive:
    """A request at work; made by `ConsumerGroups.receive`."""

    __slots__ = (
        "__weakref__",
        "_error",
        "_filtered_before",
        "_is_done",
        "_is_over",
        "_outstanding",
        "_queues",
        "_received",
        "left",
        "request",
    )

    def __init__(self, request: ReceiveRequest) -> None:
        self.request = request
        self.left = request.count
        """How many more messages it takes."""
        self._queues: dict[GroupView, int] = {}
        """Views that it waits at or has messages from → the places of their streams in the request."""
        self._outstanding = 0
        """Number of parts whose claims are not on disk yet."""
        self._received = Received()
        self._filtered_before = 0
        self._error: HeadgateError | None = None
        self._is_done = False
        self._is_over = False

    @property
    def is_done(self) -> bool:
        """Whether it was answered, or its client is gone."""
        return self._is_done

    def end(self, *, at_once: bool = False) -> None:
        """Its time is over: it is answered without messages, unless some are on their way to it. Again is harmless.

        While a worker still looks at messages, the answer comes after that, unless `at_once`.
        """
        if self._is_done:
            return
        self._is_over = True
        if not self._outstanding:
            if at_once or not any(view.is_looking for view in self._queues):
                self._leave()
                self._received.was_filtered = self._filtered() > self._filtered_before
                # No other queue has messages, so the error of a queue that gives none is the answer.
                self._answer(self._received if self._error is None else self._error)
            return
        trouble = next((view.trouble for view in self._queues if view.trouble is not None), None)
        if trouble is not None:
            self._answer(trouble)

    def close(self) -> None:
        """Its client is gone. Again is harmless."""
        self._leave()
        self._is_done = True

    # the side of the views

    def wait_at(self, views: Sequence[tuple[int, GroupView]]) -> None:
        """Wait for messages of these views, each with the place of its stream in the request."""
        for queue, view in views:
            self._queues[view] = queue
            view.add(self)
        self._filtered_before = self._filtered()

    def looked(self) -> None:
        """A view has no messages for it: if its time is over, and no other view still looks, it is answered."""
        if self._is_over:
            self.end()

    def collect(self, now_ms: int) -> bool:
        """Take messages of its views, first of the one that gave longest ago; whether it needs nothing more."""
        for view in sorted(self._queues, key=_given_last):
            if self.left <= 0:
                break
            try:
                view.give(self, now_ms)
            except HeadgateError as error:
                view.end(error)
        if not self._outstanding:
            return self._is_done
        self._leave()
        return True

    def claimed(self, count: int) -> None:
        """A view claimed messages for it; `deliver` follows."""
        self.left -= count
        self._outstanding += 1

    def deliver(self, view: GroupView, given: GivenCopies) -> None:
        """The claims of one part are on disk."""
        self._outstanding -= 1
        queue = self._queues[view]
        read = given.read
        self._received.messages += [
            ReceivedMessage(queue, offset_of(copy), timestamp_ms, message, attempt, token)
            for copy, timestamp_ms, message, attempt, token in zip(
                read.copies.tolist(),
                read.timestamps_ms.tolist(),
                read.messages.all_bytes(),
                given.attempts.tolist(),
                given.packed_tokens(),
                strict=True,
            )
        ]
        self._answer_if_complete()

    def failed(self, view: GroupView, error: HeadgateError) -> None:
        """A view failed: its messages are damaged, or its stream is gone."""
        view.left(self)
        self._queues.pop(view, None)
        self._error = error
        self._answer_if_complete()

    def lost(self, error: HeadgateError) -> None:
        """A part that was claimed for it is lost."""
        self._outstanding -= 1
        self._error = error
        self._answer_if_complete()

    def _answer_if_complete(self) -> None:
        if self._outstanding or self._is_done:
            return
        if self._received.messages:
            self._answer(self._received)
        elif self._error is not None and not self._queues:
            self._answer(self._error)
        elif self.left < self.request.count:
            # All of it was lost on the way: claims that ended meanwhile, or a stream that was deleted.
            self._answer(self._received if self._error is None else self._error)

    def _filtered(self) -> int:
        return sum(view.filtered for view in self._queues)

    def _leave(self) -> None:
        for view in self._queues:
            view.left(self)

    def _answer(self, answer: Received | HeadgateError) -> None:
        self._leave()
        self._is_done = True
        self.request.then(answer)


def _given_last(view: GroupView) -> int:
    return view.given_last
