"""Refusals of Service Bus: the condition of AMQP, the status of responses and of HTTP, and the text.

The texts are the service's own, because clients recognise some refusals by them. Sources: servicebus_wire, section 9;
servicebus_filters, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from headgate import errors
from headgate.language.servicebus import CORRELATION
from headgate.protocols.amqp10 import Condition


class ServiceBusCondition(StrEnum):
    """The conditions of Service Bus in addition to the standard ones."""

    ENTITY_EXISTS = "com.microsoft:entity-already-exists"
    ENTITY_DISABLED = "com.microsoft:entity-disabled"
    ARGUMENT_ERROR = "com.microsoft:argument-error"
    ARGUMENT_OUT_OF_RANGE = "com.microsoft:argument-out-of-range"
    MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
    MESSAGE_NOT_FOUND = "com.microsoft:message-not-found"
    SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
    SESSION_CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"
    TIMEOUT = "com.microsoft:timeout"
    SERVER_BUSY = "com.microsoft:server-busy"
    DEAD_LETTER = "com.microsoft:dead-letter"
    """Not a refusal: a receiver rejects a message with this condition to make it a dead letter."""


AnyCondition: TypeAlias = Condition | ServiceBusCondition


@dataclass(frozen=True, slots=True)
class Refusal:
    """A condition, the status that says the same (404, 409 …), and a text for people."""

    condition: AnyCondition
    status: int
    text: str
    sub_code: int | None = None
    """The code at the beginning of the text of HTTP, where it does not follow from the status."""


_KINDS: Mapping[type[errors.HeadgateError], tuple[AnyCondition, int]] = {
    errors.ResourceNotFoundError: (Condition.NOT_FOUND, 404),
    errors.StreamNotFoundError: (Condition.NOT_FOUND, 404),
    errors.RuleNotFoundError: (Condition.NOT_FOUND, 404),
    errors.TargetNotFoundError: (ServiceBusCondition.ARGUMENT_ERROR, 400),
    errors.ResourceExistsError: (ServiceBusCondition.ENTITY_EXISTS, 409),
    errors.StreamExistsError: (ServiceBusCondition.ENTITY_EXISTS, 409),
    errors.RuleExistsError: (ServiceBusCondition.ENTITY_EXISTS, 409),
    errors.AccessRefusedError: (Condition.UNAUTHORIZED_ACCESS, 401),
    errors.AuthenticationError: (Condition.UNAUTHORIZED_ACCESS, 401),
    errors.LimitExceededError: (Condition.RESOURCE_LIMIT_EXCEEDED, 403),
    errors.RuleLimitError: (Condition.RESOURCE_LIMIT_EXCEEDED, 403),
    errors.StorageFullError: (Condition.RESOURCE_LIMIT_EXCEEDED, 403),
    errors.StreamReadOnlyError: (Condition.NOT_ALLOWED, 403),
    errors.StreamLockedError: (ServiceBusCondition.SERVER_BUSY, 503),
    errors.UnsupportedError: (Condition.NOT_IMPLEMENTED, 501),
    errors.MessageError: (Condition.DECODE_ERROR, 400),
    errors.RuleError: (ServiceBusCondition.ARGUMENT_ERROR, 400),
    errors.FilterError: (ServiceBusCondition.ARGUMENT_ERROR, 400),
    errors.ConfigError: (ServiceBusCondition.ARGUMENT_ERROR, 400),
    errors.EntityDisabledError: (ServiceBusCondition.ENTITY_DISABLED, 403),
    errors.SessionLockedError: (ServiceBusCondition.SESSION_CANNOT_BE_LOCKED, 410),
    errors.SessionLockLostError: (ServiceBusCondition.SESSION_LOCK_LOST, 410),
    errors.PreconditionFailedError: (ServiceBusCondition.ARGUMENT_ERROR, 400),
}
"""Condition and status by class of error; a missing class has its nearest base class's, else internal error."""

LOCK_LOST = Refusal(
    ServiceBusCondition.MESSAGE_LOCK_LOST,
    410,
    "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue.",
)

SESSION_LOCK_LOST = Refusal(
    ServiceBusCondition.SESSION_LOCK_LOST,
    410,
    "The session lock has expired on the message session, or another receiver has it. Accept the session again.",
)

NO_SESSION = Refusal(
    Condition.NOT_ALLOWED,
    400,
    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session support "
    "enabled can only receive messages that have the SessionId set to a valid value.",
)


MESSAGE_NOT_FOUND = Refusal(
    ServiceBusCondition.MESSAGE_NOT_FOUND,
    404,
    "There is no such message that could be received or canceled by its sequence number.",
)


def refusal_of(error: errors.HeadgateError, entity: str = "") -> Refusal:
    """The refusal for an error; `entity` is the entity of the request, where the error does not name one."""
    kinds = (_KINDS[kind] for kind in type(error).__mro__ if kind in _KINDS)
    condition, status = next(kinds, (Condition.INTERNAL_ERROR, 500))
    match error:
        case errors.TargetNotFoundError():
            text = f"The auto forwarding destination entity does not exist. Entity: '{error.target}'."
            return Refusal(condition, status, text, sub_code=40400)
        case errors.RuleError(cause=errors.FilterError() as cause):
            text = _expression_text(cause)
        case errors.FilterError():
            text = _expression_text(error)
        case errors.RuleError() if status in (404, 409):
            text = _entity_text(_rule_path(error) or entity, status)
        case _ if status in (404, 409):
            text = _entity_text(entity or _subject(error), status)
        case errors.EntityDisabledError():
            text = f"Messaging entity '{entity or error.subject}' is currently disabled."
        case _:
            text = str(error)
    return Refusal(condition, status, text)


def not_found(entity: str) -> Refusal:
    """The refusal for an entity that does not exist."""
    return Refusal(Condition.NOT_FOUND, 404, _entity_text(entity, 404))


def not_implemented(what: str) -> Refusal:
    """The refusal of a feature that the service has and Headgate does not serve."""
    return Refusal(Condition.NOT_IMPLEMENTED, 501, what)


def _entity_text(entity: str, status: int) -> str:
    return f"The messaging entity '{entity}' {'could not be found' if status == 404 else 'already exists'}."


def _rule_path(error: errors.RuleError) -> str:
    names = [name for name in (error.topic, error.subscription, error.rule) if name is not None]
    return "" if not names else f"Topic:{'|'.join(names)}"


def _subject(error: errors.HeadgateError) -> str:
    return str(getattr(error, "subject", "") or error)


def _expression_text(error: errors.FilterError) -> str:
    if error.dialect == CORRELATION:
        return f"The correlation filter is not valid: {error.reason}."
    place = f"Token line={error.line}, column={error.column}, Token in error={error.token}"
    return f"There was an error parsing the SQL expression. [{place}, Additional details= {error.reason}]"
