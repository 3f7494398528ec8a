"""Requests to `$cbs` and `…/$management`, and the responses to them: servicebus_wire, sections 3 and 7.

A request is a message: the application property `operation` names the operation, its body is one value. A response
has the request's message id, in the same type, as its correlation id.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from headgate.errors import ConfigError
from headgate.message import NULL, AmqpArray, AmqpType, AmqpValue, Body, Message, Section
from headgate.protocols.amqp10 import in_standard_order
from headgate.protocols.servicebus.arguments import INTEGERS, TEXTS, Arguments, entries, integer, optional_text, text
from headgate.protocols.servicebus.codes import Refusal
from headgate.protocols.servicebus.locks import TOKEN_BYTES, guid_of, token_of
from headgate.protocols.servicebus.rules import RuleDescription, read_rule

_VENDOR = "com.microsoft:"
_TRACKING = _VENDOR + "tracking-id"

OK, ACCEPTED, NO_CONTENT = 200, 202, 204

_ANY_TIME_MS = 253_402_300_800_000
"""The first millisecond of the year 10000: as the time of the last update it asks for sessions without a state, too."""


class Disposition(StrEnum):
    """Outcomes of messages in a request, as clients spell them."""

    COMPLETED = "completed"
    ABANDONED = "abandoned"
    SUSPENDED = "suspended"
    """Becomes a dead letter."""
    DEFERRED = "defered"


@dataclass(frozen=True, slots=True)
class PutToken:
    """Says a token for an audience, a URI."""

    audience: str
    token: str


@dataclass(frozen=True, slots=True)
class PeekMessages:
    """Asks for messages that are not settled, from a sequence number on."""

    from_sequence_number: int
    count: int
    session: str | None


@dataclass(frozen=True, slots=True)
class RenewLocks:
    """Renews the locks of messages, by their tokens."""

    tokens: list[bytes]


@dataclass(frozen=True, slots=True)
class UpdateDispositions:
    """Settles messages, by their tokens."""

    disposition: Disposition
    tokens: list[bytes]
    reason: str | None
    description: str | None
    properties: Mapping[str, AmqpValue]
    session: str | None


@dataclass(frozen=True, slots=True)
class RenewSession:
    """Renews the lock of a session."""

    session: str


@dataclass(frozen=True, slots=True)
class GetSessionState:
    """Asks for the state of a session."""

    session: str


@dataclass(frozen=True, slots=True)
class SetSessionState:
    """Sets the state of a session; None removes it."""

    session: str
    state: bytes | None


@dataclass(frozen=True, slots=True)
class ListSessions:
    """Asks for a page of sessions: all with messages or a state, or all whose state was set after a time."""

    set_after_ms: int | None
    skip: int
    top: int


@dataclass(frozen=True, slots=True)
class ReceiveDeferred:
    """Asks for deferred messages by their sequence numbers, locked or settled at once."""

    sequence_numbers: list[int]
    settles_first: bool
    session: str | None


@dataclass(frozen=True, slots=True)
class ScheduleMessages:
    """Sends scheduled messages; each carries its own due time."""

    messages: list[bytes]


@dataclass(frozen=True, slots=True)
class CancelScheduled:
    """Cancels scheduled messages that are not yet due, by the numbers that scheduling them gave."""

    sequence_numbers: list[int]


@dataclass(frozen=True, slots=True)
class DeleteMessages:
    """Deletes messages that are not locked, the oldest first, if they came before a time; None: any time."""

    count: int
    before_ms: int | None
    session: str | None


@dataclass(frozen=True, slots=True)
class AddRule:
    """Adds a rule to the subscription."""

    rule: RuleDescription


@dataclass(frozen=True, slots=True)
class RemoveRule:
    """Removes a rule of the subscription."""

    name: str


@dataclass(frozen=True, slots=True)
class EnumerateRules:
    """Asks for the rules of the subscription, a page of them."""

    top: int
    skip: int


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """Asks for something else."""

    name: str


Operation: TypeAlias = (
    PeekMessages
    | RenewLocks
    | UpdateDispositions
    | RenewSession
    | GetSessionState
    | SetSessionState
    | ListSessions
    | ReceiveDeferred
    | ScheduleMessages
    | CancelScheduled
    | DeleteMessages
    | AddRule
    | RemoveRule
    | EnumerateRules
    | UnknownOperation
)


class RequestMessage:
    """A request as it came; its parts are checked when they are read."""

    def __init__(self, data: bytes) -> None:
        """Raises MessageError for bytes that are no message."""
        self._message = Message.decode(in_standard_order(data))
        self._message.decode_all()
        self._properties = self._message.properties or {}
        self._asked: dict[str, AmqpValue] = dict(self._message.application_properties or {})

    @property
    def reply_to(self) -> str | None:
        """The link for the response, if the request names one."""
        value = self._properties.get("reply-to")
        return value.value if value is not None and value.type in TEXTS else None

    @property
    def link(self) -> str | None:
        """The name of the receiver's link that the request is made for, if the request names one."""
        value = self._asked.get("associated-link-name")
        return value.value if value is not None and value.type in TEXTS else None

    @property
    def name(self) -> str:
        """The operation's name, without the vendor's part. Raises ConfigError."""
        return text(self._asked, "operation").removeprefix(_VENDOR)

    def put_token(self) -> PutToken:
        """A request to `$cbs`. Raises ConfigError."""
        if self.name != "put-token":
            raise ConfigError(f"{self.name} is no operation of $cbs; expected put-token")
        value = self._body()
        if value.type not in TEXTS:
            raise ConfigError(f"a token is a string, found {value.type.value}")
        return PutToken(text(self._asked, "name"), value.value)

    def operation(self) -> Operation:
        """A request to `$management`. Raises ConfigError for wrong arguments."""
        read = _OPERATIONS.get(self.name)
        return UnknownOperation(self.name) if read is None else read(entries(self._body(), "the body of a request"))

    def _body(self) -> AmqpValue:
        body = self._message.body
        if body is None or body.section is not Section.AMQP_VALUE:
            raise ConfigError("the body of a request is one value")
        return body.values()[0]

    # responses

    def claimed(self) -> bytes:
        """The response to a token that is taken."""
        return self._response({"status-code": _int(ACCEPTED), "status-description": _string("Accepted")}, NULL)

    def claim_refused(self, refusal: Refusal) -> bytes:
        """The response to a token that is refused."""
        told = {"status-code": _int(refusal.status), "status-description": _string(refusal.text)}
        return self._response(told | {"error-condition": _symbol(str(refusal.condition))}, NULL)

    def answered(self, body: Mapping[str, AmqpValue] | None = None, *, status: int = OK) -> bytes:
        """The response to an operation that is done."""
        described = {OK: "OK", NO_CONTENT: "No Content"}[status]
        return self._operation_response(status, described, {}, body or {})

    def refused(self, refusal: Refusal) -> bytes:
        """The response to an operation that is refused."""
        condition = _symbol(str(refusal.condition))
        more = {"errorCondition": condition, "error-condition": condition}
        return self._operation_response(refusal.status, refusal.text, more, {})

    def _operation_response(
        self, status: int, described: str, more: Mapping[str, AmqpValue], body: Mapping[str, AmqpValue]
    ) -> bytes:
        told = {"statusCode": _int(status), "statusDescription": _string(described), **more}
        tracking = self._asked.get(_TRACKING)
        if tracking is not None:
            told[_TRACKING] = tracking
        pairs = tuple((AmqpValue(AmqpType.STRING, name), value) for name, value in body.items())
        return self._response(told, AmqpValue(AmqpType.MAP, pairs))

    def _response(self, told: Mapping[str, AmqpValue], body: AmqpValue) -> bytes:
        return Message(
            Body.value(body),
            properties={"correlation-id": self._properties.get("message-id")},
            application_properties=told,
        ).encode()


# What responses hold


def peeked(messages: Sequence[bytes]) -> dict[str, AmqpValue]:
    """The body of a response with messages."""
    found = tuple(
        AmqpValue(AmqpType.MAP, ((_string("message"), AmqpValue(AmqpType.BINARY, message)),)) for message in messages
    )
    return {"messages": AmqpValue(AmqpType.LIST, found)}


def received(messages: Sequence[tuple[bytes, bytes]]) -> dict[str, AmqpValue]:
    """The body of a response with messages and their lock tokens; a settled message has an empty token."""
    nobody = bytes(TOKEN_BYTES)
    found = tuple(
        AmqpValue(
            AmqpType.MAP,
            (
                (_string("lock-token"), AmqpValue(AmqpType.UUID, guid_of(token or nobody))),
                (_string("message"), AmqpValue(AmqpType.BINARY, message)),
            ),
        )
        for token, message in messages
    )
    return {"messages": AmqpValue(AmqpType.LIST, found)}


def scheduled(sequence_numbers: Sequence[int]) -> dict[str, AmqpValue]:
    """The body of a response with the numbers of scheduled messages."""
    numbers = tuple(AmqpValue(AmqpType.LONG, number) for number in sequence_numbers)
    return {"sequence-numbers": AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.LONG, numbers))}


def deleted(count: int) -> dict[str, AmqpValue]:
    """The body of a response that says how many messages were deleted."""
    return {"message-count": _int(count)}


def renewed(count: int, until_ms: int) -> dict[str, AmqpValue]:
    """The body of a response with the times until which renewed locks hold."""
    times = (AmqpValue(AmqpType.TIMESTAMP, until_ms),) * count
    return {"expirations": AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.TIMESTAMP, times))}


def renewed_session(until_ms: int) -> dict[str, AmqpValue]:
    """The body of a response with the time until which a session is locked."""
    return {"expiration": AmqpValue(AmqpType.TIMESTAMP, until_ms)}


def told_state(state: bytes | None) -> dict[str, AmqpValue]:
    """The body of a response with the state of a session."""
    return {"session-state": NULL if state is None else AmqpValue(AmqpType.BINARY, state)}


def listed_sessions(sessions: Sequence[str], skip: int) -> dict[str, AmqpValue]:
    """The body of a response with a page of sessions, after `skip` others."""
    found = AmqpArray(AmqpType.STRING, tuple(map(_string, sessions)))
    return {"skip": _int(skip), "sessions-ids": AmqpValue(AmqpType.ARRAY, found)}


def enumerated(rules: Sequence[AmqpValue]) -> dict[str, AmqpValue]:
    """The body of a response with rules, each as `told_rule` gives it."""
    found = tuple(AmqpValue(AmqpType.MAP, ((_string("rule-description"), rule),)) for rule in rules)
    return {"rules": AmqpValue(AmqpType.LIST, found)}


# What requests hold


def _read_peek(given: Arguments) -> Operation:
    start, count = integer(given, "from-sequence-number"), integer(given, "message-count")
    return PeekMessages(max(start, 0), max(count, 0), optional_text(given, "session-id"))


def _read_renew(given: Arguments) -> Operation:
    return RenewLocks(_tokens(given))


def _read_update(given: Arguments) -> Operation:
    status = text(given, "disposition-status")
    if status not in list(Disposition):
        raise ConfigError(f"disposition-status is {status!r}; expected one of {', '.join(Disposition)}")
    properties = given.get("properties-to-modify", NULL)
    return UpdateDispositions(
        Disposition(status),
        _tokens(given),
        optional_text(given, "deadletter-reason"),
        optional_text(given, "deadletter-description"),
        {} if properties.type is AmqpType.NULL else entries(properties, "properties-to-modify"),
        optional_text(given, "session-id"),
    )


def _read_session(given: Arguments) -> str:
    return text(given, "session-id")


def _read_set_state(given: Arguments) -> Operation:
    state = given.get("session-state", NULL)
    if state.type not in (AmqpType.BINARY, AmqpType.NULL):
        raise ConfigError(f"session-state is binary or null, found {state.type.value}")
    return SetSessionState(_read_session(given), state.value)


def _read_list_sessions(given: Arguments) -> Operation:
    after = given.get("last-updated-time", NULL)
    if after.type not in (AmqpType.TIMESTAMP, AmqpType.NULL):
        raise ConfigError(f"last-updated-time is a timestamp, found {after.type.value}")
    is_any = after.type is AmqpType.NULL or after.value >= _ANY_TIME_MS
    skip, top = integer(given, "skip", default=0), integer(given, "top", default=100)
    return ListSessions(None if is_any else after.value, max(skip, 0), max(top, 0))


def _read_receive(given: Arguments) -> Operation:
    mode = integer(given, "receiver-settle-mode", default=1)
    if mode not in (0, 1):
        raise ConfigError(f"receiver-settle-mode is {mode}; expected 0 or 1")
    return ReceiveDeferred(_sequence_numbers(given), mode == 0, optional_text(given, "session-id"))


def _read_schedule(given: Arguments) -> Operation:
    found: list[bytes] = []
    for each in _members(given, "messages"):
        message = entries(each, "a message to schedule").get("message", NULL)
        if message.type is not AmqpType.BINARY:
            raise ConfigError(f"a message to schedule is binary, found {message.type.value}")
        found.append(message.value)
    return ScheduleMessages(found)


def _read_cancel(given: Arguments) -> Operation:
    return CancelScheduled(_sequence_numbers(given))


def _read_delete(given: Arguments) -> Operation:
    before = given.get("enqueued-time-utc", NULL)
    if before.type not in (AmqpType.NULL, AmqpType.TIMESTAMP):
        raise ConfigError(f"enqueued-time-utc is a timestamp, found {before.type.value}")
    before_ms = before.value if before.type is AmqpType.TIMESTAMP else None
    return DeleteMessages(integer(given, "message-count"), before_ms, optional_text(given, "session-id"))


def _read_add_rule(given: Arguments) -> Operation:
    described = entries(given.get("rule-description", NULL), "rule-description")
    name = optional_text(given, "rule-name") or optional_text(described, "rule-name")
    if not name:
        raise ConfigError("rule-name is a string, and not there")
    return AddRule(read_rule(name, described))


def _read_remove_rule(given: Arguments) -> Operation:
    return RemoveRule(text(given, "rule-name"))


def _read_enumerate(given: Arguments) -> Operation:
    top, skip = integer(given, "top", default=100), integer(given, "skip", default=0)
    return EnumerateRules(max(top, 0), max(skip, 0))


_OPERATIONS: Mapping[str, Callable[[Arguments], Operation]] = {
    "peek-message": _read_peek,
    "renew-lock": _read_renew,
    "update-disposition": _read_update,
    "renew-session-lock": lambda given: RenewSession(_read_session(given)),
    "get-session-state": lambda given: GetSessionState(_read_session(given)),
    "set-session-state": _read_set_state,
    "get-message-sessions": _read_list_sessions,
    "receive-by-sequence-number": _read_receive,
    "schedule-message": _read_schedule,
    "cancel-scheduled-message": _read_cancel,
    "batch-delete-messages": _read_delete,
    "add-rule": _read_add_rule,
    "remove-rule": _read_remove_rule,
    "enumerate-rules": _read_enumerate,
}


def _tokens(given: Arguments) -> list[bytes]:
    members = _members(given, "lock-tokens")
    found = [token_of(member.value) for member in members if isinstance(member.value, uuid.UUID)]
    if len(found) < len(members):
        raise ConfigError("lock-tokens is an array of uuids")
    return found


def _sequence_numbers(given: Arguments) -> list[int]:
    members = _members(given, "sequence-numbers")
    if any(member.type not in INTEGERS for member in members):
        raise ConfigError("sequence-numbers is an array of integers")
    return [member.value for member in members]


def _members(given: Arguments, name: str) -> Sequence[AmqpValue]:
    """The members of an array or a list, at least one."""
    value = given.get(name, NULL)
    members: Sequence[AmqpValue] = ()
    if value.type is AmqpType.ARRAY:
        members = value.value.elements
    elif value.type is AmqpType.LIST:
        members = value.value
    if not members:
        raise ConfigError(f"{name} is an array of one member or more")
    return members


def _int(number: int) -> AmqpValue:
    return AmqpValue(AmqpType.INT, number)


_string = functools.partial(AmqpValue, AmqpType.STRING)
_symbol = functools.partial(AmqpValue, AmqpType.SYMBOL)
