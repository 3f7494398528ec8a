"""The declared source of a stream's filter values: filled in when messages are published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.errors import CorruptChunkError, PreconditionFailedError
from headgate.log.build import FilterValues, gather
from headgate.log.entries import EXPANSION_LIMIT_BYTES, SubBatch, entries_of
from headgate.log.runs import Entries
from headgate.message.batch import SLACK_BYTES, EncodedMessages
from headgate.message.fields import FieldReference
from headgate.message.lookup import locate_bytes


@dataclass(slots=True)
class Filled:
    """Messages with their filter values, and per message the row of the entry that it came in, None: one each."""

    entries: Entries
    rows: np.ndarray[tuple[int], np.dtype[np.int64]] | None


def fill_from_source(entries: Entries, field: FieldReference, *, stream: str) -> Filled:
    """The entries with the filter values that the field of each message gives.

    Sub-batches become messages: their values count as well. Raises PreconditionFailedError for a message that was given
    another value than its field has, and for a sub-batch that cannot be unpacked or is longer than 64 MiB.
    """
    if entries.records is None or not (entries.records > 0).any():
        filled = Filled(Entries(entries.data, entries.starts, entries.lengths, entries.filter_values), None)
    else:
        filled = _unpacked(entries, stream)
    messages = _with_slack(filled.entries)
    starts, lengths = locate_bytes(messages, field)
    values = FilterValues(messages.data, starts, lengths)
    if filled.entries.filter_values is not None:
        _check_given(filled.entries.filter_values, values, stream)
    filled.entries = Entries(messages.data, messages.starts, messages.lengths, values)
    return filled


def _with_slack(entries: Entries) -> EncodedMessages:
    stop = int((entries.starts + entries.lengths).max(initial=0))
    data = entries.data
    if stop + SLACK_BYTES > len(data):
        data = np.concatenate([data, np.zeros(SLACK_BYTES, dtype=np.uint8)])
    return EncodedMessages(data, entries.starts, entries.lengths)


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


def _unpacked(entries: Entries, stream: str) -> Filled:
    assert entries.records is not None
    bodies: list[bytes] = []
    values: list[bytes | None] = []
    rows: list[int] = []
    room = EXPANSION_LIMIT_BYTES
    view = entries.data.data
    for row, (start, length, records) in enumerate(
        zip(entries.starts.tolist(), entries.lengths.tolist(), entries.records.tolist(), strict=True)
    ):
        stored = view[start : start + length]
        if not records:
            bodies.append(bytes(stored))
            values.append(None if entries.filter_values is None else entries.filter_values.value(row))
            rows.append(row)
            continue
        try:
            (entry,) = entries_of(stored, 1, path=stream, position=0)
            if not isinstance(entry, SubBatch):
                raise CorruptChunkError("it is a message", path=stream)
            messages = list(entry.messages(limit_bytes=room, path=stream, position=0))
        except CorruptChunkError as error:
            raise PreconditionFailedError(
                f"a sub-batch cannot be unpacked for its filter values: {error.reason}", subject=stream
            ) from error
        room -= sum(len(message) for message in messages)
        bodies += messages
        values += [None] * len(messages)
        rows += [row] * len(messages)
    joined = EncodedMessages.of(bodies)
    given = None if entries.filter_values is None else FilterValues.of(values)
    return Filled(Entries(joined.data, joined.starts, joined.lengths, given), np.array(rows, dtype=np.int64))
