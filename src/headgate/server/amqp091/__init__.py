"""AMQP 0.9.1 on the network: `Amqp091Handler` binds the core of a connection to the broker.

`consumer_options` reads the options of consumers, in STOMP as well; the constants are the names of its arguments.
Hidden: the methods (`channel`), what channels use of their connection (`outlet`), and the way of a message to the
client (`consumer`, `subscription_queue`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.amqp091.handler import Amqp091Handler
    from headgate.server.amqp091.options import (
        DIALECT,
        MATCH_UNFILTERED,
        PRIORITY,
        SQL,
        STREAM_FILTER,
        STREAM_OFFSET,
        consumer_options,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
