"""RocketMQ's gRPC protocol on the network: one handler per connection, and one servicer that answers all calls.

    Servicer      the calls of one server; `connection` makes the handler of a connection

Hidden: the identity and rights of a client (`access`, `clients`), calls on connections (`calls`), the calls themselves
(`servicer`, `send_calls`, `receive_calls`, `settlement_calls`, `telemetry`), renewal of invisible times
(`lease_renewal`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.rocketmq.grpc.servicer import Servicer
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
