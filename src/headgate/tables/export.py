"""Writing the rows of a table to a file: Parquet, Arrow IPC, CSV or JSON lines, as its name says."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from headgate.errors import ConfigError
from headgate.message import decode_variant, plain_json
from headgate.message.arrow import variant_type
from headgate.parquet import ParquetWriter
from headgate.tables.stream_table import StreamTable
from headgate.tables.text_values import text_of_bytes, texts_of_times

Write = Callable[[pa.RecordBatch], None]
Progress = Callable[[int], None]
"""Called with the number of rows that are written so far."""

_UNFINISHED = ".unfinished"


def write_table(table: StreamTable, path: str | Path, *, progress: Progress = lambda _rows: None) -> int:
    """Write all rows to a file, which is replaced when they are complete; how many there were.

    The name ends with `.parquet` (zstd), `.arrow` (IPC file, zstd), `.csv`, `.ndjson` or `.jsonl`. In CSV and JSON
    bytes are text where they are UTF-8, else base64 behind `base64:`; times are ISO 8601 in UTC. Numbers that JSON
    lacks are "NaN", "Infinity", "-Infinity" there, and a VARIANT is an object; CSV has no nested columns. Raises
    ConfigError for another name or a column that the format has no form for, LogError, OSError.
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
        with opened(unfinished, table.schema) as write:
            for batch in table.batches():
                write(batch)
                rows += batch.num_rows
                progress(rows)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


@contextlib.contextmanager
def _parquet(path: Path, schema: pa.Schema) -> Iterator[Write]:
    with ParquetWriter(path, schema, compression="zstd", write_page_index=True) as writer:
        yield lambda batch: writer.write(pa.Table.from_batches([batch]))


@contextlib.contextmanager
def _arrow(path: Path, schema: pa.Schema) -> Iterator[Write]:
    # A file has one dictionary per column: columns whose dictionary differs per batch are written as plain values.
    plain = pa.schema([field.with_type(_without_dictionary(field.type)) for field in schema])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, plain, options=options) as writer:
        yield lambda batch: writer.write_batch(batch.cast(plain))


def _without_dictionary(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@contextlib.contextmanager
def _csv(path: Path, schema: pa.Schema) -> Iterator[Write]:
    import pyarrow.csv as csv

    shown = pa.schema([pa.field(field.name, _shown_type(field.type)) for field in schema])

    def write(batch: pa.RecordBatch) -> None:
        arrays = [_shown(batch.column(number), shown.field(number).type) for number in range(batch.num_columns)]
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=shown))

    with csv.CSVWriter(path, shown) as writer:
        yield write


def _shown_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_binary(kind) or pa.types.is_timestamp(kind) or pa.types.is_dictionary(kind):
        return pa.string()
    return kind


def _shown(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    return array.cast(kind) if pa.types.is_dictionary(array.type) else pa.array(_values(array), type=kind)


@contextlib.contextmanager
def _json_lines(path: Path, schema: pa.Schema) -> Iterator[Write]:
    encode = msgspec.json.Encoder(decimal_format="number").encode

    def write(batch: pa.RecordBatch) -> None:
        columns = [_values(batch.column(number)) for number in range(batch.num_columns)]
        names = schema.names
        file.write(b"".join(encode(dict(zip(names, row, strict=True))) + b"\n" for row in zip(*columns, strict=True)))

    with path.open("wb") as file:
        yield write


def _values(array: pa.Array) -> list[Any]:
    """Its values in the forms of text formats."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return texts_of_times(array)
    if kind.equals(variant_type()):
        return [None if held is None else _object(held) for held in array.to_pylist()]
    if pa.types.is_struct(kind):
        members = [_values(member) for member in array.flatten()]
        names = [field.name for field in kind]
        return [
            dict(zip(names, row, strict=True)) if is_valid else None
            for row, is_valid in zip(zip(*members, strict=True), array.is_valid().to_pylist(), strict=True)
        ]
    found: list[Any] = array.to_pylist()
    if pa.types.is_binary(kind):
        return [None if value is None else text_of_bytes(value) for value in found]
    if pa.types.is_floating(kind):
        return [value if value is None or math.isfinite(value) else _SPECIAL[str(value)] for value in found]
    return found


def _object(variant: dict[str, bytes]) -> Any:
    return plain_json(decode_variant(variant["value"], variant["metadata"]))


_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_FORMATS: dict[str, Callable[[Path, pa.Schema], contextlib.AbstractContextManager[Write]]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".csv": _csv,
    ".ndjson": _json_lines,
    ".jsonl": _json_lines,
}
