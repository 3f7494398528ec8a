"""`headgate subscription resubmit`: dead letters are published again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter, validators

from headgate.cli.options import AsJson, LockTimeout, SubscriptionName, TopicName, json_of
from headgate.cli.output import write_json, write_note, write_rows
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import counted
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.client import Topics

Offsets: TypeAlias = Annotated[
    list[int] | None,
    Parameter(
        name="--offset",
        negative=(),
        help="Only this dead letter, by the offset that peek --dead-letters shows. Repeatable.",
        validator=validators.Number(gte=0),
    ),
]

_WAIT_S = 5.0


def resubmit(
    topic: TopicName,
    subscription: SubscriptionName,
    /,
    *,
    offset: Offsets = None,
    to: Annotated[
        str | None, Parameter(help="Topic, queue or stream to publish to; by default the topic itself.")
    ] = None,
    set: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Application property as NAME=JSON, plain or typed, to set. Repeatable."),
    ] = None,
    remove: Annotated[
        list[str] | None, Parameter(negative=(), help="Application property to take away. Repeatable.")
    ] = None,
    rate: Annotated[
        float | None, Parameter(help="At most so many a second.", validator=validators.Number(gt=0))
    ] = None,
    dry_run: Annotated[
        bool, Parameter(name="--dry-run", negative=(), help="Show which rules would take them; nothing changes.")
    ] = False,
    include_untaken: Annotated[
        bool, Parameter(negative=(), help="Publish also those that no rule takes: nobody gets them there.")
    ] = False,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Publish dead letters again, each once, where they came from or elsewhere; they leave the dead letters.

    Those that no rule of the target takes stay. The exit status is 1 if some stay. Ctrl-C cancels; what is published
    stays so.
    """
    request: dict[str, object] = {
        "copies": None if offset is None else [{"offset": each} for each in offset],
        "to": to,
        "set": _properties(set or ()),
        "remove": remove,
        "rate_per_s": rate,
        "include_untaken": include_untaken or None,
    }
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        if dry_run:
            return _shown(topics.try_resubmission(topic, subscription, **request), as_json=as_json)
        job = _ended(topics, topics.resubmit(topic, subscription, **request))
    if as_json:
        write_json(job)
    write_note(f"{counted(job['done'], 'dead letter')} resubmitted")
    if job["failed"] or job["state"] != "done":
        write_note(f"headgate: {job['state']}; {job['failed']} stay: {job['error']}")
        return 1
    return 0


def _ended(topics: Topics, job: str) -> dict[str, Any]:
    try:
        while True:
            row = topics.job(job, wait_s=_WAIT_S)
            if row["state"] != "running":
                return row
            write_note(f"{row['done']} of {row['total']}")
    except KeyboardInterrupt:
        topics.cancel_job(job)
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
