"""`headgate topic`: streams with subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from headgate.cli.options import AsJson, LockTimeout, TopicName
from headgate.cli.output import write_facts, write_json, write_line, write_note, write_rows
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.topic import RuleHistory, SubscriptionVersion

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
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Make a topic without subscriptions; its stream is made if it is not there."""
    from headgate.log import stream_folder

    limits = _limits(limit or [])
    with location.topics(lock_timeout_s=lock_timeout, makes_root=True) as topics:
        topics.create_topic(topic, limits=limits)
    write_line(topic if location.is_server else str(stream_folder(location.root, topic)))
    return 0


@commands.command
def ls(*, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """List the topics under --root, or the topics of a server with the counts of their copies."""
    if location.is_server:
        rows = location.management().topics.topics()
        nothing = f"no topics; make one with: headgate topic create NAME --server {location.server}"
        told = [row for row in rows if "next_offset" in row]
        write_rows(told, () if as_json else _LISTED, as_json=as_json, nothing=nothing if not rows else "")
        damaged = [row for row in rows if "error" in row]
        for row in damaged:
            write_note(f"headgate: {row['name']}: {row['error']}")
        return 1 if damaged else 0
    from headgate.log import check_root, shown_root, storage_root
    from headgate.topic import list_topics

    check_root(location.root)
    rows = [
        {
            "name": history.topic_name,
            "subscriptions": len(history.subscriptions()),
            "sql_filters": history.counts.sql,
            "correlation_filters": history.counts.correlation,
            "last_change": history.last_change,
        }
        for history in list_topics(location.root)
    ]
    root = shown_root(location.root)
    advice = f"; make one with: headgate topic create NAME --root {root}" if storage_root(root) is None else ""
    nothing = f"no topics under {root}{advice}"
    write_rows(rows, as_json=as_json, nothing=nothing)
    return 0


_LISTED = (
    "name",
    "subscriptions",
    "sql_filters",
    "correlation_filters",
    "last_change",
    "active",
    "locked",
    "waiting",
    "deferred",
    "dead_lettered",
    "undecided",
)


@commands.command
def show(topic: TopicName, /, *, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """Show a topic: its limits, and its subscriptions with their rules; of a server with counts."""
    if location.is_server:
        row = location.management().topics.topic(topic)
        if as_json:
            write_json(row)
            return 0
        facts = {name: row[name] for name in ("name", "last_change", "history_from")}
        counts = {name: row[name] for name in ("sql_filters", "correlation_filters")}
        _write_topic(facts, {**counts, "subscriptions": len(row["subscriptions"])}, row["limits"])
        write_subscriptions(topic, row["subscriptions"], as_json=False)
        return 0
    from headgate.topic import RuleHistory, topic_stream

    history = RuleHistory.load(topic_stream(location.root, topic))
    facts = {
        "name": history.topic_name,
        "path": str(history.path.parent),
        "last_change": history.last_change,
        "history_from": history.pruned_below,
    }
    counts = {
        "sql_filters": history.counts.sql,
        "correlation_filters": history.counts.correlation,
        "subscriptions": len(history.subscriptions()),
    }
    limits = {name: getattr(history.limits, name) for name in history.limits.__struct_fields__}
    if as_json:
        write_json({**facts, **counts, "limits": limits, "subscriptions": subscription_rows(history)})
        return 0
    _write_topic(facts, counts, limits)
    write_subscriptions(topic, subscription_rows(history), as_json=False)
    return 0


def _write_topic(facts: dict[str, Any], counts: dict[str, int], limits: dict[str, int]) -> None:
    write_facts({**facts, **{name: f"{count} of {limits[name]}" for name, count in counts.items()}})


@commands.command
def rm(topic: TopicName, /, *, lock_timeout: LockTimeout = 5.0, location: Location = DEFAULT_LOCATION) -> int:
    """Make a topic a plain stream again: subscriptions, rules and their history go, messages stay."""
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        topics.remove_topic(topic)
    return 0


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


def write_subscriptions(topic: str, rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """The subscriptions of a topic as lines of JSON or as a table; with their counts if the rows have them."""
    nothing = f"no subscriptions; make one with: headgate subscription create {topic} NAME"
    if as_json or not rows:
        write_rows(rows, as_json=as_json, nothing=nothing)
        return
    counts = _COUNTS if "active" in rows[0] else ()
    table = [
        {
            **{name: shown(row[name]) for name in _COLUMNS},
            "rules": _rules(row),
            "status": row["settings"]["status"],
            **{name: row[name] for name in counts},
            **rule_failures(row),
        }
        for row in rows
    ]
    write_rows(table, as_json=False)


def rule_failures(row: dict[str, Any]) -> dict[str, int | None]:
    """For how many messages the rules of a subscription failed since a server opened the topic; empty if none told.

    None if no failure is known, and errors of filters are not counted.
    """
    rules = row["rules"]
    if not isinstance(rules, list) or not all("failed_actions" in rule for rule in rules):
        return {}
    failures = sum((rule["errors"] or 0) + rule["failed_actions"] for rule in rules)
    is_known = failures > 0 or all(rule["errors"] is not None for rule in rules)
    return {"rule_failures": failures if is_known else None}


def _rules(row: dict[str, Any]) -> int:
    """How many rules it has; a server may have told which."""
    rules = row["rules"]
    return len(rules) if isinstance(rules, list) else int(rules)


_COLUMNS = ("name", "rules", "fall_through", "dead_letter_on_errors", "forward_to", "in_force_from")
_COUNTS = ("active", "locked", "waiting", "deferred", "dead_lettered", "pins", "held_back_bytes")


def shown(value: object) -> object:
    """A property or setting for people."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _limits(texts: list[str]) -> dict[str, int]:
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
    TopicLimits(**given).check()
    return given
