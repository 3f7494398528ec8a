"""A session: two windows of transfers, and the links in it.

Faults of a session or a link end that alone: it is answered with its error, told to the handler as an event, and the
connection goes on. Source: OASIS AMQP 1.0 part 2 (transport), section 2.5.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headgate.arrays import largest
from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.protocols.amqp10.codes import Condition
from headgate.protocols.amqp10.composites import Composite
from headgate.protocols.amqp10.events import (
    Aborted,
    Attached,
    CreditChanged,
    Deliveries,
    Detached,
    Ended,
    Event,
    Outcomes,
    StateChanged,
    WindowOpened,
)
from headgate.protocols.amqp10.link import Link
from headgate.protocols.amqp10.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Transfer,
)
from headgate.protocols.amqp10.states import (
    DISCARDING,
    LINK_RECEIVED,
    SESSION_SENT,
    ConnectionState,
    LinkState,
    SessionState,
    received,
    sent,
)
from headgate.protocols.amqp10.terminus import NO_INFO, Accepted, DeliveryState, Error, Rejected, TransactionalState
from headgate.protocols.amqp10.transfers import encode_accepted, skip_frames

if TYPE_CHECKING:
    from headgate.protocols.amqp10.connection import Connection
    from headgate.protocols.amqp10.transfers import TransferRun

_MASK = 0xFFFFFFFF
_OUTGOING_WINDOW = 0x7FFFFFFF
_NO_CREDIT = Condition.TRANSFER_LIMIT_EXCEEDED, "more messages than there was credit for"
_MAPPED = SessionState.MAPPED
Bytes = bytes | memoryview


@dataclass(slots=True)
class _Waiting:
    """Frames of transfers of one link that the peer's window does not take yet."""

    link: Link
    data: Bytes
    frames: int


class SessionFault(Exception):  # noqa: N818 - ends the session, never leaves the core
    """The peer may not do that in a session."""

    def __init__(self, condition: Condition, reason: str) -> None:
        super().__init__(reason)
        self.error = Error(condition, reason)


class Session:
    """A session on a channel; made by the connection."""

    def __init__(self, connection: Connection, *, channel: int, remote_channel: int | None) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_channel = remote_channel
        self.state = SessionState.UNMAPPED
        self.next_delivery_id = 0
        self.incoming_window = connection.settings.incoming_window
        self.remote_incoming_window = 0
        self._next_incoming_id = 0
        self._next_outgoing_id = 0
        self._remote_handle_max = 0xFFFFFFFF
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        self.waiting: deque[_Waiting] = deque()
        """Transfers that the peer's window does not take yet."""
        self._flows_due: dict[Link, bool] = {}
        """Links whose credit is sent after their waiting transfers, and whether the flow drains."""
        self.kept: dict[int, Link] = {}
        """The links of deliveries that wait for an outcome, by their ids, in the order they were sent."""

    @property
    def links(self) -> list[Link]:
        """The links that are attached or on their way to be."""
        return list(self._by_handle.values())

    @property
    def is_mapped(self) -> bool:
        """Whether both ends have begun and none has ended."""
        return self.state is SessionState.MAPPED

    @property
    def may_send(self) -> bool:
        """Whether the peer's window takes a transfer now."""
        return self.remote_incoming_window > 0 and not self.waiting

    # What this side says

    def send(self, performative: Composite, payload: bytes = b"") -> None:
        """Send a performative in the session. Raises LocalProtocolError where the state does not allow it."""
        self.state = sent(SESSION_SENT, self.state, type(performative))
        self.connection.send(self.channel, performative, payload)

    def start(self) -> None:
        """Begin the session, or answer the peer's begin."""
        window, handle_max = self.connection.settings.incoming_window, self.connection.settings.handle_max
        self.send(Begin(self.remote_channel, self._next_outgoing_id, window, _OUTGOING_WINDOW, handle_max))

    def end(self, error: Error | None = None) -> None:
        """End the session, and its links with it."""
        self.send(End(error))
        self.drop_links()

    def new_link(self, name: str, role: bool) -> Link:
        """A link that this side is about to attach (`Link.start`). Raises LocalProtocolError."""
        handle = lowest_free(self._by_handle)
        if handle > self._remote_handle_max:
            raise LocalProtocolError(f"the peer takes handles up to {self._remote_handle_max}")
        link = Link(self, name=name, role=role, handle=handle)
        self._keep(link)
        return link

    def _keep(self, link: Link) -> None:
        self._by_handle[link.handle] = link
        self.connection.link_count += 1

    def settle(self, first: int, last: int, state: DeliveryState | None, *, role: bool = RECEIVER) -> None:
        """Settle deliveries that we received, or sent if `role` is the sender's, with an outcome."""
        is_open = self.state is _MAPPED and self.connection.state is ConnectionState.OPENED
        if is_open and isinstance(state, Accepted) and role is RECEIVER:
            # What nearly all are told, and wait for.
            self.connection.output.append(encode_accepted(self.channel, first, last))
        else:
            self.send(Disposition(role, first, last, True, state))

    def keep(self, ids: Iterable[int], link: Link) -> None:
        """Give the link the states that the peer sends for these deliveries, until they are settled."""
        self.kept.update(dict.fromkeys(ids, link))

    def settle_kept(self, ids: Iterable[int], state: DeliveryState | None) -> None:
        """Settle the deliveries that are still kept, all with the same state."""
        for first, last in _runs([number for number in ids if self.kept.pop(number, None) is not None]):
            self.settle(first, last, state, role=SENDER)

    def send_flow(self, link: Link | None = None, *, drain: bool = False) -> None:
        """Send the windows and, with a link, its credit; `drain`: use the credit up, or confirm that it is used up.

        The counts of a link include transfers that wait for the window: its credit is then sent after them.
        """
        if link is not None and self._has_waiting(link):
            self._flows_due[link] = self._flows_due.get(link, False) or drain
            return
        flow = Flow(self._next_incoming_id, self.incoming_window, self._next_outgoing_id, _OUTGOING_WINDOW)
        if link is not None:
            flow.handle = link.handle
            flow.delivery_count = link.delivery_count
            flow.link_credit = link.credit
            flow.drain = drain or (link.role is SENDER and link.drain)
        self.send(flow)

    def send_transfers(self, link: Link, data: Bytes, frames: int) -> None:
        """Write frames of transfers as far as the peer's window goes; the rest waits for it."""
        if self.waiting or frames > self.remote_incoming_window:
            self.waiting.append(_Waiting(link, data, frames))
            self._write_waiting()
            return
        self._count_out(frames)
        self.connection.output.append(data)

    def _count_out(self, frames: int) -> None:
        self.remote_incoming_window -= frames
        self._next_outgoing_id = (self._next_outgoing_id + frames) & _MASK

    def _write_waiting(self) -> None:
        while self.waiting and self.remote_incoming_window > 0:
            first = self.waiting[0]
            frames = min(first.frames, self.remote_incoming_window)
            self._count_out(frames)
            if frames == first.frames:
                self.connection.output.append(first.data)
                self.waiting.popleft()
            else:
                cut = skip_frames(first.data, frames)
                self.connection.output.append(first.data[:cut])
                first.data = first.data[cut:]
                first.frames -= frames
        for link in [link for link in self._flows_due if not self._has_waiting(link)]:
            self.send_flow(link, drain=self._flows_due.pop(link))

    def _has_waiting(self, link: Link) -> bool:
        return any(waiting.link is link for waiting in self.waiting)

    def forget_waiting(self, link: Link) -> None:
        """Drop the unsent transfers of a link."""
        self.waiting = deque(waiting for waiting in self.waiting if waiting.link is not link)
        self._flows_due.pop(link, None)

    # What the peer says; `Begin` and `End` belong to the connection, which maps channels

    def begun(self, begin: Begin) -> None:
        """Take over the peer's windows."""
        self._next_incoming_id = begin.next_outgoing_id
        self.remote_incoming_window = begin.incoming_window
        self._remote_handle_max = begin.handle_max

    def drop_links(self) -> None:
        """The session ends, and its links with it."""
        for link in self._by_handle.values():
            link.drop_partial()
            link.state = LinkState.DETACHED
        self.connection.link_count -= len(self._by_handle)
        self._by_handle.clear()
        self._by_remote_handle.clear()
        self.waiting.clear()
        self._flows_due.clear()
        self.kept.clear()

    def heard(self, performative: Composite, payload: memoryview) -> Iterator[Event]:
        """The events that a performative of the peer brings; a fault ends the session with its error."""
        try:
            match performative:
                case Attach():
                    yield from self._on_attach(performative)
                case Flow():
                    yield from self._on_flow(performative)
                case Transfer():
                    yield from self._on_transfer(performative, payload)
                    self._refill()
                case Disposition():
                    yield from self._on_disposition(performative)
                case Detach():
                    yield from self._on_detach(performative)
        except SessionFault as fault:
            yield self.fail(fault.error)

    def fail(self, error: Error) -> Ended:
        """End the session because of a fault of the peer."""
        self.end(error)
        return Ended(self, error, failed=True)

    def _on_attach(self, attach: Attach) -> Iterator[Event]:
        if attach.handle > self.connection.settings.handle_max:
            # The standard makes this a fault of the connection (section 2.7.2).
            reason = f"handle {attach.handle}; at most {self.connection.settings.handle_max} was agreed"
            raise RemoteProtocolError(reason, code=Condition.FRAMING_ERROR)
        if attach.handle in self._by_remote_handle:
            raise SessionFault(Condition.HANDLE_IN_USE, f"handle {attach.handle} is attached already")
        link = self._asked_for(attach)
        if link is None:
            role = not attach.role
            if self.connection.link_count >= self.connection.settings.max_links:
                reason = f"more than {self.connection.settings.max_links} links of a connection"
                raise SessionFault(Condition.RESOURCE_LIMIT_EXCEEDED, reason)
            link = Link(self, name=attach.name, role=role, handle=attach.handle)
            if link.handle in self._by_handle:
                link.handle = lowest_free(self._by_handle)
            self._keep(link)
        self._by_remote_handle[attach.handle] = link
        link.state = received(LINK_RECEIVED, link.state, Attach)
        link.peer = attach
        if link.role is RECEIVER:
            if attach.initial_delivery_count is None:
                raise SessionFault(Condition.INVALID_FIELD, "a sender attaches with an initial delivery count")
            link.delivery_count = attach.initial_delivery_count
        if link.state in DISCARDING:
            return
        yield Attached(link, attach)

    def _asked_for(self, attach: Attach) -> Link | None:
        for link in self._by_handle.values():
            if link.name == attach.name and link.role is not attach.role and link.state is LinkState.ATTACH_SENT:
                return link
        return None

    def _told(self, handle: int, kind: type[Composite]) -> Link | None:
        """The link of a handle of the peer, in its state after `kind`; None to ignore it. Raises SessionFault."""
        link = self._by_remote_handle.get(handle)
        if link is None:
            if self.connection.ignores_strays:
                return None
            raise SessionFault(
                Condition.UNATTACHED_HANDLE, f"{kind.__name__} for handle {handle}, which is not attached"
            )
        try:
            link.state = received(LINK_RECEIVED, link.state, kind)
        except RemoteProtocolError as error:
            raise SessionFault(Condition.ILLEGAL_STATE, error.reason) from None
        return link

    def _link(self, handle: int, kind: type[Composite]) -> Link | None:
        """The same; None if we have detached it, too."""
        link = self._told(handle, kind)
        return None if link is None or link.state in DISCARDING else link

    def _on_flow(self, flow: Flow) -> Iterator[Event]:
        was_blocked = not self.may_send
        next_incoming_id = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        in_flight = (self._next_outgoing_id - next_incoming_id) & _MASK
        self.remote_incoming_window = max(0, flow.incoming_window - in_flight)
        link = None if flow.handle is None else self._link(flow.handle, Flow)
        has_changed = link is not None and _take_credit(link, flow)
        self._write_waiting()
        if link is not None:
            if has_changed and link.is_attached:
                yield CreditChanged(link)
            if flow.echo and link.is_attached:
                self.send_flow(link)
        elif flow.echo and flow.handle is None:
            self.send_flow()
        if was_blocked and self.may_send:
            yield WindowOpened(self)

    def _on_transfer(self, transfer: Transfer, payload: memoryview) -> Iterator[Event]:
        link = self._receiving(transfer.handle, 1)
        if link is None:
            return
        if not link.has_partial:
            if transfer.delivery_id is None:
                raise SessionFault(Condition.INVALID_FIELD, "the first transfer of a delivery has a delivery id")
            if link.credit <= 0:
                yield self._fail_link(link, *_NO_CREDIT)
                return
            link.count_received(1)
        if transfer.resume:
            yield self._fail_link(link, Condition.NOT_IMPLEMENTED, "deliveries are not resumed")
            return
        if isinstance(transfer.state, TransactionalState):
            # It would be taken at once, and its sender could not take it back.
            yield self._fail_link(link, Condition.NOT_IMPLEMENTED, "transactions are not served")
            return
        is_too_large = link.is_too_large or link.partial_bytes + len(payload) > link.max_message_size
        if is_too_large and not link.rejects_large:
            yield self._fail_link(link, *_too_large(link))
            return
        self.connection.check_partial_bytes(len(payload))
        link.add_part(transfer, payload)
        if is_too_large:
            link.give_up_partial()
        if transfer.aborted:
            link.drop_partial()
            yield Aborted(link)
        elif is_too_large:
            if not transfer.more:
                link.reject_partial(Rejected(Error(*_too_large(link), NO_INFO)))
                yield Aborted(link)
        elif not transfer.more:
            yield link.take_partial()

    def heard_run(self, run: TransferRun) -> Iterator[Event]:
        """The events of many transfers, each a whole message, on one link."""
        count = len(run.starts)
        try:
            link = self._receiving(run.handle, count)
        except SessionFault as failed:
            yield self.fail(failed.error)
            return
        if link is None:
            self._refill()
            return
        fault: tuple[Condition, str] | None = None
        # Mostly all that has arrived is shorter than the limit.
        if len(run.data) > link.max_message_size and largest(run.lengths) > link.max_message_size:
            count = int(np.argmax(run.lengths > link.max_message_size))
            fault = _too_large(link)
        if count > link.credit or (fault and link.credit == count):
            count = link.credit
            fault = _NO_CREDIT
        link.count_received(count)
        if count:
            if fault is not None:
                run = run.first(count)
            yield Deliveries(link, run.data, run.starts, run.lengths, run.ids, run.settled)
        if fault is not None and link.is_attached:
            yield self._fail_link(link, *fault)
        self._refill()

    def _receiving(self, handle: int, transfers: int) -> Link | None:
        """The link that this many transfers of the peer are for; None to ignore them."""
        if transfers > self.incoming_window:
            reason = f"{transfers} transfers into a window of {self.incoming_window}"
            raise SessionFault(Condition.WINDOW_VIOLATION, reason)
        self.incoming_window -= transfers
        self._next_incoming_id = (self._next_incoming_id + transfers) & _MASK
        link = self._by_remote_handle.get(handle)
        if link is None or link.state is not LinkState.ATTACHED:
            link = self._link(handle, Transfer)
        if link is not None and link.role is SENDER:
            raise SessionFault(Condition.NOT_ALLOWED, "a transfer on a link that we send on")
        return link

    def _refill(self) -> None:
        """Open the window again; transfers of links that have ended take of it, too."""
        full = self.connection.settings.incoming_window
        if self.incoming_window <= full // 2 and self.is_mapped:
            self.incoming_window = full
            self.send_flow()

    def _fail_link(self, link: Link, condition: Condition, reason: str) -> Detached:
        error = Error(condition, reason)
        link.detach(error)
        return Detached(link, True, error, failed=True)

    def _on_disposition(self, disposition: Disposition) -> Iterator[Event]:
        last = disposition.first if disposition.last is None else disposition.last
        if (last - disposition.first) & _MASK > _MASK // 2:
            raise SessionFault(Condition.INVALID_FIELD, f"deliveries {disposition.first} to {last}")
        is_receiver = disposition.role is RECEIVER
        told = StateChanged(self, is_receiver, disposition.first, last, disposition.settled, disposition.state)
        if is_receiver and self.kept:
            yield from self._told_of_kept(told)
        else:
            yield told

    def _told_of_kept(self, told: StateChanged) -> Iterator[Event]:
        """A state of deliveries as one event for each link that keeps some, and events for the rest."""
        span = (told.last - told.first) & _MASK
        if span < len(self.kept):
            numbers = ((told.first + step) & _MASK for step in range(span + 1))
            ids = [number for number in numbers if number in self.kept]
        else:
            ids = [number for number in self.kept if (number - told.first) & _MASK <= span]
        by_link: dict[Link, list[int]] = {}
        for number in ids:
            by_link.setdefault(self.kept[number], []).append(number)
            if told.settled:
                del self.kept[number]
        for link, of_link in by_link.items():
            if link.is_attached:
                yield Outcomes(link, of_link, told.settled, told.state)
        for first, last in _between(told.first, told.last, ids):
            yield replace(told, first=first, last=last)

    def _on_detach(self, detach: Detach) -> Iterator[Event]:
        link = self._told(detach.handle, Detach)
        if link is None:
            return
        del self._by_remote_handle[detach.handle]
        del self._by_handle[link.handle]
        self.connection.link_count -= 1
        # Not earlier: until then the peer may still ask for an answer that nobody gives any more.
        self.kept = {number: other for number, other in self.kept.items() if other is not link}
        link.drop_partial()
        if link.state is LinkState.ATTACH_RECEIVED:
            link.start(replace(link.attach, source=None, target=None, unsettled=None))
        if link.state is not LinkState.DETACHED:
            self.forget_waiting(link)
            link.state = LinkState.DETACHED
            self.send(Detach(link.handle, detach.closed))
        yield Detached(link, detach.closed, detach.error)


def lowest_free(taken: Container[int]) -> int:
    """The lowest channel or handle that is not taken."""
    return next(number for number in itertools.count() if number not in taken)


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of the runs of ids that follow each other."""
    first = 0
    for index in range(1, len(ids) + 1):
        if index == len(ids) or ids[index] != (ids[index - 1] + 1) & _MASK:
            yield ids[first], ids[index - 1]
            first = index


def _between(first: int, last: int, ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of the runs from `first` to `last` that `ids`, in this order, leave out."""
    for number in ids:
        if number != first:
            yield first, (number - 1) & _MASK
        first = (number + 1) & _MASK
    if first != (last + 1) & _MASK:
        yield first, last


def _too_large(link: Link) -> tuple[Condition, str]:
    return Condition.MESSAGE_SIZE_EXCEEDED, f"a message of more than {link.max_message_size} bytes"


def _take_credit(link: Link, flow: Flow) -> bool:
    """Take over the credit of a link from the peer's flow; False if the flow has none."""
    if link.role is SENDER:
        link.credit_granted(flow.delivery_count, flow.link_credit or 0, drain=flow.drain)
        return True
    if flow.delivery_count is not None:
        link.credit_given_back(flow.delivery_count, drain=flow.drain)
        return True
    return False
