"""Links on which clients send to topics and queues: messages one by one, or batches that are stored as a whole.

    accepted    the message is stored in the entity, and rules decide which subscriptions get it, if any. Rules decide
                about a scheduled message when it is due
    rejected    it is not stored, and the error says why; of a batch no message is stored

Source: servicebus_wire, sections 5 and 6.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.broker import PublishBatch, Publisher, Right, due_of
from headgate.errors import EntityDisabledError, HeadgateError, LimitExceededError, MessageError
from headgate.log import Entries, FilterValues
from headgate.message import EncodedMessages
from headgate.protocols.amqp10 import Accepted, DeliveryState, Link, Rejected
from headgate.protocols.amqp10.events import Deliveries
from headgate.protocols.servicebus import (
    BATCH_FORMAT,
    MAX_BATCH_MESSAGES,
    NO_SESSION,
    SCHEDULED_TIME,
    Identifiers,
    beyond_limits,
    not_implemented,
    refusal_of,
    stored,
    unbatched,
)
from headgate.server.servicebus.entity_link import EntityLink, EntityNode, RefusedError, error_of
from headgate.topic import ARRIVED_ANNOTATION, ATTEMPTS_ANNOTATION, COPY_ANNOTATION, HOPS_ANNOTATION, TopicKind

if TYPE_CHECKING:
    from headgate.server.amqp10 import Amqp10Handler
    from headgate.server.servicebus.access import ConnectionAccess

CREDIT = 1_000
"""Limit: messages and batches of a sender without an outcome."""

OF_MOVES = (COPY_ANNOTATION, ARRIVED_ANNOTATION, ATTEMPTS_ANNOTATION, HOPS_ANNOTATION)
"""Annotations that the broker sets on copies that it moves; clients neither set nor see them."""

_SCHEDULED_OCTETS = SCHEDULED_TIME.encode()
_ACCEPTED = Accepted()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Messages of a sender in their stored form, and by row the reasons for refused ones."""

    messages: EncodedMessages
    filter_values: FilterValues | None
    refused: dict[int, HeadgateError]

    @staticmethod
    def of(messages: EncodedMessages, node: EntityNode) -> Outgoing:
        """Prepare messages that were sent to a node."""
        history = node.entity.history
        identifiers = Identifiers.of(messages)
        found = stored(messages, identifiers, left_out=OF_MOVES, new_ids=_new_ids)
        refused: dict[int, HeadgateError] = dict(found.refused)
        beyond = beyond_limits(messages, identifiers, history.limits.content)
        refused |= {row: error for row, error in beyond.items() if row not in refused}
        if history.settings.kind is TopicKind.QUEUE and node.entity.queue.settings.requires_session:
            # Without a session id it could not be received.
            without = np.flatnonzero(identifiers.session_ids < 0).tolist()
            refused |= {row: RefusedError(NO_SESSION) for row in without if row not in refused}
        return Outgoing(found.messages, found.filter_values, refused)

    def take(self, rows: Sequence[int]) -> Outgoing:
        """Some rows; none of them may be a refused one."""
        places, values = np.array(rows, dtype=np.int64), self.filter_values
        if values is not None:
            values = FilterValues(values.data, values.starts[places], values.lengths[places])
        return Outgoing(self.messages.take(places), values, {})

    def due_ms(self, now_ms: int) -> NDArray[np.int64]:
        """`(rows,)`: the due time of each message scheduled for later, 0 for the others; no row may be refused."""
        due_ms = np.zeros(len(self.messages.starts), dtype=np.int64)
        if _SCHEDULED_OCTETS in self.messages.data.tobytes():
            said_ms = np.array([due_of(message) for message in self.messages.all_bytes()], dtype=np.int64)
            due_ms[said_ms > now_ms] = said_ms[said_ms > now_ms]
        return due_ms


class SendingLink(EntityLink):
    """One link of a sender."""

    def __init__(self, handler: Amqp10Handler, link: Link, access: ConnectionAccess, node: EntityNode) -> None:
        """Raises AccessRefusedError, RefusedError, LogError."""
        super().__init__(handler, link, access, node, Right.SEND)
        self._publisher: Publisher = access.session.publisher(node.entity.name)
        self._unanswered = 0
        self._credit = min(CREDIT, handler.context.settings.limits.unconfirmed_messages)

    def attached(self) -> None:
        """The link is attached: grant the first credit."""
        self._link.grant(self._credit)

    def has_lost(self, stream: str) -> bool:
        """Whether the entity was deleted, even if one of the same name exists again."""
        return self._publisher.stream == stream and self._publisher.is_closed

    def close(self) -> None:
        """The link has ended; queued messages are still written, without an outcome."""
        super().close()
        self._publisher.close()

    def aborted(self) -> None:
        """The peer aborted a message: another may come."""
        self._grant_more()

    def _check(self) -> None:
        super()._check()
        status = self._node.entity.settings.status
        if not status.takes_messages:
            raise EntityDisabledError(f"it takes no messages: its status is {status}", subject=str(self._node))

    def take(self, deliveries: Deliveries) -> None:
        """Store the messages that arrived."""
        ids = [
            None if settled else number
            for number, settled in zip(deliveries.ids.tolist(), deliveries.settled.tolist(), strict=True)
        ]
        self._unanswered += len(ids)
        if deliveries.message_format == BATCH_FORMAT:
            for number, delivery in zip(ids, deliveries, strict=True):
                self._take_batch(delivery.message, number)
        elif deliveries.message_format == 0:
            messages = EncodedMessages(deliveries.data, deliveries.starts, deliveries.lengths)
            self._publish(messages, ids)
        else:
            refusal = not_implemented(f"message format {deliveries.message_format:#x} is not served")
            self._answer(ids, Rejected(error_of(refusal)))

    def _take_batch(self, data: bytes, number: int | None) -> None:
        try:
            messages = unbatched(data)
            if len(messages) > MAX_BATCH_MESSAGES:
                raise LimitExceededError(
                    f"a batch of {len(messages)} messages; at most {MAX_BATCH_MESSAGES} are allowed",
                    subject=str(self._node),
                )
        except (MessageError, LimitExceededError) as error:
            self._answer([number], self._rejected(error))
            return
        self._publish(messages, [number], is_whole=True)

    def _publish(self, messages: EncodedMessages, ids: list[int | None], *, is_whole: bool = False) -> None:
        """Queue messages, one for each id, or all for the only id; refused messages are answered at once."""
        outgoing = Outgoing.of(messages, self._node)
        refused = outgoing.refused
        if refused and is_whole:
            self._answer(ids, self._rejected(refused[min(refused)]))
            return
        for row, error in refused.items():
            self._answer([ids[row]], self._rejected(error))
        if refused:
            rows = [row for row in range(len(ids)) if row not in refused]
            ids, outgoing = [ids[row] for row in rows], outgoing.take(rows)
        if not ids:
            return
        due_ms = outgoing.due_ms(self._handler.context.clock.now_ms())
        later = np.flatnonzero(due_ms)
        if not len(later):
            self._publish_now(outgoing, ids, is_whole=is_whole)
        elif is_whole:
            # The whole batch is scheduled, so that all of it is stored, or nothing.
            self._schedule(outgoing, due_ms, ids)
        else:
            now = np.flatnonzero(due_ms == 0).tolist()
            if now:
                self._publish_now(outgoing.take(now), [ids[row] for row in now])
            self._schedule(outgoing.take(later.tolist()), due_ms[later], [ids[row] for row in later.tolist()])

    def _publish_now(self, outgoing: Outgoing, ids: list[int | None], *, is_whole: bool = False) -> None:
        messages = outgoing.messages
        entries = Entries(messages.data, messages.starts, messages.lengths, outgoing.filter_values)
        written = functools.partial(self._written, ids)
        self._publisher.publish(PublishBatch(entries, written, is_whole=is_whole))

    def _schedule(self, outgoing: Outgoing, due_ms: NDArray[np.int64], ids: list[int | None]) -> None:
        def scheduled(result: list[int] | HeadgateError) -> None:
            self._written(ids, result if isinstance(result, HeadgateError) else None)

        self._node.entity.topic.scheduled.schedule(outgoing.messages.all_bytes(), due_ms.tolist(), scheduled)

    def _written(self, ids: list[int | None], error: HeadgateError | None) -> None:
        self._answer(ids, _ACCEPTED if error is None else self._rejected(error))
        self._handler.flush()

    def _rejected(self, error: HeadgateError) -> Rejected:
        refusal = error.refusal if isinstance(error, RefusedError) else refusal_of(error, str(self._node))
        return Rejected(error_of(refusal))

    def _answer(self, ids: list[int | None], state: DeliveryState) -> None:
        """Send the outcome of deliveries, and grant more credit; None stands for a delivery that is settled already."""
        self._unanswered -= len(ids)
        if not self.may_speak:
            return
        first = last = None
        for number in ids:
            if first is not None and last is not None and number == (last + 1) & 0xFFFFFFFF:
                last = number
                continue
            if first is not None and last is not None:
                self._link.session.settle(first, last, state)
            first = last = number
        if first is not None and last is not None:
            self._link.session.settle(first, last, state)
        self._grant_more()

    def _grant_more(self) -> None:
        granted = self._credit - self._unanswered
        if self._link.credit <= self._credit // 2 and granted > self._link.credit:
            self._link.grant(granted)


def _new_ids(count: int) -> bytes:
    return os.urandom(16 * count).hex().encode()
