"""Entities: topics, queues and subscriptions of Service Bus, over the broker's topics.

    Entities              finds, lists, makes, changes and removes them
    Entity                one topic or queue, as it is now; EntitySubscription, EntityRule: what it has
    EntityDeclaration     what one is to be, all in one, with `SubscriptionDeclaration`; `in_steps`: in which order
    from_emulator         declarations from the configuration of Microsoft's emulator; `to_emulator`: and back
    EntityCounts          how many messages wait, and for what

A topic of the broker is an entity; a queue is a topic with one implied subscription. Hidden: how names are compared
(`names`), how the properties of an entity are read (`entity`), and the order of the steps that make and remove one
(`entities`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.entities.declaration import EntityDeclaration, SubscriptionDeclaration, in_steps
    from headgate.broker.entities.emulator import from_emulator, to_emulator
    from headgate.broker.entities.entities import Answered, Entities
    from headgate.broker.entities.entity import Entity, EntityCounts, EntityRule, EntitySubscription
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
