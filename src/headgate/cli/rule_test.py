"""`headgate rule test`: the messages of a stream that rules would have selected, before they are in force."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from headgate.cli.options import AsJson, Master, Start, Until, naming_option, places_of
from headgate.cli.output import json_cell, write_json, write_line, write_note, write_table
from headgate.cli.units import counted, shown_count, shown_share
from headgate.clock import now_ms, shown_time
from headgate.errors import ConfigError, DataError, StreamNotFoundError

if TYPE_CHECKING:
    from headgate.log import Stream
    from headgate.topic import Rule, Topic
    from headgate.topic.trial import OverlapFindings, Sample, TrialReport

_SHOWN_OVERLAPS = 20


def rule_test(
    rules: Annotated[
        str,
        Parameter(help="Where the rules are: a pipeline file, or a topic. With --rule: the stream of the messages."),
    ],
    /,
    *,
    topic: Annotated[str | None, Parameter(help="Which topic of the pipeline file, if it has several.")] = None,
    at: Annotated[int | None, Parameter(help="The topic's rules as they are in force at this offset.")] = None,
    rule: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="A rule instead: [SUBSCRIPTION/]NAME=SQL, or a rule as JSON. Alone, it is its own subscription. "
            "Repeatable.",
        ),
    ] = None,
    dialect: Annotated[str | None, Parameter(help="Language of --rule; the default is `servicebus`.")] = None,
    against: Annotated[
        str | None,
        Parameter(help="Compare with other rules: a pipeline file, TOPIC, TOPIC@OFFSET, or @OFFSET of the same topic."),
    ] = None,
    partition: Annotated[
        bool,
        Parameter(negative=(), help="Fail (exit status 1) unless every message gives exactly one copy."),
    ] = False,
    clauses: Annotated[
        bool, Parameter(negative=(), help="Count the clauses of each filter by themselves, too.")
    ] = False,
    quick: Annotated[
        bool,
        Parameter(negative=(), help="With the rule engine: for very many rules; unknowns and most errors not counted."),
    ] = False,
    samples: Annotated[int, Parameter(help="How many messages to show of each kind, 0 to 100.")] = 3,
    stream: Annotated[
        str | None, Parameter(help="Stream of the messages, name or folder; by default the topic's own.")
    ] = None,
    start: Start = "first",
    until: Until = None,
    as_of: Annotated[
        str | None, Parameter(help="What UTC() gives, an ISO time; by default when each message arrived.")
    ] = None,
    master: Master = None,
    as_json: AsJson = False,
    root: Annotated[
        Path | None,
        Parameter(help="Folder that holds the streams; by default what the pipeline file says, else HEADGATE_ROOT."),
    ] = None,
) -> int:
    """Try rules on the messages of a stream, on Spark: matches of each, overlaps, and messages without a match.

    Nothing is written and no rule is put in force. --against says message by message what another version changes.
    """
    from headgate.scan import check_start
    from headgate.spark import time_ms
    from headgate.topic.trial import TrialRequest

    if rule is None and dialect is not None:
        raise ConfigError("--dialect is the language of --rule, which is missing")
    location = _RuleLocation.of(rules, topic, root)
    if rule is not None:
        if at is not None or location.is_file:
            raise ConfigError(f"--rule and {'--at' if at is not None else 'a pipeline file'}: found both, expected one")
        tried = _topic_of(rule, dialect)
    else:
        tried = location.topic_at(at)
    now = now_ms()
    begin, _ = places_of(start, until, now_ms=now)
    messages = _stream(stream or (location.name if location.topic is None else location.topic.name), location.root)
    with naming_option("--from"):
        check_start(messages, begin, now_ms=now)
    request = TrialRequest(
        tried,
        messages.name,
        against=None if against is None else _other(against, location, topic, root),
        as_of_ms=None if as_of is None else time_ms(as_of),
        samples=samples,
        clauses=clauses,
        exact=not quick,
        body_schema=messages.body_schema,
    )
    from headgate.spark import back_test, session

    report = back_test(session("headgate rule test", master=master), messages, request, start=start, end=until)
    if as_json:
        write_json(report.as_dict())
    else:
        _write(report)
    if partition:
        write_note(_partition_note(report))
    return 1 if partition and not report.is_partition else 0


@dataclass(frozen=True, slots=True)
class _RuleLocation:
    """The place of rules: a pipeline file (`topic` is its entry of the topic, if it has rules), or a topic on disk."""

    name: str
    root: Path
    is_file: bool
    topic: Topic | None

    @staticmethod
    def of(text: str, topic: str | None, root: Path | None) -> _RuleLocation:
        from headgate.tables import default_root

        if not _is_file(text):
            if topic is not None:
                raise ConfigError("--topic chooses a topic of a pipeline file, and none is given")
            return _RuleLocation(text, root or default_root(), False, None)
        from headgate.spark.pipeline import load

        try:
            pipeline = load(Path(text))
        except OSError as error:
            raise ConfigError(f"{text}: {error.strerror}") from error
        names = [each.name for each in pipeline.topics]
        wanted = topic or (names[0] if len(names) == 1 else None)
        if wanted not in names:
            found = ", ".join(names) or "none"
            raise ConfigError(
                f"{text}: its topics are {found}; choose one with --topic"
                if topic is None
                else f"{text}: found no topic {topic!r}; its topics are {found}"
            )
        (routed,) = (each for each in pipeline.topics if each.name == wanted)
        return _RuleLocation(routed.name, root or pipeline.root, True, routed.topic)

    def topic_at(self, offset: int | None) -> Topic:
        """The rules; from the history on disk if the file has none. Raises ConfigError where there is nothing."""
        from headgate.topic import RuleHistory

        if self.topic is not None:
            if offset is not None:
                raise ConfigError("an offset chooses among a topic's rules on disk; these are in a pipeline file")
            return self.topic
        history = RuleHistory.load(_stream(self.name, self.root))
        found = history.current if offset is None else history.at(offset)
        if not found.subscriptions:
            raise DataError(f"topic {found.name!r} has no subscriptions there, so there are no rules to test")
        return found


def _other(text: str, location: _RuleLocation, topic: str | None, root: Path | None) -> Topic:
    """The rules of `--against`."""
    name, at, offset = text.rpartition("@")
    if at and offset.isdecimal():
        return _RuleLocation.of(name or location.name, None, location.root).topic_at(int(offset))
    is_file = _is_file(text)
    return _RuleLocation.of(text, topic if is_file else None, root if is_file else location.root).topic_at(None)


def _is_file(text: str) -> bool:
    return text.endswith(".toml") or Path(text).is_file()


def _stream(text: str, root: Path) -> Stream:
    from headgate.log import resolve_stream

    try:
        return resolve_stream(text, root)
    except StreamNotFoundError as error:
        raise StreamNotFoundError(
            f"--stream names the one to take messages from: {error.reason}", path=error.path_text
        ) from error


def _topic_of(rules: Iterable[str], dialect: str | None) -> Topic:
    """The topic that rules of the command line make."""
    from headgate.topic import Subscription, Topic

    found: dict[str, list[Rule]] = {}
    for text in rules:
        subscription, made = _rule(text, dialect)
        found.setdefault(subscription, []).append(made)
    topic = Topic("command-line", tuple(Subscription(name, tuple(each)) for name, each in found.items()))
    topic.check()
    return topic


def _rule(text: str, dialect: str | None) -> tuple[str, Rule]:
    from headgate.topic import Rule, RuleDefinition

    if text.lstrip().startswith("{"):
        try:
            definition = RuleDefinition.of(msgspec.json.decode(text))
        except (msgspec.DecodeError, ConfigError) as error:
            raise ConfigError(f"--rule: {error}") from error
        return definition.name, Rule.of(definition)
    names, equals, sql = text.partition("=")
    if not equals:
        raise ConfigError(f"--rule: found {text!r}, expected [SUBSCRIPTION/]NAME=SQL or a JSON object")
    subscription, slash, name = names.strip().partition("/")
    return subscription, Rule.of(RuleDefinition(name if slash else subscription, sql=sql, dialect=dialect))


def _write(report: TrialReport) -> None:
    found = report.findings
    malformed = f", {shown_count(found.malformed)} of them no AMQP message" if found.malformed else ""
    write_line(
        f"{report.request.stream}: {counted(found.messages, 'message')} at offsets {report.start} to "
        f"{report.stop - 1}{malformed}"
    )
    if found.unreadable_bodies:
        of = "JSON" if report.request.body_schema is None else "of the schema of the stream"
        write_line(f"{shown_count(found.unreadable_bodies)} with a body that is not {of}: every path is unknown there")
    write_line()
    total = max(1, found.messages)
    write_table(
        ("subscription", "rule", "matched", "share", "errors", "unknown", "failed_actions"),
        [
            (
                rule.subscription,
                rule.rule,
                rule.matched,
                shown_share(rule.matched / total),
                _or_dash(rule.errors),
                _or_dash(rule.unknown),
                rule.failed_actions,
            )
            for rule in report.rules
        ],
    )
    if report.request.clauses:
        write_line()
        write_table(
            ("rule", "clause", "true", "false", "unknown", "errors"),
            [
                (f"{rule.subscription}/{rule.rule}", each.text, each.true, each.false, each.unknown, each.errors)
                for rule in report.rules
                for each in rule.clauses
            ],
        )
    write_line()
    write_table(
        ("subscription", "messages", "copies"),
        [
            (each.subscription + (" (fall-through)" if each.fall_through else ""), each.messages, each.copies)
            for each in report.subscriptions
        ],
    )
    write_line()
    for what, shared in (("rules true of them", found.by_rules), ("copies", found.by_copies)):
        write_line(
            f"messages by {what}: {shown_count(shared.none)} with none, {shown_count(shared.one)} with one, "
            f"{shown_count(shared.several)} with several"
        )
    _write_overlaps("rules", report.rule_overlaps, complete=found.rule_overlaps.complete)
    _write_overlaps("subscriptions", report.subscription_overlaps, complete=found.subscription_overlaps.complete)
    _write_samples(report)
    if report.request.against is not None:
        _write_changes(report)


def _write_overlaps(what: str, overlaps: list[OverlapFindings], *, complete: bool) -> None:
    if not overlaps:
        return
    write_line()
    write_table(
        (what, "and", "messages in common", "first at"),
        [(each.first, each.second, each.messages, each.first_offset) for each in overlaps[:_SHOWN_OVERLAPS]],
    )
    if len(overlaps) > _SHOWN_OVERLAPS:
        write_line(f"and {counted(len(overlaps) - _SHOWN_OVERLAPS, 'pair')} more; --json has them")
    if not complete:
        write_line("there are more pairs than are told apart: these are not all")


def _write_samples(report: TrialReport) -> None:
    from headgate.topic.trial import SampleKind

    rows = [
        (what, *_sample_cells(sample))
        for rule in report.rules
        for what, samples in (
            (f"{rule.subscription}/{rule.rule} matched", rule.samples),
            (f"{rule.subscription}/{rule.rule} failed", rule.error_samples),
        )
        for sample in samples
    ]
    for kind, what in ((SampleKind.NONE, "no copy"), (SampleKind.SEVERAL, "several copies")):
        rows += [(what, *_sample_cells(sample)) for sample in report.findings.samples_of(kind)]
    _write_rows_of_samples(rows)


def _write_changes(report: TrialReport) -> None:
    write_line()
    write_line(f"{counted(report.findings.messages_changed, 'message')} with other copies than before")
    write_table(
        ("subscription", "same", "changed", "only before", "only now"),
        [
            (each.subscription, each.same, each.changed, each.only_old, each.only_new)
            for each in report.subscription_changes
        ],
    )
    write_line()
    write_table(
        ("subscription", "rule", "both", "only before", "only now"),
        [(each.subscription, each.rule, each.both, each.only_old, each.only_new) for each in report.rule_changes],
    )
    words = {"changed": "changed", "only_old": "only before", "only_new": "only now"}
    _write_rows_of_samples(
        [
            (f"{each.subscription} {words[kind]}", *_sample_cells(sample))
            for each in report.subscription_changes
            for kind, samples in each.samples.items()
            for sample in samples
        ]
    )


def _write_rows_of_samples(rows: list[tuple[object, ...]]) -> None:
    if rows:
        write_line()
        write_table(("sample", "offset", "arrived", "why", "message"), rows)


def _sample_cells(sample: Sample) -> tuple[object, ...]:
    return sample.offset, shown_time(sample.timestamp_ms), sample.note, json_cell(sample.message)


def _or_dash(count: int | None) -> object:
    return "–" if count is None else count


def _partition_note(report: TrialReport) -> str:
    if report.is_partition:
        return f"a partition: each of {counted(report.findings.messages, 'message')} gives exactly one copy"
    shared = report.findings.by_copies
    return (
        f"no partition: {counted(shared.none, 'message')} with no copy, "
        f"{counted(shared.several, 'message')} with several"
    )
