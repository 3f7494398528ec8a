"""Consumer groups: who consumes the messages of a topic together, each message once, as RocketMQ's clients do.

ConsumerGroups                     the groups of one broker (`Broker.consumer_groups`)
GroupSettings, GroupStart          how the messages of a group are delivered; where a new one begins
Registering                        the expressions that members announce (`Broker.registering`), an `Expression` each,
                                   kept up in the match indexes of streams; why one was refused: `Refusal`
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.consumer_groups.consumer_groups import ConsumerGroups
    from headgate.broker.consumer_groups.declarations import GroupSettings, GroupStart
    from headgate.broker.consumer_groups.registering import Expression, Refusal, Registering
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
