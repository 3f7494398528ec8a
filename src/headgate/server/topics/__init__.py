"""Topics as endpoints: over HTTP, and for commands that work on the files of a root.

    topic_groups               the endpoints of topics, subscriptions, rules, copies, entities, and of RocketMQ's topics
    told                       waits for what the broker answers later
    subscription_infos         the subscriptions of all topics that a broker has open, for metrics

Hidden: RocketMQ's topics and groups (`message_topics`), rows of lists (`rows`), changes from JSON (`bodies`), the
session of a call (`calls`), waiting for copies (`broker_answers`). No sockets here: the caller's loop makes the
broker's turns.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.topics.broker_answers import told
    from headgate.server.topics.requests import topic_groups
    from headgate.server.topics.rows import subscription_infos
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
