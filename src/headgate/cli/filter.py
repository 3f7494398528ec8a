"""`headgate filter`: checks, explains, converts and tests filters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from headgate.cli.explanation import explanation_row, given_message, message_at, write_explanation
from headgate.cli.options import (
    DEFAULT_ROOT,
    AsJson,
    Dialect,
    FilterValues,
    MatchUnfiltered,
    Parameters,
    Root,
    chosen,
    json_of,
    parameters_of,
)
from headgate.cli.output import write_json, write_line, write_note
from headgate.clock import now_ms
from headgate.errors import ConfigError, FilterError

if TYPE_CHECKING:
    from headgate.evaluate import Filter
    from headgate.log import Stream
    from headgate.scan import Saving

commands = App(name="filter", help="Check, explain and test filters.")


@commands.command
def check(
    text: Annotated[str, Parameter(help="The filter expression.", allow_leading_hyphen=True)],
    /,
    *,
    dialect: Dialect = None,
    parameter: Parameters = None,
    as_json: AsJson = False,
) -> int:
    """Say whether a filter is accepted, or where it goes wrong."""
    from headgate.evaluate import Filter
    from headgate.language import Unspellable, dialect_named, spelled, warnings_of

    language = dialect_named(chosen(dialect)).name
    try:
        accepted = Filter.parse(text, language, parameters=_values(parameter))
    except FilterError as error:
        if not as_json:
            raise
        write_json({"accepted": False, "dialect": language, "reason": error.reason, "span": error.span})
        return 1
    try:
        bound = spelled(accepted.tree, language)
    except Unspellable:
        # A parameter may have a value that the language has no constant for.
        bound = text
    warnings = warnings_of(text, accepted.tree, language)
    if as_json:
        write_json(
            {
                "accepted": True,
                "dialect": language,
                "bound": bound,
                "uses_time": accepted.uses_time,
                "warnings": [{"reason": warning.reason, "span": warning.span} for warning in warnings],
            }
        )
    else:
        write_line(f"accepted as a filter in {language}: {bound}")
        for warning in warnings:
            write_line(f"warning: {warning.display(text)}")
    return 0


def _values(given: list[str] | None) -> dict[str, object] | None:
    """Values of parameters as filters take them."""
    from headgate.message import from_plain_or_typed

    values = parameters_of(given)
    return None if values is None else {name: from_plain_or_typed(value) for name, value in values.items()}


@commands.command
def convert(
    text: Annotated[
        str,
        Parameter(
            help="The filter expression or tag expression; of `properties` and `correlation` a JSON object.",
            allow_leading_hyphen=True,
        ),
    ],
    /,
    *,
    source: Annotated[
        str, Parameter(name="--from", help="Its language, or `properties`, `correlation` or `tags`: what it is else.")
    ],
    target: Annotated[str, Parameter(name="--to", help="The language to print it in.")],
    assume: Annotated[
        list[Literal["kinds", "spelling"]] | None,
        Parameter(
            negative=(),
            help="What is known of the messages: fields hold the kind of value that they are compared with (kinds), "
            "names differ in more than letter case (spelling). Repeatable.",
        ),
    ] = None,
    parameter: Parameters = None,
    as_json: AsJson = False,
) -> int:
    """Print a filter in another language, where that delivers the same messages; else print the differences.

    A property filter is `{"properties": {…}, "application_properties": {…}}`, a correlation filter
    `{"label": …, "properties": {…}}`.
    """
    given = _given_filter(text, source, parameter)
    converted = given.convert(target, assume=assume or ())
    if as_json:
        shown = {"text": converted.text, "dialect": converted.dialect, "assumed": converted.assumed}
        write_json({**shown, "is_exact": converted.is_exact})
        return 0
    write_line(converted.text)
    for sentence in converted.assumed:
        write_note(f"assumed: {sentence}")
    if not converted.is_exact:
        write_note("the same messages are delivered; one that is not may be false, unknown or an error in either")
    return 0


def _given_filter(text: str, source: str, parameter: list[str] | None) -> Filter:
    from headgate.evaluate import Filter
    from headgate.message import from_plain_or_typed

    if source not in ("properties", "correlation", "tags"):
        return Filter.parse(text, source, parameters=_values(parameter))
    if parameter:
        raise ConfigError(f"found parameters, {source} has none")
    if source == "tags":
        return Filter.from_tags(text)
    maps = json_of(text, f"--from {source}")
    if not isinstance(maps, dict):
        raise ConfigError(f"--from {source}: found {text}, expected a JSON object")
    values = {
        name: {key: from_plain_or_typed(value) for key, value in given.items()} if isinstance(given, dict) else given
        for name, given in maps.items()
    }
    if source == "correlation":
        return Filter.from_correlation(**values)
    if unknown := [name for name, given in values.items() if name not in _MAPS or not isinstance(given, dict)]:
        raise ConfigError(f"--from properties: found {unknown[0]!r}, expected {' and '.join(_MAPS)}, each an object")
    return Filter.from_properties(**values)


_MAPS = ("properties", "application_properties")


@commands.command
def explain(
    text: Annotated[str, Parameter(help="The filter expression.", allow_leading_hyphen=True)],
    /,
    *,
    message: Annotated[
        str | None, Parameter(help="A message as `publish` takes it, JSON on one line.", allow_leading_hyphen=True)
    ] = None,
    stream: Annotated[str | None, Parameter(help="The stream that holds the message, name or folder.")] = None,
    offset: Annotated[int | None, Parameter(help="Offset of the message in --stream.")] = None,
    filter_values: FilterValues = None,
    match_unfiltered: MatchUnfiltered = False,
    dialect: Dialect = None,
    parameter: Parameters = None,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Explain the result of a filter for a message: each clause, why it does not match, and which stage decides.

    The message is given, or taken from a stream. With a stream also what Bloom filters, match index, lookup and
    column files would spare a reader of it. On a topic the text is read in the language of the rule that has it, else
    in that of rules (`servicebus`); `headgate rule explain` asks a rule by its name.
    """
    from headgate.derived import sources_of
    from headgate.evaluate import Filter
    from headgate.log import resolve_stream
    from headgate.message import parse_field
    from headgate.scan import OffsetRange, ScanRequest, savings

    if (message is None) == (offset is None) or (offset is not None and stream is None):
        raise ConfigError("expected a message: either --message JSON, or --stream STREAM and --offset N")
    now = now_ms()
    wanted = tuple(value.encode() for value in filter_values or ())
    source = None if stream is None else resolve_stream(stream, root)
    language = chosen(dialect) if source is None or dialect is not None else _language_of(source, text)
    own = Filter.parse(text, language, parameters=_values(parameter))
    request = ScanRequest(
        filter=own if source is None else own.over(source.body_schema),
        filter_values=wanted,
        match_unfiltered=match_unfiltered,
        now_ms=now,
        sources=sources_of(),
    )
    assert request.filter is not None
    declared = None if source is None or source.settings is None else source.settings.filter_source
    if source is not None and offset is not None:
        (encoded, _), filter_value = message_at(source, offset), None
    else:
        encoded, filter_value = given_message(str(message))
    explanation = request.filter.explain(
        encoded,
        now_ms=now,
        filter_values=wanted,
        match_unfiltered=match_unfiltered,
        filter_value=filter_value,
        declared_source=None if declared is None else parse_field(declared),
    )
    stage = explanation.stage.value
    spared: list[Saving] = []
    if source is not None:
        spared = savings(source, request, OffsetRange(source.first_offset(), source.next_offset()))
    if source is not None and offset is not None:
        # The message's own filter value may have been sent beside it; only its chunk shows whether a reader skips it.
        skipped = savings(source, request, OffsetRange(offset, offset + 1))[0].chunks_skipped > 0
        stage = "stage 1: its chunk is skipped unread" if skipped else "stage 2: the expression decides"
    if as_json:
        write_json(explanation_row(explanation, stage, spared))
    else:
        write_explanation(explanation, stage, spared)
    return 0


@commands.command(name="test")
def run_cases(
    files: Annotated[list[Path], Parameter(help="Tables of cases, JSON lines.", negative=())],
    /,
    *,
    messages: Annotated[
        Path | None, Parameter(help="Messages of the cases; by default rabbitmq_messages.jsonl beside each table.")
    ] = None,
    engine: Annotated[Literal["reference", "kernel", "both"], Parameter(help="Which evaluator decides.")] = "both",
    dialect: Dialect = None,
) -> int:
    """Run tables of cases: print each failure, then `N passed, N failed`; exit status 1 if any failed.

    A case is a line with a filter and the numbers of the messages that it matches.
    """
    from headgate.cli.case_tables import run_tables

    result = run_tables(files, now_ms=now_ms(), messages=messages, engine=engine, dialect=dialect)
    for failure in result.failures:
        write_line(str(failure))
    write_line(str(result))
    return 1 if result.failures else 0


def _language_of(stream: Stream, text: str) -> str:
    """The language of a filter text for a stream; on a topic the language of its rules."""
    from headgate.topic import DEFAULT_RULE_DIALECT, RuleHistory

    history = RuleHistory.find(stream)
    if history is None:
        return chosen(None)
    rules = [rule.definition for each in history.current.subscriptions for rule in each.rules]
    own = [rule.dialect for rule in rules if rule.sql is not None and rule.sql.split() == text.split()]
    language = next(iter(own), None) or DEFAULT_RULE_DIALECT
    of = "its rule with this filter" if own else "rules"
    write_note(f"headgate: {history.topic_name} is a topic: read in `{language}`, the language of {of}")
    return language
