"""Service Bus on the network: entities of the broker for its clients, over AMQP 1.0 beside RabbitMQ's service.

    ServiceBusService                      the service of one connection of AMQP 1.0
    administration_site                    the application of HTTP that manages entities
    ConnectionAccess, is_open_to           what one connection may do; whether a client needs no token
    check_key                              whether a key gives a right
    rule_definition, rule_description      rules as the broker keeps them, and as clients describe them

Hidden: links that send (`sender_link`) and receive (`receiver_link`), requests (`management`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.servicebus.access import ConnectionAccess, claim_of, is_open_to
    from headgate.server.servicebus.administration import administration_site
    from headgate.server.servicebus.descriptions import rule_definition, rule_description
    from headgate.server.servicebus.service import ServiceBusService
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
