"""Links to sessions: the session that a client asks for when it attaches, and the answer with the session it got.

Source: servicebus_wire, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate.errors import ConfigError
from headgate.message import AmqpType, AmqpValue, Described, encode_value
from headgate.protocols.amqp10 import RawEntry
from headgate.protocols.amqp10.performatives import Attach
from headgate.protocols.servicebus.arguments import TEXTS, entries, integer

SESSION_FILTER = "com.microsoft:session-filter"
_TIMEOUT = "com.microsoft:timeout"
_LOCKED_UNTIL = "com.microsoft:locked-until-utc"

_WAIT_MS = 60_000
_MAX_WAIT_MS = 24 * 3_600_000
_TICKS_A_MILLISECOND = 10_000
_TICKS_BEFORE_1970 = 621_355_968_000_000_000


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """Asks for a session by its id, or with None for the next free one, and waits at most `wait_ms`."""

    session: str | None
    wait_ms: int


def session_request(attach: Attach) -> SessionRequest | None:
    """The session that a receiver asks for; None for a link without a session filter.

    Raises ConfigError for a session or a time of a wrong type, MessageError for bytes that are no values.
    """
    entry = _entry(attach)
    if entry is None:
        return None
    value = entry.read().value
    if value.type is not AmqpType.NULL and value.type not in TEXTS:
        raise ConfigError(f"{SESSION_FILTER} is a string or null, found {value.type.value}")
    properties = {} if attach.properties is None else entries(attach.properties, "the properties of a link")
    wait_ms = integer(properties, _TIMEOUT, default=_WAIT_MS)
    return SessionRequest(value.value, min(max(wait_ms, 0), _MAX_WAIT_MS))


def session_answer(answer: Attach, session: str, locked_until_ms: int) -> Attach:
    """The answer to an attach that `session_request` read, with the session that the receiver has."""
    entry = _entry(answer)
    assert entry is not None and answer.source is not None and answer.source.filter is not None
    value = AmqpValue(AmqpType.STRING, session)
    descriptor = entry.read().descriptor
    if descriptor is not None:
        value = AmqpValue(AmqpType.DESCRIBED, Described(descriptor, value))
    told = RawEntry(entry.name, encode_value(value))
    filters = tuple(told if each is entry else each for each in answer.source.filter)
    ticks = locked_until_ms * _TICKS_A_MILLISECOND + _TICKS_BEFORE_1970
    more = (AmqpValue(AmqpType.SYMBOL, _LOCKED_UNTIL), AmqpValue(AmqpType.LONG, ticks))
    before = () if answer.properties is None else answer.properties.value
    return replace(
        answer,
        source=replace(answer.source, filter=filters),
        properties=AmqpValue(AmqpType.MAP, (*before, more)),
    )


def _entry(attach: Attach) -> RawEntry | None:
    """The entry of the filter map that names a session."""
    for entry in () if attach.source is None else attach.source.filter or ():
        name = entry.read().name
        if name.type in TEXTS and name.value == SESSION_FILTER:
            return entry
    return None
