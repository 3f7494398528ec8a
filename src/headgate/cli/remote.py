"""Commands on a server in place of a folder: the effect of `--server` on each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headgate.cli.options import DEFAULT_ROOT, Root, naming_option
from headgate.cli.output import write_note
from headgate.clock import now_ms, patient
from headgate.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    PreconditionFailedError,
    RemoteStorageError,
    ResourceExistsError,
    ResourceNotFoundError,
    StreamLockedError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.cli.local_topics import LocalManagement
    from headgate.client import Client, Management, RocketTopics, Subscription, Topics
    from headgate.log import OffsetSpecification, StreamLock, Wait
    from headgate.scan import ScanBatch, ScanCounters, ScanRequest

FOLLOW_ADVICE = "; --follow waits for what comes"
"""Advice for a `--from` after the end."""

_WAIT_S = 1.0


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Location:
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
    password: Annotated[
        str | None,
        Parameter(
            env_var=("HEADGATE_TOKEN", "HEADGATE_PASSWORD"),
            help="Password of the user, or a token, which says whose it is.",
        ),
    ] = field(default=None, repr=False)

    @property
    def is_server(self) -> bool:
        """Whether it is a server; only then there is a client and a management."""
        return self.server is not None

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """A client of the server, connected; the error for a missing stream suggests similar names."""
        from headgate.client import Client, Retry

        assert self.server is not None
        retry = Retry(give_up_after_s=10.0)
        with Client.connect(self.server, user=self.user, password=self.password, retry=retry) as client:
            try:
                yield client
            except ResourceNotFoundError as error:
                near = client.near_streams(error.subject)
                raise ResourceNotFoundError(f"{error.reason}{near}", subject=error.subject) from error

    @contextlib.contextmanager
    def topics(
        self, topic: str | None = None, *, lock_timeout_s: float = 5.0, makes_root: bool = False
    ) -> Iterator[Topics]:
        """The topics of the server, or of the root: by a broker in this process, or the server that has the root.

        `topic` is one that is to be there; `makes_root` allows a folder that is not there yet. Raises
        RuleNotFoundError, with similar names, LogError for a folder that is no root, StreamLockedError where the root
        is served and its server cannot be asked.
        """
        from headgate.topic import topic_stream

        if topic is not None and not self.is_server:
            topic_stream(self.root, topic)
        with self._managed(lock_timeout_s, makes_root=makes_root) as management:
            yield management.topics

    @contextlib.contextmanager
    def rocketmq(self, *, lock_timeout_s: float = 5.0, makes_root: bool = False) -> Iterator[RocketTopics]:
        """Topics and consumer groups of RocketMQ's clients; raises as `topics`."""
        with self._managed(lock_timeout_s, makes_root=makes_root) as management:
            yield management.rocketmq

    @contextlib.contextmanager
    def _managed(self, lock_timeout_s: float, *, makes_root: bool) -> Iterator[Management | LocalManagement]:
        if self.is_server:
            yield self.management()
            return
        from headgate.cli.local_topics import local_management
        from headgate.log import check_root

        if not makes_root:
            check_root(self.root)
        held = _locked(self.root, patient(lock_timeout_s))
        if isinstance(held, StreamLockedError):
            with _asking_server(self, _served(self.root), held) as management:
                yield management
            return
        with held, local_management(self.root, lock_timeout_s=lock_timeout_s) as local:
            yield local

    def management(self) -> Management:
        """The server's lists and users, over HTTP."""
        from headgate.client import Management

        assert self.server is not None
        return Management.of(self.server, user=self.user, password=self.password)

    def serving(self) -> Management | None:
        """The server on this machine that has the root, as far as its note says; it may be gone."""
        from headgate.client import Management

        url = _served(self.root)
        return None if url is None else Management.of(url, user=self.user, password=self.password)


DEFAULT_LOCATION = Location()


def create_stream(client: Client, name: str, arguments: dict[str, object], location: Location) -> None:
    """Make a stream; ResourceExistsError for an existing one, with the arguments that differ."""
    try:
        is_made = client.create_stream(name, arguments)
    except PreconditionFailedError as error:
        # The protocol has a code and no reason; the list of streams has the arguments.
        there: dict[str, object] = {}
        with contextlib.suppress(BrokerError, ConnectionLostError):
            there = location.management().stream(name)["arguments"]
        different = [key for key in {**arguments, **there} if str(arguments.get(key)) != str(there.get(key))]
        if not there or not different:
            raise
        found = ", ".join(
            f"{key} is {there.get(key, 'not set')}, given {arguments.get(key, 'none')}" for key in different
        )
        raise ResourceExistsError(
            f"a stream of that name is there with other arguments: {found}; headgate stream change changes limits",
            subject=name,
        ) from error
    if not is_made:
        raise ResourceExistsError("a stream of that name is there already", subject=name)


def change_stream(
    location: Location, stream: str, changes: dict[str, object], *, lock_timeout_s: float
) -> dict[str, object]:
    """Give a stream other limits, at the server, at the one that has the root, or in its files; gives its arguments."""
    if location.is_server:
        return location.management().change_stream(stream, changes)
    from headgate.broker import arguments_of, changed_arguments
    from headgate.log import Writer, apply_remote_limits, resolve_stream, root_of

    found = resolve_stream(stream, location.root)
    held = _locked(root_of(found.path), patient(lock_timeout_s))
    if isinstance(held, StreamLockedError):
        root = root_of(found.path)
        with _asking_server(replace(location, root=root), _served(root), held) as management:
            return management.change_stream(found.name, changes)
    with held, Writer.open(found, now_ms=now_ms(), wait=patient(lock_timeout_s)) as writer:
        declaration, arguments = changed_arguments(writer.settings, changes)
        writer.change_arguments(
            arguments, None if writer.settings.declaration is None else declaration, now_ms=now_ms()
        )
        later = "headgate: what the limits do not keep in object storage goes with the next move"
        try:
            if not apply_remote_limits(found, now_ms=now_ms()):
                write_note(f"{later}: another process moves segments of this stream just now")
        except RemoteStorageError as error:
            write_note(f"{later}: {error}")
        return arguments_of(writer.settings)


def listed_streams(client: Client, location: Location) -> tuple[list[dict[str, object]], list[str]]:
    """A row per stream of a Headgate, and the errors of streams that it cannot open.

    If its HTTP listener is not reached: the facts from the stream protocol.
    """
    names = client.streams()
    try:
        told = location.management().streams()
    except (UnsupportedError, ConnectionLostError) as error:
        write_note(f"headgate: only what the stream protocol says of the streams: {error}")
        return [_columns(stream_facts(client, name)) for name in names], []
    damaged = [f"{row['name']}: {row['error']}" for row in told if "error" in row]
    return [_columns(row, "size_bytes") for row in told if "next_offset" in row], damaged


def _columns(facts: dict[str, object], *more: str) -> dict[str, object]:
    return {column: facts[column] for column in ("name", "first_offset", "next_offset", "messages", *more)}


def delete_at_server(location: Location, name: str, *, force: bool) -> None:
    """Delete a stream. Raises PreconditionFailedError that names its clients, unless `force`.

    A server other than Headgate cannot be asked for clients: it deletes the stream and tells them.
    """
    with location.client() as client:
        if not client.is_headgate or not client.has_stream(name):
            client.delete_stream(name)
            return
        try:
            _delete(location.management(), name, force=force)
        except UnsupportedError as error:
            if not force:
                raise UnsupportedError(
                    f"{error.reason}; so nothing says who uses the stream: --force deletes it nevertheless",
                    subject=name,
                ) from error
            client.delete_stream(name)


def delete_where_served(location: Location, root: Path, name: str, locked: StreamLockedError, *, force: bool) -> None:
    """Delete a stream of a root that a server of this machine holds, by asking it.

    Raises PreconditionFailedError as `delete_at_server`, StreamLockedError where the server cannot be asked.
    """
    there = f"delete the stream there: headgate stream rm --server ADDRESS {name}"
    with _asking_server(replace(location, root=root), _served(root), locked, advice=there) as management:
        _delete(management, name, force=force)


def _locked(root: Path, wait: Wait) -> StreamLock | StreamLockedError:
    """The right to act in place of a root's server; the error where one has the root, or another command for long."""
    from headgate.log import lock_root

    tries = 0
    while True:
        try:
            return lock_root(root, now_ms=now_ms())
        except StreamLockedError as error:
            tries += 1
            if _served(root) is not None or not wait(tries):
                return error


def _served(root: Path) -> str | None:
    """The URL of a root's server from this machine; None if the note of its lock has none."""
    import platform

    from headgate.log import HTTP_NOTE, lock_note, server_lock_folder

    note = lock_note(server_lock_folder(root))
    url = note.get(HTTP_NOTE)
    return url if isinstance(url, str) and note.get("host") == platform.node() else None


@contextlib.contextmanager
def _asking_server(
    location: Location, url: str | None, locked: StreamLockedError, *, advice: str = "use --server ADDRESS"
) -> Iterator[Management]:
    """The management of the server that has a root, for a block; errors that say so where it cannot be asked.

    Raises StreamLockedError.
    """
    from headgate.client import Management
    from headgate.errors import AccessRefusedError, AuthenticationError

    holder = locked.reason.partition(": ")[2]
    if url is None:
        raise StreamLockedError(
            f"the root is in use, by {holder}: a command that has not ended, or a server; if it is a server, {advice}",
            path=location.root,
        ) from locked
    try:
        yield Management.of(url, user=location.user, password=location.password)
    except (AuthenticationError, AccessRefusedError, ConnectionLostError) as error:
        raise StreamLockedError(
            f"the root is served, by {holder}, at {url}, which was asked: {error}; give --user and --password of a "
            f"user who may, or {advice}",
            path=location.root,
        ) from error


def _delete(management: Management, name: str, *, force: bool) -> None:
    try:
        management.delete_stream(name, force=force)
    except PreconditionFailedError as error:
        raise PreconditionFailedError(
            f"{error.reason}; --force deletes it nevertheless, and tells them", subject=name
        ) from error


def stream_facts(client: Client, name: str) -> dict[str, object]:
    """The facts about a stream from the stream protocol; `messages` are all offsets, as RabbitMQ counts."""
    from headgate.log import OffsetSpecification

    statistics = client.statistics(name)
    first = 0 if statistics.first_chunk_id is None else statistics.first_chunk_id
    behind = client.resolve_offset(name, OffsetSpecification.next())
    return {
        "name": name,
        "server": client.address.place,
        "identity": statistics.identity,
        "product": _product(client),
        "messages": behind - first,
        "first_offset": first,
        "next_offset": behind,
        "last_chunk_id": statistics.last_chunk_id,
        "committed_chunk_id": statistics.committed_chunk_id,
    }


def stream_details(client: Client, name: str, location: Location) -> dict[str, object]:
    """All facts that a server gives about a stream, named as `stream info` names them on files.

    A Headgate reads them from the files, for its HTTP listener. Without it: the facts from the stream protocol, and the
    first and the last chunk.
    """
    from headgate.client import header_at
    from headgate.log import OffsetSpecification

    facts = stream_facts(client, name)
    if client.is_headgate:
        try:
            told = location.management().stream(name)
        except (UnsupportedError, ConnectionLostError) as error:
            write_note(f"headgate: only what the stream protocol says of the stream: {error}")
        else:
            # These belong to `consumer` and the metrics, not to the content of a stream.
            for other in ("consumers", "counters", "reading"):
                told.pop(other, None)
            return facts | told
    first = header_at(client, name, OffsetSpecification.first())
    last = header_at(client, name, OffsetSpecification.last())
    return facts | {
        "first_timestamp_ms": None if first is None else first.timestamp_ms,
        "last_timestamp_ms": None if last is None else last.timestamp_ms,
        # A chunk without filter values has no filter, for any filter size of the stream.
        "filter_size_bytes": None if last is None else last.bloom_length or None,
    }


def _product(client: Client) -> str:
    properties = client.server_properties
    if client.is_headgate:
        # Its property `product` names the broker whose clients it serves.
        return f"Headgate {properties['headgate']}"
    return f"{properties.get('product', '')} {properties.get('version', '')}".strip()


class ServerCursor:
    """A read of a stream of a server, as `tail` reads a folder."""

    def __init__(self, subscription: Subscription, *, ends: bool) -> None:
        self._subscription = subscription
        self._ends = ends

    @property
    def counters(self) -> ScanCounters:
        """The client's counters of received and evaluated messages."""
        return self._subscription.counters

    @property
    def is_finished(self) -> bool:
        """Whether everything before the end was read."""
        return self._subscription.is_finished

    def read(self, now_ms: int) -> ScanBatch | None:
        """The next batch; None at the present end."""
        self._subscription.evaluate_at(now_ms)
        return self._subscription.read(None if self._ends else 0.0)

    def wait(self) -> None:
        """Return when something may have come."""
        self._subscription.wait(_WAIT_S)

    def close(self) -> None:
        """End the read."""
        self._subscription.close()


def note_behind(start: OffsetSpecification, behind: int) -> None:
    """Say where a read that waits begins if its offset is still to come: with the next message, as in RabbitMQ."""
    from headgate.log import OffsetKind

    if start.kind is OffsetKind.OFFSET and start.value > behind:
        write_note(f"--from: offset {start} is still to come; shown is what comes next, from offset {behind} on")


def note_deleted(start: OffsetSpecification, first: int) -> None:
    """Write a note where a read begins if its offset is no longer kept; 0 means the present beginning."""
    from headgate.log import OffsetKind

    if start.kind is OffsetKind.OFFSET and 0 < start.value < first:
        write_note(
            f"--from: offsets {start.value} to {first - 1} are not there any more; shown is what is from {first} on"
        )


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
    begin = stop = None
    if follow and start.kind is OffsetKind.OFFSET and client.can_resolve_offsets:
        note_behind(start, client.resolve_offset(stream, OffsetSpecification.next()))
        note_deleted(start, client.resolve_offset(stream, OffsetSpecification.first()))
    if end is not None or not follow:
        behind = client.resolve_offset(stream, OffsetSpecification.next())
        begin = client.resolve_offset(stream, start)
        stop = behind if end is None else client.resolve_offset(stream, end)
        if not follow:
            first = client.resolve_offset(stream, OffsetSpecification.first())
            with naming_option("--from", advice=FOLLOW_ADVICE):
                start.check_not_behind(first, behind, begin=begin, now_ms=request.now_ms)
            note_deleted(start, first)
            stop = min(stop, behind)
        elif end is not None and end.kind is not OffsetKind.OFFSET:
            raise ConfigError(f"--until: found {end}, expected an offset, because --follow waits for what is not there")
    options = SubscriptionOptions(
        stream,
        # A read that ends has to begin at an offset: after the last message nothing would ever come.
        start if begin is None else OffsetSpecification.offset(begin),
        stop=stop,
        stop_is_written=not follow,
        filter_values=request.filter_values,
        match_unfiltered=request.match_unfiltered,
        served=served,
        request=replace(request, filter_values=(), match_unfiltered=False),
    )
    return ServerCursor(client.subscription(options), ends=not follow)
