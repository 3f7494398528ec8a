"""A JSON file that only its owner may read, replaced as a whole, also by other processes.

It carries a checksum: one flipped bit must not rename a user. A file without a checksum is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from headgate.errors import ConfigError, HeadgateError
from headgate.log import decode_checked_if_noted, encode_checked, replace_file, storage_error


class _Content(Protocol):
    @property
    def format(self) -> int: ...


Content = TypeVar("Content", bound=_Content)

_OWNER_ONLY = 0o600


class PrivateFile(Generic[Content]):
    """The file at `path`, which holds a `kind` in a numbered `format`. Messages call it `what`."""

    def __init__(
        self, path: Path, kind: type[Content], *, what: str, format: int, check: Callable[[Content], None]
    ) -> None:
        """`check` raises a HeadgateError for wrong content."""
        self.path = path
        self._kind = kind
        self._what = what
        self._format = format
        self._check = check
        self._stamp: tuple[int, int] | None = None

    def has_changed(self) -> bool:
        """Whether the file differs from the one last read or written. Cost: one `stat`."""
        return self._stamp_now() != self._stamp

    def read(self) -> Content | None:
        """The content; None without a file. Raises ConfigError, which names the file."""
        stamp = self._stamp_now()
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            self._stamp = None
            return None
        try:
            content = decode_checked_if_noted(raw, self._kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} is no file of {self._what}: {error}") from error
        if content.format != self._format:
            raise ConfigError(f"{self.path} has format {content.format}; expected {self._format}")
        try:
            self._check(content)
        except HeadgateError as error:
            raise ConfigError(f"{self.path} cannot be taken over: {error}") from error
        self._stamp = stamp
        return content

    def write(self, content: Content) -> None:
        """Replace the file, and make a missing folder. Raises LogError and its kinds; then the old file stays."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self.path.parent) from error
        replace_file(self.path, encode_checked(content), mode=_OWNER_ONLY)
        self._stamp = self._stamp_now()

    def _stamp_now(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino
