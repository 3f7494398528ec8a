"""Files of a table that may become unused, listed beforehand: so the next publisher after a kill removes them.

    <derived folder>/iceberg-<id of the table>.json     locations and a checksum; replaced by rename, gone when empty
    <derived folder>/iceberg.lock                       held by the publisher of the stream

Two kinds are listed: data files before they are stored, and files that only snapshots about to expire have.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headgate.errors import LogError
from headgate.log import (
    Stream,
    decode_checked_if_noted,
    derived_folder,
    encode_checked,
    make_derived_folder,
    remove_file,
    replace_file,
    storage_error,
)

_LOCK_NAME = "iceberg.lock"


@contextlib.contextmanager
def publishing(stream: Stream) -> Iterator[None]:
    """The lock for publishing the stream from this folder: waits for its holder; the system frees it at process end.

    Without it a publisher could take the files for another one's next snapshot for waste.
    """
    path = make_derived_folder(stream) / _LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    locations: tuple[str, ...]


class Waste:
    """The list of one table. Only for the holder of `publishing`."""

    def __init__(self, stream: Stream, table: Table) -> None:
        self._path = derived_folder(stream) / f"iceberg-{table.metadata.table_uuid}.json"
        self._locations = _read(self._path)

    def add(self, locations: Iterable[str]) -> None:
        """Write these down, before they become waste."""
        self._write(self._locations | set(locations))

    def forget(self, locations: Iterable[str]) -> None:
        """A snapshot has these now."""
        self._write(self._locations - set(locations))

    def clear(self, table: Table, wanted: Collection[str]) -> int:
        """Delete listed files that no snapshot has, except the names `wanted`, which are for the next snapshots.

        Gives how many files were deleted. Cost: none for an empty list; else reading all manifests.
        """
        if not self._locations:
            return 0
        # Another publisher may have committed a file of the same name since.
        table.refresh()
        unused = self._locations - reached_by(table, table.metadata.snapshots)
        kept = {location for location in unused if location.rpartition("/")[2] in wanted}
        deleted = 0
        for location in sorted(unused - kept):
            with contextlib.suppress(FileNotFoundError):
                table.io.delete(location)
                deleted += 1
        self._write(kept)
        return deleted

    def drop(self) -> None:
        """Clear the list of a dropped table."""
        self._write(set())

    def _write(self, locations: set[str]) -> None:
        if locations == self._locations:
            return
        if locations:
            replace_file(self._path, encode_checked(_File(tuple(sorted(locations)))))
        else:
            remove_file(self._path)
        self._locations = locations


def reached_by(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """All files that some snapshots need. Cost: reading each of their manifests once."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in found:
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found.update(entry.data_file.file_path for entry in entries)
    return found


def _read(path: Path) -> set[str]:
    try:
        return set(decode_checked_if_noted(path.read_bytes(), _File).locations)
    except FileNotFoundError:
        return set()
    except (OSError, ValueError) as error:
        raise LogError(
            f"not a list of a table's files: {error}; removing it may leave files that the table does not need",
            path=path,
        ) from error
