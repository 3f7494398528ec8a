"""`headgate subscription resubmit` and `headgate rocketmq dead-letters`: dead letters are published again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import App, Parameter, validators

from headgate.cli.messages import Count, Start, Typed, write_copies
from headgate.cli.options import AsJson, GroupName, LockTimeout, SubscriptionName, TopicName, json_of
from headgate.cli.output import write_json, write_line, write_note, write_rows
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import counted
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.client import DeadLetters, Jobs

Offsets: TypeAlias = Annotated[
    list[int] | None,
    Parameter(
        name="--offset",
        negative=(),
        help="Only this dead letter, by the offset that peek shows for dead letters. Repeatable.",
        validator=validators.Number(gte=0),
    ),
]

_WAIT_S = 5.0


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class ResubmissionOptions:
    """Which dead letters are published again, where, and how they are changed."""

    offset: Offsets = None
    to: Annotated[
        str | None, Parameter(help="Topic, queue or stream to publish to; by default where they came from.")
    ] = None
    set: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Application property as NAME=JSON, plain or typed, to set. Repeatable."),
    ] = None
    remove: Annotated[
        list[str] | None, Parameter(negative=(), help="Application property to take away. Repeatable.")
    ] = None
    rate: Annotated[float | None, Parameter(help="At most so many a second.", validator=validators.Number(gt=0))] = None
    dry_run: Annotated[
        bool, Parameter(name="--dry-run", negative=(), help="Show which rules would take them; nothing changes.")
    ] = False
    include_untaken: Annotated[
        bool, Parameter(negative=(), help="Publish also those that no rule takes: nobody gets them there.")
    ] = False

    def request(self) -> dict[str, object]:
        """The body of the request. Raises ConfigError for a wrong property."""
        return {
            "copies": None if self.offset is None else [{"offset": each} for each in self.offset],
            "to": self.to,
            "set": _properties(self.set or ()),
            "remove": self.remove,
            "rate_per_s": self.rate,
            "include_untaken": self.include_untaken or None,
        }


_ALL = ResubmissionOptions()


def resubmit(
    topic: TopicName,
    subscription: SubscriptionName,
    /,
    *,
    options: ResubmissionOptions = _ALL,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Publish dead letters again, each once, where they came from or elsewhere; they leave the dead letters.

    Those that no rule of the target takes stay. The exit status is 1 if some stay. Ctrl-C cancels; what is published
    stays so.
    """
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        return _resubmitted(topics.dead_letters(topic, subscription), options, as_json=as_json)


# those of RocketMQ's consumer groups

of_groups = App(name="dead-letters", help="Dead letters of consumer groups: look at them, publish them again, delete.")


@of_groups.command(name="peek")
def peek_group(
    group: GroupName,
    /,
    *,
    start: Start = 0,
    count: Count = 100,
    as_json: AsJson = False,
    typed: Typed = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show dead letters of a group that were neither resubmitted nor deleted; nothing changes.

    The stream %DLQ%GROUP keeps all of them for its consumers.
    """
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        write_copies(asked.dead_letters(group).peek(offset=start, limit=count), as_json=as_json, typed=typed)
    return 0


@of_groups.command(name="resubmit")
def resubmit_group(
    group: GroupName,
    /,
    *,
    options: ResubmissionOptions = _ALL,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Publish dead letters of a group again, each once: to the queue that it came from, or to another topic.

    Those that no rule of the target takes stay. The exit status is 1 if some stay. Ctrl-C cancels; what is published
    stays so.
    """
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        return _resubmitted(asked.dead_letters(group), options, as_json=as_json)


@of_groups.command(name="purge")
def purge_group(
    group: GroupName,
    /,
    *,
    offset: Offsets = None,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Delete all dead letters of a group that are there now, or chosen ones, and print how many."""
    with location.rocketmq(lock_timeout_s=lock_timeout) as asked:
        write_line(str(asked.dead_letters(group).delete(offset)))
    return 0


# both


def _resubmitted(letters: DeadLetters, options: ResubmissionOptions, *, as_json: bool) -> int:
    request = options.request()
    if options.dry_run:
        return _shown(letters.try_resubmission(**request), as_json=as_json)
    job = _ended(letters, letters.resubmit(**request))
    if as_json:
        write_json(job)
    write_note(f"{counted(job['done'], 'dead letter')} resubmitted")
    if job["failed"] or job["state"] != "done":
        write_note(f"headgate: {job['state']}; {job['failed']} stay: {job['error']}")
        return 1
    return 0


def _ended(jobs: Jobs, job: str) -> dict[str, Any]:
    try:
        while True:
            row = jobs.job(job, wait_s=_WAIT_S)
            if row["state"] != "running":
                return row
            write_note(f"{row['done']} of {row['total']}")
    except KeyboardInterrupt:
        jobs.cancel_job(job)
        raise


def _shown(found: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        write_json(found)
        return 0
    rows = [
        {"subscription": row["subscription"], "rule": row["rule"], "effect": effect, "dead_letters": row["copies"]}
        for effect, key in (("takes", "taken"), ("fails", "failing"))
        for row in found[key]
    ]
    write_rows(rows, as_json=False, nothing="no rule takes any, or the target has no rules")
    untaken = found["num_taken_by_none"]
    first = ", ".join(str(row["offset"]) for row in found["taken_by_none"][:10])
    told = f"; {untaken} would stay, as no rule takes them: {first}{', …' if untaken > 10 else ''}" if untaken else ""
    partly = "" if found["is_complete"] else " (the first ones)"
    write_note(f"{counted(found['copies'], 'dead letter')} examined{partly}{told}")
    return 0


def _properties(given: Sequence[str]) -> dict[str, Any]:
    properties = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"--set: found {text!r}, expected NAME=JSON")
        properties[name] = json_of(value, f"--set {name}")
    return properties
