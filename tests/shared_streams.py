"""Streams with everything in them that a reader can meet, for tests of consumers and of what they share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from chunks import append_chunk
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, StreamArguments, Writer
from headgate.log.entries import SubBatch
from headgate.log.format import Compression
from headgate.message import Message

REGIONS = ("AMER", "EMEA", "APAC")
FILTERS = tuple(
    Filter.parse(text)
    for text in (
        "n % 3 = 0",
        "region = 'AMER'",
        "n > 20 AND region <> 'EMEA'",
        "n < 5 OR n > 40",
        "region LIKE 'A%' AND n % 2 = 1",
        "absent IS NULL",
        "n = 7",
        "p.subject = 'never'",
    )
)


@functools.lru_cache(maxsize=10_000)
def body(number: int) -> bytes:
    """The encoded message of a number."""
    return Message(
        application_properties={"n": number, "region": REGIONS[number % 3]}, body=b"x" * (number % 70)
    ).encode()


@dataclass(frozen=True)
class Piece:
    """What one call of `append` writes: messages with or without filter values, some malformed, or one sub-batch; or
    offsets.
    """

    count: int
    kind: str

    def write(self, writer: Writer, number: int) -> int:
        """Append it; gives the number of the next message."""
        numbers = range(number, number + self.count)
        if self.kind == "offsets":
            writer.store_offset("reader", number)
            writer.flush_offsets(now_ms=number)
            return number
        if self.kind == "sub-batch":
            entry = SubBatch.of([body(each) for each in numbers], Compression.GZIP)
            append_chunk(writer, [(body(number), None), entry] if number % 2 else [entry], now_ms=number)
        else:
            values = [REGIONS[each % 3].encode() if self.kind == "values" else None for each in numbers]
            if self.kind == "one value":
                values = [REGIONS[number % 3].encode()] * self.count
            bodies = [b"\0no message" if self.kind == "malformed" and each % 2 else body(each) for each in numbers]
            writer.append(list(zip(bodies, values, strict=True)), now_ms=number)
        return number + self.count


PIECES = st.builds(
    Piece,
    st.integers(1, 12),
    st.sampled_from(["plain", "plain", "values", "one value", "one value", "sub-batch", "offsets", "malformed"]),
)
STARTS = st.one_of(
    st.just(OffsetSpecification.first()),
    st.just(OffsetSpecification.last()),
    st.just(OffsetSpecification.next()),
    st.integers(0, 120).map(OffsetSpecification.offset),
    st.integers(0, 100).map(OffsetSpecification.timestamp),
)
FILTER_VALUES = st.sampled_from([(), (), (b"AMER",), (b"AMER", b"EMEA"), (b"nowhere",), (b"",), (b"APAC", b"")])


def write_stream(folder: Path, pieces: Sequence[Piece], *, segment_bytes: int = 2500) -> Stream:
    """A stream of these pieces, over many segments."""
    arguments = StreamArguments(max_segment_size_bytes=segment_bytes)
    stream = Stream.create(folder / "s", name="s", now_ms=0, arguments=arguments)
    with Writer.open(stream, now_ms=0) as writer:
        number = 0
        for piece in pieces:
            number = piece.write(writer, number)
    return stream
