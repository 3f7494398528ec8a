"""`headgate why`: why a consumer got a message, or did not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headgate.cli.options import AsJson, FilterValues, MatchUnfiltered, StreamText
from headgate.cli.output import write_json, write_line
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import duration_ms, shown_count
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.trace import Answer

_NAMES = ("--dialect", "--language")


def why(
    stream: StreamText,
    /,
    *,
    id: Annotated[str | None, Parameter(help="The message id.", allow_leading_hyphen=True)] = None,
    offset: Annotated[int | None, Parameter(help="The offset of the message.")] = None,
    where: Annotated[
        str | None,
        Parameter(help="A filter that selects the message, and no other one.", allow_leading_hyphen=True),
    ] = None,
    consumer: Annotated[
        str | None,
        Parameter(
            name="--for",
            help="A subscription (SUBSCRIPTION, or TOPIC/Subscriptions/SUBSCRIPTION), with /$DeadLetterQueue its dead "
            "letters, a queue, a consumer group, or a name of stored offsets; at a server also a connected consumer. "
            "Without it a line for each that there is.",
        ),
    ] = None,
    filter_text: Annotated[
        str | None,
        Parameter(
            name="--filter",
            help="A filter to ask in place of --for; with a name of stored offsets: the filter of that consumer.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    dialect: Annotated[
        str | None, Parameter(name=_NAMES, help="Language of --where and --filter; the default is `amqp`.")
    ] = None,
    filter_values: FilterValues = None,
    match_unfiltered: MatchUnfiltered = False,
    budget: Annotated[str | None, Parameter(help="How long to look for the message: 30s, 5m.")] = None,
    as_json: AsJson = False,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Say why a consumer got a message of a stream or topic, or did not.

    Where it is stored, whether its publisher was told, which rule or filter was in force for it, each clause with the
    value seen, and what became of it. Exactly one of --id, --offset and --where says which message. Files are read as
    they are; with --server the server answers, and knows its connected consumers as well.
    """
    if dialect is not None and where is None and filter_text is None:
        raise ConfigError("--dialect is the language of --where and --filter, which are missing")
    budget_ms = None if budget is None else duration_ms(budget, option="--budget")
    every: dict[str, object] = {
        "id": id,
        "offset": offset,
        "where": where,
        "language": dialect if where is not None else None,
        "filter": filter_text,
        "filter_language": dialect if filter_text is not None else None,
        "filter_values": filter_values,
        "match_unfiltered": match_unfiltered or None,
    }
    given = {name: value for name, value in every.items() if value is not None}
    if location.is_server:
        more = {"for": consumer, "budget_ms": budget_ms}
        asked = {"name": stream, **given, **{name: value for name, value in more.items() if value is not None}}
        answer = _of_server(location, asked)
    else:
        answer = _of_files(stream, consumer, budget_ms, location, given)
    if as_json:
        write_json(answer.as_dict())
    else:
        write_line(str(answer))
    return 0


def _of_server(location: Location, asked: dict[str, object]) -> Answer:
    from headgate.trace import Answer

    return Answer.of_dict(location.management().why(asked))


def _of_files(
    stream: str, consumer: str | None, budget_ms: int | None, location: Location, given: dict[str, object]
) -> Answer:
    from headgate.trace import why

    more = {} if budget_ms is None else {"budget_s": budget_ms / 1_000}
    progress = _Progress() if sys.stderr.isatty() else None
    try:
        return why(stream, consumer=consumer, root=location.root, progress=progress, **more, **given)  # type: ignore[arg-type]
    finally:
        if progress is not None:
            progress.end()


class _Progress:
    """How far the search is, on one line of a terminal."""

    def __init__(self) -> None:
        self._is_shown = False

    def __call__(self, done: int, total: int) -> None:
        """See `headgate.trace.search.Progress`."""
        if done < total or self._is_shown:
            self._is_shown = True
            sys.stderr.write(f"\rsearched {shown_count(done)} of {shown_count(total)} messages")
            sys.stderr.flush()

    def end(self) -> None:
        """End the line."""
        if self._is_shown:
            sys.stderr.write("\n")
