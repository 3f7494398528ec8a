"""STOMP 1.0 to 1.2: frames, connections, destinations, and messages on their way to and from AMQP 0.9.1. Pure.

`ServerConnection` is the core of a connection; messages take the way of AMQP 0.9.1 (`protocols.amqp091`).
"""

from headgate.protocols.stomp.connection import ConnectionState, ServerConnection
from headgate.protocols.stomp.frames import Version

__all__ = ["ConnectionState", "ServerConnection", "Version"]
