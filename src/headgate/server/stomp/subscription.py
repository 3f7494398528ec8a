"""A subscription of STOMP: messages of a stream become MESSAGE frames."""

from __future__ import annotations

import functools
from collections.abc import Callable

from headgate.broker import LOST, MessageConsumer
from headgate.protocols.amqp091 import OFFSET_HEADER, Delivery, Unacknowledged, decode_table, read_deliveries
from headgate.protocols.stomp import (
    ConnectionState,
    ServerConnection,
    Version,
    encode_headers,
    format_destination,
    property_headers,
    text_headers,
)
from headgate.protocols.stomp.events import AckMode, Subscribe

MAX_MESSAGES = 256
"""Limit: messages of one subscription before others have their turn."""

_OFFSET = OFFSET_HEADER.encode()
_CACHED_BYTES = 256


class Subscription:
    """One subscription; its credit is the prefetch count, and each acknowledged message gives one credit back.

    Tags up to `earlier_tags` belong to subscriptions that have ended, so that no two messages share a tag.
    """

    def __init__(
        self,
        core: ServerConnection,
        consumer: MessageConsumer,
        request: Subscribe,
        flush: Callable[[], None],
        *,
        stream: str,
        session: str,
        earlier_tags: int,
    ) -> None:
        self.consumer = consumer
        self.request = request
        self.stream = stream
        self.is_open = True
        self._core = core
        self._flush = flush
        self._is_cumulative = request.ack_mode is AckMode.CLIENT
        self._earlier_tags = earlier_tags
        self._unacknowledged: Unacknowledged[str] = Unacknowledged(earlier_tags)
        message_id = f"{request.key}@@{session}@@"
        self._subscription = b"" if request.id is None else self._line("subscription", request.id) + b"\n"
        self._message_id = self._line("message-id", message_id)
        self._ack = self._line("ack", message_id) if core.version is Version.V1_2 else b""
        taken = ["destination", "message-id", "redelivered", OFFSET_HEADER]
        taken += [name for name, is_own in (("subscription", self._subscription), ("ack", self._ack)) if is_own]
        self._taken = frozenset(taken)

    def _line(self, name: str, value: str) -> bytes:
        """A header line without its end: the rest of the value follows."""
        return encode_headers([(name, value)], self._core.version).removesuffix(b"\n")

    def deliver(self, budget_bytes: int) -> int | None:
        """Send the messages within the budget; returns their bytes on the wire, None if there are none."""
        if not self.is_open or self._core.state is not ConnectionState.OPEN:
            return None
        batch = self.consumer.take(MAX_MESSAGES, budget_bytes)
        if batch is None:
            return None
        size, lost = 0, self.consumer.lost_before
        for message, body, offset in read_deliveries(batch.messages, batch.offsets):
            told = b"%b:%d\n" % (LOST.encode(), lost) if lost else b""
            size += self._core.message(told + self._headers(message, offset), body)
            lost = 0
        self._flush()
        return size

    def _headers(self, message: Delivery, offset: int) -> bytes:
        """The headers of a message as lines: first the headers that differ from message to message, then the others."""
        tag = self._unacknowledged.delivered("")
        own = b"%b%b%d\nredelivered:false\n%b:%d\n" % (self._subscription, self._message_id, tag, _OFFSET, offset)
        if self._ack:
            own += b"%b%d\n" % (self._ack, tag)
        headers_of = _cached_headers if len(message.header_end) <= _CACHED_BYTES else _headers_of
        return own + headers_of(message, self.stream, self._core.version, self._taken)

    def acknowledge(self, tag: int) -> bool:
        """Settle a message, in the cumulative mode all messages up to it; False if the client does not hold it."""
        if 0 < tag <= self._earlier_tags:
            # Messages of a subscription that has ended may still be acknowledged.
            return True
        settled = self._unacknowledged.settle(tag, multiple=self._is_cumulative) if tag else None
        if settled is None:
            return False
        if self.is_open:
            self.consumer.want_more(sum(map(len, settled.values())))
        return True

    @property
    def last_tag(self) -> int:
        """The tag of the last delivered message, or `earlier_tags` before the first one."""
        return self._unacknowledged.last_tag

    def close(self) -> None:
        """End the subscription; a second call is harmless."""
        if self.is_open:
            self.is_open = False
            self.consumer.close()


def _headers_of(message: Delivery, stream: str, version: Version, taken: frozenset[str]) -> bytes:
    """Header lines that similar messages share; headers of the frame itself, `taken`, are left out."""
    key = stream if message.routing_key is None else message.routing_key
    properties, table = message.split()
    own = property_headers(properties)
    headers = [("destination", format_destination(message.exchange or "", key))]
    headers += [header for header in own.items() if header[0] not in taken]
    text_lines = _cached_text_lines if len(table) <= _CACHED_BYTES else _text_lines
    return encode_headers(headers, version) + text_lines(table, version, taken.union(own))


_cached_headers = functools.lru_cache(maxsize=1024)(_headers_of)


def _text_lines(table: bytes, version: Version, taken: frozenset[str]) -> bytes:
    """The lines of an encoded table: messages with ids of their own have few different ones."""
    headers, _ = decode_table(table, 0, len(table))
    return encode_headers(text_headers(headers, taken), version)


_cached_text_lines = functools.lru_cache(maxsize=1024)(_text_lines)
