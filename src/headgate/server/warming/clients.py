"""Clients without a socket: from the handshake of a protocol to one message after another."""

from __future__ import annotations

import struct
from typing import Protocol

import numpy as np

from headgate.message import Body, EncodedMessages, Message, amqp_value
from headgate.protocols.amqp10 import Connection
from headgate.protocols.amqp10.events import Began, CreditChanged, Event, HeadersExchanged, MechanismsOffered, Opened
from headgate.protocols.amqp10.performatives import SENDER, Attach, Open, Transfer
from headgate.protocols.amqp10.terminus import Accepted, Rejected, Source, Target
from headgate.protocols.sasl import Mechanism
from headgate.protocols.stream import client as stream_client
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.publishing import PublishConfirm, PublishError

_ID = struct.Struct(">I")
_SOME_ID = 0x1D1D1D1D
_MASK = 2**32 - 1
_ACCEPTED = Accepted().encode()[:3]
_REJECTED = Rejected().encode()[:3]
"""Descriptors of the two outcomes: what dispositions of them hold, and no flow."""

_MESSAGE = Message(Body.data(bytes(200)), application_properties={"region": "emea"}).encode()


class WarmingClient(Protocol):
    """Publishes to one stream of the server that it talks to."""

    confirmed: int
    """Messages that the server confirmed."""

    def received(self, data: bytes) -> None:
        """Bytes from the server."""

    def take_output(self) -> bytes:
        """What is to be said to the server, once."""

    def message(self) -> bytes:
        """Frames of one message; empty as long as none may be sent, and for good once one was refused."""


class StreamClient:
    """By the stream protocol: the same frame again and again, as a publisher without a name may."""

    def __init__(self, stream: str) -> None:
        self.confirmed = 0
        self._stream = stream
        self._connection = stream_client.ClientConnection(mechanism=Mechanism.ANONYMOUS)
        self._frame = b""

    def received(self, data: bytes) -> None:
        """Bytes from the server."""
        for event in self._connection.receive(data):
            match event:
                case PublishConfirm():
                    self.confirmed += 1
                case PublishError():
                    self._frame = b""
                case stream_client.Opened():
                    self._connection.request(f.DeclarePublisher(0, None, self._stream))
                case f.DeclarePublisherReply():
                    one = EncodedMessages.of([_MESSAGE])
                    ids = np.zeros(1, dtype=np.uint64)
                    self._frame = self._connection.publish(0, ids, one.data, one.starts, one.lengths)

    def take_output(self) -> bytes:
        """What is to be said to the server, once."""
        return self._connection.take_output()

    def message(self) -> bytes:
        """Frames of one message; empty as long as none may be sent."""
        return self._frame


class Amqp10Client:
    """By AMQP 1.0: unsettled transfers on one link.

    The core says how it begins and what a transfer looks like; then only the delivery id changes, and outcomes are told
    by sight, so that no caches are filled with a client. A server that has settled everything grants new credit and
    opens its window by itself, so neither need be counted here.
    """

    def __init__(self, stream: str) -> None:
        self.confirmed = 0
        self._address = f"/queues/{stream}"
        self._connection = Connection(is_server=False)
        self._around_id: tuple[bytes, bytes] | None = None
        self._next_id = 0

    def received(self, data: bytes) -> None:
        """Bytes from the server."""
        if self._around_id is None:
            for event in self._connection.receive(data):
                self._on(event)
        elif _ACCEPTED in data:
            self.confirmed += 1
        elif _REJECTED in data:
            self._around_id = None

    def _on(self, event: Event) -> None:
        match event:
            case MechanismsOffered():
                self._connection.send_init(Mechanism.ANONYMOUS, b"")
            case HeadersExchanged(is_sasl=False):
                self._connection.open(Open("warming"))
            case Opened():
                self._connection.begin()
            case Began(session=session):
                link = session.new_link("warming", SENDER)
                link.start(Attach(link.name, 0, SENDER, source=Source(), target=Target(amqp_value(self._address))))
            case CreditChanged(link=link):
                transfer = Transfer(link.handle, _SOME_ID, b"0", 0, settled=False)
                frame = b"".join(self._connection.transfer_frames(link.session.channel, transfer, _MESSAGE))
                head, tail = frame.split(_ID.pack(_SOME_ID))
                self._around_id = head, tail

    def take_output(self) -> bytes:
        """What is to be said to the server, once."""
        return b"".join(self._connection.take_output())

    def message(self) -> bytes:
        """Frames of one message; empty as long as none may be sent."""
        if self._around_id is None:
            return b""
        head, tail = self._around_id
        frame = head + _ID.pack(self._next_id) + tail
        self._next_id = (self._next_id + 1) & _MASK
        return frame
