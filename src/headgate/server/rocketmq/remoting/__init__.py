"""RocketMQ's classic protocol on the network: `RemotingHandler` binds the core of a connection to the broker.

One handler is both of the original's roles, name server and broker: the two listeners differ only in their ports.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.rocketmq.remoting.handler import RemotingHandler
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
