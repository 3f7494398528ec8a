"""RocketMQ's gRPC protocol on the network: a servicer in the driver's loop, beside its handlers.

    GrpcServer      the listeners of one server, from `bind` to `stop`

Hidden: who a client is and what it may do (`access`, `clients`), the calls (`servicer`, `sending`, `receiving`,
`settling`, `telemetry`), what the server renews for clients (`renewing`). Importing the face does not import grpc.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.rocketmq.grpc.listening import GrpcServer
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
