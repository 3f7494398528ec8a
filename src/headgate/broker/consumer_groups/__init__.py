"""Consumer groups: their members share the messages of a topic, each message once, as RocketMQ's clients do.

ConsumerGroups                     the groups of one broker (`Broker.consumer_groups`)
GroupSettings, GroupStart          how the messages of a group are delivered; where a new one begins
declared_groups                    the groups of a root, without a broker
ReceiveRequest, PendingReceive     a request for messages over some queues; the same at work
Received, ReceivedMessage          the answer to it
GroupView, GroupCounts             the place of one group in one queue: settles, counts
dead_letters_of                    the stream of a group's dead letters; `GroupDeadLetters`: those not resubmitted
GROUPS_FOLDER                      where the ledger of a stream's groups is, inside the stream's folder
Members, Subscription              who is there, what a group asks for, who has queues for itself (`Broker.members`)
PullConsumers                      members that read queues for themselves (`ConsumerGroups.pull_consumers`);
                                   `RetryQueue`, `Again`: what comes again for them
PulledQueue                        what such members do to the place of their group in one queue
ExpressionRegistry                 the expressions that members announce (`Broker.expressions`): an `Expression` each,
                                   kept up in the match indexes of streams; why one was refused: `Refusal`

Hidden: how messages are found (`new_messages`) and kept in the order of their message groups (`message_order`,
`message_groups`), the ledger beside each stream (`stream_groups`), and how dead letters come to their stream
(`dead_letters`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.consumer_groups.consumer_groups import ConsumerGroups
    from headgate.broker.consumer_groups.dead_letters import DeadLetterStreams, MessageIds
    from headgate.broker.consumer_groups.declarations import GroupSettings, GroupStart, declared_groups
    from headgate.broker.consumer_groups.expression_registry import Expression, ExpressionRegistry, Refusal
    from headgate.broker.consumer_groups.group_dead_letters import GroupDeadLetters
    from headgate.broker.consumer_groups.group_view import GroupCounters, GroupCounts, GroupView, dead_letters_of
    from headgate.broker.consumer_groups.group_views import GroupViews
    from headgate.broker.consumer_groups.members import Members, Subscription
    from headgate.broker.consumer_groups.pull_consumers import Again, PullConsumers, RetryQueue
    from headgate.broker.consumer_groups.pulled_queue import PulledQueue
    from headgate.broker.consumer_groups.receive_requests import (
        PendingReceive,
        Received,
        ReceivedMessage,
        ReceiveRequest,
    )
    from headgate.broker.consumer_groups.stream_groups import GROUPS_FOLDER
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
