"""Streams for benchmarks: any number of the events of `messages.py`, in arrival order or with filter values in runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from messages import event_batch

from headgate.evaluate.filter import Filter
from headgate.log import Stream, StreamArguments
from headgate.log.chunk_builder import ChunkLimits, FilterValues, build_chunks
from headgate.log.writer import Writer
from headgate.message import Message
from headgate.message.batch import EncodedMessages
from headgate.message.fields import parse_field

SUBJECT = parse_field("properties.subject")
ORDER_FILTER = (
    "p.subject = 'order.created' AND p.creation_time > 1700000000000 AND region IN ('AMER','EMEA','APJ') "
    "AND (h.priority > 4 OR price >= 99.99 OR premium_customer = TRUE)"
)
"""The combined filter of RabbitMQ's stream-filtering documentation."""

RARE_FILTER = (
    ORDER_FILTER.replace("h.priority > 4", "h.priority > 8")
    .replace("price >= 99.99", "price >= 299.99")
    .replace("premium_customer = TRUE", "premium_customer = TRUE AND channel = 'store' AND quantity > 4")
)
"""The same shape with a share of one to two per cent of matches."""

_BATCH = 1_000_000


def subjects_of(batch: EncodedMessages) -> list[bytes]:
    """The subject of each message."""
    known: dict[bytes, bytes] = {}
    found = []
    for row in range(len(batch)):
        body = batch.message(row)
        if body not in known:
            value = Message.decode(body).value(SUBJECT)
            assert value is not None
            known[body] = str(value.value).encode()
        found.append(known[body])
    return found


def event_stream(
    folder: Path,
    *,
    messages: int,
    per_chunk: int = 4096,
    in_runs: bool = False,
    segment_bytes: int = 500_000_000,
) -> Stream:
    """A new stream of that many events, Bloom filters on the subject; `in_runs` sorts each million by subject."""
    shutil.rmtree(folder, ignore_errors=True)
    stream = Stream.create(
        folder,
        name=folder.name,
        now_ms=0,
        arguments=StreamArguments(max_segment_size_bytes=segment_bytes),
        filter_source="properties.subject",
    )
    batch = event_batch(min(messages, _BATCH))
    subjects = subjects_of(batch)
    if in_runs:
        order = np.argsort(np.array(subjects, dtype=object), kind="stable")
        batch, subjects = batch.take(order), [subjects[row] for row in order.tolist()]
    values = FilterValues.of(subjects)
    with Writer.open(stream, now_ms=0) as writer:
        for time_ms, count in enumerate(_parts(messages)):
            part = slice(0, count)
            built = build_chunks(
                batch.data,
                batch.starts[part],
                batch.lengths[part],
                values.slice(0, count),
                ChunkLimits(filter_size_bytes=16, max_messages=per_chunk),
            )
            writer.append_chunks(built.data, built.positions, now_ms=time_ms, filter_source="properties.subject")
    return Stream.open(folder)


def _parts(messages: int) -> Iterator[int]:
    while messages > 0:
        yield min(messages, _BATCH)
        messages -= _BATCH


def share_of_matches(text: str) -> float:
    """Share of the events for which a filter is true."""
    batch = event_batch(200_000)
    return float(Filter.parse(text, "rabbitmq").mask(batch, now_ms=0).mean())
