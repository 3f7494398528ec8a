"""`stream.json`: the settings in one of our stream folders, beside the files of the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import ConfigError, LogError, StreamNotFoundError, StreamReplacedError
from headgate.log.bloom import DEFAULT_FILTER_SIZE_BYTES, check_filter_size
from headgate.log.checked_json import decode_checked, encode_checked
from headgate.log.files import replace_file
from headgate.log.pairs import SETTINGS_NAME
from headgate.log.remote import check_location

SETTINGS_FORMAT = 2

DEFAULT_MAX_SEGMENT_SIZE_BYTES = 500_000_000
DEFAULT_MAX_SEGMENT_CHUNKS = 256_000
MAX_INITIAL_OFFSET = 2**62
_LARGEST_SEGMENT_BYTES = 2**32 - 1
_DECLARED_AHEAD = 1_000_000
_MAX_DECLARED_RANGES = 1000

_REMEDY = (
    "the file is damaged, or was changed by hand, which no reader accepts: the settings of a stream are those that it "
    "was created with. Restore the file from a copy; or move it away and run `headgate stream adopt` on the folder, "
    "which keeps the messages and forgets limits and the declared filter source"
)


class StreamArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments with which a stream is created.

    `filter_size_bytes` is the size of Bloom filters, 16 … 255. A segment is closed when it has `max_segment_size_bytes`
    or `max_segment_chunks`, or when a message comes and its first chunk is as old as `max_segment_age_ms` (None:
    never), so that segments of slow streams are sealed as well.
    Retention keeps `max_length_bytes` and messages younger than `max_age_ms`; None keeps all.
    `drops_settled`: segments wholly below the stream's pin are deleted even if the limits would keep them.
    The first record has `initial_offset`, as in a stream whose earlier messages were deleted; at most 2^62.
    Sealed segments move to the object storage at `remote`, a URI, each in the folder of the stream's name there, when
    their last chunk is as old as `remote_after_ms`; of the moved ones the newest `local_bytes` stay in the stream's
    folder as well. Without `remote` all segments are in the folder.
    `body_schema` is the schema of the messages' bodies, a text that the log does not read.
    """

    filter_size_bytes: int = DEFAULT_FILTER_SIZE_BYTES
    max_segment_size_bytes: int = DEFAULT_MAX_SEGMENT_SIZE_BYTES
    max_segment_chunks: int = DEFAULT_MAX_SEGMENT_CHUNKS
    max_segment_age_ms: int | None = None
    max_length_bytes: int | None = None
    max_age_ms: int | None = None
    drops_settled: bool = False
    initial_offset: int = 0
    remote: str | None = None
    remote_after_ms: int = 0
    local_bytes: int = 0
    body_schema: str | None = None

    def check(self) -> None:
        """Check all arguments. Raises ConfigError that names the first argument out of its range."""
        check_filter_size(self.filter_size_bytes, option="filter_size_bytes")
        if not 1 <= self.max_segment_size_bytes <= _LARGEST_SEGMENT_BYTES:
            raise ConfigError(
                f"max_segment_size_bytes is {self.max_segment_size_bytes}; expected 1 to {_LARGEST_SEGMENT_BYTES}"
            )
        if not 0 <= self.initial_offset <= MAX_INITIAL_OFFSET:
            raise ConfigError(f"initial_offset is {self.initial_offset}; expected 0 to {MAX_INITIAL_OFFSET}")
        for name in ("max_segment_chunks", "max_segment_age_ms", "max_length_bytes", "max_age_ms"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; expected 1 or more")
        for name in ("remote_after_ms", "local_bytes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected 0 or more")
            if getattr(self, name) and self.remote is None:
                raise ConfigError(f"{name} is given without remote, the place in object storage")
        if self.remote is not None:
            check_location(self.remote)


class DeclaredRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Offsets `start … stop` that Headgate wrote while `field` was the declared source of filter values."""

    field: str
    start: int
    stop: int


class StreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `stream.json`, without its checksum.

    `identity` identifies the stream: another stream of the same name has another identity. It is random, or the name
    of the adopted folder, whose digits RabbitMQ makes for each stream. `filter_source` is the field that
    filter values come from now, None without a declaration; `declared` are the offset ranges written under a
    declaration; the last one may extend beyond the written offsets. `sequences` has the last publisher sequence of each
    query that commits to this stream. `declaration` are the arguments with which a client declared the stream, by their
    AMQP names without `x-`; None for a stream that no client declared. `location` is only in a shadow, which readers
    have of a stream without its folder: the place of its objects (`remote/shadow.py`). An archive has the
    identity of the foreign stream that it is of in `archive_of`; it takes no other chunks.
    """

    name: str
    created_ms: int
    identity: str
    arguments: StreamArguments
    filter_source: str | None = None
    declared: tuple[DeclaredRange, ...] = ()
    sequences: dict[str, int] = {}
    declaration: dict[str, Any] | None = None
    location: str | None = None
    archive_of: str | None = None
    format: int = SETTINGS_FORMAT

    def declared_mask(
        self, field: str, chunk_ids: NDArray[np.int64], next_chunk_ids: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """`(chunks,)`: chunks written completely while `field` was declared; only there may values be derived."""
        mask = np.zeros(len(chunk_ids), dtype=np.bool_)
        for declared in self.declared:
            if declared.field == field:
                mask |= (chunk_ids >= declared.start) & (next_chunk_ids <= declared.stop)
        return mask


def load_settings(folder: Path) -> StreamSettings | None:
    """The settings of a stream folder, None for a foreign one. Raises LogError for a wrong file.

    A wrong checksum is an error as well: a limit or a declared range that was never set would lose messages.
    """
    path = f"{folder}/{SETTINGS_NAME}"
    try:
        with open(path, "rb", buffering=0) as file:
            raw = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not raw:
        raise LogError(
            "not the settings of a stream: an empty file, as a power loss may leave it; restore it, or remove the "
            "folder to have the stream made anew",
            path=path,
        )
    try:
        fields, fault = decode_checked(raw)
        format_ = fields.get("format", SETTINGS_FORMAT)
        if format_ != SETTINGS_FORMAT:
            raise LogError(
                f"settings of format {format_}, expected {SETTINGS_FORMAT}: written by another version of Headgate, or "
                "damaged",
                path=path,
            )
        if fault is not None:
            raise LogError(f"not the settings of a stream: {fault}; {_REMEDY}", path=path)
        return msgspec.convert(fields, StreamSettings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogError(f"not the settings of a stream: {error}; {_REMEDY}", path=path) from error


def check_identity(folder: Path, identity: str, *, name: str) -> None:
    """Raises StreamNotFoundError if the stream was deleted, StreamReplacedError if another stream has its name.

    `name` is for the error. Cost: reading `stream.json`, some 20 µs.
    """
    settings = load_settings(folder)
    if settings is None:
        # The name of a foreign folder, or of an adopted one without settings, is its identity.
        if not (folder.is_dir() and folder.resolve().name == identity):
            raise StreamNotFoundError(f"stream {name!r} with the identity {identity} was deleted", path=folder)
    elif settings.identity != identity:
        raise StreamReplacedError(
            f"stream {name!r} with the identity {identity} was deleted, and created again with the identity "
            f"{settings.identity}",
            path=folder,
        )


def save_settings(folder: Path, settings: StreamSettings, *, flushed: bool = True) -> None:
    """Replace the settings of a stream folder by rename; if `flushed`, they also survive a power loss."""
    fields = msgspec.to_builtins(settings)
    for name in ("initial_offset", "remote", "remote_after_ms", "local_bytes", "body_schema"):
        # A field that earlier versions do not know is written only where it says something.
        if not fields["arguments"][name]:
            del fields["arguments"][name]
    for name in ("location", "archive_of"):
        if fields[name] is None:
            del fields[name]
    replace_file(folder / SETTINGS_NAME, encode_checked(fields), flushed=flushed)


def declared_covering(
    settings: StreamSettings, filter_source: str | None, *, next_offset: int, stop: int
) -> tuple[DeclaredRange, ...]:
    """The declared ranges to keep before offsets `next_offset … stop` are written with values from `filter_source`.

    If `filter_source` is the declared one, the last range covers these offsets, and some more, so that not every write
    changes the file. Otherwise no range extends beyond `next_offset`.
    """
    declared = list(settings.declared)
    last = declared[-1] if declared else None
    if filter_source is None or filter_source != settings.filter_source:
        return settings.declared if last is None or last.stop <= next_offset else declared_before(settings, next_offset)
    start = next_offset
    if last is not None and last.field == filter_source and last.stop >= next_offset:
        if last.stop >= stop:
            return settings.declared
        declared.pop()
        start = last.start
    declared.append(DeclaredRange(filter_source, start, stop + _DECLARED_AHEAD))
    # The oldest ranges may be dropped: without one a reader skips less, never too much.
    return tuple(declared[-_MAX_DECLARED_RANGES:])


def declared_before(settings: StreamSettings, next_offset: int) -> tuple[DeclaredRange, ...]:
    """The declared ranges, cut to the written offsets."""
    cut = (msgspec.structs.replace(declared, stop=min(declared.stop, next_offset)) for declared in settings.declared)
    return tuple(declared for declared in cut if declared.start < declared.stop)
