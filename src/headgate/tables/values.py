"""Filter values of messages, and as a column of a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.errors import ConfigError
from headgate.evaluate import locate_values
from headgate.log import FilterValues
from headgate.message import EncodedMessages, FieldReference, Section

ANNOTATION = FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-stream-filter-value")
"""Where a publisher puts the filter value of a message (rabbitmq_filters.md section 4)."""


def field_values(messages: EncodedMessages, field: FieldReference) -> FilterValues:
    """The field's bytes per message, over the messages' own buffer; none where it is absent or no kind of text."""
    starts, lengths = locate_values(messages, field)
    return FilterValues(messages.data, starts, lengths)


def values_column(values: FilterValues) -> pa.Array:
    """Values as a string column; none and the empty value, which means the same, are null.

    Bytes that are not UTF-8 are shown with replacement characters. Raises ConfigError.
    """
    lengths = np.maximum(values.lengths, 0)
    stops = np.cumsum(lengths)
    if len(stops) and stops[-1] > 2**31 - 1:
        raise ConfigError("column filter_value has more than 2 GiB in one batch; leave it out with the option columns")
    positions = np.repeat(values.starts - (stops - lengths), lengths) + np.arange(stops[-1] if len(stops) else 0)
    offsets = np.concatenate([[0], stops]).astype(np.int32)
    octets = values.data[positions]
    present = pa.array(lengths > 0)
    bitmap = present.buffers()[1]
    column = pa.Array.from_buffers(
        pa.binary(), len(lengths), [bitmap, pa.py_buffer(offsets), pa.py_buffer(octets)], offset=0
    )
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode("utf-8", "replace") for value in column.to_pylist()]
        return pa.array(texts, type=pa.string())
