"""Consuming links: a consumer of the broker with the link's credit, its batches as transfers.

Source: amqp10_rabbit, section 5; rabbitmq_filters, sections 1 and 6.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import largest
from headgate.broker import LOST, ConsumerOptions, MessageConsumer
from headgate.errors import HeadgateError
from headgate.message import AmqpType, AmqpValue, EncodedMessages
from headgate.protocols.amqp10 import OFFSET, Condition, Error, Link, Released, annotated_message, delivered_message
from headgate.protocols.amqp10.performatives import Attach
from headgate.scan import ScanBatch
from headgate.server.amqp10.filters import RequestedFilters
from headgate.server.amqp10.service import ServedLink

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler

CAPABILITIES = ("AMQP_FILTEX_PROP_V1_0", "AMQP_FILTEX_SQL_V1_0")
"""The capabilities of a stream as a source."""

OUTCOMES = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
_MAX_TAKEN = 16_384
_MOST_ADDED_BYTES = 96
"""Upper bound for the bytes that delivery adds to a stored message."""

logger = logging.getLogger("headgate.server.amqp10")


class ConsumingLink(ServedLink):
    """One link of a consumer."""

    def __init__(self, handler: Amqp10Handler, link: Link, stream: str, filters: RequestedFilters) -> None:
        """Raises BrokerError and LogError, also if the user may not consume from the stream."""
        super().__init__(handler, link)
        self._stream = stream
        self._largest_bytes = link.attach.max_message_size or None
        """Limit: bytes of a message that the peer takes."""
        self._consumer: MessageConsumer = handler.broker.message_consumer(
            stream,
            ConsumerOptions(
                start=filters.start,
                filter_values=filters.filter_values,
                match_unfiltered=filters.match_unfiltered,
                filter=filters.expression,
                tag=link.name,
            ),
        )

    def attached(self) -> None:
        """The link is attached: deliver from now on."""
        self._handler.pump.add(self._consumer, self._deliver, self._failed)

    def has_lost(self, stream: str) -> bool:
        """Whether it consumed from this deleted stream, even if one of the same name exists again."""
        return self._stream == stream and self._consumer.is_closed

    def close(self) -> None:
        """The link has ended."""
        super().close()
        self._handler.pump.remove(self._consumer)
        self._consumer.close()

    def credit_changed(self) -> None:
        """The peer granted credit, or drains it."""
        self._consumer.want(self._link.credit)
        self._consumer.wake()

    def _deliver(self, budget_bytes: int) -> int | None:
        """Send the next messages; if the peer drains, use up its credit at the end of the stream."""
        link = self._link
        limit = min(link.sendable, _MAX_TAKEN)
        batch = self._consumer.take(limit, budget_bytes) if limit > 0 else None
        written = None if batch is None else self._send(batch)
        # The end of a drain is sent even with a closed window: a flow frame needs none.
        if link.drain and link.is_attached and (link.credit == 0 or self._consumer.at_end):
            link.use_up_credit()
            self._consumer.want(0)
        self._handler.flush()
        return written

    def _send(self, batch: ScanBatch) -> int:
        link, messages, offsets = self._link, batch.messages, batch.offsets
        too_large = self._too_large(messages, offsets)
        if too_large is not None:
            messages, offsets = messages.take(slice(too_large)), offsets[:too_large]
        written = 0
        if too_large != 0 and (lost := self._consumer.lost_before):
            written = self._tell(messages.message(0), int(offsets[0]), lost)
            messages, offsets = messages.take(slice(1, None)), offsets[1:]
        written += link.send_messages(messages, offsets)
        if too_large is not None:
            reason = f"the receiver takes no message as large as the one at {batch.offsets[too_large]}"
            self._handler.detach(link, Error(Condition.MESSAGE_SIZE_EXCEEDED, reason))
        return written

    def _tell(self, message: bytes, offset: int, lost: int) -> int:
        """Send the first message after a gap of messages that retention deleted; it says how many were lost."""
        annotations = {OFFSET: offset, LOST: lost}
        told = annotated_message(
            message, {name: AmqpValue(AmqpType.LONG, value) for name, value in annotations.items()}, delivery_count=0
        )
        if self._largest_bytes is not None and len(told) > self._largest_bytes:
            told = delivered_message(message, offset)
        self._link.send(told)
        return len(told)

    def _too_large(self, messages: EncodedMessages, offsets: NDArray[np.int64]) -> int | None:
        """The row of the first message longer than the peer takes, or None; there is at least one message."""
        limit = self._largest_bytes
        if limit is None:
            return None
        # Mostly the whole buffer is shorter than the limit.
        longest = limit - _MOST_ADDED_BYTES
        if len(messages.data) <= longest or largest(messages.lengths) <= longest:
            return None
        for row in np.flatnonzero(messages.lengths > longest).tolist():
            if len(delivered_message(messages.message(row), int(offsets[row]))) > limit:
                return int(row)
        return None

    def _failed(self, error: HeadgateError) -> None:
        logger.info("consumer %s of stream %s: %s", self._link.name, self._stream, error)
        self._handler.detach(self._link, Error(Condition.INTERNAL_ERROR, str(error)))


def confirmed_attach(attach: Attach, filters: RequestedFilters) -> Attach:
    """The answer to a consumer's attach: the filters in force, and the capabilities of the source."""
    source = attach.source
    assert source is not None
    return replace(
        attach,
        snd_settle_mode=1 if attach.snd_settle_mode == 1 else 0,
        rcv_settle_mode=0,
        source=replace(
            source,
            distribution_mode="copy",
            filter=None if source.filter is None else filters.in_force,
            default_outcome=Released(),
            outcomes=OUTCOMES if source.outcomes is None else source.outcomes,
            capabilities=CAPABILITIES,
        ),
        unsettled=None,
        offered_capabilities=CAPABILITIES,
        desired_capabilities=None,
    )
