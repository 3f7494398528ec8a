"""The port of AMQP: the first eight bytes show which of the two protocols a client speaks.

    AMQP 0 0 9 1              AMQP 0.9.1
    AMQP 3 1 0 0              AMQP 1.0, its SASL layer
    anything else             answered with `AMQP 3 1 0 0`, and the connection is closed

Source: amqp10_rabbit, section 1; OASIS AMQP 1.0 part 2 (transport), section 2.2.
"""

from __future__ import annotations

from headgate.protocols.amqp10 import SASL_HEADER
from headgate.server.amqp091 import Amqp091Handler
from headgate.server.amqp10 import Amqp10Handler, RabbitService
from headgate.server.context import ServerContext
from headgate.server.servicebus import ServiceBusService
from headgate.server.transport import Handler, Transport

SERVICES = (RabbitService, ServiceBusService)
"""The services that a connection of AMQP 1.0 carries."""

AMQP_091_HEADER = b"AMQP\x00\x00\x09\x01"
_HEADER_BYTES = 8


class AmqpHandler:
    """Waits for the header, and hands the connection over to one of the two handlers."""

    def __init__(self, transport: Transport, context: ServerContext) -> None:
        self._transport = transport
        self._context = context
        self._head = b""

    def received(self, data: memoryview) -> None:
        """Bytes from the peer; `data` is valid only during the call."""
        self._head += bytes(data)
        if len(self._head) < _HEADER_BYTES and self._might_be_header():
            return
        head = self._head[:_HEADER_BYTES]
        handler: Handler
        if head == AMQP_091_HEADER:
            handler = Amqp091Handler(self._transport, self._context)
        elif head == SASL_HEADER:
            handler = Amqp10Handler(self._transport, self._context, SERVICES)
        else:
            self._transport.write(SASL_HEADER)
            self._transport.close()
            return
        self._transport.hand_over(handler)
        handler.received(memoryview(self._head))

    def _might_be_header(self) -> bool:
        return any(header.startswith(self._head) for header in (AMQP_091_HEADER, SASL_HEADER))

    def writable(self) -> None:
        """The transport takes more again."""

    def tick(self, now_ms: int) -> None:
        """Time passes; the event loop cuts off silent clients."""

    def lost(self, reason: Exception | None) -> None:
        """The connection was closed."""

    def shut_down(self) -> None:
        """The server stops."""
        self._transport.close()
