"""Files of rows with a checksum, which are an object as well. All integers are big endian.

    +-------+------+----------+---+------+-----+
    | magic | 0001 | identity | n | rows | crc |
    +-------+------+----------+---+------+-----+
    4 bytes magic, u32 format, 64 bytes identity of the stream in UTF-8 (zeros behind it), u32 number of rows, rows of
    one size, u32 CRC-32

A file is replaced as a whole.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.errors import LogError

_FORMAT = 1
_HEAD = struct.Struct(">4sI64sI")
_CRC = struct.Struct(">I")
_MOST_KEPT = 256

Decoded = TypeVar("Decoded")


def encode_rows(magic: bytes, identity: str, rows: NDArray[np.void]) -> bytes:
    """The bytes of a file."""
    content = _HEAD.pack(magic, _FORMAT, identity.encode(), len(rows)) + rows.tobytes()
    return content + _CRC.pack(zlib.crc32(content))


def decode_rows(
    raw: bytes, magic: bytes, kind: np.dtype[np.void], *, what: str, path: str | Path
) -> tuple[str, NDArray[np.void]]:
    """The identity and the rows in a file's bytes; `what` names the file. Raises LogError for damaged bytes."""
    content, crc = raw[: -_CRC.size], raw[-_CRC.size :]
    if len(content) < _HEAD.size or _CRC.pack(zlib.crc32(content)) != crc:
        raise LogError(
            f"no {what}: {len(raw)} bytes that do not have their checksum at the end; restore it from the other copy, "
            "which lies beside the segments or in the stream's folder",
            path=path,
        )
    found, version, identity, count = _HEAD.unpack_from(content)
    if found != magic or version != _FORMAT or len(content) != _HEAD.size + count * kind.itemsize:
        raise LogError(f"no {what} of format {_FORMAT} with {count} rows", path=path)
    return identity.rstrip(b"\0").decode(), np.frombuffer(content, dtype=kind, offset=_HEAD.size)


_kept: dict[Path, tuple[Hashable, object]] = {}


def load_rows(path: Path, decode: Callable[..., Decoded]) -> Decoded | None:
    """What `decode(bytes, path=…)` makes of a file; None without one. Raises as `decode`.

    Cost: a `stat`; a file that was replaced is read again.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    state = (found.st_ino, found.st_size, found.st_mtime_ns)
    kept = _kept.get(path)
    if kept is not None and kept[0] == state:
        return kept[1]  # type: ignore[return-value]
    try:
        decoded = decode(path.read_bytes(), path=path)
    except FileNotFoundError:
        return None
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[path] = (state, decoded)
    return decoded
