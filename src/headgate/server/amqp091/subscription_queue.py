"""Subscriptions of topics as queues of AMQP 0.9.1: their copies are consumed or fetched, and settled one by one.

    basic.ack                                        done with
    basic.nack, basic.reject, no requeue             a dead letter
    the same with requeue, basic.recover, an end     given out again, the attempt counts

A cancelled consumer keeps its copies until they are acknowledged, or its channel ends. Source: RabbitMQ 4.3.6 with
quorum queues, where basic.nack with requeue and basic.recover do not count; here they do, so `redelivered` is true.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.broker import Delivery, GivenCopies, ReceiverCalls
from headgate.errors import HeadgateError, PreconditionFailedError
from headgate.protocols.amqp091 import Table, Unacknowledged, encode_method, long, read_delivery
from headgate.protocols.amqp091 import methods as m
from headgate.server.amqp091.consumer import ChannelConsumer, Lost
from headgate.server.amqp091.options import DIALECT, MATCH_UNFILTERED, PRIORITY, SQL, STREAM_FILTER, STREAM_OFFSET
from headgate.server.amqp091.outlet import Outlet
from headgate.server.unsettled_copies import Settlement, UnsettledCopies
from headgate.topic import SubscriptionName

DELIVERY_COUNT = "x-delivery-count"
"""The header with the number of failed attempts; absent on the first attempt."""

UNLIMITED_PREFETCH = 2_000
"""Limit: copies that a consumer without a prefetch may hold, as in RabbitMQ's quorum queues."""

_NOT_IN_FORCE = (STREAM_OFFSET, STREAM_FILTER, MATCH_UNFILTERED, SQL, DIALECT, PRIORITY)


def check_arguments(arguments: Table, queue: str) -> None:
    """Raise PreconditionFailedError for arguments of basic.consume that would have no effect on a subscription."""
    for name in _NOT_IN_FORCE:
        if name in arguments:
            reason = f"invalid arg {name!r}: a subscription has what its rules give it"
            raise PreconditionFailedError(reason, subject=queue)


class CopyConsumer(ChannelConsumer):
    """A consumer of a subscription, or of its dead letters; `no_ack`: copies are settled before they are sent."""

    def __init__(
        self,
        outlet: Outlet,
        unacknowledged: Unacknowledged[ChannelConsumer],
        name: SubscriptionName,
        lost: Lost,
        *,
        channel: int,
        queue: str,
        tag: str,
        prefetch: int,
        no_ack: bool,
    ) -> None:
        """`lost` is called when the subscription is gone or cannot be read.

        Raises BrokerError and LogError, also if the user may not receive from the subscription.
        """
        super().__init__(outlet, channel=channel, queue=queue, tag=tag)
        self._unacknowledged = unacknowledged
        self._lost = lost
        self._prefetch = prefetch or UNLIMITED_PREFETCH
        self._receiver = outlet.session.receiver(
            name,
            ReceiverCalls(
                deliver=self._deliver, ended=self._ended, ran_out=self._ran_out, settles_first=no_ack, tag=tag
            ),
        )
        self._unsettled = UnsettledCopies(
            self._receiver.settler, self._failed, outlet.call_soon, is_dead_letter=name.is_dead_letter
        )

    # giving out

    def start(self) -> None:
        """Deliver from now on."""
        self.go_on()

    def go_on(self) -> None:
        """Ask for as many copies as the client may hold, while the connection takes them."""
        self._receiver.want(self._room())

    def _room(self) -> int:
        if not (self.is_open and self._outlet.is_writable):
            return 0
        return self._prefetch if self._receiver.settles_first else max(self._prefetch - len(self._unsettled), 0)

    def _deliver(self, given: GivenCopies) -> None:
        core = self._outlet.core
        if not (self.is_open and core.is_open(self.channel)):
            # The consumer was stopped while the claims were being written.
            tokens = given.packed_tokens()
            if tokens:
                self._receiver.settler.release(tokens, counts=False)
            return
        if given.tokens is None:
            tags = [self._unacknowledged.sent() for _ in given.attempts]
        else:
            tags = [self._unacknowledged.delivered(self) for _ in given.attempts]
            self._unsettled.add(tags, given)
        for delivery, tag in zip(given, tags, strict=True):
            self._send(delivery, tag)
        self._outlet.flush()
        if self._room() != self._receiver.wanted:
            self.go_on()

    def _send(self, delivery: Delivery, tag: int) -> None:
        message, body = read_delivery(delivery.message)
        failed = delivery.attempt - 1
        before, behind = self._method(message.exchange, message.routing_key, redelivered=failed > 0)
        self._outlet.core.send_content(
            self.channel,
            b"%b%b%b" % (before, tag.to_bytes(8, "big"), behind),
            message.plain_header(_headers(failed), len(body)),
            body,
        )

    def _ran_out(self) -> None:
        """No more copies for now."""

    def _ended(self, error: HeadgateError) -> None:
        self._unsettled.forget()
        self._lost(self, error)

    # settling

    def settled(self, tags: list[int], settlement: Settlement) -> None:
        """The client settled some of its copies."""
        self._unsettled.settle(tags, settlement)
        self.go_on()
        self._close_if_done()

    def _failed(self, error: HeadgateError) -> None:
        """A settlement failed to reach the disk: the copies come back, and the channel ends with the error."""
        self._outlet.failed(self.channel, error)

    def tick(self, now_ms: int) -> None:
        """Renew the claims on copies that the client has not settled yet."""
        self._unsettled.tick(now_ms)

    # ends

    @property
    def is_done(self) -> bool:
        """Whether it delivers nothing more, and its client holds no copies."""
        return self._receiver.is_closed

    def has_lost(self, stream: str) -> bool:
        """False: the receiver reports a lost subscription itself."""
        return False

    def stop(self) -> None:
        """Deliver no more; a second call is harmless."""
        super().stop()
        self._receiver.want(0)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not self.is_open and not len(self._unsettled):
            self._receiver.close()

    def close(self) -> None:
        """The channel has ended: unsettled copies go back."""
        self.is_open = False
        self._unsettled.give_back(Settlement.FAIL)
        self._receiver.close()


class CopyGetter(CopyConsumer):
    """One basic.get: a consumer of one copy, or of none if the subscription is empty now."""

    def __init__(
        self,
        outlet: Outlet,
        unacknowledged: Unacknowledged[ChannelConsumer],
        name: SubscriptionName,
        answered: Callable[[m.Method | None], None],
        *,
        channel: int,
        queue: str,
        no_ack: bool,
    ) -> None:
        """`answered` gets basic.get-empty, or None when the copy was sent."""
        super().__init__(
            outlet,
            unacknowledged,
            name,
            self._unanswered,
            channel=channel,
            queue=queue,
            tag="",
            prefetch=1,
            no_ack=no_ack,
        )
        self._name = name
        self._answered = answered

    def _send(self, delivery: Delivery, tag: int) -> None:
        message, body = read_delivery(delivery.message)
        failed = delivery.attempt - 1
        left = self._outlet.session.queue_depth(self._name).message_count
        key = self.queue if message.routing_key is None else message.routing_key
        method = m.BasicGetOk(tag, failed > 0, message.exchange or "", key, min(left, 2**32 - 1))
        header = message.plain_header(_headers(failed), len(body))
        self._outlet.core.send_content(self.channel, encode_method(method), header, body)
        self._end(None)

    def _ran_out(self) -> None:
        self._end(m.BasicGetEmpty())

    def _unanswered(self, _getter: ChannelConsumer, error: HeadgateError) -> None:
        if self.is_open:
            self._failed(error)

    def _end(self, answer: m.Method | None) -> None:
        self.stop()
        self._answered(answer)


def _headers(failed: int) -> Table:
    return {DELIVERY_COUNT: long(failed)} if failed else {}
