"""AMQP 0.9.1 on the network: `Amqp091Handler` binds the core of a connection to the broker.

`channel` has what each method does, `consumer` the way of a message to the client and `options` what consumers ask
for, in STOMP as well.
"""

from headgate.server.amqp091.handler import Amqp091Handler

__all__ = ["Amqp091Handler"]
