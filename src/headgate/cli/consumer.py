"""`headgate consumer`: the consumers, their filters, and their lag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from headgate.cli.options import AsJson, named_streams
from headgate.cli.output import write_rows
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import shown_reading
from headgate.errors import ResourceNotFoundError, did_you_mean

if TYPE_CHECKING:
    from headgate.client import Management

commands = App(name="consumer", help="See who reads streams, with which filter, and how far behind.")

StreamName = Annotated[str | None, Parameter(help="Only of this stream.")]

_LISTED = (
    "stream",
    "name",
    "tag",
    "connection",
    "user",
    "filter_values",
    "match_unfiltered",
    "dialect",
    "filter",
    "credit",
    "active",
    "examined",
    "matched",
    "cpu",
)
_LAGGING = ("stream", "name", "tag", "stored_offset", "next_offset", "lag", "filtered_lag")


@commands.command
def ls(stream: StreamName = None, /, *, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """List consumers: of a server the connected ones, with the filter in force of each, and its cost.

    That is how many messages were examined, by evaluating them or by a match index, how many matched, and the processor
    time that reading and deciding took; what is done once for several consumers counts for each with an equal share.

    Of a folder: the names under which consumers stored an offset.
    """
    if not location.is_server:
        from headgate.log import shown_root

        rows = [
            {key: row[key] for key in ("stream", "name", "stored_offset")} for row in _stored(location.root, stream)
        ]
        write_rows(rows, as_json=as_json, nothing=f"no consumer stored an offset under {shown_root(location.root)}")
        return 0
    management = location.management()
    _check_there(management, stream)
    connected = _of_stream(management.consumers(), stream)
    shown = [
        {**row, "filter_values": ", ".join(row["filter_values"]), **shown_reading(row["counters"])} for row in connected
    ]
    write_rows(connected if as_json else shown, _LISTED, as_json=as_json, nothing="no consumer is connected")
    return 0


@commands.command
def lag(stream: StreamName = None, /, *, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """Show how many messages lie between consumers and the end of their streams.

    For stored offsets, and with a server also for connected consumers: those have a tag, and no stored offset. Of them
    the filtered lag is known, too: about how many of these messages their filters will let through.
    """
    if not location.is_server:
        rows = list(_stored(location.root, stream))
    else:
        management = location.management()
        _check_there(management, stream)
        rows = _of_stream([*management.offsets(), *management.consumers()], stream)
    lines = [{key: row.get(key) for key in _LAGGING} for row in rows]
    write_rows(lines, _LAGGING, as_json=as_json, nothing="no consumer stored an offset")
    return 0


def _stored(root: Path, stream: str | None) -> Iterator[dict[str, Any]]:
    """Stored offsets of the streams of a root, as the server lists them."""
    from headgate.log import MessageCounts, read_tracking
    from headgate.server import stored_rows

    for found in named_streams(() if stream is None else (stream,), root):
        stored, end = read_tracking(found).offsets, found.next_offset()
        messages_from = partial(MessageCounts(fetches=False).between, found, stop=end)
        yield from stored_rows(found.name, stored, end, messages_from)


def _check_there(management: Management, stream: str | None) -> None:
    """Raise ResourceNotFoundError for a stream that the server has not, or not for this user."""
    names = [] if stream is None else [row["name"] for row in management.streams()]
    if stream is not None and stream not in names:
        raise ResourceNotFoundError(f"no stream of that name{did_you_mean(stream, names)}", subject=stream)


def _of_stream(rows: Sequence[dict[str, Any]], stream: str | None) -> list[dict[str, Any]]:
    return [row for row in rows if stream is None or row["stream"] == stream]
