"""Commands on a server in place of a folder: what `--server` means to each of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headgate.cli.options import DEFAULT_ROOT, Root
from headgate.cli.output import write_note
from headgate.errors import ConfigError, ConnectionLostError, ResourceExistsError, UnsupportedError

if TYPE_CHECKING:
    from headgate.client import Client, Subscription
    from headgate.client.management import Management
    from headgate.log import OffsetSpecification
    from headgate.scan import ScanBatch, ScanCounters, ScanRequest

_WAIT_S = 1.0


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Place:
    """Where a command works: in the folder `root`, or at a server. The options of every command that can do both."""

    root: Root = DEFAULT_ROOT
    server: Annotated[
        str | None,
        Parameter(
            env_var="HEADGATE_SERVER",
            help="Server HOST:PORT, or headgate-stream://USER:PASSWORD@HOST:PORT (headgate-stream+tls:// encrypts), in "
            "place of --root.",
        ),
    ] = None
    user: Annotated[str | None, Parameter(env_var="HEADGATE_USER", help="User at the server; guest by default.")] = None
    password: Annotated[str | None, Parameter(env_var="HEADGATE_PASSWORD", help="Password of the user.")] = field(
        default=None, repr=False
    )

    @property
    def is_server(self) -> bool:
        """Whether it is a server; only then there is a client and a management."""
        return self.server is not None

    def client(self) -> Client:
        """A client of the server, connected."""
        from headgate.client import Client, Retry

        assert self.server is not None
        return Client.connect(self.server, user=self.user, password=self.password, retry=Retry(give_up_after_s=10.0))

    def management(self) -> Management:
        """The server's lists and users, over HTTP."""
        from headgate.client.management import Management

        assert self.server is not None
        return Management.of(self.server, user=self.user, password=self.password)


DEFAULT_PLACE = Place()


def create_stream(client: Client, name: str, arguments: dict[str, object]) -> None:
    """Make a stream; ResourceExistsError where it is there."""
    if not client.create_stream(name, arguments):
        raise ResourceExistsError("a stream of that name is there already", subject=name)


def stream_facts(client: Client, name: str) -> dict[str, object]:
    """What a server says of a stream over the stream protocol."""
    from headgate.log import OffsetSpecification

    statistics = client.statistics(name)
    first = 0 if statistics.first_chunk_id is None else statistics.first_chunk_id
    behind = client.resolve_offset(name, OffsetSpecification.next())
    properties = client.server_properties
    return {
        "name": name,
        "server": client.address.place,
        "product": f"{properties.get('product', '')} {properties.get('version', '')}".strip(),
        "messages": behind - first,
        "first_offset": first,
        "next_offset": behind,
        "last_chunk_id": statistics.last_chunk_id,
        "committed_chunk_id": statistics.committed_chunk_id,
    }


def stream_details(client: Client, name: str, place: Place) -> dict[str, object]:
    """All that a server says of a stream, named as `stream info` names it on files.

    A Headgate reads it from the files, for its HTTP listener. Where there is none: what the stream protocol says, and
    the first and the last chunk.
    """
    from headgate.client.inspect import header_at
    from headgate.log import OffsetSpecification

    facts = stream_facts(client, name)
    if client.is_headgate:
        try:
            told = place.management().stream(name)
        except (UnsupportedError, ConnectionLostError) as error:
            write_note(f"headgate: only what the stream protocol says of the stream: {error}")
        else:
            # Of `stream ls` and `consumer`, not of what a stream holds.
            for other in ("consumers", "counters"):
                told.pop(other, None)
            return facts | told
    first = header_at(client, name, OffsetSpecification.first())
    last = header_at(client, name, OffsetSpecification.last())
    return facts | {
        "first_timestamp_ms": None if first is None else first.timestamp_ms,
        "last_timestamp_ms": None if last is None else last.timestamp_ms,
        # A chunk without filter values has no filter, whatever size those of the stream have.
        "filter_size_bytes": None if last is None else last.bloom_length or None,
    }


class ServerCursor:
    """A read of a stream of a server, as `tail` reads a folder."""

    def __init__(self, subscription: Subscription, *, ends: bool) -> None:
        self._subscription = subscription
        self._ends = ends

    @property
    def counters(self) -> ScanCounters:
        """What this side received and evaluated."""
        return self._subscription.counters

    @property
    def is_finished(self) -> bool:
        """Whether everything before the end was read."""
        return self._subscription.is_finished

    def read(self, now_ms: int) -> ScanBatch | None:
        """The next batch; None when nothing more is there now."""
        self._subscription.evaluate_at(now_ms)
        return self._subscription.read(None if self._ends else 0.0)

    def wait(self) -> None:
        """Return when something may have come."""
        self._subscription.wait(_WAIT_S)

    def close(self) -> None:
        """End the read."""
        self._subscription.close()


def open_cursor(
    client: Client,
    stream: str,
    request: ScanRequest,
    *,
    start: OffsetSpecification,
    end: OffsetSpecification | None,
    follow: bool,
) -> ServerCursor:
    """A cursor over a stream of a server; the filter of the request is evaluated there if it is a Headgate."""
    from headgate.client import ServedFilter, SubscriptionOptions
    from headgate.language import DEFAULT_DIALECT
    from headgate.log import OffsetKind, OffsetSpecification

    served = None
    if client.is_headgate and request.filter is not None:
        served = ServedFilter(request.filter.text, request.filter.dialect or DEFAULT_DIALECT)
        request = replace(request, filter=None)
    stop = None
    if end is not None or not follow:
        behind = client.resolve_offset(stream, OffsetSpecification.next())
        stop = behind if end is None else client.resolve_offset(stream, end)
        if not follow:
            stop = min(stop, behind)
        elif end is not None and end.kind is not OffsetKind.OFFSET:
            raise ConfigError(f"--until: found {end}, expected an offset, because --follow waits for what is not there")
    options = SubscriptionOptions(
        stream,
        # A read that ends has to begin at an offset: behind the last message nothing would ever come.
        start if stop is None else OffsetSpecification.offset(client.resolve_offset(stream, start)),
        stop=stop,
        stop_is_written=not follow,
        filter_values=request.filter_values,
        match_unfiltered=request.match_unfiltered,
        served=served,
        request=replace(request, filter_values=(), match_unfiltered=False),
    )
    return ServerCursor(client.subscription(options), ends=not follow)
