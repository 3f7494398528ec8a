"""Commits in another process, which may die, and what they leave in a root."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from headgate.log.format import CHUNK_HEADER_BYTES, FILE_HEAD_BYTES, ChunkHeader
from headgate.log.root import stream_folder
from headgate.log.settings import StreamArguments
from headgate.log.staging import HEAD_BYTES
from headgate.log.stream import Stream

DIED = -signal.SIGKILL
NOW = 1_700_000_000_000


class Victims:
    """The other process: commits there may die."""

    def __init__(self) -> None:
        child = Path(__file__).with_name("log") / "commit_child.py"
        self._process = subprocess.Popen(
            [sys.executable, str(child)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def commit(self, root: Path, outputs: dict[str, list[list[str]]], **more: Any) -> int:
        """Stage and commit; the exit status."""
        self.start(root, outputs, **more)
        return self.status()

    def open_writers(self, root: Path, *, head_bytes: int = HEAD_BYTES) -> int:
        """Open and close the writer of every stream; the exit status."""
        self._ask({"do": "open", "root": str(root), "now_ms": NOW, "head_bytes": head_bytes})
        return self.status()

    def append(self, root: Path, share: int, *, crash_at: str = "", tear: tuple[int, int] = (0, 0)) -> int:
        """Append one of two shares of a batch that is published; the exit status."""
        batch = {"do": "append", "root": str(root), "query": "q", "batch": 0, "share": share, "shares": 2}
        self._ask({**batch, "crash_at": crash_at, "tear": tear, "now_ms": NOW, "head_bytes": HEAD_BYTES})
        return self.status()

    def start(
        self,
        root: Path,
        outputs: dict[str, list[list[str]]],
        *,
        query: str = "q",
        batch: int = 0,
        crash_at: str = "",
        tear: tuple[int, int] = (0, 0),
        durable: bool = False,
        shared: bool = False,
        head_bytes: int = HEAD_BYTES,
    ) -> None:
        """`commit` without waiting for it."""
        work = {"do": "commit", "root": str(root), "outputs": outputs, "query": query, "batch": batch}
        how = {"durable": durable, "shared": shared, "head_bytes": head_bytes}
        self._ask({**work, **how, "crash_at": crash_at, "tear": tear, "now_ms": NOW})

    def status(self) -> int:
        """The exit status of what was started."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def new_root(folder: Path, *, max_segment_size_bytes: int = 300) -> Path:
    folder.mkdir()
    for name in ("a", "b"):
        arguments = StreamArguments(max_segment_size_bytes=max_segment_size_bytes)
        Stream.create(stream_folder(folder, name), name=name, now_ms=NOW, arguments=arguments)
    return folder


def logs(root: Path) -> dict[str, bytes]:
    """Every file of every stream, without what it says of itself and the note in the lock file."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted((root / "streams").rglob("*"))
        if path.is_file() and path.name not in ("stream.json", "writer.lock")
    }


def messages_of(root: Path, name: str) -> list[str]:
    """The messages of a stream, by the chain of its chunks; checks that chunk ids follow each other."""
    found: list[str] = []
    next_offset = None
    for path in sorted(stream_folder(root, name).glob("*.segment")):
        raw = path.read_bytes()
        position = FILE_HEAD_BYTES
        while position < len(raw):
            header = ChunkHeader.decode(raw[position : position + 48], path=path, position=position)
            assert next_offset in (None, header.chunk_id)
            next_offset = header.next_chunk_id
            at = position + CHUNK_HEADER_BYTES + header.bloom_length
            end = at + header.data_length
            while at < end and header.chunk_type == 0:
                length = int.from_bytes(raw[at : at + 4], "big")
                found.append(raw[at + 4 : at + 4 + length].decode())
                at += 4 + length
            position += header.size_bytes
    return found


def leftovers(root: Path) -> list[str]:
    """What a finished batch must not leave: staged files and manifests that are not done."""
    private = root / ".headgate"
    kept = {".lock", "completed.json"}
    return [path.name for path in private.rglob("*") if path.is_file() and path.name not in kept]


def flat(parts: list[list[str]]) -> list[str]:
    return [message for part in parts for message in part]
