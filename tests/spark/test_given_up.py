"""Spark over offsets that an operator gave up: a batch goes on behind them, a streaming query says it first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from headgate.errors import OffsetOutOfRangeError
from headgate.log import Stream, repair_stream
from headgate.message import Message
from headgate.spark.schema import stream_schema
from headgate.spark.source import BatchReader, StreamReader
from log_streams import damage_chunk

from .conftest import write_stream

OFFSETS = stream_schema(("offset",), ())


@pytest.fixture
def stream(root: Path) -> Stream:
    """Six messages in chunks of their own."""
    return write_stream(root, "orders", [Message(b"%d" % number).encode() for number in range(6)], chunk_messages=1)


def give_up(stream: Stream) -> dict[str, str]:
    """Lose the message at offset 3; gives the options of a reader of the rest."""
    damage_chunk(stream, 3, 50)
    assert list(repair_stream(stream, now_ms=0, skip_damaged=True))
    return {"stream": str(stream.path)}


def offsets_of(reader: BatchReader | StreamReader, *between: dict[str, Any]) -> list[int]:
    return [
        offset
        for partition in reader.partitions(*between)
        for batch in reader.read(partition)
        for offset in batch.column("offset").to_pylist()
    ]


def test_a_batch_goes_on_behind_them(stream: Stream) -> None:
    assert offsets_of(BatchReader(OFFSETS, give_up(stream))) == [0, 1, 2, 4, 5]


def test_a_streaming_query_says_it_and_goes_on_when_it_is_told_to(stream: Stream) -> None:
    begin = StreamReader(OFFSETS, {"stream": str(stream.path)}).initialOffset()
    options = give_up(stream)
    strict, lenient = (StreamReader(OFFSETS, options | {"fail_on_data_loss": each}) for each in ("true", "false"))
    behind = strict.latestOffset(begin, ReadMaxRows(10))
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 3 to 3 of stream .* were damaged and given up"):
        strict.partitions(begin, behind)
    assert offsets_of(lenient, begin, behind) == [0, 1, 2, 4, 5]
