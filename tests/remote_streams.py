"""Streams whose segments move to object storage, for tests, and another process that moves them and may die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate.log import Stream, StreamArguments, Writer, make_derived_folder
from headgate.log.remote import storage_at
from headgate.log.remote.catalogue import load_catalogue
from headgate.log.remote.derived_list import DECLARATIONS, load_derived
from headgate.log.remote.mover import move_segments
from log_streams import read_messages

SEGMENT_BYTES = 4096
LATER_MS = 10**12


def new_stream(folder: Path, location: str | None, *, parts: int = 20, **arguments: Any) -> Writer:
    """A stream of some ten segments: one chunk of ten messages of 200 bytes a second."""
    chosen = StreamArguments(max_segment_size_bytes=SEGMENT_BYTES, remote=location, **arguments)
    stream = Stream.create(folder, name="orders", now_ms=0, arguments=chosen, identity="the-same")
    writer = Writer.open(stream, now_ms=0)
    add_parts(writer, range(parts))
    return writer


def add_parts(writer: Writer, parts: range) -> None:
    """One chunk for each part."""
    for part in parts:
        messages = [(f"{part}/{number}".encode().ljust(200, b"x"), b"v%d" % part) for number in range(10)]
        writer.append(messages, now_ms=1000 * part, publisher="p", sequences=range(part * 10, part * 10 + 10))


def add_derived(stream: Stream) -> None:
    """A declaration, and two derived files of each sealed segment, with the times that they have in each stream."""
    folder = make_derived_folder(stream)
    files = {folder / "lookup.json": b"declared"}
    for segment in stream.segments()[:-1]:
        name = f"{segment.first_chunk_id:020d}"
        files[folder / f"{name}-0123456789abcdef.lookup"] = name.encode() * 10
        files[stream.path / f"{name}.segment.match"] = b"results" * 1000
    for path, content in files.items():
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))


def move(writer: Writer, *, now_ms: int = LATER_MS) -> int:
    """Move what is due, and let the local files go; the number of segments that are only in object storage."""
    assert move_segments(writer.stream, now_ms=now_ms) is not None
    writer.release_local()
    return writer.stream.segments().num_remote


def objects_of(location: str) -> dict[str, bytes]:
    """The objects of the stream in a folder that stands for object storage, but for its settings."""
    folder = Path(location.removeprefix("file://")) / "orders"
    found = {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: content for name, content in found.items() if name != "stream.json"}


def check_places(stream: Stream) -> None:
    """Each segment of the catalogue is whole in object storage, and none of the others is missing here."""
    catalogue = load_catalogue(stream.path)
    assert stream.remote is not None
    storage = storage_at(stream.remote)
    for row in [] if catalogue is None else catalogue.rows:
        found = storage.crc_of(f"{int(row['first']):020d}.segment")
        assert found == (int(row["segment_bytes"]), int(row["crc"]))
        summary = storage.read(f"{int(row['first']):020d}.summary")
        assert summary is not None and len(summary) == int(row["summary_bytes"])
    stops = [segment.stop_offset for segment in stream.segments()]
    assert [segment.first_chunk_id for segment in stream.segments()][1:] == stops[:-1]


def check_objects(stream: Stream) -> None:
    """There are the objects of the catalogue's segments, and no others."""
    check_places(stream)
    catalogue = load_catalogue(stream.path)
    ids = [] if catalogue is None else catalogue.rows["first"].tolist()
    expected = {f"{first:020d}.{suffix}" for first in ids for suffix in ("segment", "summary")}
    derived = load_derived(stream.path)
    for first, found in {} if derived is None else derived.files().items():
        assert first in ids or first == DECLARATIONS
        expected |= {each.name for each in found}
        storage = storage_at(stream.remote or "")
        for each in found:
            content = storage.read(each.name)
            assert content is not None and len(content) == each.size_bytes
    assert stream.remote is not None
    assert objects_of(stream.remote.rpartition("/")[0]).keys() - {"catalogue", "derived"} == expected


def state_of(stream: Stream) -> object:
    """What two streams with the same history have in common: messages, and which segments lie where."""
    catalogue = load_catalogue(stream.path)
    rows = b"" if catalogue is None else catalogue.encode()
    files = (str(path.relative_to(stream.path)) for path in stream.path.rglob("*"))
    # Marks have the time when something was seen first.
    here = sorted(name for name in files if not name.endswith((".lock", ".gone", ".moved")))
    return read_messages(stream), rows, here


class Movers:
    """The other process: what moves or reads there may die."""

    def __init__(self) -> None:
        child = Path(__file__).parent / "log" / "remote" / "move_child.py"
        self._process = subprocess.Popen(
            [sys.executable, str(child)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(
        self,
        stream: Path,
        *,
        do: str = "move",
        crash_at: str = "",
        die_in: int = 0,
        max_length_bytes: int = 0,
        environment: Mapping[str, str] | None = None,
        block_bytes: int = 1024,
    ) -> int:
        """Move, release, apply a limit and move again, or read all; gives the process that does it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {
            "do": do,
            "stream": str(stream),
            "crash_at": crash_at,
            "die_in": die_in,
            "max_length_bytes": max_length_bytes,
            "environment": dict(environment or {}),
            "block_bytes": block_bytes,
            "now_ms": LATER_MS,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def status(self) -> int:
        """The exit status of what was started."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
