"""Commands on an open connection: each goes to the publishers, the subscriptions or the broker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from headgate.broker import Session, is_damage
from headgate.errors import HeadgateError
from headgate.protocols.stream import Publish, ResponseCode, ServerConnection, response_code
from headgate.protocols.stream import frames as f
from headgate.server.context import ServerContext
from headgate.server.flow_control import FlowControl, Waiting
from headgate.server.pump import Pump
from headgate.server.storage_reads import read_stream
from headgate.server.stream.administration import Administration
from headgate.server.stream.outlet import Outlet
from headgate.server.stream.publishers import Publishers
from headgate.server.stream.subscriptions import Subscriptions
from headgate.server.transport import Transport

_TURN_BYTES = 4 << 20
"""Large chunks are written as views of their file: several in one turn cost the loop no more than one."""

logger = logging.getLogger("headgate.server.stream")


class Commands:
    """The open part of a connection, from Open to its end."""

    def __init__(
        self,
        session: Session,
        transport: Transport,
        context: ServerContext,
        flow: FlowControl,
        connection: ServerConnection,
        outlet: Outlet,
    ) -> None:
        settings = context.settings
        self._session = session
        self._transport = transport
        self._flow = flow
        self._connection = connection
        self._outlet = outlet
        self._when_confirmed: Callable[[], None] | None = None
        self._has_ended = False
        self._pump = Pump(transport, turn_bytes=_TURN_BYTES)
        self._publishers = Publishers(session, outlet, settings.limits, self._answered_some)
        self._subscriptions = Subscriptions(
            session,
            outlet,
            self._pump,
            settings,
            clock_s=context.clock.monotonic_s,
            failed=self._stream_failed,
        )
        self._administration = Administration(session, context, transport.peer)
        session.on_stream_deleted = self._stream_deleted
        flow.limit_backlog(session.backlog, settings.limits)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Publish: self._publishers.publish,
            f.Credit: self._subscriptions.credit,
            f.StoreOffset: self._administration.store_offset,
            f.ConsumerUpdateReply: self._subscriptions.answered,
            f.DeclarePublisher: self._declare_publisher,
            f.DeletePublisher: self._delete_publisher,
            f.Subscribe: self._subscribe,
            f.Unsubscribe: self._unsubscribe,
            f.ResolveOffsetSpecification: self._resolve_offset,
        }

    @property
    def is_overdue(self) -> bool:
        """Whether the client has owed an answer for too long."""
        return self._subscriptions.is_overdue

    def handle(self, event: f.Frame | Publish) -> None:
        """Carry out a client's command; a request is answered."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
        elif isinstance(event, f.Request):
            self._administer(event)

    def writable(self) -> None:
        """The transport takes more: go on delivering."""
        self._pump.wake()

    def when_confirmed(self, call: Callable[[], None]) -> None:
        """Read nothing more from the client, and make a call as soon as all its messages are answered."""
        self._flow.wait(Waiting.LEAVING)
        if self._session.backlog.entries:
            self._when_confirmed = call
        else:
            call()

    def end(self) -> None:
        """The connection ends: so do its publishers and subscriptions."""
        self._has_ended = True
        self._session.on_stream_deleted = None
        self._subscriptions.end()
        self._session.close()

    # One command each.

    def _answered_some(self) -> None:
        if self._when_confirmed is not None and not self._session.backlog.entries:
            call, self._when_confirmed = self._when_confirmed, None
            self._transport.call_soon(call)

    def _declare_publisher(self, request: f.DeclarePublisher) -> None:
        try:
            self._publishers.declare(request)
        except HeadgateError as error:
            self._refuse(request, error)
        else:
            self._connection.reply(request)

    def _delete_publisher(self, request: f.DeletePublisher) -> None:
        known = self._publishers.delete(request.publisher_id)
        self._connection.reply(request, ResponseCode.OK if known else ResponseCode.PUBLISHER_DOES_NOT_EXIST)

    def _subscribe(self, request: f.Subscribe) -> None:
        if request.subscription_id in self._subscriptions:
            self._connection.reply(request, ResponseCode.SUBSCRIPTION_ID_EXISTS)
            return
        try:
            begin = self._subscriptions.subscribe(request)
        except HeadgateError as error:
            self._refuse(request, error)
            return
        self._connection.reply(request)
        begin()

    def _unsubscribe(self, request: f.Unsubscribe) -> None:
        known = request.subscription_id in self._subscriptions
        # Before another subscription is asked to continue in its place.
        self._connection.reply(request, ResponseCode.OK if known else ResponseCode.SUBSCRIPTION_ID_UNKNOWN)
        self._subscriptions.unsubscribe(request.subscription_id)

    def _administer(self, request: f.Request) -> None:
        try:
            reply = self._administration.answer(request)
        except HeadgateError as error:
            self._refuse(request, error)
        else:
            self._reply(request, reply)

    def _reply(self, request: f.Request, reply: f.Reply | f.MetadataReply) -> None:
        self._connection.send(msgspec.structs.replace(reply, correlation_id=request.correlation_id))

    def _resolve_offset(self, request: f.ResolveOffsetSpecification) -> None:
        def resolved(reply: f.Reply | HeadgateError) -> None:
            if self._has_ended:
                return
            if isinstance(reply, HeadgateError):
                self._refuse(request, reply)
            else:
                self._reply(request, reply)
            self._outlet.flush()

        try:
            resolve = self._administration.resolution(request)
            read_stream(self._transport, self._session, request.stream, resolve, resolved)
        except HeadgateError as error:
            self._refuse(request, error)

    def _refuse(self, request: f.Request, error: HeadgateError) -> None:
        code = response_code(error)
        # Damage is in the log already.
        level = logging.ERROR if code is ResponseCode.INTERNAL_ERROR and not is_damage(error) else logging.INFO
        logger.log(level, "user %r: %s is refused: %s", self._session.user, type(request).__name__, error)
        self._connection.reply(request, code)

    # What happens to streams.

    def _stream_deleted(self, stream: str) -> None:
        # A stream of the same name may exist again, with publishers and subscriptions of its own.
        self._drop_stream(stream, only_ended=True)

    def _stream_failed(self, stream: str, error: HeadgateError) -> None:
        """A stream cannot be read any more: its subscribers must look it up again.

        The client forgets all its subscriptions and publishers of that stream: the update names no subscription.
        """
        logger.info("stream %r cannot be read on for user %r: %s", stream, self._session.user, error)
        self._drop_stream(stream, only_ended=False)

    def _drop_stream(self, stream: str, *, only_ended: bool) -> None:
        self._publishers.drop_stream(stream, only_ended=only_ended)
        self._subscriptions.drop_stream(stream, only_ended=only_ended)
        self._outlet.send(f.MetadataUpdate(ResponseCode.STREAM_NOT_AVAILABLE, stream))
