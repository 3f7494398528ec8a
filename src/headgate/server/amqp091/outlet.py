"""The outlet of a connection, shared by its channels and their consumers: core, session and published messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headgate.broker import Headers, Session
from headgate.errors import HeadgateError
from headgate.protocols.amqp091 import Confirms, ServerConnection
from headgate.server.flow_control import FlowControl
from headgate.server.outbox import Outbox
from headgate.server.pump import Pump
from headgate.server.settings import ServerSettings
from headgate.server.transport import Transport

Ticket: TypeAlias = tuple[int, Confirms | None, int, int]
"""A published message: its channel, the channel's confirms, its tag (0 without confirms), and its number."""


class Outlet:
    """The parts of a connection that its channels use; `session` exists once the client has logged in."""

    def __init__(
        self,
        transport: Transport,
        settings: ServerSettings,
        core: ServerConnection,
        flow: FlowControl,
        outbox: Outbox[Ticket],
        failed: Callable[[int, HeadgateError], None],
    ) -> None:
        """`failed` ends a channel with the error of an unanswered request."""
        self.settings = settings
        self.core = core
        self.session: Session
        self.pump = Pump(transport)
        self.failed = failed
        self.consumer_count = 0
        self.confirming: dict[int, None] = {}
        """Channels that have confirms to send."""
        self._transport = transport
        self._flow = flow
        self._outbox = outbox
        self._message_number = 0

    @property
    def is_writable(self) -> bool:
        """Whether the transport takes more; when it does again, consumers go on."""
        return self._transport.is_writable

    def call_soon(self, call: Callable[[], None]) -> None:
        """Make a call at the end of the turn."""
        self._transport.call_soon(call)

    def flush(self) -> None:
        """Send the queued frames."""
        self._flow.say(self.core.take_output())

    def route(self, exchange: str, routing_key: str, headers: Headers) -> list[str]:
        """Names of the streams that a message goes to; errors as `Session.route`."""
        return self._outbox.route(exchange, routing_key, headers)

    def publish(
        self,
        exchange: str,
        streams: list[str],
        message: bytes,
        filter_value: bytes | None,
        channel: int,
        confirms: Confirms | None,
        tag: int,
    ) -> None:
        """Publish with the next flush; `tag` is 0 on a channel without confirms."""
        self._message_number += 1
        self._outbox.add(exchange, streams, message, filter_value, (channel, confirms, tag, self._message_number))
