"""`headgate rocketmq`: topics and consumer groups as clients of RocketMQ have them, and their dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import App, Parameter

from headgate.cli.dead_letters import of_groups
from headgate.cli.options import AsJson, GroupName, LockTimeout, TopicName, naming_settings
from headgate.cli.output import write_facts, write_json, write_line, write_note, write_rows
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import duration_ms, shown_reading, shown_size
from headgate.errors import ConfigError

commands = App(name="rocketmq", help="Topics and consumer groups for clients of RocketMQ.")
topics = App(name="topic", help="Topics: each stream is one of a single queue, each super stream one of several.")
groups = App(name="group", help="Consumer groups: how their messages are delivered, and how far they are.")
commands.command(topics)
commands.command(groups)
commands.command(of_groups)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class TopicOptions:
    """The settings of a topic; None: not given."""

    queues: Annotated[int | None, Parameter(help="How many queues; one is a stream, several are a super stream.")] = (
        None
    )
    accepts: Annotated[
        str | None, Parameter(help="Kinds of messages, of normal, fifo and delay, such as normal,delay; else all.")
    ] = None

    def given(self) -> dict[str, Any]:
        """The given options, as arguments."""
        return {"queues": self.queues, "accepts": _names(self.accepts)}


_NO_TOPIC_OPTIONS = TopicOptions()


@topics.command(name="create")
def create_topic(
    topic: TopicName,
    /,
    *,
    options: TopicOptions = _NO_TOPIC_OPTIONS,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Make a topic, of four queues unless --queues or the server say otherwise."""
    with location.rocketmq(lock_timeout_s=lock_timeout, makes_root=True) as asked:
        asked.create_topic(topic, **options.given())
    write_line(topic)
    return 0


@topics.command(name="change")
def change_topic(
    topic: TopicName,
    /,
    *,
    options: TopicOptions = _NO_TOPIC_OPTIONS,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Give a topic more queues, or let it accept other kinds of messages."""
    if options == _NO_TOPIC_OPTIONS:
        raise ConfigError("found nothing to change: give --queues or --accepts")
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        asked.change_topic(topic, **options.given())
    return 0


@topics.command(name="ls")
def list_topics(
    *, as_json: AsJson = False, lock_timeout: LockTimeout = 5.0, location: Location = DEFAULT_LOCATION
) -> int:
    """List topics, with their queues and message counts."""
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        return _write(
            asked.topics(), as_json=as_json, nothing="no topics; make one with: headgate rocketmq topic create"
        )


@topics.command(name="show")
def show_topic(
    topic: TopicName,
    /,
    *,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show a topic with its queues, and the places of consumer groups in them."""
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        found = asked.topic(topic)
    if as_json:
        write_json(found)
        return 0
    queues, places = found.pop("queues"), found.pop("groups")
    write_facts({**_shown(found), "queues": len(queues)})
    write_rows([_shown(queue) for queue in queues], as_json=False)
    write_rows([_counted(each) for each in places], ("group", "queue", *_PLACE), as_json=False)
    return 0


@topics.command(name="rm")
def remove_topic(topic: TopicName, /, *, lock_timeout: LockTimeout = 5.0, location: Location = DEFAULT_LOCATION) -> int:
    """Delete a topic with all of its queues and messages; its publishers and consumers are told."""
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        asked.remove_topic(topic)
    return 0


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The settings of a consumer group; None: not given."""

    fifo: Annotated[bool | None, Parameter(help="Messages of a message group are delivered one after the other.")] = (
        None
    )
    max_attempts: Annotated[
        int | None, Parameter(help="Attempts until a message becomes a dead letter; 17 by default.")
    ] = None
    backoff: Annotated[
        str | None, Parameter(help="Waits after failed attempts, such as 1s,5s,30s; the last one for all that follow.")
    ] = None
    enabled: Annotated[bool | None, Parameter(help="Its members are given messages.")] = None
    broadcast: Annotated[bool | None, Parameter(help="Members may consume on their own, each all messages.")] = None
    start: Annotated[
        str | None, Parameter(help="Where it begins in a queue that it is new to: first, last or first_while_young.")
    ] = None

    def given(self) -> dict[str, Any]:
        """The JSON object of the given options. Raises ConfigError for a wrong duration."""
        backoff = None
        if self.backoff is not None:
            backoff = [duration_ms(text, option="--backoff") for text in self.backoff.split(",")]
        settings = {
            "fifo": self.fifo,
            "max_attempts": self.max_attempts,
            "backoff_ms": backoff,
            "enabled": self.enabled,
            "broadcast": self.broadcast,
            "start": self.start,
        }
        return {name: value for name, value in settings.items() if value is not None}


_NO_GROUP_OPTIONS = GroupOptions()
_OPTION_OF = {"max_attempts": "--max-attempts", "backoff": "--backoff"}


@groups.command(name="create")
def create_group(
    group: GroupName,
    /,
    *,
    options: GroupOptions = _NO_GROUP_OPTIONS,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Declare a consumer group; the default of an omitted setting is RocketMQ's."""
    with naming_settings(_OPTION_OF), location.rocketmq(lock_timeout_s=lock_timeout, makes_root=True) as asked:
        asked.create_group(group, options.given())
    write_line(group)
    return 0


@groups.command(name="change")
def change_group(
    group: GroupName,
    /,
    *,
    options: GroupOptions = _NO_GROUP_OPTIONS,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Change settings of a consumer group; omitted ones stay."""
    given = options.given()
    if not given:
        raise ConfigError("found nothing to change: give at least one option of rocketmq group create")
    with naming_settings(_OPTION_OF), location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        asked.change_group(group, given)
    return 0


@groups.command(name="reset")
def reset_group(
    group: GroupName,
    topic: TopicName,
    /,
    *,
    to: Annotated[str, Parameter(help="first, next, an offset, an interval (10m) or an ISO time.")],
    queue: Annotated[int | None, Parameter(help="Only in this queue.")] = None,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Let a consumer group go on elsewhere in a topic, whatever it settled; its members receive from there."""
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        places = asked.reset_group(group, topic, to=to, queue=queue)["places"]
    for each in places:
        if each["topic"] == topic and queue in (None, each["queue"]):
            write_note(f"queue {each['queue']}: from offset {each['committed_offset']}")
    return 0


@groups.command(name="ls")
def list_groups(
    *, as_json: AsJson = False, lock_timeout: LockTimeout = 5.0, location: Location = DEFAULT_LOCATION
) -> int:
    """List consumer groups with their settings, and the messages that they have not settled."""
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        rows = asked.groups()
    told = rows if as_json else [_with_cost(row) for row in rows]
    return _write(told, as_json=as_json, nothing="no consumer groups; the first use of one declares it")


@groups.command(name="show")
def show_group(
    group: GroupName,
    /,
    *,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show a consumer group, with its place in each queue."""
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        found = asked.group(group)
    if as_json:
        write_json(found)
        return 0
    places = found.pop("places")
    write_facts(_shown(_with_cost(found)))
    write_rows([_counted(each) for each in places], ("topic", "queue", *_PLACE), as_json=False)
    return 0


@groups.command(name="rm")
def remove_group(group: GroupName, /, *, lock_timeout: LockTimeout = 5.0, location: Location = DEFAULT_LOCATION) -> int:
    """Forget a consumer group, and its places in all queues; its dead letters stay."""
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        asked.remove_group(group)
    return 0


_MOST_SHOWN = 6
"""Of a backoff, in tables."""

_READING = ("examined", "matched", "cpu")
_PLACE = (
    "committed_offset",
    "position",
    "next_offset",
    "lag",
    "claimed",
    "available",
    "moving",
    "delivered",
    "filtered",
    *_READING,
)


def _with_cost(group: dict[str, Any]) -> dict[str, Any]:
    """A group for people: the cost of reading for it instead of all counters, which `show` has for each queue."""
    facts = {name: value for name, value in group.items() if name not in ("counters", "reading")}
    return {**facts, **shown_reading(group["reading"])}


def _counted(location: dict[str, Any]) -> dict[str, Any]:
    return {**location, **location["counters"], **shown_reading(location["reading"])}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip().lower() for name in text.split(",")]


def _write(rows: Sequence[dict[str, Any]], *, as_json: bool, nothing: str) -> int:
    """Write rows as a table, and rows with an error as notes."""
    told = [
        {name: value for name, value in row.items() if as_json or name != "error"} for row in rows if "queues" in row
    ]
    write_rows(told if as_json else [_shown(row) for row in told], as_json=as_json, nothing="" if rows else nothing)
    damaged = [row for row in rows if "error" in row]
    for row in damaged:
        write_note(f"headgate: {row['name']}: {row['error']}")
    return 1 if damaged else 0


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people."""
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if name == "backoff_ms":
            seconds = [f"{each / 1000:g}" for each in value]
            shown["backoff_s"] = ", ".join(seconds if len(seconds) <= _MOST_SHOWN else [*seconds[:3], "…", seconds[-1]])
        elif name == "size_bytes":
            shown["size"] = shown_size(value)
        elif isinstance(value, list):
            shown[name] = ", ".join(map(str, value))
        elif isinstance(value, bool):
            shown[name] = "yes" if value else "no"
        else:
            shown[name] = value
    return shown
