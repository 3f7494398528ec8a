"""AMQP 1.0 on the network: connections, links and management requests become commands of the broker.

    Amqp10Handler                       one connection, and the services that it carries
    Service, ServiceFactory             one kind of AMQP 1.0 service: its addresses, and what serves links to them
    ServedLink, RefusedAttachError      what serves one link, or why nothing does
    BrowsingLink, is_browsing           a link that shows copies without taking them
    ReceiverLink                        a link that gives copies of a subscription as there is credit
    our_terminus, address_of            what every service looks at first
    RequestNode, Request                a node that answers requests, now or in a later turn
    RabbitService                       RabbitMQ's

Hidden: RabbitMQ's service (`rabbitmq`), its links (`publisher_link`, `consumer_link`, `subscription_link`,
`management`), its addresses (`addresses`) and its filter maps (`filters`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.amqp10.browser_link import BrowsingLink, is_browsing
    from headgate.server.amqp10.copy_link import ReceiverLink
    from headgate.server.amqp10.handler import Amqp10Handler
    from headgate.server.amqp10.rabbitmq import RabbitService
    from headgate.server.amqp10.requests import Request, RequestNode
    from headgate.server.amqp10.service import (
        RefusedAttachError,
        ServedLink,
        Service,
        ServiceFactory,
        address_of,
        our_terminus,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
