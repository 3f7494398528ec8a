"""The declared source of a stream's filter values: filled in when messages are published."""

from __future__ import annotations

import numpy as np

from headgate.errors import CorruptChunkError, PreconditionFailedError
from headgate.evaluate import locate_values
from headgate.log import (
    EXPANSION_LIMIT_BYTES,
    Entries,
    FilterValues,
    Int64Array,
    SubBatch,
    entries_of,
    gather,
    unpack_entries,
)
from headgate.message import SLACK_BYTES, EncodedMessages, FieldReference


def fill_from_source(entries: Entries, field: FieldReference, *, stream: str) -> Entries:
    """The entries with filter values taken from a field of each message.

    Sub-batches stay as they came; each is unpacked for the values of its messages. Raises PreconditionFailedError for a
    message whose given filter value differs from its field, and for a sub-batch that cannot be unpacked or is longer
    than 64 MiB.
    """
    packed = None if entries.records is None else entries.records > 0
    if entries.records is None or packed is None or not packed.any():
        messages = with_slack(entries.data, entries.starts, entries.lengths)
        starts, lengths = locate_values(messages, field)
        values = FilterValues(messages.data, starts, lengths)
        if entries.filter_values is not None:
            _check_given(entries.filter_values, values, stream)
        return Entries(messages.data, messages.starts, messages.lengths, values)
    alone = ~packed
    plain = entries.take(alone)
    plain.records = None
    plain = fill_from_source(plain, field, stream=stream)
    assert plain.filter_values is not None
    starts, lengths = np.zeros(len(entries), np.int64), np.full(len(entries), -1, np.int64)
    starts[alone], lengths[alone] = plain.filter_values.starts, plain.filter_values.lengths
    values = FilterValues(plain.filter_values.data, starts, lengths)
    members = [_values_of_members(entries, row, field, stream) for row in np.flatnonzero(packed).tolist()]
    return Entries(plain.data, entries.starts, entries.lengths, values, entries.records, FilterValues.joined(members))


def with_slack(
    data: np.ndarray[tuple[int], np.dtype[np.uint8]], starts: Int64Array, lengths: Int64Array
) -> EncodedMessages:
    """Messages over a buffer with the slack that kernels need; copied if it has too little."""
    stop = int((starts + lengths).max(initial=0))
    if stop + SLACK_BYTES > len(data):
        data = np.concatenate([data, np.zeros(SLACK_BYTES, dtype=np.uint8)])
    return EncodedMessages(data, starts, lengths)


def _check_given(given: FilterValues, found: FilterValues, stream: str) -> None:
    rows = np.flatnonzero(given.lengths > 0)
    same = np.array_equal(given.lengths[rows], found.lengths[rows]) and np.array_equal(
        gather(given.data, given.starts[rows], given.lengths[rows]),
        gather(found.data, found.starts[rows], found.lengths[rows]),
    )
    if not same:
        raise PreconditionFailedError(
            "a message has another filter value than the field that the stream declares for it; leave the value out",
            subject=stream,
        )


def _values_of_members(entries: Entries, row: int, field: FieldReference, stream: str) -> FilterValues:
    """The filter values of the messages in one sub-batch, copied, as the expanded messages are not kept."""
    assert entries.records is not None
    start, length, records = int(entries.starts[row]), int(entries.lengths[row]), int(entries.records[row])
    try:
        (entry,) = entries_of(entries.data.data[start : start + length], 1, path=stream, position=0)
        if not isinstance(entry, SubBatch) or entry.num_records != records:
            raise CorruptChunkError(f"it is no sub-batch of {records} messages", path=stream)
        unpacked = unpack_entries([entry], limit_bytes=EXPANSION_LIMIT_BYTES, path=stream, position=0)
    except CorruptChunkError as error:
        raise PreconditionFailedError(
            f"a sub-batch cannot be unpacked for its filter values: {error.reason}", subject=stream
        ) from error
    messages = EncodedMessages(unpacked.data, unpacked.starts, unpacked.lengths)
    starts, lengths = locate_values(messages, field)
    return FilterValues(messages.data, starts, lengths).copy()
