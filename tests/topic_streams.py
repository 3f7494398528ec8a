"""Topics for tests, with rules whose text says which version they are."""

from __future__ import annotations

from pathlib import Path

from headgate.log import Stream, Writer
from headgate.topic import Rule, Topic, TopicEditor, create_topic


def sql_rule(name: str, text: str = "TRUE", *, dialect: str = "rabbitmq") -> Rule:
    """A rule with a filter text of `rabbitmq`, or of another dialect."""
    return Rule(name, text, dialect=dialect)


def version_rule(name: str, version: int) -> Rule:
    """A rule whose text is its version."""
    return sql_rule(name, f"version = {version}")


def shape(topic: Topic) -> dict[str, dict[str, str]]:
    """Subscription → rule → filter text of a topic."""
    return {
        subscription.name: {rule.name: str(rule.definition.sql) for rule in subscription.rules}
        for subscription in topic.subscriptions
    }


def new_topic(root: Path, name: str = "orders") -> Stream:
    """A topic without subscriptions."""
    return create_topic(root, name, now_ms=0)


def publish(stream: Stream, *bodies: bytes) -> None:
    """Append messages."""
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(body, None) for body in bodies], now_ms=0)


def editing(stream: Stream) -> TopicEditor:
    """An editor of a topic."""
    return TopicEditor.open(stream, now_ms=0)
