"""`headgate topic`: streams with subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from headgate.cli.options import DEFAULT_ROOT, AsJson, LockTimeout, Root, TopicName
from headgate.cli.output import write_facts, write_json, write_line, write_note, write_rows
from headgate.clock import now_ms, patient
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.topic import RuleHistory, SubscriptionVersion, TopicEditor, TopicLimits

commands = App(name="topic", help="Make topics of streams, and look into them.")


@commands.command
def create(
    topic: TopicName,
    /,
    *,
    limit: Annotated[
        list[str] | None, Parameter(negative=(), help="A limit of its own, such as sql_filters=5000. Repeatable.")
    ] = None,
    lock_timeout: LockTimeout = 5.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Make a topic without subscriptions; its stream is made if it is not there."""
    from headgate.topic import create_topic

    made = create_topic(root, topic, now_ms=now_ms(), limits=_limits(limit or []), wait=patient(lock_timeout))
    write_line(str(made.path))
    return 0


@commands.command
def ls(*, as_json: AsJson = False, root: Root = DEFAULT_ROOT) -> int:
    """List the topics under --root."""
    from headgate.topic import list_topics

    rows = [
        {
            "name": history.topic_name,
            "subscriptions": len(history.subscriptions()),
            "sql_filters": history.counts.sql,
            "correlation_filters": history.counts.correlation,
            "last_change": history.last_change,
        }
        for history in list_topics(root)
    ]
    nothing = f"no topics under {root}; make one with: headgate topic create NAME --root {root}"
    write_rows(rows, as_json=as_json, nothing=nothing)
    return 0


@commands.command
def show(topic: TopicName, /, *, as_json: AsJson = False, root: Root = DEFAULT_ROOT) -> int:
    """Show a topic: its limits, its subscriptions and what they have."""
    from headgate.topic import RuleHistory, topic_stream

    history = RuleHistory.load(topic_stream(root, topic))
    facts: dict[str, object] = {
        "name": history.topic_name,
        "path": str(history.path.parent),
        "last_change": history.last_change,
        "history_from": history.pruned_below,
        "sql_filters": f"{history.counts.sql} of {history.limits.sql_filters}",
        "correlation_filters": f"{history.counts.correlation} of {history.limits.correlation_filters}",
        "subscriptions": f"{len(history.subscriptions())} of {history.limits.subscriptions}",
    }
    if as_json:
        limits = {name: getattr(history.limits, name) for name in history.limits.__struct_fields__}
        write_json({**facts, "limits": limits, "subscriptions": subscription_rows(history)})
        return 0
    write_facts(facts)
    write_subscriptions(history, as_json=False)
    return 0


@commands.command
def rm(topic: TopicName, /, *, lock_timeout: LockTimeout = 5.0, root: Root = DEFAULT_ROOT) -> int:
    """Make a topic a plain stream again: subscriptions, rules and their history go, messages stay."""
    from headgate.topic import remove_topic

    remove_topic(root, topic, now_ms=now_ms(), wait=patient(lock_timeout))
    return 0


def changing(topic: str, lock_timeout_s: float, root: Path) -> TopicEditor:
    """An editor of a topic under a root, for one block. Raises RuleNotFoundError, StreamLockedError, LogError."""
    from headgate.topic import TopicEditor, topic_stream

    return TopicEditor.open(topic_stream(root, topic), now_ms=now_ms(), wait=patient(lock_timeout_s))


def told(offset: int, *, is_gone: bool = False) -> int:
    """Note from which offset on a change holds; gives the exit status."""
    write_note(f"gone from offset {offset} on" if is_gone else f"in force from offset {offset}")
    return 0


def subscription_rows(history: RuleHistory) -> list[dict[str, Any]]:
    """The subscriptions of a topic, for JSON."""
    return [subscription_row(history, version) for version in history.subscriptions()]


def subscription_row(history: RuleHistory, version: SubscriptionVersion) -> dict[str, Any]:
    """One subscription of a topic, for JSON."""
    return {
        "name": version.name,
        "rules": len(history.rules(version.name)),
        "fall_through": version.fall_through,
        "dead_letter_on_errors": version.dead_letter_on_errors,
        "forward_to": version.forward_to,
        "in_force_from": version.from_offset,
        "settings": version.settings.json_object(),
    }


def write_subscriptions(history: RuleHistory, *, as_json: bool) -> None:
    """The subscriptions of a topic as lines of JSON or as a table."""
    rows = subscription_rows(history)
    if not as_json:
        rows = [{**{name: shown(row[name]) for name in _COLUMNS}, "status": row["settings"]["status"]} for row in rows]
    nothing = f"no subscriptions; make one with: headgate subscription create {history.topic_name} NAME"
    write_rows(rows, as_json=as_json, nothing=nothing)


_COLUMNS = ("name", "rules", "fall_through", "dead_letter_on_errors", "forward_to", "in_force_from")


def shown(value: object) -> object:
    """A property or setting for people."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _limits(texts: list[str]) -> TopicLimits:
    from headgate.topic import TopicLimits

    given: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in TopicLimits.__struct_fields__ or not value.isdecimal():
            raise ConfigError(
                f"--limit: found {text!r}, expected NAME=NUMBER with one of the names "
                f"{', '.join(TopicLimits.__struct_fields__)}"
            )
        given[name] = int(value)
    limits = TopicLimits(**given)
    limits.check()
    return limits
