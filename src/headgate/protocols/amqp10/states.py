"""What may be said when: the states of connections, sessions and links, and what leads from one to the next.

A pair of state and performative that is missing in a table is not allowed. Performatives for a session or link that
this side has ended already are skipped until the peer has answered (`DISCARDING`).
Source: OASIS AMQP 1.0 part 2 (transport), sections 2.4.6, 2.5.5 and 2.6.3.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
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

_C, _S, _L = ConnectionState, SessionState, LinkState
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

SESSION_SENT: Table[SessionState] = {
    (_S.UNMAPPED, p.Begin): _S.BEGIN_SENT,
    (_S.BEGIN_RECEIVED, p.Begin): _S.MAPPED,
    (_S.MAPPED, p.End): _S.END_SENT,
    (_S.END_RECEIVED, p.End): _S.UNMAPPED,
} | {(_S.MAPPED, kind): _S.MAPPED for kind in _IN_SESSION}

SESSION_RECEIVED: Table[SessionState] = (
    {
        (_S.UNMAPPED, p.Begin): _S.BEGIN_RECEIVED,
        (_S.BEGIN_SENT, p.Begin): _S.MAPPED,
        (_S.MAPPED, p.End): _S.END_RECEIVED,
        (_S.END_SENT, p.End): _S.UNMAPPED,
    }
    | {(_S.MAPPED, kind): _S.MAPPED for kind in _IN_SESSION}
    | {(_S.END_SENT, kind): _S.END_SENT for kind in _IN_SESSION}
)

LINK_SENT: Table[LinkState] = {
    (_L.DETACHED, p.Attach): _L.ATTACH_SENT,
    (_L.ATTACH_RECEIVED, p.Attach): _L.ATTACHED,
    (_L.ATTACHED, p.Detach): _L.DETACH_SENT,
    (_L.DETACH_RECEIVED, p.Detach): _L.DETACHED,
} | {(_L.ATTACHED, kind): _L.ATTACHED for kind in _IN_LINK}

LINK_RECEIVED: Table[LinkState] = (
    {
        (_L.DETACHED, p.Attach): _L.ATTACH_RECEIVED,
        (_L.ATTACH_SENT, p.Attach): _L.ATTACHED,
        (_L.ATTACHED, p.Detach): _L.DETACH_RECEIVED,
        (_L.DETACH_SENT, p.Detach): _L.DETACHED,
    }
    | {(_L.ATTACHED, kind): _L.ATTACHED for kind in _IN_LINK}
    | {(_L.DETACH_SENT, kind): _L.DETACH_SENT for kind in _IN_LINK}
)

DISCARDING = frozenset({_C.CLOSE_SENT, _S.END_SENT, _L.DETACH_SENT})
"""What the peer said before it learnt of the end has no effect any more."""


def sent(table: Table[S], state: S, kind: type[Composite]) -> S:
    """The state behind saying `kind`. Raises LocalProtocolError where it may not be said."""
    following = table.get((state, kind))
    if following is None:
        raise LocalProtocolError(f"{kind.__name__} may not be sent in the state {state.value!r}")
    return following


def received(table: Table[S], state: S, kind: type[Composite]) -> S:
    """The state behind hearing `kind`. Raises RemoteProtocolError where the peer may not say it."""
    following = table.get((state, kind))
    if following is None:
        raise RemoteProtocolError(
            f"{kind.__name__} is not allowed in the state {state.value!r}", code=Condition.ILLEGAL_STATE
        )
    return following
