"""Declarations of derived files: one JSON file of a kind for each stream, replaced by rename under a lock.

It carries a checksum: one flipped bit must not declare something else. A file without a checksum is taken as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from headgate.errors import ConfigError, LogError
from headgate.log import changing, decode_checked_if_noted, encode_checked, replace_file


class Declaration(Protocol):
    """The content of a declaration file; `format` rises when older programs cannot read it."""

    @property
    def format(self) -> int:
        """The format of the content."""


D = TypeVar("D", bound=Declaration)


class DeclarationFile(Generic[D]):
    """The declarations of one kind in the folders of streams, as `<name>.json`; `<name>.lock` is held for a change."""

    def __init__(self, name: str, kind: type[D], *, what: str, format_: int, check: Callable[[D], None]) -> None:
        """`what` names the content in errors; `check` raises ConfigError for an invalid one."""
        self.name = f"{name}.json"
        self.lock_name = f"{name}.lock"
        self._kind = kind
        self._what = what
        self._format = format_
        self._check = check

    def read(self, folder: Path) -> D | None:
        """The declaration in a folder; None without a file. Raises LogError for a file that is wrong."""
        path = folder / self.name
        try:
            raw = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LogError(f"cannot be read: {error.strerror}", path=path) from error
        try:
            found = decode_checked_if_noted(raw, self._kind)
            if found.format != self._format:
                raise ConfigError(f"format {found.format}, expected {self._format}")
            self._check(found)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, ConfigError) as error:
            raise LogError(f"not a {self._what}: {error}", path=path) from error
        return found

    @contextlib.contextmanager
    def changing(self, folder: Path, default: D) -> Iterator[Change[D]]:
        """Change the declaration under its lock, from `default` where there is none; written at the end if it changed.

        Raises StreamReadOnlyError, StorageFullError, LogError.
        """
        with changing(folder, self.lock_name):
            before = self.read(folder) or default
            change = Change(before)
            yield change
            if change.now != before:
                replace_file(folder / self.name, encode_checked(change.now))


class Change(Generic[D]):
    """A declaration under its lock; `now` is written at the end."""

    __slots__ = ("now",)

    def __init__(self, before: D) -> None:
        self.now = before
