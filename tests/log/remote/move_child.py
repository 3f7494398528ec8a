"""Moves the segments of streams, and may die; started by the tests.

Each line of standard input is one request of JSON, done by a child of its own; a line of standard output answers with
its exit status (negative: the signal).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headgate.clock import patient
from headgate.log import Stream, Writer, crash_points
from headgate.log.remote import mover, partial_file, storage


class DyingStorage(storage.ObjectStorage):
    """Counts what is done to objects; dies in the middle of the one of that number, which may be after its end."""

    left = 0

    def _write(self, name: str, pieces: Iterator[bytes]) -> None:
        DyingStorage.left -= 1
        if DyingStorage.left == 0:
            pieces = _first_and_death(pieces)
        super()._write(name, pieces)

    def delete(self, name: str) -> None:
        super().delete(name)
        DyingStorage.left -= 1
        if DyingStorage.left == 0:
            _die()


def _first_and_death(pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield next(pieces)[:100]
    _die()


_pwrite = os.pwrite


def _dying_write(descriptor: int, data: memoryview, position: int) -> int:
    """Into the cache; the one of that number is cut."""
    DyingStorage.left -= 1
    if DyingStorage.left == 0:
        _pwrite(descriptor, data[: len(data) // 2], position)
        _die()
    return _pwrite(descriptor, data, position)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(request: dict[str, Any]) -> None:
    partial_file.BLOCK_BYTES = request["block_bytes"]
    os.environ[crash_points.VARIABLE] = request["crash_at"]
    os.environ.update(request["environment"])
    DyingStorage.left = request["die_in"]
    stream, now_ms = Stream.open(Path(request["stream"])), request["now_ms"]
    if request["do"] == "read":
        os.pwrite = _dying_write
        for segment in stream.segments():
            with segment.open() as reader:
                for position in reader.chunks().position.tolist():
                    reader.read(position, position + 100)
        return
    mover.move_segments(stream, now_ms=now_ms)
    with Writer.open(stream, now_ms=now_ms, wait=patient(5.0)) as writer:
        writer.release_local()
        if request["max_length_bytes"]:
            limits = msgspec.structs.replace(writer.settings.arguments, max_length_bytes=request["max_length_bytes"])
            writer.change(now_ms=now_ms, arguments=limits)
    mover.move_segments(stream, now_ms=now_ms)


def main() -> None:
    # Not once more in each child.
    importlib.import_module("pyarrow.fs")
    storage.ObjectStorage = DyingStorage  # type: ignore[misc]
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(json.loads(line))
                os._exit(0)
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                sys.stderr.flush()
                os._exit(1)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _child, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
