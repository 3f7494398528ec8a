"""The rows of a file, as record batches of the columns that a mapping names: Parquet, Arrow, CSV, JSON lines.

Memory: a few batches of at most 4 096 rows; for CSV some blocks of 16 MiB, which is also the limit of a row, for JSON
lines 1 MiB or the longest line. For Parquet the decoded pages.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa

from headgate.errors import ConfigError, DataError
from headgate.message import amqp_value, encode_variant, from_plain_or_typed, holds_decimal
from headgate.message.arrow import variant_type
from headgate.tables.mapping import ColumnMapping, MappedRows

_BATCH_ROWS = 4_096
_CSV_BLOCK_BYTES = 16 << 20
_EXCERPT_BYTES = 40
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
"""Numbers keep their digits until the type of a field is applied."""
_encode = msgspec.json.Encoder(decimal_format="number").encode
_MAPS = ("application_properties", "message_annotations")
_SECTIONS = ("header", "properties", *_MAPS)


@dataclass(frozen=True, slots=True)
class RowFile:
    """Rows that become messages; `rows` is how many there are, where the format tells."""

    mapping: ColumnMapping
    rows: int | None
    unmapped: tuple[str, ...]
    """Columns of the file that become nothing."""
    batches: Iterator[pa.RecordBatch]

    def mapped(self, filter_source: str | None) -> Iterator[MappedRows]:
        """The messages in the order of the file; `filter_source` is the declared one of the stream.

        Raises ConfigError naming row and column, after the rows before that one; OSError.
        """
        first_row = 1
        while True:
            with _readable_rows(first_row):
                batch = next(self.batches, None)
            if batch is None:
                return
            yield from self.mapping.mapped(batch, first_row, filter_source)
            first_row += batch.num_rows


@contextlib.contextmanager
def _readable_rows(first_row: int) -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise DataError(f"row {first_row} or one behind it cannot be read: {error}") from error


@contextlib.contextmanager
def open_rows(path: str | Path, mapping: ColumnMapping | None) -> Iterator[RowFile]:
    """The rows of a file `.parquet`, `.arrow` or `.csv`; without a mapping its columns are named as a message's.

    Raises ConfigError for another name, and columns that do not fit the mapping, DataError for a file that is not of
    the format of its name.
    """
    given = Path(path)
    opened = _FORMATS.get(given.suffix)
    if opened is None:
        raise ConfigError(f"{given}: the name tells the format; expected it to end with {', '.join(_FORMATS)}")
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(given.open("rb"))
        try:
            schema, rows, batches = stack.enter_context(opened(file))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{given}: cannot be read as {given.suffix[1:]}: {error}") from error
        chosen = ColumnMapping.of_names(schema.names) if mapping is None else mapping
        chosen = replace(chosen, is_text=given.suffix == ".csv")
        chosen.check(schema)
        names = [name for name in schema.names if name in chosen.columns]
        unmapped = tuple(name for name in schema.names if name not in (*chosen.columns, "offset", "timestamp"))
        yield RowFile(chosen, rows, unmapped, batches(names))


Batches = Callable[[list[str]], Iterator[pa.RecordBatch]]
_Opened = tuple[pa.Schema, int | None, Batches]


@contextlib.contextmanager
def _parquet(file: BinaryIO) -> Iterator[_Opened]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:

        def batches(names: list[str]) -> Iterator[pa.RecordBatch]:
            yield from opened.iter_batches(batch_size=_BATCH_ROWS, columns=names)

        yield opened.schema_arrow, opened.metadata.num_rows, batches


@contextlib.contextmanager
def _arrow(file: BinaryIO) -> Iterator[_Opened]:
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    with pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file) as opened:
        all_batches = (opened.get_batch(number) for number in range(opened.num_record_batches)) if is_file else opened

        def batches(names: list[str]) -> Iterator[pa.RecordBatch]:
            for batch in all_batches:
                for first in range(0, batch.num_rows, _BATCH_ROWS):
                    yield batch.select(names).slice(first, _BATCH_ROWS)

        yield opened.schema, None, batches


@contextlib.contextmanager
def _csv(file: BinaryIO) -> Iterator[_Opened]:
    import pyarrow.csv as csv

    # One value a row: an empty line is a null, where it is nothing with more columns.
    with csv.open_csv(file, read_options=csv.ReadOptions(block_size=_CSV_BLOCK_BYTES)) as opened:
        names = opened.schema.names
    file.seek(0)
    # Everything as bytes: so errors name the row of a value that its field does not take, or that is not UTF-8.
    schema = pa.schema([(name, pa.binary()) for name in names])
    reading = csv.open_csv(
        file,
        read_options=csv.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) != 1),
        convert_options=csv.ConvertOptions(
            column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )

    def batches(names: list[str]) -> Iterator[pa.RecordBatch]:
        for block in reading:
            for first in range(0, block.num_rows, _BATCH_ROWS):
                yield block.select(names).slice(first, _BATCH_ROWS)

    with reading:
        yield schema, None, batches


_FORMATS: dict[str, Callable[[BinaryIO], contextlib.AbstractContextManager[_Opened]]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".csv": _csv,
}


def json_rows(lines: Iterator[list[bytes]], mapping: ColumnMapping) -> RowFile:
    """The rows of JSON lines, in groups; publishing a group does not wait for the next one."""
    return RowFile(replace(mapping, is_text=True), None, (), _of_lines(lines, mapping))


def _of_lines(parts: Iterator[list[bytes]], mapping: ColumnMapping) -> Iterator[pa.RecordBatch]:
    fields = {each.name: "" for each in mapping.single} | {column: field for field, column in mapping.whole.items()}
    number = 0
    for lines in parts:
        rows: list[dict[str, Any]] = []
        wrong = None
        for line in filter(bytes.strip, lines):
            number += 1
            try:
                found = _object(line)
                rows.append(
                    {
                        column: _cell(field, column, found.get(column), exact=field not in mapping.rounded)
                        for column, field in fields.items()
                    }
                )
            except ConfigError as error:
                wrong = ConfigError(f"row {number}: {error}")
                break
        if rows:
            arrays = {column: _array(field, [row[column] for row in rows]) for column, field in fields.items()}
            yield pa.record_batch(arrays)
        if wrong is not None:
            raise wrong


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = line[:_EXCERPT_BYTES].decode(errors="replace")
        raise ConfigError(f"found {shown!r}, expected a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"found {type(found).__name__}, expected a JSON object")
    return found


def _cell(field: str, column: str, value: Any, *, exact: bool) -> Any:
    """Text, from which the type of the field is made; for a section its fields as text, or a VARIANT."""
    if value is None or field not in _SECTIONS:
        return _text(value)
    if not isinstance(value, dict):
        raise ConfigError(f"column {column!r}: found {value!r}, expected an object")
    if field not in _MAPS:
        return {name: _text(member) for name, member in value.items()}
    try:
        plain = _with_floats(value, exact)
        entries = [(amqp_value(name), amqp_value(from_plain_or_typed(member))) for name, member in plain.items()]
    except ConfigError as error:
        raise ConfigError(f"column {column!r}: {error}") from None
    return dict(zip(("value", "metadata"), encode_variant(entries), strict=True))


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _encode(value).decode()


def _with_floats(value: Any, exact: bool, kind: str | None = None) -> Any:
    """JSON as `msgspec` decodes it by default; `kind` is the type that typed JSON says of it.

    Raises ConfigError for a number that the float does not hold (`conversion`).
    """
    if isinstance(value, Decimal) or (type(value) is int and kind in ("float", "double")):
        number = Decimal(value)
        with np.errstate(over="ignore"):
            held = float(np.float32(float(number))) if kind == "float" else float(number)
        if not math.isfinite(held) or (exact and not holds_decimal(number, held, is_double=kind != "float")):
            raise ConfigError(f"found {number}, expected a number that a {kind or 'double'} holds")
        return held
    if isinstance(value, list):
        return [_with_floats(member, exact, kind) for member in value]
    if isinstance(value, dict):
        typed = value.get("of", value.get("t"))
        return {name: _with_floats(member, exact, typed if name == "v" else None) for name, member in value.items()}
    return value


def _array(field: str, cells: list[Any]) -> pa.Array:
    if field in _MAPS:
        return pa.array(cells, type=variant_type())
    if field not in _SECTIONS:
        return pa.array(cells, type=pa.string())
    names = dict.fromkeys(name for cell in cells for name in cell or ())
    return pa.array(cells, type=pa.struct([(name, pa.string()) for name in names]))
