"""The streams under a root, declared by clients or made by other processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from headgate.broker.arguments import (
    CHANGEABLE,
    COLUMNS,
    OF_REMOTE,
    arguments_of,
    check_arguments,
    different_arguments,
)
from headgate.broker.damage import KnownDamage
from headgate.broker.stream import BrokerStream, Storage
from headgate.broker.users import AUDIT_STREAM
from headgate.errors import (
    ConfigError,
    PreconditionFailedError,
    ReservedNameError,
    ResourceExistsError,
    ResourceNotFoundError,
    StreamExistsError,
    StreamNotFoundError,
    StreamReadOnlyError,
)
from headgate.log import (
    Stream,
    StreamArguments,
    StreamLock,
    foreign_stream,
    list_streams,
    name_of_folder,
    set_aside,
    stream_folder,
)
from headgate.message.body_schema import check_body_fields

_MAX_NAME_BYTES = 255


class Declared(Enum):
    """The result of a declaration."""

    CREATED = "created"
    EXISTS = "exists"


class Catalogue:
    """The streams of one root; each is opened at its first use."""

    def __init__(
        self, root: Path, *, storage: Storage, now_ms: Callable[[], int], placement: StreamArguments | None = None
    ) -> None:
        """`placement` says where in object storage the segments of new streams go, by its arguments `remote…`."""
        self.root = root
        self._storage = storage
        self._now_ms = now_ms
        self._placement = placement or StreamArguments()
        self.troubles = KnownDamage()
        self._opened: dict[str, BrokerStream] = {}

    def __iter__(self) -> Iterator[BrokerStream]:
        """The streams that are open."""
        return iter(list(self._opened.values()))

    def names(self) -> list[str]:
        """The names of all streams but the audit stream, in order, and unreadable ones. Reads every `stream.json`."""
        names: list[str] = []
        streams = list_streams(self.root, damaged=lambda folder, _: names.append(name_of_folder(folder)))
        names += [stream.name for stream in streams if stream.name != AUDIT_STREAM]
        return sorted(names)

    def get(self, name: str) -> BrokerStream:
        """One stream, as it is now; ResourceNotFoundError, LogError."""
        stream = self.find(name)
        if stream is None:
            raise ResourceNotFoundError("no such stream", subject=name)
        return stream

    def find(self, name: str) -> BrokerStream | None:
        """One stream, as it is now; None without one. Raises LogError.

        The first call for a stream recovers it (milliseconds), unless another process writes it: see
        `BrokerStream.open`.
        """
        opened = self._opened.get(name)
        if opened is not None:
            if opened.look():
                return opened
            # Its users are told at the next tick.
            del self._opened[name]
        with self.troubles.guard(name, self.root):
            stream = self._on_disk(name)
            if stream is None:
                return None
            opened = BrokerStream.open(stream, storage=self._storage, troubles=self.troubles, now_ms=self._now_ms())
        self._opened[name] = opened
        return opened

    def declare(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        now_ms: int,
        numbers_as_text: bool,
        body_schema: str | None = None,
    ) -> Declared:
        """Make a stream, or find one with equal arguments. `name` is clean (`clean_name`).

        `body_schema` is the text of a new stream's `BodySchema`, checked; of one that is there it says nothing.
        Raises ResourceExistsError for other arguments, UnsuitableArgumentError, ReservedNameError,
        PreconditionFailedError, LogError.
        """
        declaration, meaning, source = check_arguments(arguments, stream=name, numbers_as_text=numbers_as_text)
        try:
            columns = declaration.get(COLUMNS)
            check_body_fields(body_schema, filter_source=source, columns=columns if isinstance(columns, str) else None)
        except ConfigError as error:
            raise PreconditionFailedError(str(error), subject=name) from error
        existing = self.find(name)
        if existing is not None:
            _check_equal(existing, declaration)
            _declare_columns(existing.stream, declaration)
            return Declared.EXISTS
        check_name(name)
        if meaning.remote is None:
            place = self._placement
            meaning = msgspec.structs.replace(
                meaning, remote=place.remote, remote_after_ms=place.remote_after_ms, local_bytes=place.local_bytes
            )
        declaration = {name: value for name, value in declaration.items() if name not in OF_REMOTE}
        meaning = msgspec.structs.replace(meaning, body_schema=body_schema)
        try:
            path = stream_folder(self.root, name)
            made = Stream.create(
                path, name=name, now_ms=now_ms, arguments=meaning, filter_source=source, declaration=declaration
            )
            _declare_columns(made, declaration)
        except ConfigError as error:
            raise PreconditionFailedError(str(error), subject=name) from error
        except StreamExistsError:
            # Another process was faster.
            _check_equal(self.get(name), declaration)
            return Declared.EXISTS
        return Declared.CREATED

    def forget(self, stream: BrokerStream) -> None:
        """A stream is deleted, or about to be: the next call for it looks at the disk."""
        stream.is_deleted = True
        self.troubles.forget(stream.name)
        if self._opened.get(stream.name) is stream:
            del self._opened[stream.name]

    @contextlib.contextmanager
    def taken_for_deletion(self, stream: BrokerStream) -> Iterator[None]:
        """Hold a stream's lock meanwhile: that of this broker's writer, or a new one.

        Raises StreamLockedError that names another holder, StreamReadOnlyError for a foreign stream.
        """
        if stream.stream.is_foreign:
            raise StreamReadOnlyError("a foreign stream is not deleted before it is adopted", path=stream.stream.path)
        if stream.writer is not None:
            yield
            return
        with StreamLock.acquire(stream.stream.path, now_ms=self._now_ms()):
            yield

    def delete(self, stream: BrokerStream) -> Path | None:
        """Set a stream's folder aside at once; gives the folder whose files are then to be removed, None without one.

        The stream must have no writer left in use. Raises LogError.
        """
        self.forget(stream)
        return set_aside(self.root, stream.stream.path)

    def delete_damaged(self, name: str) -> Path | None:
        """`delete` for a stream that cannot be opened. Raises StreamLockedError, LogError."""
        folder = stream_folder(self.root, name)
        with StreamLock.acquire(folder, now_ms=self._now_ms()):
            self.troubles.forget(name)
            return set_aside(self.root, folder)

    def _on_disk(self, name: str) -> Stream | None:
        try:
            return Stream.open(stream_folder(self.root, name))
        except (ConfigError, UnicodeEncodeError):
            return None
        except StreamNotFoundError:
            return foreign_stream(self.root, name)


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as clients see it; `identity` differs from that of others of its name, `arguments` are without `x-`.

    Chunk ids are −1 while there is no chunk. `message_count` counts as RabbitMQ does: all offsets, also those of chunks
    without messages.
    """

    name: str
    identity: str
    arguments: dict[str, object]
    first_offset: int
    next_offset: int
    first_chunk_id: int
    last_chunk_id: int
    committed_chunk_id: int
    message_count: int
    publisher_count: int
    consumer_count: int
    has_body_schema: bool

    @staticmethod
    def of(stream: BrokerStream) -> StreamInfo:
        """A stream as it is now."""
        first = stream.first_offset
        is_empty = stream.last_chunk_id < 0
        return StreamInfo(
            name=stream.name,
            identity=stream.stream.identity,
            arguments=arguments_declared(stream),
            first_offset=first,
            next_offset=stream.next_offset,
            first_chunk_id=-1 if is_empty else first,
            last_chunk_id=stream.last_chunk_id,
            committed_chunk_id=stream.last_chunk_id,
            message_count=stream.next_offset - first,
            publisher_count=len(stream.publishers),
            consumer_count=len(stream.readers),
            has_body_schema=stream.stream.body_schema is not None,
        )


def arguments_declared(stream: BrokerStream) -> dict[str, object]:
    """The arguments with which a client would declare a stream, without `x-`; a foreign stream has none."""
    settings = stream.stream.settings
    return {} if settings is None else arguments_of(settings)


def clean_name(name: str) -> str:
    """A name without CR and LF, which do not count (stream_protocol, section 4)."""
    return name.replace("\r", "").replace("\n", "")


def check_name(name: str) -> None:
    """Raise ReservedNameError or PreconditionFailedError for a name that RabbitMQ's clients cannot give to a stream."""
    check_reserved(name)
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise PreconditionFailedError(f"a name has at most {_MAX_NAME_BYTES} bytes", subject=name[:40])


def check_reserved(name: str) -> None:
    """Raise ReservedNameError or PreconditionFailedError for a name that no stream may have, of any origin."""
    if not name or name.startswith("amq."):
        raise ReservedNameError("names that are empty or begin with amq. belong to the broker", subject=name)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise PreconditionFailedError("a name is text that UTF-8 can say", subject=repr(name[:40])) from error


def _declare_columns(stream: Stream, declaration: Mapping[str, object]) -> None:
    """Declare the columns of a declaration for a new stream, and for an empty one that a crash left without."""
    columns = declaration.get(COLUMNS)
    if isinstance(columns, str):
        from headgate.derived.columns import complete_declaration

        complete_declaration(stream, columns)


def _spoken(value: object) -> str:
    return "none" if value is None else repr(value)


def _check_equal(stream: BrokerStream, declaration: Mapping[str, object]) -> None:
    existing = arguments_declared(stream)
    different = different_arguments(existing, declaration)
    if different:
        name = different[0]
        advice = "; `headgate stream change` changes it" if name in CHANGEABLE else ""
        raise ResourceExistsError(
            f"inequivalent arg 'x-{name}' for a stream that is there: received {_spoken(declaration.get(name))} but "
            f"current is {_spoken(existing.get(name))}{advice}",
            subject=stream.name,
        )
