"""Topics at work: how receivers get the copies of a subscription, and how each copy is settled.

    Topics                the topics of a broker: opened when they are asked for, and the turn that they share
    BrokerTopic           one topic: its decider, its ledger, its subscriptions, their dead letters
    Receiver              takes the copies of one subscription, or of its dead letters, for one link, and settles them
    GivenCopies           copies that it is given, in columns; each is a `Delivery`
    SessionReceiver       a receiver of one session, with its lock and state
    SubscriptionInfo      a subscription as users see it: settings, `CopyCounts`, `ViewCounters`
    Settler, is_deferred  settles copies by their tokens, whoever received them
    ReadCopies, ReadCopy  copies that were read, and not claimed; `CopyState`: what one waits for
    QueueDepth            how many copies a subscription has, as a queue of RabbitMQ's
    sequence_number       the number of a copy that clients of Service Bus see, and back: `copy_of`
    due_of                when a message is due, by what it says
    WaitingMessages       the messages of one stream whose time has not come
    RuleChange, Changed   a change of rules as a job for the stream's writer, and who hears of it

Hidden: how copies are found and read (`sources`), given out (`dispatcher`), committed before any answer
(`consumption`), and carried to dead letters and other streams (`moving`, `queue`); where deferred copies are
(`deferred`); how scheduled messages of any stream wait (`waiting`, `scheduling`), how copies expire (`lifetimes`),
and how idle subscriptions are removed (`idling`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.topics.changing import Changed, RuleChange
    from headgate.broker.topics.copies import CopyState, Delivery, GivenCopies, ReadCopies, ReadCopy
    from headgate.broker.topics.deferred import is_deferred
    from headgate.broker.topics.dispatcher import CopyCounts, ViewCounters
    from headgate.broker.topics.moving import TargetKind, append_to_stream
    from headgate.broker.topics.numbers import copy_of, sequence_number
    from headgate.broker.topics.pinning import Pinning
    from headgate.broker.topics.receiver import DeadLetterReason, Receiver, Settler, nobody_asks
    from headgate.broker.topics.sessions import SessionReceiver
    from headgate.broker.topics.sources import StreamSource
    from headgate.broker.topics.subscription import QueueDepth, SubscriptionInfo
    from headgate.broker.topics.topic import BrokerTopic
    from headgate.broker.topics.topics import Topics
    from headgate.broker.topics.trouble import Trouble
    from headgate.broker.topics.waiting import WaitingMessages, due_of
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
