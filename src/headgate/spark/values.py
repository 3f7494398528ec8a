"""Filter values of messages that tasks write."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import ConfigError
from headgate.log import FilterValues
from headgate.message import EncodedMessages, FieldReference, parse_field
from headgate.tables import ANNOTATION, field_values


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where the filter value of a message comes from: a `column` of the rows, or a `field` of the message."""

    column: str | None
    field: FieldReference

    def values(self, rows: pa.RecordBatch | None, messages: EncodedMessages) -> FilterValues:
        """One value, or none, per message; over the bytes of `messages` or of the column."""
        if self.column is None or rows is None:
            return field_values(messages, self.field)
        return column_values(rows.column(self.column))


def value_source(*, option: str | None, declared: str | None, columns: frozenset[str]) -> ValueSource:
    """The stream's declaration, else the option (column or field), else a column `filter_value`, else the annotation.

    Raises ConfigError where the option contradicts the declaration or names nothing.
    """
    if declared is not None:
        if option is not None and option != declared:
            raise ConfigError(
                f"headgate sink option filter_value: found {option!r}, but the stream declares that its filter values "
                f"come from {declared!r}; leave the option out"
            )
        return ValueSource(None, parse_field(declared))
    if option is not None:
        if option in columns:
            return ValueSource(option, ANNOTATION)
        if "." not in option:
            raise ConfigError(
                f"headgate sink option filter_value: there is no column {option!r}; expected one of "
                f"{', '.join(sorted(columns))}, or a field such as application_properties.region"
            )
        return ValueSource(None, parse_field(option))
    return ValueSource("filter_value" if "filter_value" in columns else None, ANNOTATION)


def target_field(*, option: str | None, declared: str | None) -> FieldReference | None:
    """The field of messages that a stream's filter values are made from; None: the annotation, by default.

    Raises ConfigError as `value_source` does.
    """
    if option is None and declared is None:
        return None
    return value_source(option=option, declared=declared, columns=frozenset()).field


def column_values(column: pa.Array) -> FilterValues:
    """The values of a string or binary column, null = none."""
    binary = column.cast(pa.binary()) if not pa.types.is_binary(column.type) else column
    _, offsets_buffer, data_buffer = binary.buffers()
    narrow = np.frombuffer(offsets_buffer, dtype=np.int32)[binary.offset : binary.offset + len(binary) + 1]
    offsets = narrow.astype(np.int64)
    data = np.zeros(0, dtype=np.uint8) if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)
    lengths = np.diff(offsets)
    if binary.null_count:
        lengths[pc.is_null(binary).to_numpy(zero_copy_only=False)] = -1
    return FilterValues(data, offsets[:-1], lengths.astype(np.int64))
