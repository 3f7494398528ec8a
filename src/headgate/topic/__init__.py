"""Topics: streams whose subscriptions are views made by rules, and the copies that a message gives each subscription.

Hides how rules are written down (`rule`), when a topic is valid (`model`, `limits`, `settings`, `forwarding`), from
which offset each rule is in force and how that survives a crash (`history`, `journal`, `editor`, `rules_in_force`), how
a batch of messages becomes copies (`router`, `copies`), and the folders of all of it (`folders`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.topic.copies import Copies, Counters, DeadLetter, RuleCounters, copy_identity
    from headgate.topic.dead_letters import failure_at, failure_of
    from headgate.topic.editor import (
        TopicEditor,
        check_removable,
        create_topic,
        creation_of,
        differences,
        list_topics,
        remove_topic,
        topic_stream,
        topics_forwarding_to,
    )
    from headgate.topic.folders import (
        DEAD_LETTER_QUEUE,
        QUEUE_SUBSCRIPTION,
        QUEUE_VIEW,
        WAITING_NAME,
        SubscriptionName,
        dead_letters_folder,
        deferred_folder,
        postings_folder,
        state_folders,
        subscription_folder,
        view_key,
        waiting_folder,
    )
    from headgate.topic.forwarding import forward_order
    from headgate.topic.history import RuleHistory, RulesInForce
    from headgate.topic.journal import JOURNAL_NAME
    from headgate.topic.limits import TopicLimits
    from headgate.topic.model import DEFAULT_RULES, Subscription, Topic, folded
    from headgate.topic.origin import (
        ARRIVED_ANNOTATION,
        ATTEMPTS_ANNOTATION,
        COPY_ANNOTATION,
        DESCRIPTION_PROPERTY,
        FIRST_NUMBER_ANNOTATION,
        HOPS_ANNOTATION,
        MAX_HOPS,
        REASON_PROPERTY,
        SOURCE_ANNOTATION,
        Origin,
        forwarded,
        origin_of,
        resubmitted,
        source_of,
        with_origin,
        with_properties,
    )
    from headgate.topic.record import (
        AddRule,
        Change,
        ChangeLimits,
        ChangeSubscription,
        ChangeTopic,
        CreateSubscription,
        RemoveRule,
        RemoveSubscription,
        ReplaceRule,
        RuleVersion,
        SubscriptionVersion,
    )
    from headgate.topic.router import ERRORS_COUNTED, Router
    from headgate.topic.rule import DEFAULT_RULE_DIALECT, Rule, RuleDefinition
    from headgate.topic.rules_in_force import RoutersInForce
    from headgate.topic.settings import (
        DEFAULT_SETTINGS,
        DEFAULT_TOPIC_SETTINGS,
        MAX_TIME_MS,
        AuthorizationRule,
        SubscriptionSettings,
        SubscriptionStatus,
        TopicKind,
        TopicSettings,
        TopicStatus,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
