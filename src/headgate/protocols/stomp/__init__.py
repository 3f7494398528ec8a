"""STOMP 1.0 to 1.2: frames, connections, destinations, and messages on their way to and from AMQP 0.9.1. Pure.

    ServerConnection, ConnectionState, Version      the core of a connection
    Destination, parse_destination                  what a destination names; `format_destination` writes it
    properties_of, property_headers                 headers as properties of AMQP 0.9.1, which carries the messages
    encode_headers, text_headers                    headers as bytes

Events are in the table `events`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocols.stomp.connection import ConnectionState, ServerConnection
    from headgate.protocols.stomp.destinations import (
        Destination,
        DestinationKind,
        format_destination,
        parse_destination,
    )
    from headgate.protocols.stomp.frames import Version, encode_headers
    from headgate.protocols.stomp.messages import properties_of, property_headers, text_headers
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
