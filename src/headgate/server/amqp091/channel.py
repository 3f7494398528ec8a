"""One channel: its methods become commands of the broker. Refusals are raised, and the handler answers them."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from headgate.broker import REPLY_TO, QueueDepth, StreamInfo, is_reply_queue
from headgate.errors import (
    AccessRefusedError,
    BrokerError,
    HeadgateError,
    LogError,
    PreconditionFailedError,
    RemoteProtocolError,
    ResourceNotFoundError,
    UnsupportedError,
)
from headgate.protocols.amqp091 import (
    Confirms,
    ReplyCode,
    Table,
    Unacknowledged,
    encode_method,
    long_string,
    plain_table,
    read_publication,
    with_reply_to,
)
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.events import Published
from headgate.server.amqp091.consumer import ChannelConsumer, StreamConsumer
from headgate.server.amqp091.options import consumer_options
from headgate.server.amqp091.outlet import Outlet
from headgate.server.amqp091.replies import ReplyConsumer
from headgate.server.amqp091.subscription_queue import CopyConsumer, CopyGetter, check_arguments
from headgate.server.unsettled_copies import NOT_DELETED, Settlement, check_subscription_declared, refused_queue
from headgate.topic import SubscriptionName

_CLASSIC = long_string("classic")
_OTHER_QUEUES = (_CLASSIC, long_string("quorum"))


logger = logging.getLogger("headgate.server.amqp091")


class Channel:
    """The server's side of a channel, from channel.open until it ends."""

    __slots__ = (
        "_copies",
        "_gets",
        "_last_queue",
        "_outlet",
        "_prefetch",
        "_replies",
        "_unacknowledged",
        "confirms",
        "consumers",
        "number",
    )

    def __init__(self, outlet: Outlet, number: int) -> None:
        self.number = number
        self.confirms: Confirms | None = None
        self.consumers: dict[str, ChannelConsumer] = {}
        self._outlet = outlet
        self._unacknowledged: Unacknowledged[ChannelConsumer] = Unacknowledged()
        self._copies: list[CopyConsumer] = []
        """Consumers of subscriptions, also cancelled ones whose copies the client still holds."""
        self._gets: deque[tuple[SubscriptionName, m.BasicGet]] = deque()
        """Gets that are not answered; the first one is in progress."""
        self._replies: ReplyConsumer | None = None
        self._prefetch = 0
        self._last_queue = ""

    def handle(self, method: m.Method) -> None:
        """Carry out a method and answer it. Raises BrokerError, LogError, FilterError, RemoteProtocolError."""
        _METHODS.get(type(method), Channel._unsupported)(self, method)

    def close(self) -> None:
        """The channel has ended: end its consumers."""
        for consumer in list(self.consumers.values()):
            self._end(consumer)
        self.consumers.clear()
        for copies in self._copies:
            copies.close()
        self._copies.clear()
        self._gets.clear()
        self.confirms = None

    def go_on(self) -> None:
        """The connection takes more."""
        for consumer in list(self._copies):
            consumer.go_on()
        if self._replies is not None:
            self._replies.go_on()

    def tick(self, now_ms: int) -> None:
        """Time passes; about twice a second."""
        for consumer in self._copies:
            consumer.tick(now_ms)

    def _send(self, method: m.Method) -> None:
        # A method may end the channel: by a failed write of a message before it.
        if self._outlet.core.is_open(self.number):
            self._outlet.core.send(self.number, method)

    def _answer(self, method: Any, answer: m.Method) -> None:
        if not method.nowait:
            self._send(answer)

    # publishing

    def publish(self, event: Published) -> None:
        """Take a message in. Raises BrokerError, LogError, RemoteProtocolError."""
        method = event.method
        if method.immediate:
            raise UnsupportedError("immediate=true")
        outlet = self._outlet
        publication = read_publication(method.exchange, method.routing_key, event.header)
        if publication.reply_to == REPLY_TO:
            header = with_reply_to(event.header, self._reply_queue())
            publication = read_publication(method.exchange, method.routing_key, header)
        if publication.user_id is not None and publication.user_id != outlet.session.user:
            raise PreconditionFailedError(
                f"user_id property set to {publication.user_id!r} but authenticated user was {outlet.session.user!r}"
            )
        headers = publication.routing_headers
        streams = outlet.route(method.exchange, method.routing_key, headers)
        for key in publication.routing_keys:
            streams = streams + [name for name in outlet.route(method.exchange, key, headers) if name not in streams]
        tag = 0 if self.confirms is None else self.confirms.published()
        if streams:
            message = publication.stored(event.body)
            outlet.publish(method.exchange, streams, message, publication.filter_value, self.number, self.confirms, tag)
            return
        is_reply = not method.exchange and is_reply_queue(method.routing_key)
        is_taken = is_reply and outlet.session.replies.put(method.routing_key, publication.stored(event.body))
        if method.mandatory and not is_taken:
            returned = m.BasicReturn(ReplyCode.NO_ROUTE, "NO_ROUTE", method.exchange, method.routing_key)
            outlet.core.send_content(self.number, encode_method(returned), event.header, event.body)
        if self.confirms is not None:
            self.confirms.settle([tag], is_kept=True)
            outlet.confirming[self.number] = None

    def _reply_queue(self) -> str:
        """The name of the queue on which this channel waits for replies."""
        if self._replies is None:
            raise PreconditionFailedError("fast reply consumer does not exist")
        return self._replies.queue

    def _confirm_select(self, method: m.ConfirmSelect) -> None:
        if self.confirms is None:
            self.confirms = Confirms()
        self._answer(method, m.ConfirmSelectOk())

    def send_confirms(self) -> None:
        """Send the pending confirms."""
        if self.confirms is None:
            return
        for confirm in self.confirms.take():
            tag, multiple = confirm.delivery_tag, confirm.multiple
            self._send(m.BasicAck(tag, multiple) if confirm.is_kept else m.BasicNack(tag, multiple))

    # queues

    def _queue_name(self, name: str) -> str:
        """The queue that a method names; without a name the last one declared on the channel."""
        if not name and not self._last_queue:
            raise ResourceNotFoundError("no previously declared queue")
        return name or self._last_queue

    def _queue_declare(self, method: m.QueueDeclare) -> None:
        session, name = self._outlet.session, method.queue
        if method.passive:
            name = self._queue_name(name)
        if name == REPLY_TO or is_reply_queue(name):
            if name != REPLY_TO and session.replies.find(name) is None:
                raise ResourceNotFoundError("the requester has gone", subject=_queue(name))
            self._answer(method, m.QueueDeclareOk(name, 0, 1))
            return
        info: StreamInfo | QueueDepth
        subscription = session.subscription_of(name)
        if subscription is None:
            if method.passive:
                session.declare_stream(name, {}, passive=True)
            else:
                self._declare(method)
            info = session.stream_info(name)
            shown = info.name
        else:
            if not method.passive:
                _check_subscription(method)
            info, shown = session.queue_depth(subscription), name
        self._last_queue = name
        if not method.nowait:
            self._send(m.QueueDeclareOk(shown, min(info.message_count, 2**32 - 1), info.consumer_count))

    def _declare(self, method: m.QueueDeclare) -> None:
        session, name, arguments = self._outlet.session, method.queue, method.arguments
        kind = arguments.get("x-queue-type", _CLASSIC)
        if kind != long_string("stream"):
            if kind not in _OTHER_QUEUES:
                raise PreconditionFailedError("invalid type in x-queue-type; expected stream", subject=_queue(name))
            raise refused_queue(session, name)
        if not name:
            raise PreconditionFailedError("a stream has a name; the server gives none")
        if not method.durable or method.exclusive or method.auto_delete:
            raise PreconditionFailedError(
                "a stream is durable, not exclusive and not auto-delete", subject=_queue(name)
            )
        session.declare_stream(name, stream_arguments(arguments), numbers_as_text=False)

    def _queue_delete(self, method: m.QueueDelete) -> None:
        """Delete a stream; `if_empty` is ignored, as in the original: a stream also keeps messages that were read."""
        session, name = self._outlet.session, self._queue_name(method.queue)
        if session.subscription_of(name) is not None:
            raise PreconditionFailedError(NOT_DELETED, subject=_queue(name))
        messages = 0
        with contextlib.suppress(ResourceNotFoundError):
            consumers = session.stream_info(name).consumer_count
            if method.if_unused and consumers:
                raise PreconditionFailedError(f"in use by {consumers} consumers", subject=_queue(name))
            messages = session.delete_stream(name)
        self._answer(method, m.QueueDeleteOk(min(messages, 2**32 - 1)))

    def _queue_purge(self, method: m.QueuePurge) -> None:
        session, name = self._outlet.session, self._queue_name(method.queue)
        subscription = session.subscription_of(name)
        if subscription is None:
            raise self._not_of_streams("queue.purge", name)

        def purged(result: int | HeadgateError) -> None:
            if isinstance(result, HeadgateError):
                self._outlet.failed(self.number, result)
            else:
                self._answer(method, m.QueuePurgeOk(min(result, 2**32 - 1)))
                self._outlet.flush()

        session.purge(subscription, purged)

    def _queue_bind(self, method: m.QueueBind) -> None:
        queue = self._queue_name(method.queue)
        # A binding without queue and key has the queue's name as its key, as the standard says.
        key = queue if not method.queue and not method.routing_key else method.routing_key
        self._outlet.session.bind(method.exchange, queue, key, plain_table(method.arguments))
        self._answer(method, m.QueueBindOk())

    def _queue_unbind(self, method: m.QueueUnbind) -> None:
        queue = self._queue_name(method.queue)
        key = queue if not method.queue and not method.routing_key else method.routing_key
        self._outlet.session.unbind(method.exchange, queue, key, plain_table(method.arguments))
        self._send(m.QueueUnbindOk())

    # exchanges

    def _exchange_declare(self, method: m.ExchangeDeclare) -> None:
        if not method.exchange:
            raise AccessRefusedError("operation not permitted on the default exchange")
        self._outlet.session.declare_exchange(
            method.exchange,
            kind=method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=plain_table(method.arguments),
            passive=method.passive,
        )
        self._answer(method, m.ExchangeDeclareOk())

    def _exchange_delete(self, method: m.ExchangeDelete) -> None:
        self._outlet.session.delete_exchange(method.exchange, if_unused=method.if_unused)
        self._answer(method, m.ExchangeDeleteOk())

    def _exchange_bind(self, method: m.ExchangeBind) -> None:
        arguments = plain_table(method.arguments)
        self._outlet.session.bind_exchange(method.source, method.destination, method.routing_key, arguments)
        self._answer(method, m.ExchangeBindOk())

    def _exchange_unbind(self, method: m.ExchangeUnbind) -> None:
        arguments = plain_table(method.arguments)
        self._outlet.session.unbind_exchange(method.source, method.destination, method.routing_key, arguments)
        self._answer(method, m.ExchangeUnbindOk())

    # consuming

    def _qos(self, method: m.BasicQos) -> None:
        if method.prefetch_size:
            raise UnsupportedError(f"prefetch_size!=0 ({method.prefetch_size})")
        self._prefetch = method.prefetch_count
        self._send(m.BasicQosOk())

    def _consume(self, method: m.BasicConsume) -> None:
        outlet, queue = self._outlet, self._queue_name(method.queue)
        tag = method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}"
        if tag in self.consumers:
            raise RemoteProtocolError(f"attempt to reuse consumer tag {tag!r}", code=ReplyCode.NOT_ALLOWED)
        if outlet.consumer_count >= outlet.settings.limits.consumers:
            raise RemoteProtocolError(
                f"reached maximum ({outlet.settings.limits.consumers}) of consumers", code=ReplyCode.NOT_ALLOWED
            )
        consumer: ChannelConsumer
        if queue == REPLY_TO:
            consumer = self._replies = self._reply_consumer(method, tag)
        elif (subscription := outlet.session.subscription_of(queue)) is None:
            consumer = self._stream_consumer(method, queue, tag)
        else:
            consumer = self._copy_consumer(method, queue, tag, subscription)
        self.consumers[tag] = consumer
        self._answer(method, m.BasicConsumeOk(tag))
        outlet.consumer_count += 1
        consumer.start()

    def _reply_consumer(self, method: m.BasicConsume, tag: str) -> ReplyConsumer:
        if self._replies is not None and self._replies.is_open:
            raise PreconditionFailedError("reply consumer already set")
        if not method.no_ack:
            raise PreconditionFailedError("reply consumer cannot acknowledge")
        return ReplyConsumer(self._outlet, self._unacknowledged, channel=self.number, tag=tag)

    def _stream_consumer(self, method: m.BasicConsume, stream: str, tag: str) -> StreamConsumer:
        outlet = self._outlet
        outlet.session.declare_stream(stream, {}, passive=True)
        if not self._prefetch:
            raise PreconditionFailedError(f"consumer prefetch count is not set for {_queue(stream)}")
        if method.no_ack:
            raise UnsupportedError(f"automatic acknowledgement not supported by {_queue(stream)}")
        if method.exclusive:
            raise AccessRefusedError("streams have no exclusive consumers", subject=_queue(stream))
        return StreamConsumer(
            outlet,
            self._unacknowledged,
            consumer_options(method.arguments, tag=tag, settings=outlet.settings),
            self._unreadable,
            channel=self.number,
            queue=stream,
            tag=tag,
            prefetch=self._prefetch,
        )

    def _copy_consumer(
        self, method: m.BasicConsume, queue: str, tag: str, subscription: SubscriptionName
    ) -> CopyConsumer:
        if method.exclusive:
            raise AccessRefusedError("subscriptions have no exclusive consumers", subject=_queue(queue))
        check_arguments(method.arguments, _queue(queue))
        consumer = CopyConsumer(
            self._outlet,
            self._unacknowledged,
            subscription,
            self._lost,
            channel=self.number,
            queue=queue,
            tag=tag,
            prefetch=self._prefetch,
            no_ack=method.no_ack,
        )
        self._keep(consumer)
        return consumer

    def _keep(self, consumer: CopyConsumer) -> None:
        self._copies = [each for each in self._copies if not each.is_done]
        self._copies.append(consumer)

    def _get(self, method: m.BasicGet) -> None:
        queue = self._queue_name(method.queue)
        subscription = self._outlet.session.subscription_of(queue)
        if subscription is None:
            raise self._not_of_streams("basic.get", queue)
        self._gets.append((subscription, m.BasicGet(queue=queue, no_ack=method.no_ack)))
        if len(self._gets) == 1:
            self._ask()

    def _ask(self) -> None:
        """Ask for the copy of the first get that is not answered."""
        subscription, method = self._gets[0]
        getter = CopyGetter(
            self._outlet,
            self._unacknowledged,
            subscription,
            self._got,
            channel=self.number,
            queue=method.queue,
            no_ack=method.no_ack,
        )
        self._keep(getter)
        getter.start()

    def _got(self, answer: m.Method | None) -> None:
        """A get was answered with a copy, or is answered now, with `answer`: there is none."""
        if not self._gets:
            return
        self._gets.popleft()
        if answer is not None:
            self._send(answer)
            self._outlet.flush()
        if self._gets:
            try:
                self._ask()
            except (BrokerError, LogError) as error:
                self._outlet.failed(self.number, error)

    def _cancel(self, method: m.BasicCancel) -> None:
        consumer = self.consumers.pop(method.consumer_tag, None)
        if consumer is not None:
            self._end(consumer)
            if consumer is self._replies:
                self._replies = None
        self._answer(method, m.BasicCancelOk(method.consumer_tag))

    def _ack(self, method: m.BasicAck) -> None:
        self._settle(method.delivery_tag, Settlement.COMPLETE, multiple=method.multiple)

    def _nack(self, method: m.BasicNack) -> None:
        settlement = Settlement.FAIL if method.requeue else Settlement.DEAD_LETTER
        self._settle(method.delivery_tag, settlement, multiple=method.multiple)

    def _reject(self, method: m.BasicReject) -> None:
        self._settle(method.delivery_tag, Settlement.FAIL if method.requeue else Settlement.DEAD_LETTER, multiple=False)

    def _settle(self, delivery_tag: int, settlement: Settlement, *, multiple: bool) -> None:
        settled = self._unacknowledged.settle(delivery_tag, multiple=multiple)
        if settled is None:
            raise PreconditionFailedError(f"unknown delivery tag {delivery_tag}")
        for consumer, tags in settled.items():
            consumer.settled(tags, settlement)

    def _recover(self, method: m.BasicRecover | m.BasicRecoverAsync) -> None:
        """Redeliver the unacknowledged copies of subscriptions; streams do not support that."""
        if not self._copies:
            self._unsupported(method)
        if not method.requeue:
            raise UnsupportedError("requeue=false")
        for consumer in list(self._copies):
            consumer.settled(self._unacknowledged.take(consumer), Settlement.FAIL)
        if isinstance(method, m.BasicRecover):
            self._send(m.BasicRecoverOk())

    def _end(self, consumer: ChannelConsumer) -> None:
        """Deliver to a consumer no more; a second call is harmless."""
        if consumer.is_open:
            self._outlet.consumer_count -= 1
            consumer.stop()

    def _unreadable(self, consumer: ChannelConsumer, error: HeadgateError) -> None:
        """A stream cannot be read any further: its consumer is cancelled, or the channel ends with the reason."""
        if not (consumer.is_open and self._outlet.core.is_open(self.number)):
            return
        if self._outlet.core.client_can("consumer_cancel_notify"):
            self._lost(consumer, error)
        else:
            reason = RemoteProtocolError(str(error), code=ReplyCode.PRECONDITION_FAILED)
            self._outlet.failed(self.number, reason)

    def _lost(self, consumer: ChannelConsumer, error: HeadgateError) -> None:
        """Cancel a consumer whose queue is gone or cannot be read; the client is told if it supports that."""
        if consumer.is_open and self._outlet.core.is_open(self.number):
            logger.info("consumer %r of queue %r: %s", consumer.tag, consumer.queue, error)
            self._cancel_here(consumer, notify=self._outlet.core.client_can("consumer_cancel_notify"))
            self._outlet.flush()

    def cancel_consumers(self, stream: str, *, notify: bool) -> None:
        """Cancel the consumers of a deleted stream; with `notify` the client is told."""
        for consumer in list(self.consumers.values()):
            if consumer.has_lost(stream):
                self._cancel_here(consumer, notify=notify)

    def _cancel_here(self, consumer: ChannelConsumer, *, notify: bool) -> None:
        """Cancel a consumer from this side; with `notify` the client is told."""
        del self.consumers[consumer.tag]
        self._end(consumer)
        if notify:
            self._send(m.BasicCancel(consumer.tag, nowait=True))

    # the rest

    def _flow(self, method: m.ChannelFlow) -> None:
        if not method.active:
            raise UnsupportedError("active=false")
        self._send(m.ChannelFlowOk(True))

    def _not_of_streams(self, what: str, queue: str) -> UnsupportedError:
        """The error for a method that streams do not support; raises the error of a missing queue instead."""
        self._outlet.session.declare_stream(queue, {}, passive=True)
        return UnsupportedError(f"{what} is not supported by streams", subject=_queue(queue))

    def _unsupported(self, method: m.Method) -> None:
        raise UnsupportedError(f"{type(method).__name__} is not served")


def stream_arguments(arguments: Table) -> dict[str, object]:
    """Arguments of a declaration, named without `x-`. Names without that prefix are ignored, and not compared."""
    plain = plain_table(arguments)
    return {name.removeprefix("x-"): value for name, value in plain.items() if name.startswith("x-")}


def _check_subscription(method: m.QueueDeclare) -> None:
    check_subscription_declared(
        method.queue,
        plain_table(method.arguments),
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
    )


def _queue(name: str) -> str:
    return f"queue {name!r} in vhost '/'"


_METHODS: Mapping[type[m.Method], Callable[[Channel, Any], None]] = {
    m.ChannelFlow: Channel._flow,
    m.ExchangeDeclare: Channel._exchange_declare,
    m.ExchangeDelete: Channel._exchange_delete,
    m.ExchangeBind: Channel._exchange_bind,
    m.ExchangeUnbind: Channel._exchange_unbind,
    m.QueueDeclare: Channel._queue_declare,
    m.QueueBind: Channel._queue_bind,
    m.QueuePurge: Channel._queue_purge,
    m.QueueDelete: Channel._queue_delete,
    m.QueueUnbind: Channel._queue_unbind,
    m.BasicQos: Channel._qos,
    m.BasicConsume: Channel._consume,
    m.BasicCancel: Channel._cancel,
    m.BasicGet: Channel._get,
    m.BasicAck: Channel._ack,
    m.BasicReject: Channel._reject,
    m.BasicNack: Channel._nack,
    m.BasicRecover: Channel._recover,
    m.BasicRecoverAsync: Channel._recover,
    m.ConfirmSelect: Channel._confirm_select,
}
"""The function for each method that is served."""
