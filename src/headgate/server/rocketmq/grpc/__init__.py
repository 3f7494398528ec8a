"""RocketMQ's gRPC protocol on the network: handlers of connections, whose calls one servicer answers.

    Servicer      the calls of one server; `connection` makes the handler of a connection

Hidden: who a client is and what it may do (`access`, `clients`), how calls lie on connections (`calls`), the calls
(`servicer`, `sending`, `receiving`, `settling`, `telemetry`), what the server renews for clients (`renewing`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.rocketmq.grpc.servicer import Servicer
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
