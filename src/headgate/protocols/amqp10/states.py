"""The states of connections, sessions and links, and the performatives that lead from one to the next.

A pair of state and performative that is missing in a table is not allowed. Performatives for a session or link that
this side has ended already are skipped until the peer has answered (`DISCARDING`).
Source: OASIS AMQP 1.0 part 2 (transport), sections 2.4.6, 2.5.5 and 2.6.3.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TypeVar

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.protocols.amqp10 import performatives as p
from headgate.protocols.amqp10.codes import Condition
from headgate.protocols.amqp10.composites import Composite


class _State(enum.Enum):
    """A state is looked up in a table with each performative: hashed by identity, which calls nothing."""

    __hash__ = object.__hash__


class ConnectionState(_State):
    """The states of one side of a connection, SASL layer included."""

    SASL_HEADER = "sasl header"
    MECHANISMS = "mechanisms"
    INIT = "init"
    OUTCOME = "outcome"
    AMQP_HEADER = "amqp header"
    START = "start"
    OPEN_SENT = "open sent"
    OPEN_RECEIVED = "open received"
    OPENED = "opened"
    CLOSE_SENT = "close sent"
    CLOSE_RECEIVED = "close received"
    CLOSED = "closed"


class SessionState(_State):
    """The states of a session."""

    UNMAPPED = "unmapped"
    BEGIN_SENT = "begin sent"
    BEGIN_RECEIVED = "begin received"
    MAPPED = "mapped"
    END_SENT = "end sent"
    END_RECEIVED = "end received"


class LinkState(_State):
    """The states of a link."""

    DETACHED = "detached"
    ATTACH_SENT = "attach sent"
    ATTACH_RECEIVED = "attach received"
    ATTACHED = "attached"
    DETACH_SENT = "detach sent"
    DETACH_RECEIVED = "detach received"


S = TypeVar("S", ConnectionState, SessionState, LinkState)
Table = Mapping[tuple[S, type[Composite]], S]

_C = ConnectionState
_IN_CONNECTION = (p.Begin, p.Attach, p.Flow, p.Transfer, p.Disposition, p.Detach, p.End)
_IN_SESSION = (p.Attach, p.Flow, p.Transfer, p.Disposition, p.Detach)
_IN_LINK = (p.Flow, p.Transfer)

CONNECTION_SENT: Table[ConnectionState] = {
    (_C.MECHANISMS, p.SaslMechanisms): _C.INIT,
    (_C.INIT, p.SaslInit): _C.OUTCOME,
    (_C.OUTCOME, p.SaslOutcome): _C.AMQP_HEADER,
    (_C.START, p.Open): _C.OPEN_SENT,
    (_C.OPEN_RECEIVED, p.Open): _C.OPENED,
    (_C.OPEN_SENT, p.Close): _C.CLOSE_SENT,
    (_C.OPENED, p.Close): _C.CLOSE_SENT,
    (_C.CLOSE_RECEIVED, p.Close): _C.CLOSED,
} | {(_C.OPENED, kind): _C.OPENED for kind in _IN_CONNECTION}

CONNECTION_RECEIVED: Table[ConnectionState] = (
    {
        (_C.MECHANISMS, p.SaslMechanisms): _C.INIT,
        (_C.INIT, p.SaslInit): _C.OUTCOME,
        (_C.OUTCOME, p.SaslOutcome): _C.AMQP_HEADER,
        (_C.START, p.Open): _C.OPEN_RECEIVED,
        (_C.OPEN_SENT, p.Open): _C.OPENED,
        (_C.OPENED, p.Close): _C.CLOSE_RECEIVED,
        (_C.CLOSE_SENT, p.Close): _C.CLOSED,
        (_C.CLOSE_SENT, p.Open): _C.CLOSE_SENT,
    }
    | {(_C.OPENED, kind): _C.OPENED for kind in _IN_CONNECTION}
    | {(_C.CLOSE_SENT, kind): _C.CLOSE_SENT for kind in _IN_CONNECTION}
)


def _tables(
    states: Iterable[S], begin: type[Composite], end: type[Composite], within: Iterable[type[Composite]]
) -> tuple[Table[S], Table[S]]:
    """The tables for sending and for receiving, of sessions or links: both have the same states in the same order."""
    unknown, begin_sent, begin_received, known, end_sent, end_received = states
    kept = {(known, kind): known for kind in within}
    sent = {
        (unknown, begin): begin_sent,
        (begin_received, begin): known,
        (known, end): end_sent,
        (end_received, end): unknown,
    }
    received = {
        (unknown, begin): begin_received,
        (begin_sent, begin): known,
        (known, end): end_received,
        (end_sent, end): unknown,
    }
    return sent | kept, received | kept | {(end_sent, kind): end_sent for kind in within}


SESSION_SENT, SESSION_RECEIVED = _tables(SessionState, p.Begin, p.End, _IN_SESSION)
LINK_SENT, _LINK_RECEIVED = _tables(LinkState, p.Attach, p.Detach, _IN_LINK)
# A peer may grant credit, or give up, before its attach is answered.
LINK_RECEIVED: Table[LinkState] = {
    **_LINK_RECEIVED,
    **{(LinkState.ATTACH_RECEIVED, kind): LinkState.ATTACH_RECEIVED for kind in (p.Flow, p.Detach)},
}

DISCARDING = frozenset({_C.CLOSE_SENT, SessionState.END_SENT, LinkState.DETACH_SENT})
"""States in which the peer's frames before its answer have no effect: it had not yet learnt of the end."""


def sent(table: Table[S], state: S, kind: type[Composite]) -> S:
    """The state after `kind` is sent. Raises LocalProtocolError where it may not be sent."""
    following = table.get((state, kind))
    if following is None:
        raise LocalProtocolError(f"{kind.__name__} may not be sent in the state {state.value!r}")
    return following


def received(table: Table[S], state: S, kind: type[Composite]) -> S:
    """The state after `kind` is received. Raises RemoteProtocolError where the peer may not send it."""
    following = table.get((state, kind))
    if following is None:
        raise RemoteProtocolError(
            f"{kind.__name__} is not allowed in the state {state.value!r}", code=Condition.ILLEGAL_STATE
        )
    return following
