"""The file `topic.journal` in a stream's folder: a head and the changes since, one line each.

    3f21a0c7 {"format":1,"topic":"orders",…}\\n        the head: everything up to some offset
    8d02be51 {"offset":1200,"at_ms":…,"changes":[…]}\\n   a change that was made since, all of it or nothing

Eight hex digits are the CRC-32 of the JSON behind the space. A change is one write and a flush, and it counts when its
line is whole: a last line without its end, or with zero bytes in it (what a power loss leaves), was never confirmed and
is not there. Bytes of a file are never overwritten: whatever is behind the last whole line goes when the next change
gives the file a new content by rename, so a reader beside the writer sees lines or beginnings of lines, nothing else.
"""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import LogError
from headgate.log.files import OpenFile, replace_file, storage_error

JOURNAL_NAME = "topic.journal"
_CRC_DIGITS = 8


@dataclass(slots=True)
class JournalLines:
    """The whole lines of a journal, as JSON bytes; `size_bytes` of them, `is_torn`: there was more behind."""

    lines: list[bytes]
    size_bytes: int
    is_torn: bool


def read_lines(path: Path, *, size_bytes: int | None = None) -> JournalLines | None:
    """The lines of a journal, or of its first `size_bytes`; None where there is no file.

    Raises LogError for a journal that is damaged.
    """
    try:
        raw = path.read_bytes()[:size_bytes]
    except (FileNotFoundError, NotADirectoryError):
        return None
    *whole, rest = raw.split(b"\n")
    lines: list[bytes] = []
    position = 0
    for number, line in enumerate(whole):
        payload = _checked(line)
        if payload is None:
            if number == len(whole) - 1 and b"\0" in line and lines:
                return JournalLines(lines, position, True)
            raise LogError("a damaged line in the rule history of a topic", path=path, position=position)
        lines.append(payload)
        position += len(line) + 1
    if not lines:
        raise LogError("the rule history of a topic has no head", path=path, position=0)
    return JournalLines(lines, position, bool(rest))


def encode_line(payload: bytes) -> bytes:
    """The line of a JSON text."""
    return f"{zlib.crc32(payload):08x} ".encode() + payload + b"\n"


def write_lines(path: Path, lines: list[bytes]) -> int:
    """Give the journal this content by rename, flushed; its size. Raises LogError and its kinds."""
    content = b"".join(map(encode_line, lines))
    replace_file(path, content)
    return len(content)


def append_line(path: Path, payload: bytes, *, size_bytes: int, open_file: OpenFile) -> int:
    """Add a line behind the `size_bytes` that the journal has, flushed; its new size.

    Raises StorageFullError, StreamReadOnlyError or LogError; then the line is taken back as far as that is possible,
    and the file must get a new content by `write_lines` before anything else is added.
    """
    line = encode_line(payload)
    try:
        file = open_file(path)
        try:
            file.write(line, size_bytes)
            file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(size_bytes)
            raise
        finally:
            file.close()
    except OSError as error:
        raise storage_error(error, path) from error
    return size_bytes + len(line)


def _checked(line: bytes) -> bytes | None:
    """The JSON of a line; None if it does not check."""
    digits, space, payload = line[:_CRC_DIGITS], line[_CRC_DIGITS : _CRC_DIGITS + 1], line[_CRC_DIGITS + 1 :]
    return payload if space == b" " and digits == f"{zlib.crc32(payload):08x}".encode() else None
