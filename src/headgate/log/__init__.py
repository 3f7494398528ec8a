"""Streams on disk: append-only logs of chunks in RabbitMQ's own file format. Bytes and filter values, no messages.

Hides the file format (`format`), the Bloom filter (`bloom`), how segments are read (`segment`), written (`writer`),
recovered after a crash (`recovery`), deleted (`retention`), and the tracking data inside of them (`tracking`).
Batches of messages become chunks (`build`), are staged in separate files (`staging`) and appended exactly once
(`commit`).
A reader never needs the writer, the writer never waits for a reader.
"""

from headgate.log.bloom import BloomMatcher, bloom_bytes
from headgate.log.format import ChunkHeader, ChunkHeaders, ChunkType, decode_headers
from headgate.log.offsets import OffsetKind, OffsetSpecification
from headgate.log.root import list_streams, resolve_stream, stream_folder, stream_names
from headgate.log.segment import Segment, SegmentReader, memory_of
from headgate.log.settings import StreamArguments, StreamSettings
from headgate.log.stream import Attachment, Stream
from headgate.log.table import ChunkTable
from headgate.log.writer import Appended, Durability, Writer

__all__ = [
    "Appended",
    "Attachment",
    "BloomMatcher",
    "ChunkHeader",
    "ChunkHeaders",
    "ChunkTable",
    "ChunkType",
    "Durability",
    "OffsetKind",
    "OffsetSpecification",
    "Segment",
    "SegmentReader",
    "Stream",
    "StreamArguments",
    "StreamSettings",
    "Writer",
    "bloom_bytes",
    "decode_headers",
    "list_streams",
    "memory_of",
    "resolve_stream",
    "stream_folder",
    "stream_names",
]
