"""AMQP 1.0: frames, performatives, sessions with windows, links with credit; messages in and out by the batch.

    Connection, ConnectionSettings              where everything begins; `ConnectionState` is where it stands
    Session, Link                               windows and credit
    Source, Target, Coordinator, address_text   what a link ends at
    Accepted, Rejected, Released, Modified      outcomes, `Received` before; `Error` says why, `NO_INFO`: no more
    store_messages, StoredMessages              what a publisher's message is stored as
    BROKER_ANNOTATIONS                          what RabbitMQ's clients see there of a message's way
    delivered_message, in_standard_order        what a consumer of a stream gets (`OFFSET`); `annotated_message`: other
    Condition, SaslCode, condition_of           what each error is answered with; `status_of` for management

Events are in the table `events`, performatives in `performatives`. Hidden: encoding, the states of connections,
sessions and links, delivery ids, and the kernels that take and write runs of transfers. Serves both sides: the server,
and clients in tests and benchmarks.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocols.amqp10.codes import Condition, SaslCode, condition_of, status_of
    from headgate.protocols.amqp10.connection import Connection, ConnectionSettings
    from headgate.protocols.amqp10.frames import SASL_HEADER
    from headgate.protocols.amqp10.link import Link
    from headgate.protocols.amqp10.messages import (
        BROKER_ANNOTATIONS,
        OFFSET,
        StoredMessages,
        annotated_message,
        delivered_message,
        in_standard_order,
        routing_headers,
        store_messages,
    )
    from headgate.protocols.amqp10.session import Session
    from headgate.protocols.amqp10.states import ConnectionState
    from headgate.protocols.amqp10.terminus import (
        NO_INFO,
        Accepted,
        Coordinator,
        DeliveryState,
        Error,
        Modified,
        RawEntry,
        Received,
        Rejected,
        Released,
        Source,
        Target,
        address_text,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
