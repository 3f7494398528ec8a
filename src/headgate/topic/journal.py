"""The file `topic.journal` in a stream's folder: a mark, a head, and the changes since, one line each.

    0000000000000513 9f21a0c7\\n                        the mark: how many bytes of this file are confirmed
    3f21a0c7 {"format":1,"topic":"orders",…}\\n        the head: everything up to some offset
    8d02be51 {"offset":1200,"at_ms":…,"changes":[…]}\\n   a change that was made since, all of it or nothing

Eight hex digits are a CRC-32: in the mark of its 16 digits, in a line of the JSON behind the space, begun with the
CRC-32 of the line before. So a line is valid only after the lines that it was written after: a line doubled, moved or
taken out is damage. A change is one write and a flush, and it counts when its line is whole: a last line without its
end, or with zero bytes in it (the result of a power loss), was never confirmed and does not count.

After the flush the mark is written, in place and without a flush of its own. It may be older than the last changes; it
is never ahead of the bytes on the device. A file whose whole lines end before the mark has lost confirmed changes: an
error, because older rules would be in force silently. A damaged mark was being written when the power failed, and is
ignored.

Every reader of the folder may read the file: rules matter to readers of the stream, too. A journal whose head holds
secrets of clients is readable by its owner only.

Bytes behind the mark are never overwritten: the rest after the last whole line goes when the next change gives the file
a new content by rename, so a reader beside the writer sees lines or beginnings of lines, nothing else.
"""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import LogError
from headgate.log import OpenFile, replace_file, storage_error

JOURNAL_NAME = "topic.journal"
MARK_BYTES = 26
_SIZE_DIGITS = 16
_CRC_DIGITS = 8


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """Where the next line goes, and the CRC-32 that it is begun with: that of the last line."""

    size_bytes: int
    crc: int


@dataclass(slots=True)
class JournalLines:
    """The whole lines of a journal, as JSON bytes, and where they end; `is_torn`: there was more behind."""

    lines: list[bytes]
    end: JournalEnd
    is_torn: bool


def read_lines(path: Path, *, size_bytes: int | None = None) -> JournalLines | None:
    """The lines of a journal, or of its first `size_bytes`, known to be confirmed; None where there is no file.

    Raises LogError for a journal that is damaged, or that ends before its confirmed bytes.
    """
    try:
        raw = path.read_bytes()[:size_bytes]
    except (FileNotFoundError, NotADirectoryError):
        return None
    *whole, rest = raw[MARK_BYTES:].split(b"\n")
    lines: list[bytes] = []
    position, crc, is_torn = MARK_BYTES, 0, bool(rest)
    for number, line in enumerate(whole):
        payload = line[_CRC_DIGITS + 1 :]
        following = zlib.crc32(payload, crc)
        if line[: _CRC_DIGITS + 1] != b"%08x " % following:
            if number == len(whole) - 1 and b"\0" in line and lines:
                is_torn = True
                break
            raise LogError("a damaged line in the rule history of a topic", path=path, position=position)
        lines.append(payload)
        position += len(line) + 1
        crc = following
    if not lines:
        raise LogError("the rule history of a topic has no head", path=path, position=0)
    confirmed = _marked_bytes(raw[:MARK_BYTES]) if size_bytes is None else size_bytes
    if position < confirmed:
        raise LogError(
            f"the rule history of a topic ends at byte {position}, but {confirmed} bytes of it were confirmed: its "
            "last changes are lost. Restore the file from a copy; without one, remove it and create the topic again",
            path=path,
            position=position,
        )
    return JournalLines(lines, JournalEnd(position, crc), is_torn)


def encode_line(payload: bytes, *, before: int) -> bytes:
    """The line of a JSON text after a line with the CRC-32 `before`; 0 for the head."""
    return b"%08x " % zlib.crc32(payload, before) + payload + b"\n"


def write_head(path: Path, payload: bytes, *, is_private: bool) -> JournalEnd:
    """Give the journal a head and nothing else, by rename, flushed; for the owner alone if it `is_private`.

    Raises LogError and its kinds.
    """
    line = encode_line(payload, before=0)
    size_bytes = MARK_BYTES + len(line)
    replace_file(path, encode_mark(size_bytes) + line, mode=0o600 if is_private else 0o666)
    return JournalEnd(size_bytes, zlib.crc32(payload))


def append_line(path: Path, payload: bytes, *, end: JournalEnd, open_file: OpenFile) -> JournalEnd:
    """Add a line at the end of the journal, flushed; its new end.

    Raises StorageFullError, StreamReadOnlyError or LogError; then the line is taken back as far as that is possible,
    and the file must get a new content by `write_head` before anything else is added.
    """
    line = encode_line(payload, before=end.crc)
    size_bytes = end.size_bytes + len(line)
    try:
        file = open_file(path)
        try:
            file.write(line, end.size_bytes)
            file.sync()
            # The change is confirmed by now; with an older mark less is known of the next loss, and nothing is wrong.
            with contextlib.suppress(OSError):
                file.write(encode_mark(size_bytes), 0)
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end.size_bytes)
            raise
        finally:
            file.close()
    except OSError as error:
        raise storage_error(error, path) from error
    return JournalEnd(size_bytes, zlib.crc32(payload, end.crc))


def encode_mark(size_bytes: int) -> bytes:
    """The mark of this many confirmed bytes."""
    digits = b"%016x" % size_bytes
    return digits + b" %08x\n" % zlib.crc32(digits)


def _marked_bytes(mark: bytes) -> int:
    """The bytes that are confirmed; 0 for a mark that is damaged."""
    digits = mark[:_SIZE_DIGITS]
    return int(digits, 16) if mark[_SIZE_DIGITS:] == b" %08x\n" % zlib.crc32(digits) else 0
