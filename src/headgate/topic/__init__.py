"""Topics: streams whose subscriptions are views made by rules; which message gives which subscription which copies.

Hides how rules are written down (`rule`), what makes a topic right (`model`, `limits`, `forwarding`), from which offset
each rule is in force and how that survives a crash (`history`, `journal`, `editor`), and how a batch of messages
becomes copies (`copies`).
"""

from headgate.topic.limits import TopicLimits
from headgate.topic.model import Subscription, Topic
from headgate.topic.rule import Rule, RuleDefinition

__all__ = ["Rule", "RuleDefinition", "Subscription", "Topic", "TopicLimits"]
