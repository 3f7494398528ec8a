"""AMQP 0.9.1: frames, methods and contents on one side, messages as streams store them on the other. Pure.

`ServerConnection` is the core of a connection, `Confirms` and `Unacknowledged` count a channel's tags; `publication`
and `delivery` convert messages (STOMP uses them too); `codes` says what each error is answered with.
"""

from headgate.protocols.amqp091.codes import ReplyCode, reply_code, reply_text
from headgate.protocols.amqp091.connection import ConnectionLimits, ConnectionState, ServerConnection
from headgate.protocols.amqp091.tags import Confirms, Unacknowledged

__all__ = [
    "Confirms",
    "ConnectionLimits",
    "ConnectionState",
    "ReplyCode",
    "ServerConnection",
    "Unacknowledged",
    "reply_code",
    "reply_text",
]
