"""Carrying out the moves of a topic's ledger: dead letters, deferred copies, copies for another topic.

A move is an intent in the ledger. It names its target by kind and name: `dead-letters/3` and `deferred/3` are the small
streams of the subscription with that number, `stream/orders` is a stream of the root, `waiting/orders` are the
scheduled messages of that stream. Copies that a stream does not take become dead letters of their subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from headgate.broker.duplicates import RecentIds
from headgate.broker.stream import BrokerStream
from headgate.ledger import Elsewhere, Ledger, Made, Move, append_moves
from headgate.message import (
    AmqpType,
    AmqpValue,
    amqp_value,
    from_plain_or_typed,
    parse_field,
)
from headgate.message.lookup import field_bytes
from headgate.topic import DESCRIPTION_PROPERTY, REASON_PROPERTY, Origin, resubmitted, with_properties

Properties = Mapping[str, object]
"""Application properties that a copy gets, plain or typed JSON."""

NO_PROPERTIES: Properties = MappingProxyType({})


class TargetKind(StrEnum):
    """The kind of a move's target."""

    DEAD_LETTERS = "dead-letters"
    DEFERRED = "deferred"
    STREAM = "stream"
    WAITING = "waiting"

    @property
    def is_elsewhere(self) -> bool:
        """Whether the target is outside the subscription that the copies come from."""
        return self in (TargetKind.STREAM, TargetKind.WAITING)

    def named(self, name: object) -> str:
        """The target with that name, as the ledger keeps it."""
        return f"{self.value}/{name}"

    @staticmethod
    def parse(target: str) -> tuple[TargetKind, str]:
        """Kind and name of a target. Raises ValueError for an unknown kind."""
        kind, _, name = target.partition("/")
        return TargetKind(kind), name


class Refused(Enum):
    """Why a stream takes no forwarded copies; gives reason and description of the dead letters that they become."""

    HOPS = ("MaxTransferHopCountExceeded", "Maximum transfer hop count is exceeded.")
    MISSING = ("TransferDestinationNotFound", "The transfer destination entity does not exist.")
    DISABLED = ("TransferDestinationDisabled", "The transfer destination entity is disabled.")
    FULL = ("TransferDestinationFull", "The transfer destination entity has reached its maximum size.")


class Movement(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a copy is changed on its way to another stream; a move of the ledger keeps this as JSON.

    `properties` are plain or typed JSON; `subscription` is the number of the subscription that gives the copy up;
    `is_forward`: it forwards all of its copies, so this one is no dead letter. `is_resubmission`: a dead letter that is
    published again, without the application properties `removed`.
    """

    reason: str | None = None
    description: str | None = None
    properties: dict[str, Any] = {}
    subscription: int = 0
    is_forward: bool = False
    is_resubmission: bool = False
    removed: tuple[str, ...] = ()

    def refused(self, why: Refused) -> Movement:
        """The movement of a copy that its target does not take, with the reason; a dead letter keeps its own reason."""
        if self.is_resubmission:
            # It comes back as it was.
            return Movement(subscription=self.subscription)
        if not self.is_forward:
            return self
        reason, description = why.value
        return Movement(reason, description, self.properties, subscription=self.subscription)

    def encode(self) -> bytes:
        """Its bytes, which `decode` reads."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> Movement:
        """A movement from its bytes."""
        return msgspec.json.decode(data, type=Movement)

    def marked(self, message: bytes) -> bytes:
        """An encoded message with reason, description and properties among its application properties."""
        marks = _marks(self.properties)
        for name, text in ((REASON_PROPERTY, self.reason), (DESCRIPTION_PROPERTY, self.description)):
            if text is not None:
                marks[name] = AmqpValue(AmqpType.STRING, text)
        return with_properties(message, marks) if marks else message

    def published_again(self, message: bytes) -> bytes:
        """A dead letter as a resubmission publishes it."""
        return resubmitted(message, properties=_marks(self.properties), removed=self.removed)

    def behind(self, note: bytes) -> Movement:
        """This movement with the properties of a note added; its own properties override them."""
        return msgspec.structs.replace(self, properties={**msgspec.json.decode(note), **self.properties})


def noted(note: bytes | None, properties: Properties) -> bytes:
    """The note of a copy with its last note's properties and these, which override them."""
    before = {} if note is None else msgspec.json.decode(note)
    return msgspec.json.encode({**before, **properties})


def with_note(message: bytes, note: bytes) -> bytes:
    """An encoded message with the properties of a note."""
    return with_properties(message, _marks(msgspec.json.decode(note)))


def _marks(properties: Properties) -> dict[str, AmqpValue]:
    return {name: amqp_value(from_plain_or_typed(value)) for name, value in properties.items()}


class MovedCopies(Protocol):
    """The source of the copies that a ledger's moves take."""

    def read_ahead(self, moves: Sequence[Move]) -> None:
        """Prepare for moves to one target, which are carried out next."""

    def forget(self) -> None:
        """Forget the copies read ahead: the moves were carried out, or failed."""

    def moved(self, move: Move, movement: Movement) -> tuple[bytes, Origin]:
        """The message of a move, and its origin. Raises LogError."""


def append_to_stream(
    stream: BrokerStream,
    ledger: Ledger,
    target: str,
    made: Callable[[Move], bytes | Elsewhere | None],
    *,
    ids: RecentIds | None,
    now_ms: int,
) -> int:
    """Append the pending moves of a ledger to a stream, as one of its publishers would; gives how many are done.

    `made` gives the message of a move, or None to drop it; its filter value is the field that the stream declares. A
    message whose id is among `ids` is left out, unless it is a resubmission: its id is known from its first time. The
    writer must be free meanwhile. Raises StreamLockedError where another process writes the stream, StreamFullError and
    other LogErrors, and the errors of `made`.
    """
    writer = stream.open_writer(now_ms=now_ms)
    source = writer.settings.filter_source
    field = None if source is None else parse_field(source)

    new_ids = None if ids is None else ids.about_to_write(now_ms)

    def with_filter_value(move: Move) -> Made:
        message = made(move)
        if message is None or isinstance(message, Elsewhere):
            return message
        if new_ids is not None and new_ids.is_known(message) and not _is_resubmission(move):
            stream.counters.messages_duplicate += 1
            return None
        return message, None if field is None else field_bytes(message, field)

    before = writer.next_offset
    try:
        return append_moves(ledger, target, writer, made=with_filter_value, now_ms=now_ms)
    finally:
        if writer.is_broken:
            stream.close_writer()
        elif writer.next_offset > before:
            stream.refresh()


def _is_resubmission(move: Move) -> bool:
    return bool(move.change) and Movement.decode(move.change).is_resubmission
