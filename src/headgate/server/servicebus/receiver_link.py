"""Links on which clients receive from queues, subscriptions and dead letters, and settle each message.

    accepted                        done with
    released                        back at its place; the attempt does not count
    modified                        back at its place; the attempt counts
    modified, undeliverable here    deferred
    rejected                        a dead letter; the information of the error says why

A message stays locked for the client until its lock ends, even after the link has ended. A link to a session holds one
lock for all its messages: that lock ends with the link. Source: servicebus_wire, sections 5 and 6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headgate.broker import (
    CopyState,
    DeadLetterReason,
    Delivery,
    GivenCopies,
    ReadCopy,
    Receiver,
    ReceiverCalls,
    Right,
    SessionReceiver,
    sequence_number,
)
from headgate.errors import (
    EntityDisabledError,
    HeadgateError,
    MessageError,
    PreconditionFailedError,
    ResourceNotFoundError,
    SessionLockedError,
)
from headgate.message import AmqpType, AmqpValue, EncodedMessages, FieldReference, Message, Section
from headgate.protocols.amqp10 import (
    Accepted,
    Condition,
    DeliveryState,
    Error,
    Link,
    Modified,
    Received,
    Rejected,
    Released,
)
from headgate.protocols.amqp10.events import Outcomes
from headgate.protocols.amqp10.performatives import Attach
from headgate.protocols.servicebus import (
    LOCK_LOST,
    Given,
    GivenMessages,
    ServiceBusCondition,
    SessionRequest,
    delivered,
    delivered_messages,
    guid_of,
    not_implemented,
    refusal_of,
    session_answer,
)
from headgate.server.amqp10 import ReceiverLink, RefusedAttachError
from headgate.server.servicebus.entity_link import EntityLink, EntityNode, error_of
from headgate.server.servicebus.sender_link import OF_MOVES
from headgate.topic import COPY_ANNOTATION, FIRST_NUMBER_ANNOTATION, origin_of

if TYPE_CHECKING:
    from headgate.server.amqp10 import Amqp10Handler
    from headgate.server.servicebus.access import ConnectionAccess

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"

_FIRST = FieldReference(Section.MESSAGE_ANNOTATIONS, key=FIRST_NUMBER_ANNOTATION.encode())
_FIRST_OCTETS = FIRST_NUMBER_ANNOTATION.encode()
MOST_UNSETTLED = 16_384
"""Limit: unsettled messages of a link. Beyond it the link gets no more; messages whose locks end make room."""

_ACCEPTED = Accepted()

logger = logging.getLogger("headgate.server.servicebus")


class ReceivingLink(EntityLink, ReceiverLink):
    """One link of a receiver: its credit is the demand, delivery tags are lock tokens."""

    def __init__(
        self, handler: Amqp10Handler, link: Link, access: ConnectionAccess, node: EntityNode, *, settles_first: bool
    ) -> None:
        """Raises AccessRefusedError, RefusedError, ResourceNotFoundError, LogError."""
        super().__init__(handler, link, access, node, Right.LISTEN)
        self._tokens: dict[int, bytes] = {}
        """The lock tokens of deliveries that the client has not settled."""
        self._completed: list[tuple[int, bytes]] = []
        """Deliveries to complete at the end of the turn, and their tokens."""
        try:
            self._receiver = self._opened(settles_first=settles_first)
        except (EntityDisabledError, SessionLockedError):
            raise
        except PreconditionFailedError as error:
            # The node forwards its messages, or needs a session, or has none.
            raise RefusedAttachError(Condition.NOT_ALLOWED, str(error)) from error

    def _opened(self, *, settles_first: bool) -> Receiver:
        return self._access.session.receiver(
            self._node.receivable,
            ReceiverCalls(
                deliver=self._deliver,
                ended=self._ended,
                ran_out=self._ran_out,
                settles_first=settles_first,
                tag=self._link.name,
            ),
        )

    def close(self) -> None:
        """The link has ended: the messages that its client holds stay locked."""
        super().close()
        self._complete()
        self._receiver.close()

    def tick(self, now_ms: int) -> None:
        """If the link is full, settle the deliveries whose locks have ended, and go on."""
        super().tick(now_ms)
        if self._is_full and self.may_speak:
            held = self._receiver.settler.holds(list(self._tokens.values()))
            lost = [number for number, holds in zip(self._tokens, held, strict=True) if not holds]
            for number in lost:
                del self._tokens[number]
            self._link.settle(lost, Rejected(error_of(LOCK_LOST)))
            self.go_on()
            self._handler.flush()

    @property
    def _is_full(self) -> bool:
        return len(self._tokens) >= MOST_UNSETTLED

    def _room(self) -> int:
        return min(super()._room(), max(MOST_UNSETTLED - len(self._tokens), 0))

    @property
    def _most_bytes(self) -> None:
        """No limit: Python's client announces 1 MiB and takes more; a full message is larger with its annotations."""

    def credit_changed(self) -> None:
        """The peer granted credit, or drains it: that is over at once on a full link."""
        super().credit_changed()
        if self._link.drain and self._is_full:
            self._link.use_up_credit()

    def _encoded(self, given: GivenCopies) -> EncodedMessages:
        return given_messages(self._node, given, self._receiver.settler.time_to_live_ms)

    def _send(self, given: GivenCopies, messages: EncodedMessages) -> None:
        ids = self._link.send_tagged(messages, given.tags, settled=given.tokens is None)
        if given.tokens is not None:
            self._tokens.update(zip(ids, given.packed_tokens(), strict=True))

    def _ended(self, error: HeadgateError) -> None:
        refusal = refusal_of(error, str(self._node))
        is_gone = isinstance(error, ResourceNotFoundError)
        self._end(Error(Condition.NOT_FOUND if is_gone else refusal.condition, refusal.text))

    # settling

    def decided(self, outcomes: Outcomes) -> None:
        """The peer sent the outcome of messages; it gets an answer, if it waits for one, when that is on disk."""
        state = outcomes.state
        if isinstance(state, Received) or (state is None and not outcomes.settled):
            return
        was_full = self._is_full
        found = [(number, self._tokens.pop(number)) for number in outcomes.ids if number in self._tokens]
        ids, tokens = [number for number, _ in found], [token for _, token in found]
        if isinstance(state, Accepted):
            # Messages completed in one turn are completed together: clients settle message by message.
            if not self._completed:
                self._handler.call_soon(self._complete)
            self._completed += found
        else:
            self._settle(state, ids, tokens)
        if was_full:
            self.go_on()

    def _complete(self) -> None:
        found, self._completed = self._completed, []
        if found:
            ids, tokens = [number for number, _ in found], [token for _, token in found]
            self._receiver.settler.complete(tokens, self._answered(ids, _ACCEPTED))

    def _answered(self, ids: list[int], state: DeliveryState | None) -> Callable[[list[bool] | HeadgateError], None]:
        """A callback that confirms the outcome of deliveries to the peer when it is on disk."""

        def answered(result: list[bool] | HeadgateError) -> None:
            if not self.may_speak:
                return
            if isinstance(result, HeadgateError):
                self._link.settle(ids, Rejected(error_of(refusal_of(result, str(self._node)))))
            elif all(result):
                self._link.settle(ids, _echo(state))
            else:
                by_id = list(zip(ids, result, strict=True))
                self._link.settle([number for number, held in by_id if held], _echo(state))
                self._link.settle([number for number, held in by_id if not held], Rejected(error_of(LOCK_LOST)))
            self._handler.flush()

        return answered

    def _settle(self, state: DeliveryState | None, ids: list[int], tokens: list[bytes]) -> None:
        """Carry out an outcome."""
        settler, kept, answered = self._receiver.settler, self._node.kept, self._answered(ids, state)
        try:
            match state:
                case Modified(undeliverable_here=True):
                    settler.defer(tokens, answered, properties=kept(_told(state.message_annotations)))
                case Modified():
                    settler.release(tokens, answered, counts=True, properties=kept(_told(state.message_annotations)))
                case Rejected():
                    settler.dead_letter(tokens, answered, why=_reason(self._node, state.error))
                case Released() | None:
                    settler.release(tokens, answered, counts=False)
                case _:
                    self._link.settle(ids, Rejected(error_of(not_implemented("transactions are not served"))))
        except PreconditionFailedError as error:
            # The properties for the messages are refused. The messages stay locked; management may settle them.
            answered(error)


class SessionLink(ReceivingLink):
    """A link of a receiver of one session; its attach is answered when it has a session."""

    def __init__(
        self,
        handler: Amqp10Handler,
        link: Link,
        access: ConnectionAccess,
        node: EntityNode,
        asked: SessionRequest,
        answer: Attach,
        *,
        settles_first: bool,
    ) -> None:
        """Raises AccessRefusedError, RefusedError, ResourceNotFoundError, SessionLockedError, LogError."""
        self._asked = asked
        self._answer = answer
        self._session: SessionReceiver | None = None
        super().__init__(handler, link, access, node, settles_first=settles_first)
        self._stop_waiting = handler.call_later(asked.wait_ms / 1000, self._waited)

    def _opened(self, *, settles_first: bool) -> Receiver:
        return self._access.session.session_receiver(
            self._node.receivable,
            self._asked.session,
            ReceiverCalls(
                deliver=self._deliver,
                ended=self._ended,
                ran_out=self._ran_out,
                settles_first=settles_first,
                tag=self._link.name,
            ),
            accepted=self._accepted,
        )

    def _accepted(self, session: SessionReceiver) -> None:
        assert session.session is not None
        self._session = session
        self._stop_waiting()
        self._access.sessions[self._node.path, session.session] = session
        self._handler.answer_attach(self._link, session_answer(self._answer, session.session, session.locked_until_ms))

    def attached(self) -> None:
        """The link is attached: the peer may have granted credit already."""
        self.go_on()

    def _waited(self) -> None:
        reason = f"{self._node}: no session was free within {self._asked.wait_ms} ms"
        self._end(Error(ServiceBusCondition.TIMEOUT, reason))

    def _end(self, error: Error) -> None:
        if self._session is None:
            self._handler.refuse_attach(self._link, error, without_termini=True)
        else:
            super()._end(error)

    def close(self) -> None:
        """The link has ended: its session is free, with the messages that the client holds."""
        self._stop_waiting()
        if self._session is not None and self._session.session is not None:
            self._access.sessions.pop((self._node.path, self._session.session), None)
        super().close()


def given_messages(node: EntityNode, given: GivenCopies, time_to_live_ms: int | None) -> EncodedMessages:
    """Delivered copies, as messages for a client."""
    read = given.read
    if node.is_dead_letter:
        return EncodedMessages.of([given_message(node, delivery, time_to_live_ms) for delivery in given])
    told = GivenMessages(
        sequence_number(read.copies),
        read.timestamps_ms,
        given.attempts - 1,
        None if given.tokens is None else given.locked_until_ms,
        time_to_live_ms,
    )
    return delivered_messages(
        read.messages,
        told,
        left_out=OF_MOVES,
        moved_by=COPY_ANNOTATION,
        alone=lambda row: given_message(node, given[row], time_to_live_ms),
    )


def given_message(
    node: EntityNode, copy: Delivery | ReadCopy, time_to_live_ms: int | None, *, state: CopyState = CopyState.ACTIVE
) -> bytes:
    """A copy as a message for a client: delivered, or only read. `state` is that of a delivered copy."""
    number = first = sequence_number(copy.copy)
    arrived_ms, before = copy.timestamp_ms, 0
    origin = origin_of(copy.message)
    if origin is not None:
        # A moved copy: dead letters have sequence numbers of their own, and keep arrival time and attempts.
        first = sequence_number(origin.copy)
        if node.is_dead_letter:
            arrived_ms, before = origin.arrived_ms, origin.attempts
    if _FIRST_OCTETS in copy.message:
        # A forwarded copy keeps its first sequence number.
        noted = _noted_first(copy.message)
        first = first if noted is None else noted
    locked_until_ms = lock_token = None
    if isinstance(copy, Delivery):
        before += copy.attempt - 1
        locked_until_ms = copy.locked_until_ms if copy.token else None
        lock_token = guid_of(copy.token) if copy.token and state is CopyState.DEFERRED else None
    else:
        before += copy.attempts
        state = copy.state
    given = Given(
        sequence_number=number,
        enqueued_sequence_number=first,
        enqueued_ms=arrived_ms,
        delivery_count=before,
        locked_until_ms=locked_until_ms,
        time_to_live_ms=None if node.is_dead_letter else time_to_live_ms,
        state=state.value,
        lock_token=lock_token,
    )
    return delivered(copy.message, given, left_out=OF_MOVES)


def _noted_first(message: bytes) -> int | None:
    try:
        found = Message.decode(message).value(_FIRST)
    except MessageError:
        return None
    return None if found is None else int(found.value)


def _echo(state: DeliveryState | None) -> DeliveryState | None:
    """The outcome as it is confirmed: without its error, which would mean a failure."""
    match state:
        case Rejected():
            return Rejected()
        case Modified():
            return Modified(state.delivery_failed, state.undeliverable_here)
    return state


def _told(map_: AmqpValue | None) -> dict[str, AmqpValue]:
    return {} if map_ is None else {str(key.value): value for key, value in map_.value}


def _reason(node: EntityNode, error: Error | None) -> DeadLetterReason:
    """The dead-letter reason in the error of a rejected message."""
    if error is None:
        return DeadLetterReason()
    condition = None if error.condition == ServiceBusCondition.DEAD_LETTER else error.condition
    return reason_of(node, _told(error.info), condition, error.description)


def reason_of(
    node: EntityNode, properties: Mapping[str, AmqpValue], reason: str | None, description: str | None
) -> DeadLetterReason:
    """Reason and description from `properties`, or else from the arguments, and the other properties."""
    texts = {name: properties[name] for name in (REASON, DESCRIPTION) if name in properties}
    said = {name: str(value.value) for name, value in texts.items() if value.type is not AmqpType.NULL}
    others = {name: value for name, value in properties.items() if name not in texts}
    return DeadLetterReason(said.get(REASON, reason), said.get(DESCRIPTION, description), node.kept(others))
