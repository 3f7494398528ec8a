"""RabbitMQ's stream protocol: both sides of a connection, without sockets (stream_protocol.md).

    ServerConnection, ServerState, ServerLimits     the server's side
    ClientConnection, ClientState, Opened           the client's side
    Publish, PublishConfirm, Deliver                frames that carry many things each, read and written in bulk
    Command, ResponseCode, response_code            numbers of the protocol, and what each error is answered with
    ProtocolViolation                               what a peer did wrong

All other frames are in the table `frames`. Hidden: their layout, and which frames each state allows.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocols.stream.client import ClientConnection, ClientEvent, ClientState, Opened
    from headgate.protocols.stream.codes import SERVER_VERSIONS, Command, ResponseCode, name_of_code, response_code
    from headgate.protocols.stream.deliver_frames import Deliver
    from headgate.protocols.stream.framing import ProtocolViolation
    from headgate.protocols.stream.publish_frames import Publish, PublishConfirm, PublishError
    from headgate.protocols.stream.server import ServerConnection, ServerEvent, ServerLimits, ServerState
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
