"""One end of a link: its state, its credit, and its frames.

Source: OASIS AMQP 1.0 part 2 (transport), sections 2.6 and 2.7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.errors import LocalProtocolError
from headgate.message import EncodedMessages
from headgate.protocols.amqp10.events import Deliveries
from headgate.protocols.amqp10.performatives import (
    RECEIVER,
    SENDER,
    SETTLED,
    Attach,
    Detach,
    Transfer,
)
from headgate.protocols.amqp10.states import LINK_SENT, LinkState, sent
from headgate.protocols.amqp10.terminus import DeliveryState, Error
from headgate.protocols.amqp10.transfers import TAG, TransferRoom, frame_messages, frame_tagged

if TYPE_CHECKING:
    from headgate.protocols.amqp10.events import Int64Array
    from headgate.protocols.amqp10.session import Session

MAX_TAG_BYTES = 32
_MASK = 0xFFFFFFFF


class Link:
    """An end of a link in a session; made by the session.

    `role` is ours. `credit`: how many messages the sending end may still send. `drain`: the peer wants the credit used
    up or given back. `max_message_size`: limit of messages from the peer, in bytes; a larger message ends the link,
    or is only rejected where the link `rejects_large`.
    """

    def __init__(self, session: Session, *, name: str, role: bool, handle: int) -> None:
        self.session = session
        self.name = name
        self.role = role
        self.handle = handle
        self.state = LinkState.DETACHED
        self.peer: Attach | None = None
        self.settled = False
        self.delivery_count = 0
        self._first_count = 0
        self.credit = 0
        self.drain = False
        self.max_message_size = session.connection.settings.max_message_size
        self.rejects_large = False
        self.is_too_large = False
        """Whether the message that arrives in parts is too large; nothing of it is kept."""
        self._partial: bytearray | None = None
        self._partial_id = 0
        self._partial_format = 0
        self._partial_settled = False

    @property
    def is_attached(self) -> bool:
        """Whether both ends have attached and none has detached."""
        return self.state is LinkState.ATTACHED

    @property
    def attach(self) -> Attach:
        """The attach frame of the peer. Raises LocalProtocolError before it has come."""
        if self.peer is None:
            raise LocalProtocolError("the peer has not attached yet")
        return self.peer

    @property
    def sendable(self) -> int:
        """As the sending end: how many messages the peer takes now, by its credit and the session's window."""
        session = self.session
        if self.state is not LinkState.ATTACHED or session.waiting:
            return 0
        return min(self.credit, session.remote_incoming_window)

    def start(self, attach: Attach) -> None:
        """Attach, or answer the peer's attach; name, handle, role and delivery count are filled in here."""
        self.settled = self.role is SENDER and attach.snd_settle_mode == SETTLED
        self._send_attach(attach)

    def refuse(self, error: Error, *, without_termini: bool = False) -> None:
        """Answer the peer's attach with one that lacks our terminus, the source or the target, and a detach.

        `without_termini`: it lacks both.
        """
        answer = replace(self.attach, unsettled=None)
        if without_termini or self.role is RECEIVER:
            answer.target = None
        if without_termini or self.role is SENDER:
            answer.source = None
        self._send_attach(answer)
        self.detach(error)

    def _send_attach(self, attach: Attach) -> None:
        self.state = sent(LINK_SENT, self.state, Attach)
        is_receiver = self.role is RECEIVER
        self._first_count = self.delivery_count
        self.session.send(
            replace(
                attach,
                name=self.name,
                handle=self.handle,
                role=self.role,
                initial_delivery_count=None if is_receiver else self.delivery_count,
                max_message_size=self.max_message_size if is_receiver else attach.max_message_size,
            )
        )

    def detach(self, error: Error | None = None, *, closed: bool = True) -> None:
        """End the link; transfers that wait for the window are dropped. Raises LocalProtocolError."""
        self.state = sent(LINK_SENT, self.state, Detach)
        self.session.forget_waiting(self)
        self.drop_partial()
        self.session.send(Detach(self.handle, closed, error))

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """As the receiving end: let the peer send `credit` messages from now on. Raises LocalProtocolError."""
        if self.role is not RECEIVER or not self.is_attached:
            raise LocalProtocolError("credit is granted by the receiving end of an attached link")
        self.credit = credit
        self.session.send_flow(self, drain=drain)

    def credit_granted(self, delivery_count: int | None, credit: int, *, drain: bool) -> None:
        """As the sending end: take the credit of the peer, which had seen `delivery_count` (None before our attach)."""
        seen = self._first_count if delivery_count is None else delivery_count
        outstanding = (self.delivery_count - seen) & _MASK
        self.credit = max(0, credit - outstanding)
        self.drain = drain

    def credit_given_back(self, delivery_count: int, *, drain: bool) -> None:
        """As the receiving end: take the peer's delivery count, which gives back credit that it had no messages for."""
        given_back = (delivery_count - self.delivery_count) & _MASK
        if given_back <= _MASK // 2:
            self.delivery_count = delivery_count
            self.credit = max(0, self.credit - given_back)
        self.drain = drain

    def use_up_credit(self) -> None:
        """As the sending end of a drained link without further messages: give the credit back."""
        self.delivery_count = (self.delivery_count + self.credit) & _MASK
        self.credit = 0
        self.drain = False
        self.session.send_flow(self, drain=True)

    def send(self, message: bytes, *, settled: bool | None = None) -> int:
        """Send one message, in as many frames as it needs; gives its delivery id. Raises LocalProtocolError."""
        self._check_sending(1)
        delivery_id = self.session.next_delivery_id
        is_settled = self.settled if settled is None else settled
        transfer = Transfer(self.handle, delivery_id, TAG.pack(self.delivery_count), 0, is_settled)
        frames = self.session.connection.transfer_frames(self.session.channel, transfer, message)
        self._count_sent(1)
        self.session.send_transfers(self, b"".join(frames), len(frames))
        return delivery_id

    def send_tagged(self, messages: EncodedMessages, tags: NDArray[np.uint8], *, settled: bool) -> list[int]:
        """Send messages with tags of the caller's own, `(messages, bytes)` of at most 32; gives their delivery ids.

        Unless `settled`, deliveries are kept until either end settles them; states from the peer come as `Outcomes`.
        One kernel call for all. Raises LocalProtocolError for more messages than credit.
        """
        count = len(messages)
        self._check_sending(count)
        if tags.shape[1] > MAX_TAG_BYTES:
            raise LocalProtocolError(f"delivery tags of {tags.shape[1]} bytes; at most {MAX_TAG_BYTES} are allowed")
        room = self._room(settled=settled)
        data, frames = frame_tagged(messages, tags, room)
        self._count_sent(count)
        ids = [number & _MASK for number in range(room.delivery_id, room.delivery_id + count)]
        if not settled:
            self.session.keep(ids, self)
        self.session.send_transfers(self, data, frames)
        return ids

    def settle(self, ids: Iterable[int], state: DeliveryState | None) -> None:
        """Settle kept deliveries, in the order they were sent; deliveries that are no longer kept are skipped."""
        if self.is_attached:
            self.session.settle_kept(ids, state)

    def send_messages(self, messages: EncodedMessages, offsets: Int64Array) -> int:
        """Send messages of a stream, each with its offset as an annotation; gives the bytes of their frames.

        One kernel call for all. Raises LocalProtocolError for more messages than there is credit.
        """
        count = len(offsets)
        self._check_sending(count)
        room = self._room(settled=self.settled)
        data, frames = frame_messages(messages, offsets, room)
        self._count_sent(count)
        self.session.send_transfers(self, data, frames)
        return len(data)

    def _room(self, *, settled: bool) -> TransferRoom:
        return TransferRoom(
            channel=self.session.channel,
            handle=self.handle,
            delivery_id=self.session.next_delivery_id,
            tag=self.delivery_count,
            settled=settled,
            max_frame_size=self.session.connection.remote_max_frame_size,
        )

    def _check_sending(self, count: int) -> None:
        if self.role is not SENDER:
            raise LocalProtocolError("only the sending end sends messages")
        if self.state is not LinkState.ATTACHED:
            sent(LINK_SENT, self.state, Transfer)
        if count > self.credit:
            raise LocalProtocolError(f"{count} messages to send with a credit of {self.credit}")

    def _count_sent(self, count: int) -> None:
        self.credit -= count
        self.delivery_count = (self.delivery_count + count) & _MASK
        self.session.next_delivery_id = (self.session.next_delivery_id + count) & _MASK

    def count_received(self, count: int) -> None:
        """As the receiving end: this many deliveries have begun to arrive."""
        self.credit -= count
        self.delivery_count = (self.delivery_count + count) & _MASK

    @property
    def has_partial(self) -> bool:
        """Whether a message has arrived in part."""
        return self._partial is not None

    def add_part(self, transfer: Transfer, payload: memoryview) -> None:
        """Keep one frame of a message; the first frame has the delivery id, and any frame may settle the delivery."""
        if self._partial is None:
            self._partial = bytearray()
            self._partial_id = transfer.delivery_id or 0
            self._partial_format = transfer.message_format or 0
            self._partial_settled = False
            self.session.connection.partial_links += 1
        self._partial_settled = self._partial_settled or bool(transfer.settled)
        self._partial += payload
        self.session.connection.partial_bytes += len(payload)

    def give_up_partial(self) -> None:
        """Drop the bytes of the message that is arriving, because it is too large."""
        assert self._partial is not None
        self.is_too_large = True
        self.session.connection.partial_bytes -= len(self._partial)
        self._partial.clear()

    def reject_partial(self, state: DeliveryState) -> None:
        """Send the outcome of the message that was given up, after all of it has arrived."""
        number, is_settled = self._partial_id, self._partial_settled
        self.drop_partial()
        if not is_settled:
            self.session.settle(number, number, state)

    @property
    def partial_bytes(self) -> int:
        """How much of a message has arrived so far."""
        return len(self._partial) if self._partial is not None else 0

    def take_partial(self) -> Deliveries:
        """The message that is complete now."""
        assert self._partial is not None
        data = np.frombuffer(self._partial, dtype=np.uint8)
        ids, settled = np.array([self._partial_id], np.int64), np.array([self._partial_settled], np.int64)
        self.drop_partial()
        columns = np.zeros(1, np.int64), np.array([len(data)], np.int64), ids, settled
        return Deliveries(self, data, *columns, self._partial_format)

    def drop_partial(self) -> None:
        """Drop a message that has arrived in part."""
        if self._partial is not None:
            self.session.connection.partial_links -= 1
            self.session.connection.partial_bytes -= len(self._partial)
            self._partial = None
            self.is_too_large = False
