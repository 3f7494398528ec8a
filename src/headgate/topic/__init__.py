"""Topics: streams whose subscriptions are views made by rules; which message gives which subscription which copies.

Hides how rules are written down (`rule`), what makes a topic right (`model`, `limits`, `forwarding`), from which offset
each rule is in force and how that survives a crash (`history`, `journal`, `editor`), and how a batch of messages
becomes copies (`router`, `copies`).
"""

from headgate.topic.copies import Copies, DeadLetter, RuleCounters
from headgate.topic.editor import TopicEditor, create_topic, list_topics, remove_topic, topic_stream
from headgate.topic.forwarding import forward_order
from headgate.topic.history import RuleHistory, RulesInForce
from headgate.topic.limits import TopicLimits
from headgate.topic.model import Subscription, Topic
from headgate.topic.router import Router, copy_identity
from headgate.topic.rule import Rule, RuleDefinition

__all__ = [
    "Copies",
    "DeadLetter",
    "Router",
    "Rule",
    "RuleCounters",
    "RuleDefinition",
    "RuleHistory",
    "RulesInForce",
    "Subscription",
    "Topic",
    "TopicEditor",
    "TopicLimits",
    "copy_identity",
    "create_topic",
    "forward_order",
    "list_topics",
    "remove_topic",
    "topic_stream",
]
