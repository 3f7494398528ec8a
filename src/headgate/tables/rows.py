"""From kept messages to rows: the columns of a table, each an Arrow array."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.errors import ConfigError
from headgate.evaluate import body_values
from headgate.message import EncodedMessages, FieldReference
from headgate.message.arrow import COLUMNS as MESSAGE_COLUMNS
from headgate.message.arrow import DeclaredColumn, column_type, columns_of, declared_columns, fields_of
from headgate.tables.values import field_values, values_column

_TIMESTAMP = pa.timestamp("us", tz="UTC")

PLACE_COLUMNS = {
    "offset": pa.field("offset", pa.int64(), nullable=False),
    "timestamp": pa.field("timestamp", _TIMESTAMP, nullable=False),
    "filter_value": pa.field("filter_value", pa.string()),
}
"""Columns that say where a message lies in its stream, and the value that stage 1 knows it by."""

DEFAULT_COLUMNS = ("offset", "timestamp", "properties", "body")
MOST_ROWS = 65_536

_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table in their order; `dictionaries` names the columns with repeating texts."""

    asked: tuple[DeclaredColumn | str, ...]
    dictionaries: frozenset[str] = frozenset()

    @staticmethod
    def parse(columns: str | Iterable[str] | None, dictionaries: Iterable[str] = ()) -> Columns:
        """Columns as `declared_columns` reads them, one text for all or one for each; ConfigError."""
        if columns is None:
            asked: tuple[DeclaredColumn | str, ...] = DEFAULT_COLUMNS
        else:
            asked = declared_columns(columns if isinstance(columns, str) else ", ".join(columns))
        known = (*PLACE_COLUMNS, *MESSAGE_COLUMNS)
        for each in asked:
            if isinstance(each, str) and each not in known:
                raise ConfigError(
                    f"columns: there is no column {each!r}; expected {', '.join(known)}, or a property with its type, "
                    f"as in '{each} string'"
                )
        repeating = frozenset(dictionaries)
        texts = [field.name for field in Columns(asked).schema if pa.types.is_string(field.type)]
        for name in sorted(repeating.difference(texts)):
            raise ConfigError(f"dictionaries: {name!r} is no column of texts; there are {', '.join(texts) or 'none'}")
        return Columns(asked, repeating)

    @property
    def schema(self) -> pa.Schema:
        """Names and types."""
        return _schema_of(self)

    def field(self, asked: DeclaredColumn | str) -> pa.Field:
        """Name and type of one of them."""
        if isinstance(asked, str) and asked in PLACE_COLUMNS:
            field = PLACE_COLUMNS[asked]
        elif isinstance(asked, str):
            field = pa.field(asked, column_type(asked))
        else:
            field = pa.field(asked.name, asked.type)
        return field.with_type(_DICTIONARY) if field.name in self.dictionaries else field

    @property
    def need_messages(self) -> bool:
        """Whether the bytes of messages are needed; not if only offsets and times are requested."""
        return any(each not in ("offset", "timestamp") for each in self.asked)

    def batch(
        self,
        messages: EncodedMessages,
        offsets: NDArray[np.int64],
        timestamps_ms: NDArray[np.int64],
        value_field: FieldReference,
    ) -> pa.RecordBatch:
        """The rows of some messages; `value_field` is the field of their filter values."""
        whole = [each for each in self.asked if isinstance(each, str)]
        arrays = place_columns(whole, messages, offsets, timestamps_ms, value_field)
        arrays |= columns_of(messages, [name for name in whole if name in MESSAGE_COLUMNS])
        fields = [each for each in self.asked if isinstance(each, DeclaredColumn)]
        arrays |= fields_of(messages, fields, body_values(messages, fields))
        return self.batch_of([arrays[name] for name in self.schema.names])

    def batch_of(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        """Rows of these arrays, in the order of the columns; any texts may be dictionary arrays."""
        schema = self.schema
        columns = [
            array
            if array.type == field.type
            else _repeating(array)
            if field.name in self.dictionaries
            else array.cast(field.type)
            for array, field in zip(arrays, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _repeating(array: pa.Array) -> pa.Array:
    """Texts as they come in `dictionaries`."""
    return array.cast(_DICTIONARY) if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of at most `MOST_ROWS` for readers."""
    return (batch.slice(first, MOST_ROWS) for first in range(0, batch.num_rows, MOST_ROWS))


@functools.lru_cache(64)
def _schema_of(columns: Columns) -> pa.Schema:
    return pa.schema([columns.field(each) for each in columns.asked])


def place_columns(
    names: Collection[str],
    messages: EncodedMessages,
    offsets: NDArray[np.int64],
    timestamps_ms: NDArray[np.int64],
    value_field: FieldReference,
) -> dict[str, pa.Array]:
    """The columns of `PLACE_COLUMNS` that are in `names`. Raises ConfigError for more than 2 GiB of values."""
    arrays: dict[str, pa.Array] = {}
    if "offset" in names:
        arrays["offset"] = pa.array(offsets)
    if "timestamp" in names:
        arrays["timestamp"] = pa.array(timestamps_ms * 1000).view(_TIMESTAMP)
    if "filter_value" in names:
        arrays["filter_value"] = values_column(field_values(messages, value_field))
    return arrays
