"""The broker: streams, publishers, consumers with credit, exchanges, groups, users. No sockets, clock or protocol.

The same commands serve every protocol; time comes in as an argument or through the clock that the broker was given.

    Broker, BrokerSettings             one root folder, from its making to `close`
    Session, Backlog, Check            one connection's commands, what it may have waiting, and what it may do
    Publisher                          one publisher: takes a `PublishBatch`, gives confirms, and offsets (`Written`)
                                       to who asks
    Consumer, ConsumerOptions          one consumer; a `MessageConsumer` takes messages by credit, a `ChunkConsumer`
                                       whole chunks; `LOST`: what it is told of what retention took
    ReplyQueues, ReplyQueue            where requesters wait for replies without a stream: `REPLY_TO`
    BrokerStream                       one stream, with its `StreamCounters` and `ReadingCounters`
    Declared                           what a declaration found
    Exchange, Binding, Headers         an exchange; a route from it to a stream or another one; a message's headers;
                                       `Exchanges`: all of a root, and its super streams
    BrokerTopic, SubscriptionInfo      one topic, and what its subscriptions have; `QueueDepth`: one as a queue
    Receiver, GivenCopies, Delivery    takes the copies of a subscription, and settles them; `ReadCopies`: only read
    Entities, Entity                   topics and queues as Service Bus has them; `EntitySubscription`, `EntityRule`,
                                       `EntityCounts`; `sequence_number`, `copy_of`; `due_of`
    EntityDeclaration                  what one is to be, with `SubscriptionDeclaration`; `in_steps`: in which order;
                                       `from_emulator` and `to_emulator`: as a file
    MessageTopics, MessageTopic        topics as RocketMQ has them; `MessageKind`, `TopicCreation`
    ConsumerGroups, GroupSettings      its consumer groups (`broker.consumer_groups`); `GroupStart`
    GroupView                          the place of a group in one queue: `GroupCounts`, `GroupCounters`
    Users, Token, Permissions, Permission     passwords and patterns (`matches`); `EVERYTHING` and `NOTHING`; the tag
                                       `ADMINISTRATOR`; `AUDIT_STREAM`: who records, and who may read
    Resubmission, Resubmitter          dead letters on their way to another place; `ResubmissionTrial`: its dry run
    Audit, AuditSettings, Actor        the stream that records who changed what; `read_audit`: its entries, each an
                                       `AuditRow`
    Jobs, Job, JobState                long work that users asked for, in steps
    AccessKeys, AccessKey              secrets that clients share with the server, with `KeyRights`, each a `Right`
    any_target                         for who may forward copies anywhere: the operator
    IndexLag                           how far the match index of a stream is behind
    BatchObserver                      is told of each batch that is written or given out, for tracing
    run_here                           what a broker without threads does its background work by
    is_damage                          whether an error says that the files of a stream are wrong

Hidden: the open streams and their writers, how queued batches become chunks and confirms, how consumers share reading,
single active consumers, and how topics and consumer groups give out copies (`headgate.broker.topics`,
`headgate.broker.delivery`). The table of stream arguments is
`headgate.broker.arguments`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.arguments import OF_REMOTE, arguments_of, changed_arguments
    from headgate.broker.audit import Actor, Audit, AuditSettings
    from headgate.broker.audit_entries import AuditRow, read_audit
    from headgate.broker.backlog import Backlog
    from headgate.broker.backup import BackupReport, back_up
    from headgate.broker.batches import PublishBatch, Written
    from headgate.broker.broker import Broker
    from headgate.broker.catalogue import Declared, StreamInfo, arguments_declared
    from headgate.broker.consumer_groups import (
        ConsumerGroups,
        GroupCounters,
        GroupCounts,
        GroupSettings,
        GroupStart,
        GroupView,
    )
    from headgate.broker.consumers import LOST, ChunkConsumer, Consumer, ConsumerOptions, MessageConsumer
    from headgate.broker.damage import is_damage
    from headgate.broker.delivery import CopyState, Delivery, GivenCopies, ReadCopies, ReadCopy
    from headgate.broker.entities import (
        Answered,
        Entities,
        Entity,
        EntityCounts,
        EntityDeclaration,
        EntityRule,
        EntitySubscription,
        SubscriptionDeclaration,
        from_emulator,
        in_steps,
        to_emulator,
    )
    from headgate.broker.environment import run_here
    from headgate.broker.exchanges import Exchanges
    from headgate.broker.jobs import Job, Jobs, JobState, JobWork
    from headgate.broker.keys import KEYS_NAME, AccessKey, AccessKeys, KeyRights, Right
    from headgate.broker.match_indexes import IndexLag
    from headgate.broker.message_topics import MessageKind, MessageTopic, MessageTopics
    from headgate.broker.observer import BatchObserver
    from headgate.broker.patterns import check_pattern, matches
    from headgate.broker.publishers import Publisher
    from headgate.broker.remote_moves import RemoteProgress
    from headgate.broker.replies import REPLY_TO, ReplyQueue, ReplyQueues, is_reply_queue
    from headgate.broker.resubmission import Resubmission, ResubmissionTrial, Resubmitter
    from headgate.broker.routing import EXCHANGE_KINDS, Binding, Exchange, Headers
    from headgate.broker.session import Check, Session
    from headgate.broker.settings import BrokerSettings, TopicCreation
    from headgate.broker.stream import BrokerStream, ReadingCounters, StreamCounters
    from headgate.broker.targets import any_target
    from headgate.broker.tokens import LONGEST_DESCRIPTION, Token
    from headgate.broker.topics import (
        BrokerTopic,
        DeadLetterReason,
        QueueDepth,
        Receiver,
        ReceiverCalls,
        SessionReceiver,
        Settler,
        SubscriptionInfo,
        ViewCounters,
        copy_of,
        due_of,
        is_deferred,
        sequence_number,
    )
    from headgate.broker.users import (
        ADMINISTRATOR,
        AUDIT_STREAM,
        EVERYTHING,
        NOTHING,
        Permission,
        Permissions,
        Users,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
