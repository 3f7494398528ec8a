"""Publishing links: messages become batches of the broker, its answers become outcomes.

    accepted    in every stream that the address leads to
    released    the address leads to no stream
    rejected    a stream refused it, or the message's own address is missing or names an unknown exchange

Source: amqp10_rabbit, section 4.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.broker import PublishBatch, Publisher
from headgate.errors import (
    BrokerError,
    ConfigError,
    HeadgateError,
    LogError,
    MessageError,
    PreconditionFailedError,
    ResourceNotFoundError,
)
from headgate.log import Entries, FilterValues
from headgate.message import EncodedMessages, FieldReference, Section
from headgate.message.lookup import locate_bytes
from headgate.protocols.amqp10 import (
    Accepted,
    Condition,
    DeliveryState,
    Error,
    Link,
    Rejected,
    Released,
    condition_of,
    in_standard_order,
    routing_headers,
    store_messages,
)
from headgate.protocols.amqp10.events import Deliveries
from headgate.server.amqp10.addresses import RoutingAddress, parse_route
from headgate.server.amqp10.service import ServedLink

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler

_TO = FieldReference(Section.PROPERTIES, position=2)
_MASK = 0xFFFFFFFF
_ACCEPTED = Accepted()
LINK_CREDIT = 4_000
"""Limit: messages of a publisher without an outcome; less if the connection's limit is less."""

Int64Array = NDArray[np.int64]


class _Unanswered(msgspec.Struct):
    """A batch on its way to some streams.

    It has `count` deliveries, the ranges of the ids that wait for an outcome, and the number of unanswered streams.
    """

    count: int
    ids: list[tuple[int, int]]
    streams: int
    error: HeadgateError | None = None


class PublishingLink(ServedLink):
    """One link of a publisher; `route` None: each message has its own address."""

    def __init__(self, handler: Amqp10Handler, link: Link, route: RoutingAddress | None) -> None:
        """Raises BrokerError and LogError if the user cannot publish to the address."""
        super().__init__(handler, link)
        self._route = route
        self._publishers: dict[tuple[str, str], Publisher] = {}
        self._only_publisher: Publisher | None = None
        """The publisher of the stream, if the address is a stream's own."""
        self._unanswered = 0
        self._credit = min(LINK_CREDIT, handler.context.settings.limits.unconfirmed_messages)
        if route is not None:
            if route.is_reply:
                if handler.broker.replies.find(route.key) is None:
                    raise ResourceNotFoundError("the requester has gone", subject=route.key)
            elif route.is_queue:
                self._only_publisher = self._publisher(route, route.key)
            else:
                handler.broker.route(route.exchange, route.key)

    def attached(self) -> None:
        """The link is attached: grant the first credit."""
        self._link.grant(self._credit)

    def has_lost(self, stream: str) -> bool:
        """Whether the address is this deleted stream's own, even if one of the same name exists again."""
        only = self._only_publisher
        return only is not None and only.stream == stream and only.is_closed

    def close(self) -> None:
        """The link has ended, or its connection; queued messages are still written, without an outcome."""
        super().close()
        for publisher in self._publishers.values():
            publisher.close()
        self._publishers.clear()

    def take(self, deliveries: Deliveries) -> None:
        """Publish the messages that arrived."""
        messages = EncodedMessages(deliveries.data, deliveries.starts, deliveries.lengths)
        self._unanswered += len(deliveries.starts)
        if self._route is not None:
            self._publish(self._route, messages, deliveries.ids, deliveries.settled)
            return
        messages, groups = _by_address(messages)
        for rows, address in groups:
            ids, settled = deliveries.ids[rows], deliveries.settled[rows]
            try:
                route = parse_route(address)
            except ConfigError as error:
                fault = self._fault_of(messages.take(rows))
                if fault is not None:
                    self._handler.detach(self._link, Error(condition_of(fault), str(fault)))
                    return
                refused = Rejected(Error(Condition.PRECONDITION_FAILED, str(error)))
                self._answer(len(ids), _unsettled(ids, settled), refused)
                continue
            self._publish(route, messages.take(rows), ids, settled)
            if not self._link.is_attached:
                return

    def _fault_of(self, messages: EncodedMessages) -> HeadgateError | None:
        """The first fault in these messages that ends the link, whatever their address is."""
        refused = store_messages(messages, routing=("", ""), user=self._handler.user).refused
        faulty = _first_fault(refused)
        return None if faulty is None else refused[faulty]

    def _publish(self, route: RoutingAddress, messages: EncodedMessages, ids: Int64Array, settled: Int64Array) -> None:
        """Store messages for one route, and publish them to its streams."""
        stored = store_messages(messages, routing=(route.exchange, route.key), user=self._handler.user)
        batch, values, sent, is_sent = stored.messages, stored.filter_values, ids, settled
        faulty = None
        if stored.refused:
            faulty = _first_fault(stored.refused)
            kept = np.ones(len(messages), dtype=bool)
            kept[list(stored.refused)] = False
            if faulty is not None:
                kept[faulty:] = False
            batch, sent, is_sent = batch.take(kept), ids[kept], settled[kept]
            values = None if values is None else FilterValues(values.data, values.starts[kept], values.lengths[kept])
        if len(sent):
            self._queue(route, batch, values, sent, is_sent)
        for row, error in stored.refused.items():
            if faulty is None or row < faulty:
                one = slice(row, row + 1)
                self._answer(1, _unsettled(ids[one], settled[one]), _rejected(error))
        if faulty is not None:
            fault = stored.refused[faulty]
            self._handler.detach(self._link, Error(condition_of(fault), str(fault)))

    def _queue(
        self,
        route: RoutingAddress,
        stored: EncodedMessages,
        values: FilterValues | None,
        ids: Int64Array,
        settled: Int64Array,
    ) -> None:
        """Publish stored messages to the streams of a route; with routing by headers, each run with equal streams."""
        is_stream = self._only_publisher is not None
        if not is_stream and route.is_reply:
            self._reply(route, stored, ids, settled)
            return
        if is_stream or route.is_queue or not self._handler.broker.needs_headers(route.exchange):
            entries = Entries(stored.data, stored.starts, stored.lengths, values)
            self._queue_entries(route, entries, _unsettled(ids, settled), None)
            return
        found = [self._streams_by_headers(route, stored.message(row)) for row in range(len(ids))]
        begin = 0
        for streams, run in itertools.groupby(found):
            rows = slice(begin, begin + len(list(run)))
            begin = rows.stop
            unsettled = _unsettled(ids[rows], settled[rows])
            if isinstance(streams, HeadgateError):
                self._answer(rows.stop - rows.start, unsettled, _rejected(streams))
                continue
            taken = None if values is None else FilterValues(values.data, values.starts[rows], values.lengths[rows])
            entries = Entries(stored.data, stored.starts[rows], stored.lengths[rows], taken)
            self._queue_entries(route, entries, unsettled, streams)

    def _reply(self, route: RoutingAddress, stored: EncodedMessages, ids: Int64Array, settled: Int64Array) -> None:
        """Give messages to a requester; messages that it cannot take are released, also if it has gone."""
        for row in range(len(ids)):
            is_taken = self._handler.broker.replies.put(route.key, stored.message(row))
            one = slice(row, row + 1)
            self._answer(1, _unsettled(ids[one], settled[one]), _ACCEPTED if is_taken else Released())

    def _streams_by_headers(self, route: RoutingAddress, message: bytes) -> list[str] | HeadgateError:
        """The streams of one message, or why it is refused."""
        try:
            return self._handler.broker.route(route.exchange, route.key, functools.partial(routing_headers, message))
        except (BrokerError, LogError, MessageError) as refusal:
            return refusal

    def _queue_entries(
        self, route: RoutingAddress, entries: Entries, ids: list[tuple[int, int]], streams: list[str] | None
    ) -> None:
        """Publish messages to streams, None: the streams of the route; `ids` are ranges that wait for an outcome."""
        count = entries.count
        publishers = self._publishers_of(route, count, ids, streams)
        written = functools.partial(self._written, _Unanswered(count, ids, len(publishers)))
        for publisher in publishers:
            publisher.publish(PublishBatch(entries, written))

    def _publishers_of(
        self, route: RoutingAddress, count: int, ids: list[tuple[int, int]], streams: list[str] | None
    ) -> list[Publisher]:
        """The publishers of some streams; if there are none, this answers the `count` messages."""
        if self._only_publisher is not None and not self._only_publisher.is_closed:
            return [self._only_publisher]
        try:
            found = self._streams(route) if streams is None else streams
            publishers = [self._publisher(route, stream) for stream in found]
        except (BrokerError, LogError) as refusal:
            self._answer(count, ids, _rejected(refusal))
            return []
        if not publishers:
            self._answer(count, ids, Released())
        return publishers

    def _streams(self, route: RoutingAddress) -> list[str]:
        if self._route is not None and route.is_queue:
            return [route.key]
        return self._handler.broker.route(route.exchange, route.key)

    def _publisher(self, route: RoutingAddress, stream: str) -> Publisher:
        if self._only_publisher is not None and self._only_publisher.is_closed:
            raise ResourceNotFoundError("the stream was deleted", subject=stream)
        key = route.exchange, stream
        publisher = self._publishers.get(key)
        if publisher is None or publisher.is_closed:
            exchange = None if route.is_queue else route.exchange
            publisher = self._handler.broker.publisher(stream, exchange=exchange)
            self._publishers[key] = publisher
        return publisher

    def _written(self, unanswered: _Unanswered, error: HeadgateError | None) -> None:
        """One of the streams has answered; the last one decides the outcome."""
        unanswered.streams -= 1
        unanswered.error = unanswered.error or error
        if unanswered.streams:
            return
        state = _ACCEPTED if unanswered.error is None else _rejected(unanswered.error)
        self._answer(unanswered.count, unanswered.ids, state)
        self._handler.flush()

    def _answer(self, count: int, ids: list[tuple[int, int]], state: DeliveryState) -> None:
        """Send the outcome of `count` deliveries to the ranges of `ids` that wait for it, and grant more credit."""
        self._unanswered -= count
        if not self.may_speak:
            return
        for first, last in ids:
            self._link.session.settle(first, last, state)
        self._grant_more()

    def aborted(self) -> None:
        """The peer aborted a message: another may come."""
        self._grant_more()

    def _grant_more(self) -> None:
        granted = self._credit - self._unanswered
        if self._link.credit <= self._credit // 2 and granted > self._link.credit:
            self._link.grant(granted)


def _unsettled(ids: Int64Array, settled: Int64Array) -> list[tuple[int, int]]:
    """The ids that the peer has not settled, as ranges: first and last."""
    if len(ids) == 1:
        (only,), (is_settled,) = ids.tolist(), settled.tolist()
        return [] if is_settled else [(only, only)]
    if settled.any():
        ids = ids[settled == 0]
    if not len(ids):
        return []
    breaks = np.flatnonzero((np.diff(ids) & _MASK) != 1)
    firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(ids) - 1)
    return list(zip(ids[firsts].tolist(), ids[lasts].tolist(), strict=True))


def _rejected(error: HeadgateError) -> Rejected:
    return Rejected(Error(condition_of(error), str(error)))


def _first_fault(refused: Mapping[int, HeadgateError]) -> int | None:
    """The first message whose fault ends the link: it is not decodable, or another user's."""
    rows = [row for row, error in refused.items() if not isinstance(error, PreconditionFailedError)]
    return min(rows, default=None)


def _in_standard_order(messages: EncodedMessages, wanted: NDArray[np.bool_]) -> EncodedMessages:
    """The messages, with the sections of the wanted ones in the standard's order."""
    found = messages.all_bytes()
    for row in np.flatnonzero(wanted).tolist():
        # Bytes that are no message are refused when they are stored.
        with contextlib.suppress(MessageError):
            found[row] = in_standard_order(found[row])
    return EncodedMessages.of(found)


def _by_address(messages: EncodedMessages) -> tuple[EncodedMessages, list[tuple[NDArray[np.intp], str]]]:
    """The messages, and their rows by their `to`, in order of appearance; empty where a message has none."""
    starts, lengths = locate_bytes(messages, _TO)
    if (lengths < 0).any():
        # A body in front of the properties hides them.
        messages = _in_standard_order(messages, lengths < 0)
        starts, lengths = locate_bytes(messages, _TO)
    rows: dict[bytes, list[int]] = {}
    for row in range(len(messages)):
        start, length = int(starts[row]), int(lengths[row])
        address = b"" if length < 0 else messages.data[start : start + length].tobytes()
        rows.setdefault(address, []).append(row)
    groups = [(np.array(found), address.decode("utf-8", "surrogateescape")) for address, found in rows.items()]
    return messages, groups
