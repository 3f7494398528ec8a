"""`headgate subscription`: the views of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from headgate.cli.dead_letters import resubmit
from headgate.cli.options import AsJson, LockTimeout, SubscriptionName, TopicName, json_of, naming_settings
from headgate.cli.output import write_facts, write_json, write_note
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.subscription_copies import peek, purge, receive, settle
from headgate.cli.topic import rule_failures, shown, subscription_rows, told, write_subscriptions
from headgate.cli.units import duration_ms
from headgate.errors import ConfigError
from headgate.topic import SubscriptionStatus

commands = App(
    name="subscription", help="Create, change and remove the subscriptions of a topic; receive and settle their copies."
)
commands.command(peek)
commands.command(receive)
commands.command(settle)
commands.command(purge)
commands.command(resubmit)

_NOTHING = ""


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class SubscriptionOptions:
    """The settings of a subscription, without its rules; None: not given."""

    fall_through: Annotated[
        bool | None, Parameter(help="It gets what no other subscription took, and has no rules.")
    ] = None
    dead_letter_on_errors: Annotated[
        bool | None, Parameter(help="Messages that a rule cannot be evaluated for give a dead-letter copy.")
    ] = None
    forward_to: Annotated[str | None, Parameter(help="Topic that its copies go to; an empty text: nowhere.")] = None
    lock: Annotated[str | None, Parameter(help="How long a receiver holds a copy, 1s to 12h; 60s by default.")] = None
    max_delivery_count: Annotated[
        int | None, Parameter(help="Attempts until a copy becomes a dead letter, 1 to 2000; 10 by default.")
    ] = None
    backoff: Annotated[
        str | None, Parameter(help="Waits after failed attempts, such as 1s,5s,30s; the last one for all that follow.")
    ] = None
    sessions: Annotated[bool | None, Parameter(help="Copies are received by session; cannot be changed.")] = None
    time_to_live: Annotated[str | None, Parameter(help="When a copy expires, such as 7d, or `never`.")] = None
    dead_letter_on_expiration: Annotated[bool | None, Parameter(help="Expired copies become dead letters.")] = None
    status: Annotated[
        SubscriptionStatus | None,
        Parameter(help="`receive-disabled`: nobody receives; `disabled`: nothing is forwarded either."),
    ] = None
    auto_delete_on_idle: Annotated[
        str | None, Parameter(help="It is removed so long after its last receiver left, such as 1h, or `never`.")
    ] = None
    forward_dead_letters_to: Annotated[
        str | None, Parameter(help="Topic or stream that its dead letters go to; an empty text: they stay.")
    ] = None

    user_metadata: Annotated[str | None, Parameter(help="Text of yours, at most 1024 characters.")] = None

    def given(self) -> dict[str, Any]:
        """The JSON object of the given options, `settings` in it. Raises ConfigError for a wrong duration."""
        properties: dict[str, Any] = {
            "fall_through": self.fall_through,
            "dead_letter_on_errors": self.dead_letter_on_errors,
            "forward_to": self.forward_to,
        }
        settings: dict[str, Any] = {
            "lock_ms": _duration(self.lock, "--lock"),
            "max_delivery_count": self.max_delivery_count,
            "backoff_ms": None if self.backoff is None else _durations(self.backoff, "--backoff"),
            "requires_session": self.sessions,
            "default_time_to_live_ms": _duration(self.time_to_live, "--time-to-live", may_be_never=True),
            "dead_letter_on_expiration": self.dead_letter_on_expiration,
            "status": self.status,
            "auto_delete_on_idle_ms": _duration(self.auto_delete_on_idle, "--auto-delete-on-idle", may_be_never=True),
            "forward_dead_letters_to": self.forward_dead_letters_to,
        }
        given = {**_without_none(properties), "settings": _without_none(settings)}
        if self.user_metadata is not None:
            given["settings"]["user_metadata"] = self.user_metadata
        return given if given["settings"] else _without_none(properties)


_NO_OPTIONS = SubscriptionOptions()

_OPTION_OF = {
    "lock_ms": "--lock",
    "max_delivery_count": "--max-delivery-count",
    "backoff_ms": "--backoff",
    "default_time_to_live_ms": "--time-to-live",
    "auto_delete_on_idle_ms": "--auto-delete-on-idle",
    "user_metadata": "--user-metadata",
}
"""The options by their names at a server and in the settings of a subscription."""


@commands.command
def create(
    topic: TopicName,
    name: SubscriptionName,
    /,
    *,
    options: SubscriptionOptions = _NO_OPTIONS,
    rule: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            allow_leading_hyphen=True,
            help='Rule as JSON, such as {"name": "red", "sql": "color = \'red\'"}. Repeatable.',
        ),
    ] = None,
    no_rules: Annotated[
        bool, Parameter(negative=(), help="Without rules: it gets nothing until one is added.")
    ] = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Create a subscription; without --rule and --no-rules it gets every message, by the rule $Default."""
    from headgate.topic import RuleDefinition

    if no_rules and rule:
        raise ConfigError("--no-rules and --rule: found both, expected one of them")
    given = options.given()
    if rule or no_rules:
        # Read here, so that the error names the option.
        rules = [RuleDefinition.of(json_of(text, "--rule")) for text in rule or ()]
        given["rules"] = [msgspec.to_builtins(each) for each in rules]
    with naming_settings(_OPTION_OF), location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        return told(topics.create_subscription(topic, name, given))


@commands.command
def change(
    topic: TopicName,
    name: SubscriptionName,
    /,
    *,
    options: SubscriptionOptions = _NO_OPTIONS,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Change settings of a subscription; omitted ones and its rules stay."""
    given = options.given()
    if not given:
        raise ConfigError("found nothing to change: give at least one option of subscription create")
    with naming_settings(_OPTION_OF), location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        offset = topics.change_subscription(topic, name, given)
    if given.keys() == {"settings"}:
        write_note("in force for every copy")
        return 0
    return told(offset)


@commands.command
def ls(
    topic: TopicName,
    /,
    *,
    counts: Annotated[
        bool, Parameter(negative="--no-counts", help="How many copies each has; without it only files are read.")
    ] = True,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """List the subscriptions of a topic, with counts of their copies by state, and the bytes that they hold back.

    `pins` is the first offset that a subscription needs; retention keeps `held_back_bytes` for it.
    """
    from headgate.topic import RuleHistory, topic_stream

    if not counts and not location.is_server:
        rows = subscription_rows(RuleHistory.load(topic_stream(location.root, topic)))
    else:
        with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
            rows = topics.topic(topic)["subscriptions"]
        if as_json:
            rows = [{**row, **rule_failures(row), "rules": len(row["rules"])} for row in rows]
    write_subscriptions(topic, rows, as_json=as_json)
    return 0


@commands.command
def show(
    topic: TopicName,
    name: SubscriptionName,
    /,
    *,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show a subscription: its settings, the counts of its copies, and of copies that have left it."""
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        row = topics.subscription(topic, name)
    row = {**row, **rule_failures(row), "rules": len(row["rules"])}
    if as_json:
        write_json(row)
    else:
        settings = row.pop("settings")
        # A server counts since it began; on files there are no counts.
        row.pop("counters")
        write_facts({name: shown(value) for name, value in {**row, **settings}.items()})
    return 0


@commands.command
def rm(
    topic: TopicName,
    name: SubscriptionName,
    /,
    *,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Remove a subscription, its rules and its dead letters."""
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        return told(topics.remove_subscription(topic, name), is_gone=True)


def _durations(text: str, option: str) -> list[int]:
    return [duration_ms(part, option=option) for part in text.split(",") if text]


def _duration(text: str | None, option: str, *, may_be_never: bool = False) -> int | str | None:
    if text is None or (may_be_never and text == "never"):
        return text and _NOTHING
    return duration_ms(text, option=option)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    """The given values, for JSON: an empty text removes a value."""
    return {name: None if value == _NOTHING else value for name, value in values.items() if value is not None}
