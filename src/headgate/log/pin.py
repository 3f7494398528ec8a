"""The file `pin` in a stream's folder: the offset from which retention must keep messages, and the limit in bytes.

Subscriptions and consumer groups need messages that retention would delete. Their owner sets the pin (`Writer.pin`),
and every writer of the stream obeys it, in any process; the log knows no subscriptions.

One line of 49 bytes: offset and quota, 19 digits each, and the CRC-32 of these two as 8 hexadecimal digits. It is
overwritten in place, which needs no room on a full disk and does not change the folder's time, by which other processes
see that segments came or went. A torn line has a wrong checksum, and a wrong line means: keep everything.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import ConfigError, StreamFullError
from headgate.log.files import OpenFile, storage_error, sync_folder

PIN_NAME = "pin"

_LARGEST = 2**63 - 1
_LINE_BYTES = 49

logger = logging.getLogger("headgate.log")


@dataclass(frozen=True, slots=True)
class Pin:
    """Keep the messages from `offset` on; when they have `quota_bytes`, the stream is full. Raises ConfigError."""

    offset: int
    quota_bytes: int

    def __post_init__(self) -> None:
        for name in ("offset", "quota_bytes"):
            if not 0 <= getattr(self, name) <= _LARGEST:
                raise ConfigError(f"a pin with the {name} {getattr(self, name)}; expected 0 to {_LARGEST}")


KEEP_EVERYTHING = Pin(0, _LARGEST)
"""The meaning of a pin that cannot be read."""


def read_pin(folder: Path) -> Pin | None:
    """The pin of a stream's folder; None without one: then retention follows only its limits.

    KEEP_EVERYTHING, with a warning in the log, for a file that is damaged or cannot be read; never an error.
    """
    path = f"{folder}/{PIN_NAME}"
    reason = "the checksum is wrong"
    # Twice, because another process may be overwriting it.
    for _ in range(2):
        try:
            with open(path, "rb", buffering=0) as file:
                found = _decoded(file.read(_LINE_BYTES))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            found, reason = None, error.strerror or str(error)
        if found is not None:
            return found
    logger.warning(
        "%s: this pin cannot be used (%s); nothing of the stream is deleted until it is written again", path, reason
    )
    return KEEP_EVERYTHING


def write_pin(folder: Path, pin: Pin | None, *, flushed: bool, open_file: OpenFile) -> None:
    """Write the pin, or remove it; if `flushed`, it survives a power loss. The caller holds the stream's lock.

    Raises StorageFullError, StreamReadOnlyError or LogError; then the folder has the earlier pin, or one that cannot be
    read.
    """
    path = folder / PIN_NAME
    is_new = not path.exists()
    try:
        if pin is None:
            path.unlink(missing_ok=True)
        else:
            file = open_file(path)
            try:
                file.write(_encoded(pin), 0)
                if flushed:
                    file.sync()
            finally:
                file.close()
        if flushed and (is_new or pin is None):
            sync_folder(folder)
    except OSError as error:
        if is_new:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise storage_error(error, path) from error


def full_error(folder: Path, pin: Pin, held_bytes: int) -> StreamFullError:
    """The error for a publisher when the messages from the pin on have reached the pin's quota."""
    return StreamFullError(
        f"the stream is full: {held_bytes} bytes from offset {pin.offset} on wait to be settled, and at most "
        f"{pin.quota_bytes} may; settle or drop what needs them, or raise the limit",
        path=folder,
    )


def _encoded(pin: Pin) -> bytes:
    line = f"{pin.offset:019d} {pin.quota_bytes:019d}"
    return f"{line} {zlib.crc32(line.encode()):08x}\n".encode()


def _decoded(line: bytes) -> Pin | None:
    try:
        pin = Pin(int(line[:19]), int(line[20:39]))
    except (ValueError, ConfigError):
        return None
    return pin if _encoded(pin) == line else None
