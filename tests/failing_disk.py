"""A disk of which some files find no room, or take nothing any more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from headgate.log import DiskFile


class Disk:
    """Opens files, of which those with `full` in their path find no room while that is not empty.

    Those with `broken` in it fail, and what they wrote cannot be taken back.
    """

    def __init__(self) -> None:
        self.full = ""
        self.broken = ""

    def __call__(self, path: Path) -> DiskFile:
        return _File(path, self)


class _File(DiskFile):
    def __init__(self, path: Path, disk: Disk) -> None:
        super().__init__(path)
        self._disk = disk
        self._path = str(path)

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        if self._disk.full and self._disk.full in self._path:
            super().write(memoryview(data)[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(data, position)
        if self._is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def truncate(self, size: int) -> None:
        if self._is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(size)

    @property
    def _is_broken(self) -> bool:
        return bool(self._disk.broken) and self._disk.broken in self._path
