"""AMQP 1.0: frames, performatives, sessions with windows, links with credit; messages in and out by the batch.

Hides encoding, the states of connections, sessions and links (`states`), windows and delivery ids, and the kernels that
take and write runs of transfers. `Connection` is where everything begins; `messages` is what a publisher's message is
stored as, and what a consumer gets. Serves both sides: the server, and clients in tests and benchmarks.
"""

from headgate.protocols.amqp10.codes import Condition, SaslCode, condition_of, status_of
from headgate.protocols.amqp10.connection import Connection, ConnectionSettings
from headgate.protocols.amqp10.link import Link
from headgate.protocols.amqp10.session import Session

__all__ = [
    "Condition",
    "Connection",
    "ConnectionSettings",
    "Link",
    "SaslCode",
    "Session",
    "condition_of",
    "status_of",
]
