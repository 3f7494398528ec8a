"""Segments in object storage (versitygw on this machine): bulk reads beside ranged GETs, selective reads, attach.

    python benchmarks/remote.py [--megabytes 1000]

Needs `make s3-server`. Rounds in turn; each begins with an empty cache of remote segments. The plain reader asks for
ranges of 8 MiB by the same library, by as many threads, and throws them away.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harness import Measurement, milliseconds, report, report_table
from messages import event_batch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from headgate.log import OffsetSpecification, Segment, Stream, StreamArguments, Writer, build_chunks
from headgate.log.chunk_builder import ChunkLimits, FilterValues
from headgate.log.remote import Catalogue, load_catalogue, save_catalogue, storage, storage_at
from headgate.log.remote import catalogue as catalogues
from headgate.log.remote.cache import cache_folder
from headgate.log.remote.catalogue import ROW_DTYPE
from headgate.log.remote.mover import move_segments
from headgate.log.remote.segment import segment_object
from headgate.scan import OffsetRange, ScanRequest, plan, read_range
from s3_proxy import s3_proxy
from s3_server import S3Server, s3_server

ROUNDS = 5
VALUES = 100
SEGMENTS = 200_000
_BATCH = 1_000_000
_RANGE_BYTES = 8 << 20
_THREADS = 8
_LATER_MS = 10**12


def moved_stream(folder: Path, remote: str, *, megabytes: int) -> Stream:
    """Events with a hundred filter values in runs, all but the last segment in object storage only."""
    arguments = StreamArguments(max_segment_size_bytes=128 << 20, remote=remote)
    batch = event_batch(_BATCH)
    values = FilterValues.of([b"value-%d" % (row * VALUES // _BATCH) for row in range(_BATCH)])
    with Writer.open(Stream.create(folder, name="events", now_ms=0, arguments=arguments), now_ms=0) as writer:
        for time_ms in range(-(-megabytes // 200)):
            built = build_chunks(batch.data, batch.starts, batch.lengths, values, ChunkLimits())
            writer.append_chunks(built.data, built.positions, now_ms=time_ms)
            move_segments(writer.stream, now_ms=_LATER_MS)
            writer.release_local()
    return Stream.open(folder)


def remote_segments(stream: Stream) -> list[Segment]:
    """Those that are in object storage only."""
    segments = stream.segments()
    return segments[: segments.num_remote]


def read_plainly(stream: Stream) -> int:
    """All bytes of the remote segments by ranged GETs; gives their number."""
    assert stream.remote is not None
    store, total = storage_at(stream.remote), 0
    with ThreadPoolExecutor(_THREADS) as pool:
        for segment in remote_segments(stream):
            opened = store.open(segment_object(segment.first_chunk_id))
            size = segment.segment_bytes()
            starts = range(0, size, _RANGE_BYTES)
            stops = [min(at + _RANGE_BYTES, size) for at in starts]
            total += sum(map(len, pool.map(opened.read, starts, stops)))
    return total


def read_segments(stream: Stream) -> int:
    """The same bytes as readers of the log see them: mapped, in steps of 4 MiB, each page touched."""
    total = 0
    for segment in remote_segments(stream):
        with segment.open() as reader:
            reader.map_to(reader.stop_position)
            for at in range(0, reader.stop_position, 4 << 20):
                stop = min(at + (4 << 20), reader.stop_position)
                reader.read(at, stop)[::4096].max()
                total += stop - at
    return total


def count_messages(stream: Stream, request: ScanRequest) -> int:
    """The number of messages that a scan gives."""
    segments = remote_segments(stream)
    found = plan(stream, request, OffsetRange(0, segments[-1].stop_offset or 0))
    return sum(len(batch) for chunks in found.ranges for batch in read_range(chunks, request, found.counters))


def empty_cache() -> None:
    shutil.rmtree(cache_folder(), ignore_errors=True)
    cache_folder.cache_clear()
    cache_folder()


def bulk(stream: Stream) -> list[Measurement]:
    """Rounds in turn."""
    total = sum(segment.segment_bytes() for segment in remote_segments(stream))
    runs = {
        "plain ranged GETs": lambda: read_plainly(stream),
        "remote segments": lambda: read_segments(stream),
        "remote segments, scanned": lambda: count_messages(stream, ScanRequest()),
        "remote segments in the cache": lambda: read_segments(stream),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(ROUNDS + 1):
        for name, run in runs.items():
            if name.endswith("cache"):
                read_segments(stream)
            else:
                empty_cache()
            start = time.perf_counter()
            run()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return [Measurement(name, total, found, "B", total) for name, found in seconds.items()]


def selective(stream: Stream, server: S3Server) -> list[list[str]]:
    """Bytes that a read of one filter value of a hundred moves, counted by a proxy."""
    total = sum(segment.segment_bytes() for segment in remote_segments(stream))
    cells = []
    with s3_proxy(server.endpoint) as proxy, environment(server, proxy.endpoint):
        for name, values in (("1 value of 100", (b"value-42",)), ("10 values of 100", tens())):
            empty_cache()
            proxy.forget()
            start = time.perf_counter()
            count_messages(stream, ScanRequest(filter_values=values))
            gets = proxy.requests["GET"]
            how_much = f"{gets} GETs, {proxy.downloaded / 1e6:.1f} MB"
            cells.append([name, how_much, milliseconds(time.perf_counter() - start), f"{proxy.downloaded / total:.1%}"])
    return cells


def tens() -> tuple[bytes, ...]:
    return tuple(b"value-%d" % number for number in range(20, 30))


@contextlib.contextmanager
def environment(server: S3Server, endpoint: str | None = None) -> Iterator[None]:
    """The variables that lead to the server, for new storages only."""
    before = dict(os.environ)
    os.environ.update(server.environment(endpoint))
    forget_storages()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        forget_storages()


def forget_storages() -> None:
    storage._storage_at.cache_clear()
    storage._file_system.cache_clear()


def forget_catalogues() -> None:
    catalogues._kept.clear()


def attach_in_many(stream: Stream, folder: Path) -> list[list[str]]:
    """The stream with 200 000 more segments in its catalogue (100 TB), of which nothing else is there."""
    segments = remote_segments(stream)
    assert stream.settings is not None and segments[-1].stop_offset is not None
    size, stop = segments[-1].segment_bytes(), segments[-1].stop_offset
    catalogue = load_catalogue(stream.path)
    assert catalogue is not None
    rows = np.zeros(SEGMENTS, dtype=ROW_DTYPE)
    rows["first"] = stop + np.arange(SEGMENTS) * _BATCH
    rows["stop"] = rows["first"] + _BATCH
    rows["segment_bytes"], rows["summary_bytes"] = size, 1 << 20
    rows["first_ms"] = rows["last_ms"] = _LATER_MS + np.arange(SEGMENTS)
    arguments = StreamArguments(remote=stream.settings.arguments.remote, initial_offset=int(rows["stop"][-1]))
    Stream.create(folder, name="events", now_ms=0, identity=stream.identity, arguments=arguments)
    save_catalogue(folder, Catalogue(stream.identity, np.concatenate([catalogue.rows, rows])))
    before = resident_bytes()
    seconds: dict[str, list[float]] = {}

    def timed(name: str, run: Callable[..., object], *arguments: object, **more: object) -> None:
        start = time.perf_counter()
        run(*arguments, **more)
        seconds.setdefault(name, []).append(time.perf_counter() - start)

    def listed() -> int:
        return len(Stream.open(folder).segments())

    for _ in range(ROUNDS):
        forget_catalogues()
        timed("opened, listed", listed)
        many = Stream.open(folder)
        empty_cache()
        by_time = OffsetSpecification.timestamp(len(segments) // 2)
        timed("attach by time, summary in object storage", many.attach, by_time, now_ms=0)
        timed("attach by time, summary here", many.attach, by_time, now_ms=0)
        by_offset = OffsetSpecification.offset(stop // 2)
        many.attach(by_offset, now_ms=0)
        timed("attach by offset, summary here", many.attach, by_offset, now_ms=0)
    grown = f"{(resident_bytes() - before) / 1e6:.0f} MB more memory"
    return [[name, grown, milliseconds(statistics.median(found)), ""] for name, found in seconds.items()]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headgate-remote-"))
    os.environ["HEADGATE_CACHE"] = str(folder / "cache")
    try:
        with s3_server(folder) as server, environment(server):
            stream = moved_stream(folder / "s", f"s3://{server.new_bucket()}/x", megabytes=options.megabytes)
            title = f"Bulk reads of {options.megabytes} MB in object storage"
            report("remote", title, bulk(stream), baseline="plain ranged GETs")
            cells = selective(stream, server) + attach_in_many(stream, folder / "many")
            header = ["what", "how much", "time", "share of the bytes"]
            report_table("remote_places", "Selective reads, and 200 000 segments in a catalogue", header, cells, cells)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
