"""AMQP 1.0 on the network: connections, links and management requests become commands of the broker.

`handler` is one connection; `publishing`, `consuming` and `management` are what its links do; `addresses` is what their
addresses mean, `filters` what their filter maps ask for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
