"""Topics at work: how receivers get the copies of a subscription, and how each copy is settled.

    Topics                the topics of a broker: opened when they are asked for, and the turn that they share
    BrokerTopic           one topic and its turn; clients use its parts: `subscriptions` and their counts, `receivers`,
                      the `browser`, which claims nothing, `scheduled` messages, `rule_failures`
    Receiver              takes the copies of one subscription, or of its dead letters, for one link, and settles them;
                      `ReceiverCalls`: the link
    SessionReceiver       a receiver of one session, with its lock and state
    SubscriptionInfo      a subscription as users see it: settings, `CopyCounts`, `ViewCounters`
    Settler, is_deferred  settles copies by their tokens, of any receiver
    DeadLetterDispatcher  the dead letters of one subscription: chosen ones are resubmitted or deleted
    QueueDepth            how many copies a subscription has, as a queue of RabbitMQ's
    sequence_number       the number of a copy that clients of Service Bus see, and back: `copy_of`
    ScheduledMessages     the messages of one stream whose time has not come; `due_of`: when a message is due
    RuleChange, Changed   a change of rules as a job for the stream's writer, and its answer
    RetentionPin          what retention keeps of a stream
    outlived              which copies have expired; FAILED_RULES: the rule of a dead letter that no rule made

Hidden: how copies are decided (`topic_decider`, `rule_failures`), found (`subscription_source`) and given out
(`dispatcher`, `sessions`) as the settings say (`policy`), and moved to dead letters and other streams (`copy_mover`,
`subqueue`); where deferred copies are (`deferred_copies`); the scheduled messages of all streams (`scheduler`), how
copies expire (`expiry`, `expiry_sweep`), and how idle subscriptions are removed (`auto_delete`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.topics.dead_letters import DeadLetterDispatcher
    from headgate.broker.topics.deferred_copies import is_deferred
    from headgate.broker.topics.dispatcher import CopyCounts
    from headgate.broker.topics.expiry import outlived
    from headgate.broker.topics.receiver import Receiver, ReceiverCalls
    from headgate.broker.topics.retention_pin import RetentionPin
    from headgate.broker.topics.rule_change import Changed, RuleChange
    from headgate.broker.topics.scheduled_messages import ScheduledMessages, due_of
    from headgate.broker.topics.sequence_numbers import copy_of, sequence_number
    from headgate.broker.topics.sessions import SessionReceiver
    from headgate.broker.topics.settler import DeadLetterReason, Settler, ViewCounters
    from headgate.broker.topics.subscription import QueueDepth, SubscriptionInfo
    from headgate.broker.topics.subscription_source import FAILED_RULES
    from headgate.broker.topics.topic import BrokerTopic
    from headgate.broker.topics.topics import Topics
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
