"""`headgate rule`: the rules of a subscription, and since when they are in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter, validators

from headgate.cli.options import (
    AsJson,
    LockTimeout,
    Parameters,
    RuleName,
    SubscriptionName,
    TopicName,
    json_of,
    parameters_of,
)
from headgate.cli.output import json_cell, write_facts, write_json, write_line, write_rows, write_table
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.rule_explain import explain
from headgate.cli.rule_test import rule_test
from headgate.cli.topic import told
from headgate.cli.units import shown_share
from headgate.clock import now_ms, patient, shown_time
from headgate.errors import AccessRefusedError, AuthenticationError, ConfigError, ConnectionLostError, did_you_mean

if TYPE_CHECKING:
    from headgate.topic import RuleVersion

commands = App(
    name="rule",
    help="Test rules on what is there; add, replace and remove those of a subscription, show their history.",
)
commands.command(rule_test, name="test")
commands.command(explain)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The definition of a rule: one kind of filter, and an action."""

    sql: Annotated[str | None, Parameter(help="SQL filter.", allow_leading_hyphen=True)] = None
    dialect: Annotated[str | None, Parameter(help="Language of --sql; the default is `servicebus`.")] = None
    correlation: Annotated[
        str | None, Parameter(help='Correlation filter as JSON: {"label": "x", "properties": {"color": "red"}}.')
    ] = None
    tags: Annotated[str | None, Parameter(help="Tag expression, such as 'paid || refunded'.")] = None
    properties: Annotated[str | None, Parameter(help='Property filters as JSON, such as {"subject": "&p:order."}.')] = (
        None
    )
    application_properties: Annotated[
        str | None, Parameter(help="Property filters on application properties, as JSON.")
    ] = None
    action: Annotated[
        str | None, Parameter(help="What to do with the copy, such as 'SET quantity = quantity / 2'.")
    ] = None
    parameter: Parameters = None

    def written(self, name: str) -> dict[str, Any]:
        """The rule of that name in its written form. Raises ConfigError for invalid JSON."""
        from headgate.topic import RuleDefinition

        definition = RuleDefinition(
            name,
            sql=self.sql,
            dialect=self.dialect,
            correlation=_object(self.correlation, "--correlation"),
            tags=self.tags,
            properties=_object(self.properties, "--properties"),
            application_properties=_object(self.application_properties, "--application-properties"),
            action=self.action,
            parameters=parameters_of(self.parameter),
        )
        written: dict[str, Any] = msgspec.to_builtins(definition)
        return written


_NO_OPTIONS = RuleOptions()


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class DryRunOptions:
    """Whether a rule is only tried."""

    dry_run: Annotated[
        bool, Parameter(negative=(), help="Change nothing; show what it would select of the last messages.")
    ] = False
    last: Annotated[
        int, Parameter(help="With --dry-run: of how many.", validator=validators.Number(gte=1, lte=100_000))
    ] = 1000
    samples: Annotated[
        int, Parameter(help="With --dry-run: how many messages to show.", validator=validators.Number(gte=0, lte=100))
    ] = 3


_NO_DRY_RUN = DryRunOptions()

_COUNTS = ("matched", "errors", "failed_actions")
_LAST_FAILURE = "last_failure"


@commands.command
def add(
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    /,
    *,
    options: RuleOptions = _NO_OPTIONS,
    trying: DryRunOptions = _NO_DRY_RUN,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Add a rule; it decides the messages that are published from then on."""
    rule = options.written(name)
    if trying.dry_run:
        return _try(location, topic, subscription, rule, trying, as_json=as_json)
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        return told(topics.add_rule(topic, subscription, rule))


@commands.command
def replace(
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    /,
    *,
    options: RuleOptions = _NO_OPTIONS,
    trying: DryRunOptions = _NO_DRY_RUN,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Replace filter and action of a rule; each message meets the old rule or the new one, none both."""
    rule = options.written(name)
    if trying.dry_run:
        return _try(location, topic, subscription, rule, trying, as_json=as_json)
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        return told(topics.replace_rule(topic, subscription, rule))


@commands.command
def rm(
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    /,
    *,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Remove a rule."""
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        return told(topics.remove_rule(topic, subscription, name), is_gone=True)


@commands.command
def ls(
    topic: TopicName,
    subscription: SubscriptionName,
    /,
    *,
    as_json: AsJson = False,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """List the rules of a subscription in order of creation; a server, also one that has the root, adds counts.

    Since the server opened the topic: for how many messages the filter was true (`matched`) or could not be evaluated
    (`errors`), for how many matches the action failed, and why a message failed last, with its offset.
    """
    found = _rules(location, topic, subscription)
    rows = [_row(rule) if as_json else _facts(rule) for rule in found]
    nothing = f"no rules: the subscription gets nothing; add one with: headgate rule add {topic} {subscription} NAME"
    counts = (*_COUNTS, _LAST_FAILURE) if location.is_server or (rows and "matched" in rows[0]) else ()
    columns = ("name", "number", "in_force_from", *counts, "filter", "action")
    write_rows(rows, columns, as_json=as_json, nothing=nothing)
    return 0


@commands.command
def show(
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    /,
    *,
    as_json: AsJson = False,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show one rule."""
    from headgate.errors import RuleNotFoundError
    from headgate.topic import folded

    rules = _rules(location, topic, subscription)
    found = [rule for rule in rules if folded(rule["name"]) == folded(name)]
    if not found:
        near = did_you_mean(name, (rule["name"] for rule in rules))
        raise RuleNotFoundError(f"there is no such rule{near}", topic=topic, subscription=subscription, rule=name)
    if as_json:
        write_json(_row(found[0]))
        return 0
    facts = _facts(found[0])
    if "parameters" in found[0]:
        facts["parameters"] = json_cell(found[0]["parameters"])
    write_facts(facts)
    return 0


@commands.command
def history(
    topic: TopicName,
    subscription: Annotated[str | None, Parameter(help="Only the rules of this subscription.")] = None,
    /,
    *,
    prune_below: Annotated[
        int | None,
        Parameter(help="First forget the versions that no message from this offset on was decided by; on files only."),
    ] = None,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show every version of every rule, with the offsets of the messages that it decides."""
    versions = _versions(location, topic, subscription, prune_below, lock_timeout)
    if as_json:
        for version in versions:
            write_json({"subscription": version["subscription"], **_row(version)})
        return 0
    rows = [
        (
            version["subscription"],
            version["name"],
            version["number"],
            version["from_offset"],
            version["to_offset"],
            shown_time(version["at_ms"]),
            _filter(version),
            version.get("action"),
        )
        for version in versions
    ]
    write_table(("subscription", "rule", "number", "from_offset", "to_offset", "since", "filter", "action"), rows)
    return 0


def _rules(location: Location, topic: str, subscription: str) -> list[dict[str, Any]]:
    """The rules of a subscription, each as a server tells it; a server that has the root counts, files do not."""
    server = location.management() if location.is_server else location.serving()
    if server is not None:
        try:
            rules: list[dict[str, Any]] = server.topics.subscription(topic, subscription)["rules"]
        except (AuthenticationError, AccessRefusedError, ConnectionLostError):
            if location.is_server:
                raise
        else:
            return rules
    from headgate.topic import RuleHistory, topic_stream

    return [_version(each) for each in RuleHistory.load(topic_stream(location.root, topic)).rules(subscription)]


def _versions(
    location: Location, topic: str, subscription: str | None, prune_below: int | None, lock_timeout: float
) -> list[dict[str, Any]]:
    """All versions, of one subscription if it is named, each as a server tells it."""
    from headgate.topic import RuleHistory, TopicEditor, folded, topic_stream

    if location.is_server:
        if prune_below is not None:
            raise ConfigError("--prune-below: found it with --server; it works on the files of a root")
        versions = location.management().topics.history(topic)
        return [
            each for each in versions if subscription is None or folded(each["subscription"]) == folded(subscription)
        ]
    stream = topic_stream(location.root, topic)
    if prune_below is not None:
        with TopicEditor.open(stream, now_ms=now_ms(), wait=patient(lock_timeout)) as editor:
            editor.prune(prune_below)
    return [{"subscription": name, **_version(each)} for name, each in RuleHistory.load(stream).versions(subscription)]


def _version(version: RuleVersion) -> dict[str, Any]:
    rule: dict[str, Any] = msgspec.to_builtins(version.rule)
    offsets = {"number": version.number, "from_offset": version.from_offset, "to_offset": version.to_offset}
    return {**rule, **offsets, "at_ms": version.at_ms}


def _filter(row: dict[str, Any]) -> str:
    from headgate.topic import RuleDefinition

    return RuleDefinition.of({name: row[name] for name in RuleDefinition.__struct_fields__ if name in row}).filter_text


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": row["name"],
        "number": row["number"],
        "in_force_from": row["from_offset"],
        "since": shown_time(row["at_ms"]),
        **{name: row[name] for name in _COUNTS if name in row},
        **({_LAST_FAILURE: _last_failure(row)} if "last_failure_offset" in row else {}),
        "filter": _filter(row),
        "action": row.get("action"),
    }


def _last_failure(row: dict[str, Any]) -> str | None:
    """The last message that a rule failed for, and why; None without one."""
    offset = row["last_failure_offset"]
    return None if offset is None else f"offset {offset}: {row['last_failure_reason']}"


def _row(row: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in row.items() if name not in ("at_ms", "subscription")}
    return {**rest, "since": shown_time(row["at_ms"])}


def _try(
    location: Location, topic: str, subscription: str, rule: dict[str, Any], trying: DryRunOptions, *, as_json: bool
) -> int:
    """Show the effect that a rule would have; on files this needs no lock."""
    if location.is_server:
        topics = location.management().topics
        found = topics.dry_run(topic, subscription, rule, last=trying.last, samples=trying.samples)
    else:
        from headgate.topic import Rule, RuleDefinition, RuleHistory, topic_stream
        from headgate.topic.trial import dry_run

        stream = topic_stream(location.root, topic)
        history = RuleHistory.load(stream)
        found = dry_run(
            stream,
            Rule.of(RuleDefinition.of(rule), limits=history.limits.content),
            topic=topic,
            subscription=history.subscription(subscription).name,
            limits=history.limits,
            last=trying.last,
            samples=trying.samples,
            others=[each.rule for each in history.rules(subscription)],
        ).as_dict()
    if as_json:
        write_json(found)
    else:
        _write_dry_run(found)
    return 0


def _write_dry_run(found: dict[str, Any]) -> None:
    write_facts(
        {
            "messages": f"{found['messages']} at offsets {found['start']} to {found['stop'] - 1}",
            "matched": f"{found['matched']}, {shown_share(found['matched'] / max(1, found['messages']))}",
            "errors": found["errors"],
            "unknown": found["unknown"],
            **({"unreadable_bodies": found["unreadable_bodies"]} if found["unreadable_bodies"] else {}),
            "failed_actions": found["failed_actions"],
        }
    )
    if found["overlaps"]:
        write_line()
        overlaps = [(each["rule"], each["messages"], each["first_offset"]) for each in found["overlaps"]]
        write_table(("also_taken_by", "messages", "first_offset"), overlaps)
    samples = [("matched", each) for each in found["samples"]] + [("failed", each) for each in found["error_samples"]]
    if samples:
        write_line()
        cells = [
            (what, each["offset"], shown_time(each["timestamp_ms"]), each["note"], json_cell(each["message"]))
            for what, each in samples
        ]
        write_table(("sample", "offset", "arrived", "why", "message"), cells)
    if found["changes"]:
        write_line()
        changes = [
            (each["offset"], change["field"], json_cell(change["before"]), json_cell(change["after"]))
            for each in found["changes"]
            for change in each["changes"]
        ]
        write_table(("offset", "field", "before", "after"), changes)


def _object(text: str | None, option: str) -> dict[str, Any] | None:
    if text is None:
        return None
    value = json_of(text, option)
    if not isinstance(value, dict):
        raise ConfigError(f"{option}: found {text!r}, expected a JSON object")
    return value
