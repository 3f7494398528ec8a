"""Topics as requests and answers in JSON: over HTTP, and for commands that work on the files of a root.

    TopicRequests              answers requests about topics, subscriptions, rules and copies, as one user
    TopicRequest, Answer       what is asked for, and what is answered
    told                       waits for what the broker answers later
    subscription_infos         the subscriptions of all topics that a broker has open, for metrics

Hidden: RocketMQ's topics and groups (`message_topics`), rows of lists (`rows`), changes from JSON (`bodies`), waiting
for copies (`broker_answers`). No HTTP here, and no sockets: the caller's loop makes the broker's turns.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.topics.broker_answers import told
    from headgate.server.topics.requests import TopicRequests
    from headgate.server.topics.routes import Answer, TopicRequest
    from headgate.server.topics.rows import subscription_infos
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
