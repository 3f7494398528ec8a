"""Rows on their way to Spark: messages are kept encoded until there are enough, then the asked columns are made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import StructType

from headgate.evaluate import body_values
from headgate.message import EncodedMessages, FieldReference
from headgate.message.arrow import COLUMNS as MESSAGE_COLUMNS
from headgate.message.arrow import DeclaredColumn, fields_of
from headgate.scan import MessageBuffer, ScanBatch
from headgate.spark.mismatches import PropertyReader
from headgate.spark.schema import arrow_schema
from headgate.tables import ANNOTATION, place_columns

MOST_ROWS = 32_768
MOST_BYTES = 8 << 20
ENOUGH_ROWS = 4_096
"""A batch is handed to Spark when it has this many rows or bytes of messages; a window of chunks may go beyond it.

A window with `ENOUGH_ROWS` is a batch by itself.
"""


class Rows:
    """Rows on their way to Spark: kept as encoded messages until there are enough to decode at once."""

    def __init__(self, schema: StructType, properties: PropertyReader, fields: tuple[DeclaredColumn, ...] = ()) -> None:
        self._schema = arrow_schema(schema)
        self._properties = properties
        self._message_columns = [name for name in self._schema.names if name in MESSAGE_COLUMNS]
        self._fields = [each for each in fields if each.name in self._schema.names]
        self._needs_messages = bool(self._message_columns or self._fields) or "filter_value" in self._schema.names
        self._field: FieldReference = ANNOTATION
        self._kept = MessageBuffer()
        self._streams: list[tuple[int, str]] = []

    @property
    def counters(self) -> dict[str, int]:
        """The counters of making the columns, by name."""
        return self._properties.counters

    def __len__(self) -> int:
        return len(self._kept)

    def of_field(self, field: FieldReference) -> Iterator[pa.RecordBatch]:
        """From now on filter values come from `field`; gives the rows for which they come from another."""
        if field != self._field and len(self):
            yield self.take()
        self._field = field

    def of_stream(self, name: str) -> None:
        """From now on rows are of that stream; errors name it."""
        self._streams.append((len(self), name))

    def add(self, batch: ScanBatch) -> Iterator[pa.RecordBatch]:
        """Add the messages of a batch behind the kept ones; gives rows when there are enough to hand on.

        A batch that is large enough by itself is decoded in place; the remaining messages of smaller ones are copied
        together.
        """
        if len(batch) >= ENOUGH_ROWS and not len(self):
            yield self._rows(batch.messages, batch.offsets.copy(), batch.timestamps_ms)
            return
        self._kept.add(batch, with_bytes=self._needs_messages)
        if self._kept.reaches(MOST_ROWS, MOST_BYTES):
            yield self.take()

    def take(self) -> pa.RecordBatch:
        """The rows added since the last call."""
        return self._rows(*self._kept.take())

    def _rows(
        self, messages: EncodedMessages, offsets: NDArray[np.int64], timestamps_ms: NDArray[np.int64]
    ) -> pa.RecordBatch:
        def place_of(row: int) -> tuple[str, int]:
            stream = next((name for first, name in reversed(self._streams) if first <= row), "")
            return stream, int(offsets[row])

        arrays: dict[str, pa.Array] = {}
        if self._message_columns:
            arrays = self._properties.columns(messages, self._message_columns, place_of)
        if self._fields:
            arrays |= fields_of(messages, self._fields, body_values(messages, self._fields))
        arrays |= place_columns(self._schema.names, messages, offsets, timestamps_ms, self._field)
        self._streams = [(0, name) for _, name in self._streams[-1:]]
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)
