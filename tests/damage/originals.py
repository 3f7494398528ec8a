"""The folders that the campaign damages: own streams with everything that a folder can hold, and RabbitMQ's."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from chunks import append_chunk
from headgate.derived.match_index.registry import FilterRegistry
from headgate.log import Stream, StreamArguments, Writer, stream_folder
from headgate.log.entries import SubBatch
from headgate.log.format import Compression
from headgate.message import Message
from headgate.topic import Subscription, TopicEditor, create_topic
from headgate.topic.history import RuleHistory
from match_indexes import build_index
from topic_streams import shape, sql_rule

from .plain_log import FILE_HEAD_BYTES, INDEX_RECORD, PlainChunk, read_chunks, stems

VECTORS = Path(__file__).parent.parent / "vectors" / "osiris"
START_MS = 1_760_000_000_000
REGIONS = ("AMER", "EMEA", "APAC")
AMER_FILTER = "region = 'AMER'"
NEW_BODY = Message(b"the new message", application_properties={"n": -1, "region": "AMER"}).encode()

Rules = list[tuple[int, dict[str, dict[str, str]]]]
"""Offsets from which rules are in force, and the rules: subscription → rule → filter text."""


@dataclass(frozen=True)
class Original:
    """An undamaged folder: its files, and what is in it. `rules` are those of a topic.

    `has_source`: its filter values come from a declared field, but for chunks with sub-batches.
    """

    name: str
    files: dict[str, bytes]
    is_own: bool
    has_source: bool = False
    amer: frozenset[bytes] = frozenset()
    rules: Rules | None = None
    chunks: list[PlainChunk] = field(default_factory=list)
    weight: float = 1.0
    """How often it is damaged, beside others."""

    def is_amer(self, message: bytes) -> bool:
        return message in self.amer

    def is_declared(self, chunk: PlainChunk) -> bool:
        return self.has_source and not chunk.is_packed

    @property
    def last_stem(self) -> str:
        """That of the last pair with a chunk, else of the last pair; empty without any."""
        return self.chunks[-1].stem if self.chunks else max(stems(self.files), default="")

    @property
    def has_regions(self) -> bool:
        return bool(self.amer)


def _body(number: int) -> bytes:
    properties = {"n": number, "region": REGIONS[number // 2 % 3]}
    return Message(b"x" * (7 + number % 40), application_properties=properties).encode()


def _region(number: int) -> bytes:
    return REGIONS[number // 2 % 3].encode()


class _Numbers:
    """Writes messages with rising numbers."""

    def __init__(self, writer: Writer, source: str | None) -> None:
        self.writer = writer
        self.source = source
        self.bodies: dict[bytes, int] = {}
        self.now_ms = START_MS

    def append(self, count: int, *, publisher: str | None = None, packed: bool = False) -> None:
        numbers = range(len(self.bodies), len(self.bodies) + count)
        bodies = [_body(number) for number in numbers]
        self.bodies |= dict(zip(bodies, numbers, strict=True))
        self.now_ms += 10
        messages = [(body, _region(number)) for body, number in zip(bodies, numbers, strict=True)]
        if packed:
            # Members of a sub-batch set no bits, so nothing may be derived from the bits of this chunk.
            assert publisher is None
            entries = [messages[0], SubBatch.of(bodies[1:], Compression.GZIP)]
            append_chunk(self.writer, entries, now_ms=self.now_ms)
            return
        sequences = None if publisher is None else [1000 + number for number in numbers]
        self.writer.append(
            messages, now_ms=self.now_ms, publisher=publisher, sequences=sequences, filter_source=self.source
        )

    @property
    def amer(self) -> frozenset[bytes]:
        return frozenset(body for body, number in self.bodies.items() if _region(number) == b"AMER")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _original(stream: Stream, *, has_source: bool, amer: frozenset[bytes], rules: Rules | None = None) -> Original:
    files = files_of(stream.path)
    return Original(stream.name, files, True, has_source, amer, rules, read_chunks(files))


def _topic(root: Path) -> Original:
    """Four segments, a declared filter source, publishers with sequences, stored offsets, match index, rules."""
    source = "application_properties.region"
    folder = stream_folder(root, "topic")
    arguments = StreamArguments(max_segment_chunks=6)
    stream = Stream.create(folder, name="topic", now_ms=START_MS, arguments=arguments, filter_source=source)
    create_topic(root, "topic", now_ms=START_MS)
    registry = FilterRegistry(stream)
    registry.register("amer", AMER_FILTER, "amqp", now_ms=START_MS)
    registry.register("few", "n < 20", "amqp", now_ms=START_MS)
    rules: Rules = [(0, {})]
    with Writer.open(stream, now_ms=START_MS) as writer:
        numbers = _Numbers(writer, source)
        editor = TopicEditor(writer)

        def changed(change: Callable[[], int]) -> None:
            offset = change()
            now = shape(RuleHistory.load(writer.stream).current)
            rules[:] = [*(each for each in rules if each[0] < offset), (offset, now)]

        for step in range(14):
            numbers.append(2 + step % 3, publisher="orders" if step % 2 else None)
            if step == 3:
                changed(lambda: editor.create_subscription(Subscription("red", (sql_rule("a"),)), now_ms=START_MS))
            if step in (5, 9, 11):
                replaced = functools.partial(editor.replace_rule, "red", sql_rule("a", f"n > {step}"), now_ms=START_MS)
                changed(replaced)
            if step == 6:
                numbers.append(5, packed=True)
            if step == 7:
                writer.store_offset("billing", 9)
                writer.flush_offsets(now_ms=numbers.now_ms)
            if step == 10:
                build_index(writer.stream, now_ms=START_MS)
            if step == 12:
                writer.store_offset("billing", 21)
                changed(lambda: editor.add_rule("red", sql_rule("b"), now_ms=START_MS))
        writer.store_offset("audit", 4)
        writer.flush_offsets(now_ms=numbers.now_ms)
        numbers.append(4, publisher="returns")
        numbers.append(3)
    return _original(Stream.open(folder), has_source=True, amer=numbers.amer, rules=rules)


def _packed(root: Path) -> Original:
    """Three segments without a declared source, sub-batches among the chunks."""
    folder = stream_folder(root, "packed")
    stream = Stream.create(folder, name="packed", now_ms=START_MS, arguments=StreamArguments(max_segment_chunks=4))
    with Writer.open(stream, now_ms=START_MS) as writer:
        numbers = _Numbers(writer, None)
        for step in range(9):
            numbers.append(2 + step % 4, packed=step % 3 == 1)
    return _original(Stream.open(folder), has_source=False, amer=numbers.amer)


def _single(root: Path) -> Original:
    """One segment: nine publishes of one message."""
    folder = stream_folder(root, "single")
    stream = Stream.create(folder, name="single", now_ms=START_MS)
    with Writer.open(stream, now_ms=START_MS) as writer:
        numbers = _Numbers(writer, None)
        for _ in range(9):
            numbers.append(1)
    return _original(Stream.open(folder), has_source=False, amer=numbers.amer)


def _rollover() -> Original:
    """The four segments that RabbitMQ wrote with a limit of 3000 bytes."""
    files: dict[str, bytes] = {}
    for segment in json.loads((VECTORS / "rollover.json").read_text())["segments"]:
        parts = [bytes.fromhex(segment["segment_file_header_hex"])]
        index = [bytes.fromhex(segment["index_file_header_hex"])]
        for chunk in segment["chunks"]:
            bodies = [bytes.fromhex(entry["body_hex"]) for entry in chunk["entries"]]
            parts += [bytes.fromhex(chunk["header_hex"]), bytes.fromhex(chunk["bloom_hex"])]
            parts += [len(body).to_bytes(4, "big") + body for body in bodies]
            parts.append(bytes.fromhex(chunk.get("trailer_hex", "")))
        keys = ("chunk_id", "timestamp", "epoch", "position", "type")
        index += [INDEX_RECORD.pack(*(record[key] for key in keys)) for record in segment["index_records"]]
        files[segment["file"]] = b"".join(parts)
        files[segment["file"].replace(".segment", ".index")] = b"".join(index)
    return Original("__rollover_1", files, False, chunks=read_chunks(files))


def _sample(folder: Path) -> Original:
    """The first chunks of a folder that RabbitMQ wrote."""
    stem = f"{0:020d}"
    index = (folder / f"{stem}.index").read_bytes()[: FILE_HEAD_BYTES + 13 * INDEX_RECORD.size]
    end = INDEX_RECORD.unpack_from(index, len(index) - INDEX_RECORD.size)[3]
    with (folder / f"{stem}.segment").open("rb") as file:
        files = {f"{stem}.index": index[: -INDEX_RECORD.size], f"{stem}.segment": file.read(end)}
    return Original("__sample_1", files, False, chunks=read_chunks(files))


def make_originals(root: Path, rabbitmq_streams: Path) -> list[Original]:
    """All of them; `root` is a folder for the own ones."""
    sample = next(rabbitmq_streams.glob("__regional-events_*"))
    own = [replace(_topic(root), weight=4), replace(_packed(root), weight=2), replace(_single(root), weight=3)]
    return [*own, _rollover(), _sample(sample)]
