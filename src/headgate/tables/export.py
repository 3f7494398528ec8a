"""Writing the rows of a table to a file: Parquet, Arrow IPC, CSV or JSON lines, as its name says."""

from __future__ import annotations

import base64
import contextlib
import datetime
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from headgate.errors import ConfigError
from headgate.tables.stream_table import StreamTable

Write = Callable[[pa.RecordBatch], None]
Progress = Callable[[int], None]
"""Called with the number of rows that are written so far."""

_UNFINISHED = ".unfinished"


def write_table(table: StreamTable, path: str | Path, *, progress: Progress = lambda _rows: None) -> int:
    """Write all rows to a file, which is replaced when they are complete; how many there were.

    The name ends with `.parquet` (zstd), `.arrow` (IPC file, zstd), `.csv`, `.ndjson` or `.jsonl`. In CSV and JSON
    bytes are text where they are UTF-8, else base64; numbers that JSON lacks are null; times are ISO 8601 in UTC. CSV
    has no nested columns. Raises ConfigError for another name or a column that the format has no form for, LogError,
    OSError.
    """
    target = Path(path)
    opened = _FORMATS.get(target.suffix)
    if opened is None:
        raise ConfigError(f"{target}: the name tells the format; expected it to end with {', '.join(_FORMATS)}")
    if target.suffix == ".csv":
        nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
        if nested:
            raise ConfigError(
                f"CSV has no form for {', '.join(nested)}; name single fields with columns, as in 'p.subject'"
            )
    unfinished = target.with_name(target.name + _UNFINISHED)
    rows = 0
    try:
        with unfinished.open("wb") as file, opened(file, table.schema) as write:
            for batch in table.batches():
                write(batch)
                rows += batch.num_rows
                progress(rows)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


@contextlib.contextmanager
def _parquet(file: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, schema, compression="zstd", write_page_index=True) as writer:
        yield writer.write_batch


@contextlib.contextmanager
def _arrow(file: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    # A file has one dictionary a column: what differs from batch to batch goes as it is.
    plain = pa.schema([field.with_type(_without_dictionary(field.type)) for field in schema])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(file, plain, options=options) as writer:
        yield lambda batch: writer.write_batch(batch.cast(plain))


def _without_dictionary(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@contextlib.contextmanager
def _csv(file: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    import pyarrow.csv as csv

    shown = pa.schema([pa.field(field.name, _shown_type(field.type)) for field in schema])

    def write(batch: pa.RecordBatch) -> None:
        arrays = [_shown(batch.column(number), shown.field(number).type) for number in range(batch.num_columns)]
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=shown))

    with csv.CSVWriter(file, shown) as writer:
        yield write


def _shown_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_binary(kind) or pa.types.is_timestamp(kind) or pa.types.is_dictionary(kind):
        return pa.string()
    return kind


def _shown(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_dictionary(array.type):
        return array.cast(kind)
    return pa.array([_plain(value) for value in _values(array)], type=kind)


@contextlib.contextmanager
def _json_lines(file: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    encode = msgspec.json.Encoder().encode

    def write(batch: pa.RecordBatch) -> None:
        columns = [_values(batch.column(number)) for number in range(batch.num_columns)]
        file.write(
            b"".join(
                encode({name: _plain(value) for name, value in zip(schema.names, row, strict=True)}) + b"\n"
                for row in zip(*columns, strict=True)
            )
        )

    yield write


def _values(array: pa.Array) -> list[Any]:
    """Its values; times as microseconds since 1970 in `_Microseconds`: Python's own end with the year 9999."""
    if pa.types.is_timestamp(array.type):
        return [None if value is None else _Microseconds(value) for value in array.view(pa.int64()).to_pylist()]
    if pa.types.is_struct(array.type):
        members = [_values(member) for member in array.flatten()]
        names = [field.name for field in array.type]
        rows = zip(*members, strict=True) if members else iter([()] * len(array))
        return [
            dict(zip(names, row, strict=True)) if is_valid else None
            for row, is_valid in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    found: list[Any] = array.to_pylist()
    return found


class _Microseconds(int):
    """A time."""


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _plain(value: Any) -> Any:
    match value:
        case _Microseconds():
            try:
                return (_EPOCH + datetime.timedelta(microseconds=value)).isoformat().replace("+00:00", "Z")
            except OverflowError:
                return int(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {name: _plain(member) for name, member in value.items()}
        case _:
            return value


_FORMATS: dict[str, Callable[[BinaryIO, pa.Schema], contextlib.AbstractContextManager[Write]]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".csv": _csv,
    ".ndjson": _json_lines,
    ".jsonl": _json_lines,
}
