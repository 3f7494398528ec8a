"""Messages that a group gives up: moves of the ledger to the stream of its dead letters, each carried out once.

A dead letter has the properties that RocketMQ writes when a message is sent back for the last time
(`AbstractSendMessageProcessor` of 5.5), and its origin by the names that its gRPC protocol reads:

    RETRY_TOPIC, ORIGIN_MESSAGE_ID              the first topic, and the id by place there; kept if they are there
    WAIT, DELAY                                 false, 0
    RECONSUME_TIME                              how often it was given out: a field of the message there
    DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID     the topic, and the id that clients see there
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headgate.broker.consumer_groups.group_view import DEAD_LETTER_PREFIX
from headgate.broker.delivery import Movement, Mover, TargetKind, append_to_stream
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream
from headgate.errors import CorruptChunkError, MessageError, OffsetOutOfRangeError
from headgate.ledger import Elsewhere, Ledger, Move, offset_of, redirect_moves
from headgate.message import SYSTEM_PROPERTIES, AmqpType, AmqpValue, Change, FieldReference, Message, Section
from headgate.scan import MessageReader
from headgate.topic import Origin, with_origin

logger = logging.getLogger("headgate.broker")


MessageIds = Callable[[bytes, str, str, int], tuple[str, str]]
"""Gives the id by place and the id for clients of a message, from its bytes, its stream, the stream's identity, its
offset."""


@dataclass(slots=True)
class DeadLetterStreams:
    """The streams of dead letters: `find` gives one, and makes a missing one.

    Without `message_ids` a dead letter has no ORIGIN_MESSAGE_ID and DLQ_ORIGIN_MESSAGE_ID.
    """

    find: Callable[[str], BrokerStream]
    queue_of: Callable[[str], tuple[str, int]]
    """Gives the topic that a stream is a queue of, and the number of the queue."""
    message_ids: MessageIds | None


class DeadLetters(Mover):
    """Moves the messages that the groups of one stream give up."""

    def __init__(
        self,
        stream: BrokerStream,
        ledger: Ledger,
        reader: MessageReader,
        streams: DeadLetterStreams,
        environment: Environment,
    ) -> None:
        super().__init__(f"stream {stream.name!r}: dead letters", ledger)
        self._stream = stream
        self._reader = reader
        self._streams = streams
        self._environment = environment

    def _carry_to(self, target: str, now_ms: int) -> int:
        name = TargetKind.parse(target)[1]
        found: BrokerStream | None
        if name.startswith(DEAD_LETTER_PREFIX):
            found = self._streams.find(name)
        else:
            found = self._environment.find(name)
            if found is None or found.refusal is not None:
                return self._back(target, found)
        if found.is_writing:
            return 0
        self._environment.watch(found)
        if found.refuses_with is not None:
            raise found.refuses_with
        if not self._environment.know_ids(found):
            return 0
        return append_to_stream(found, self._ledger, target, self._made, ids=found.recent_ids, now_ms=now_ms)

    def _back(self, target: str, refusing: BrokerStream | None) -> int:
        """Send resubmitted dead letters that their target does not take back to their stream, as they are."""
        own = TargetKind.STREAM.named(self._stream.name)
        return redirect_moves(
            self._ledger,
            target,
            last_sequence=lambda publisher: None if refusing is None else refusing.last_sequence(publisher.encode()),
            elsewhere=lambda _move: Elsewhere(own, Movement().encode()),
        )

    def _made(self, move: Move) -> bytes | None:
        """The dead letter; None for a message that retention deleted, or that cannot be read."""
        offset = offset_of(move.copy)
        try:
            with self._stream.guarded():
                read = self._reader.read(np.array([offset], dtype=np.int64))
        except (OffsetOutOfRangeError, CorruptChunkError) as error:
            logger.error("a dead letter of stream %r is lost: %s", self._stream.name, error)
            return None
        origin = Origin(move.copy, int(read.timestamps_ms[0]), move.attempt)
        encoded = read.messages.message(0)
        if move.change:
            movement = Movement.decode(move.change)
            return movement.published_again(encoded) if movement.is_resubmission else encoded
        topic, _ = self._streams.queue_of(self._stream.name)
        ids: tuple[str | None, str | None] = (None, None)
        if self._streams.message_ids is not None:
            ids = self._streams.message_ids(encoded, self._stream.name, self._stream.stream.identity, offset)
        also = _changes(encoded, topic=topic, ids=ids, attempts=move.attempt)
        return with_origin(encoded, origin, source=self._stream.name, also=also)


def _changes(encoded: bytes, *, topic: str, ids: tuple[str | None, str | None], attempts: int) -> list[Change]:
    """The properties of a dead letter that this module lists at its head; `ids` as for `MessageIds`, None: unknown."""
    try:
        message = Message.decode(encoded)
        kept = {name: message.value(SYSTEM_PROPERTIES[name]) for name in ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID")}
    except MessageError:
        kept = {}
    properties = {
        "RETRY_TOPIC": topic,
        "ORIGIN_MESSAGE_ID": ids[0],
        "WAIT": "false",
        "DELAY": "0",
        "RECONSUME_TIME": str(attempts),
        "DLQ_ORIGIN_TOPIC": topic,
        "DLQ_ORIGIN_MESSAGE_ID": ids[1],
    }
    return [
        (_annotation(name), AmqpValue(AmqpType.STRING, text))
        for name, text in properties.items()
        if text is not None and kept.get(name) is None
    ]


def _annotation(name: str) -> FieldReference:
    return FieldReference(Section.MESSAGE_ANNOTATIONS, key=SYSTEM_PROPERTIES[name].key)
