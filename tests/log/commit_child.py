"""A process that stages and commits what it is told, and dies where it is told; started by the tests of commits.

Reads one JSON request a line. Each is done by a forked child, so that a death is that of a process, in milliseconds;
answers with the child's exit status (negative: the signal).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from headgate import kernels
from headgate.clock import patient
from headgate.log import crash_points, roll_forward, staging
from headgate.log.chunk_builder import FilterValues
from headgate.log.commit import PublishedBatch, commit_batch, output_of
from headgate.log.files import DiskFile
from headgate.log.staging import StagedFile, StagingFile
from headgate.log.stream import Stream
from headgate.log.writer import Writer


class TornFile(DiskFile):
    """Counts the writes of all files; the one of that number is cut after some bytes, and the process dies."""

    writes_left = 0
    bytes_kept = 0

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        TornFile.writes_left -= 1
        if TornFile.writes_left == 0:
            super().write(memoryview(data)[: TornFile.bytes_kept % (len(data) + 1)], position)
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(data, position)


def staged_file(root: Path, query: str, name: str, file: StagingFile | None = None) -> StagedFile:
    return StagedFile(root, query=query, name=name, filter_size_bytes=16, max_messages=3, file=file)


def add(file: StagedFile, messages: list[str]) -> None:
    """Messages whose filter value is the text before the first slash."""
    bodies = [message.encode() for message in messages]
    lengths = np.array([len(body) for body in bodies], dtype=np.int64)
    values = FilterValues.of(body.split(b"/")[0] for body in bodies)
    file.add(np.frombuffer(b"".join(bodies), dtype=np.uint8), np.cumsum(lengths) - lengths, lengths, values)


def staged_alone(root: Path, query: str, outputs: dict[str, list[list[str]]]) -> dict[str, list[Any]]:
    """A file for each part of each output."""
    staged: dict[str, list[Any]] = {}
    for stream, parts in outputs.items():
        for row, part in enumerate(parts):
            file = staged_file(root, query, f"{stream}-{row}")
            add(file, part)
            staged.setdefault(stream, []).extend(file.finish(durable=False))
    return staged


def staged_together(root: Path, query: str, outputs: dict[str, list[list[str]]]) -> dict[str, list[Any]]:
    """A file for the parts of the same number, in which the chunks of the outputs lie mixed."""
    staged: dict[str, list[Any]] = {stream: [] for stream in outputs}
    for row in range(max(map(len, outputs.values()))):
        shared = StagingFile(root, query=query, name=f"shared-{row}")
        parts = {stream: parts[row] for stream, parts in outputs.items() if row < len(parts)}
        files = {stream: staged_file(root, query, stream, shared) for stream in parts}
        for number in range(max(map(len, parts.values()))):
            for stream, part in parts.items():
                add(files[stream], part[number : number + 1])
        for stream, file in files.items():
            staged[stream].extend(file.finish(durable=False))
        shared.finish(durable=False)
    return staged


def run(request: dict[str, Any]) -> None:
    roll_forward.BLOCK_BYTES = 256
    staging.HEAD_BYTES = request["head_bytes"]
    root = Path(request["root"])
    TornFile.writes_left, TornFile.bytes_kept = request.get("tear", (0, 0))
    os.environ[crash_points.VARIABLE] = request.get("crash_at", "")
    if request["do"] == "open":
        for stream in sorted((root / "streams").iterdir()):
            Writer.open(Stream.open(stream), now_ms=request["now_ms"], wait=patient(5.0), open_file=TornFile).close()
        return
    if request["do"] == "append":
        published = PublishedBatch(root, request["query"], request["batch"], request["now_ms"], request["shares"])
        published.append(request["share"], wait=patient(5.0), open_file=TornFile)
        return
    stage = staged_together if request["shared"] else staged_alone
    staged = stage(root, request["query"], request["outputs"])
    folders = {stream: root / "streams" / stream for stream in staged}
    outputs = [
        output_of(root, folders[stream], parts, identity=Stream.open(folders[stream]).identity)
        for stream, parts in staged.items()
    ]
    commit_batch(
        root,
        query=request["query"],
        batch=request["batch"],
        outputs=outputs,
        now_ms=request["now_ms"],
        durable=request["durable"],
        wait=patient(30.0),
        open_file=TornFile,
    )


def main() -> None:
    kernels.load("headgate.log.kernel")
    kernels.load("headgate.kernels.checksum")
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
        _child, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
