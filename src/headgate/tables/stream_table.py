"""`read`: a range of a stream as a table, without Spark: filtered, decoded, and handed over in batches.

    folder   plan (stage 1) ──► column files, ranges of chunks ──► threads: stage 2, columns ──► batches in stream order
    server   one subscription (the filter goes along where the server can evaluate it) ──► batches

The offsets are fixed when the table is made: it gives the same rows however often it is read, as long as retention
keeps them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate import clock
from headgate.client import Client, ServerAddress
from headgate.derived import sources_of
from headgate.errors import OffsetOutOfRangeError
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.log import OffsetSpecification, Stream, resolve_stream
from headgate.scan import OffsetRange, ScanCounters, ScanRequest
from headgate.tables.folder import Folder, WholeColumnFile, batches_of, table_range
from headgate.tables.rows import Columns
from headgate.tables.server_messages import read_served
from headgate.tables.values import ANNOTATION

DEFAULT_ROOT = "headgate-data"
ROOT_VARIABLE = "HEADGATE_ROOT"

OffsetLike = str | int | OffsetSpecification
"""Where a read begins or ends: `first`, `last`, `next`, an offset, an interval such as `10m`, an ISO time."""


def read(
    stream: str | Path,
    *,
    columns: str | Iterable[str] | None = None,
    filter: str | Filter | None = None,
    dialect: str = DEFAULT_DIALECT,
    filter_values: Iterable[str] = (),
    match_unfiltered: bool = False,
    start: OffsetLike = "first",
    stop: OffsetLike | None = None,
    root: str | Path | None = None,
    server: str | ServerAddress | None = None,
    dictionaries: Iterable[str] = (),
    threads: int | None = None,
) -> StreamTable:
    """A range of a stream as a table; reading begins with the first request for a batch.

    `stream` is a name under `root` (default: the environment's HEADGATE_ROOT), the path of a folder, or a name on a
    `server`. `columns` is as in "offset, p.subject, body.total double as total" (`message.arrow.declared_columns`);
    without it offset, timestamp, properties and body. The rows are the messages for which `filter` is true, with
    `filter_values` only messages of these values. `stop` is the offset behind the last one, by default the present end.
    Columns of texts that are named in `dictionaries` come as dictionary arrays. Rows come from column files that have
    all requested columns; kept files also give rows of offsets that the log lost. `threads`: default 2, or fewer on a
    machine with fewer processors.

    Raises ConfigError, FilterError with position and caret, StreamNotFoundError, OffsetOutOfRangeError for a `start`
    that retention deleted, errors of the connection.
    """
    parsed = Columns.parse(columns, dictionaries)
    now_ms = clock.now_ms()
    request = ScanRequest(
        filter=Filter.parse(filter, dialect) if isinstance(filter, str) else filter,
        filter_values=tuple(value.encode() for value in filter_values),
        match_unfiltered=match_unfiltered,
        now_ms=now_ms,
        sources=sources_of(),
    )
    begin, end = offset_specification(start), None if stop is None else offset_specification(stop)
    if server is not None:
        address = server if isinstance(server, ServerAddress) else ServerAddress.parse(server)
        return StreamTable(parsed, request, _of_server(address, str(stream), begin, end, now_ms))
    found = _found(stream, root)
    folder = Folder(found, table_range(found, begin, end, now_ms=now_ms), _threads(threads))
    folder.check(parsed, request)
    return StreamTable(parsed, request, folder)


def offset_specification(given: OffsetLike) -> OffsetSpecification:
    """The specification of an end of a read. Raises ConfigError for other texts."""
    return given if isinstance(given, OffsetSpecification) else OffsetSpecification.parse(str(given))


def _found(stream: str | Path, root: str | Path | None) -> Stream:
    """A folder of that path, else the stream of that name under the root. Raises StreamNotFoundError."""
    return resolve_stream(str(stream), default_root() if root is None else Path(root))


def _threads(given: int | None) -> int:
    return max(1, min(2, os.cpu_count() or 1) if given is None else given)


class StreamTable:
    """Rows of a stream: an Arrow stream by the PyCapsule interface, so every library that knows Arrow takes it.

    Each reading begins anew. Memory: for each thread the asked rows of 16 MiB of the log, or of a row group of a column
    file, and as much that waits to be taken.
    """

    def __init__(
        self, columns: Columns, request: ScanRequest, source: Folder | _Server, counters: ScanCounters | None = None
    ) -> None:
        self._columns = columns
        self._request = request
        self._source = source
        self.counters = ScanCounters() if counters is None else counters
        """Counters of the readings so far, skipped parts included; without the rows of polars' own reader."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._columns.schema

    @property
    def offsets(self) -> tuple[int, int]:
        """The first offset of the range, and the one behind its last."""
        return self._source.within.start, self._source.within.stop

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in stream order. Raises LogError for damage, errors of the connection."""
        return self._source.batches(self._columns, self._request, self.counters)

    def reader(self) -> pa.RecordBatchReader:
        """The same for pyarrow."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_schema__(self) -> object:
        """The schema by Arrow's PyCapsule interface."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows by Arrow's PyCapsule interface."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows, as a table of pyarrow."""
        return self.reader().read_all()

    def to_polars(self) -> Any:
        """All rows, as a DataFrame of polars, whose own reader takes column files. Raises ImportError without polars.

        That reader uses as many threads as polars does.
        """
        import polars

        from headgate.tables.polars_files import rows_of_files

        types = polars.DataFrame(self.schema.empty_table()).schema
        categories = polars.Schema((name, types[name]) for name in self._columns.dictionaries)
        frames: list[polars.LazyFrame] = []
        files: list[WholeColumnFile] = []
        for part in [*self.column_files_and_tail(filtered=True), None]:
            if isinstance(part, WholeColumnFile):
                files.append(part)
                continue
            frames += (rows.cast(categories) for rows in rows_of_files(files))
            files = []
            if part is not None:
                frames.append(polars.DataFrame(part.to_arrow()).lazy())
        return polars.concat(frames).collect()

    def to_pandas(self) -> Any:
        """All rows, as a DataFrame of pandas. Raises ImportError without pandas."""
        return self.to_arrow().to_pandas()

    def column_files_and_tail(self, *, filtered: bool = False) -> list[WholeColumnFile | StreamTable]:
        """The same rows in parts, in stream order: column files for other readers of Parquet, and tables for the rest.

        A file was checked to the last byte, and will be there for ten minutes at least. With filter values there is no
        file; with a filter only where `filtered` says that the reader goes by `WholeColumnFile.filter`. Cost: reading
        the files once in the life of a process. Raises ConfigError, LogError.
        """
        if isinstance(self._source, _Server) or (self._request.filter is not None and not filtered):
            return [self]
        parts = list(self._source.whole_files(self._columns, self._request))
        if not any(isinstance(part, WholeColumnFile) for part in parts):
            return [self]
        return [
            part
            if isinstance(part, WholeColumnFile)
            else StreamTable(self._columns, self._request, replace(self._source, within=part), self.counters)
            for part in parts
        ]

    def __repr__(self) -> str:
        start, stop = self.offsets
        return f"<StreamTable {self._source.name!r}, offsets {start} … {stop}: {', '.join(self.schema.names)}>"


@dataclass(frozen=True, slots=True)
class _Server:
    """A range of a stream on a server."""

    address: ServerAddress
    name: str
    within: OffsetRange

    def batches(self, columns: Columns, request: ScanRequest, counters: ScanCounters) -> Iterator[pa.RecordBatch]:
        counted = ScanCounters()
        with (
            Client.connect(self.address, keep=True) as client,
            closing(read_served(client, self.name, self.within, request, counted)) as scanned,
        ):
            try:
                yield from batches_of(scanned, columns, ANNOTATION)
                self._check_whole(client, counted.messages_evaluated)
            finally:
                counters.add(counted)

    def _check_whole(self, client: Client, evaluated: int) -> None:
        """Raise an error if the beginning was deleted; missing offsets prove nothing, a filter leaves out some."""
        if evaluated < self.within.stop - self.within.start:
            first = client.statistics(self.name).first_chunk_id
            if first is None or first > self.within.start:
                raise OffsetOutOfRangeError(
                    f"offsets from {self.within.start} on of stream {self.name!r} were deleted before they were read",
                    path=f"{self.address.place}/{self.name}",
                )


def _of_server(
    address: ServerAddress, name: str, start: OffsetSpecification, stop: OffsetSpecification | None, now_ms: int
) -> _Server:
    with Client.connect(address) as client:
        places = (OffsetSpecification.first(), OffsetSpecification.next())
        first, behind = (client.resolve_offset(name, place) for place in places)

        def offset_of(place: OffsetSpecification) -> int:
            return min(max(client.resolve_offset(name, place.resolve(now_ms)), first), behind)

        end = behind if stop is None else offset_of(stop)
        return _Server(address, name, OffsetRange(min(offset_of(start), end), end))


def default_root() -> Path:
    """Where streams are looked for by name when no root is given."""
    return Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)
