"""One queue that members read for themselves: the offset below which they are done, and messages they send back.

No message is claimed for them while they read; meanwhile other members are given no new messages of the queue. The
group's view keeps all state, so both kinds of members share one place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.broker.consumer_groups.group_view import LOOK_AHEAD, MAX_UNSETTLED, GroupView
from headgate.broker.consumers import MessageConsumer
from headgate.broker.delivery import Settled, drop_copies, nobody_asks
from headgate.ledger import Standing, Tokens, copy_number, offset_of

_NOTHING = np.empty(0, dtype=np.int64)


class PulledQueue:
    """Changes that members reading for themselves make to the place of their group in one queue.

    It comes from `PullConsumers.pulled`, and has no state besides the place: make one for each use.
    """

    __slots__ = ("_group_view",)

    def __init__(self, group_view: GroupView) -> None:
        self._group_view = group_view

    @property
    def is_closed(self) -> bool:
        """Whether the place is closed; see `GroupView`."""
        return self._group_view.is_closed

    def pulled(self) -> None:
        """Note that a member reads the queue now."""
        self._group_view.pulled()

    def begin(self, consumer: MessageConsumer) -> None:
        """A member reads with a consumer from now on; its work counts for the group."""
        self._group_view.pulled_with(consumer)

    def end(self, consumer: MessageConsumer) -> None:
        """A member stops reading with a consumer; again is harmless."""
        self._group_view.ends_pulling(consumer)

    def answered(self, messages: int, size_bytes: int, offsets: int) -> None:
        """Count messages given to a member; the rest of the `offsets` read were passed over."""
        counters = self._group_view.counters
        counters.delivered += messages
        counters.delivered_bytes += size_bytes
        counters.filtered += offsets - messages

    @property
    def first_unseen(self) -> int:
        """The offset where reading goes on: the lowest one that was neither claimed nor reported as done."""
        # Behind a message that was sent back alone the next copy is between two offsets.
        return offset_of(self._group_view.view.next_copy + copy_number(1) - 1)

    def given(self, start: int, stop: int) -> NDArray[np.int64]:
        """The offsets in a range that a reader leaves out: a member has them, or they come again by themselves."""
        view = self._group_view.view
        if view.floor_of_rows >= copy_number(stop):
            return _NOTHING
        copies = view.unsettled(copy_number(start), MAX_UNSETTLED)
        found: NDArray[np.int64] = copies[copies < copy_number(stop)] // copy_number(1)
        return found

    def attempts(self, offset: int) -> int:
        """How often a message was claimed; 0 for an unknown one."""
        return int(self._group_view.view.attempts_of(np.array([copy_number(offset)], dtype=np.int64))[0])

    def complete_below(self, offset: int, then: Settled = nobody_asks) -> None:
        """Settle all messages below an offset that were never claimed.

        Messages that others have, or that come again, stay as they are. `then` is as for `GroupView.change`, with one
        True.
        """
        group_view, view = self._group_view, self._group_view.view

        def complete(_none: Tokens) -> NDArray[np.bool_]:
            start, stop = view.next_copy, copy_number(min(offset, group_view.stream.next_offset))
            noted = view.returned(LOOK_AHEAD)
            noted = noted[noted < stop]
            drop_copies(view, noted[view.attempts_of(noted) == 0])
            if stop > start:
                view.postpone((), 0, covered=[(start, stop)])
                group_view.skip_to(self.first_unseen)
            return np.ones(1, dtype=np.bool_)

        group_view.change((), then, complete)

    def send_back(self, offset: int, delay_ms: int | None, then: Settled, *, token: bytes | None = None) -> None:
        """A member could not consume a message: it comes again after `delay_ms`; None: it becomes a dead letter.

        `token` is that of the member's claim, if the message had come again. Without it, a message that others have,
        that waits, or that is settled stays as it is. `then` is as for `GroupView.change`, with one True.
        """
        group_view, view = self._group_view, self._group_view.view

        def send_back(_none: Tokens) -> NDArray[np.bool_]:
            copies = np.array([copy_number(offset)], dtype=np.int64)
            if token is not None:
                tokens = Tokens.unpack([token])
            elif view.standings(copies)[0] == Standing.AVAILABLE or bool(view.unseen(copies)[0]):
                tokens = view.claim(copies, group_view.now_ms() + 1).tokens
            else:
                return np.ones(1, dtype=np.bool_)
            if delay_ms is None:
                group_view.dead_letter_held(tokens, None)
            else:
                view.release(tokens, counts=True, not_before_ms=group_view.now_ms() + delay_ms)
            group_view.learn_order_anew()
            return np.ones(1, dtype=np.bool_)

        group_view.change((), then, send_back)
