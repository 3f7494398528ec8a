"""A root folder and the streams under it: names to folders and back."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote

from headgate.errors import (
    ConfigError,
    LogError,
    RemoteStorageError,
    StreamNotFoundError,
    StreamReadOnlyError,
    did_you_mean,
)
from headgate.log.files import storage_error, sync_folder
from headgate.log.lock import StreamLock
from headgate.log.remote import check_no_secret, storage_at
from headgate.log.remote.catalogue import CATALOGUE_OBJECT
from headgate.log.remote.mover import delete_remote
from headgate.log.settings import load_settings
from headgate.log.staging import PRIVATE_FOLDER
from headgate.log.stream import MAX_FOLDER_NAME_BYTES, SHORTENED, Stream, encoded_name, foreign_name

STREAMS_FOLDER = "streams"
MAX_NAME_CHARACTERS = 260
"""Limit: characters of a stream's name, as for entities of Service Bus."""

_LOCATION = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.+)", re.DOTALL)
_WHAT_NAMES_IT = "--root or HEADGATE_ROOT names the folder of the streams"
_SERVER_FOLDER = "server"
_DELETED_FOLDER = "deleted"
HTTP_NOTE = "http"
"""The key in a server's lock note for the URL of its HTTP listener for this machine."""

logger = logging.getLogger("headgate.log")


def stream_folder(root: str | Path, name: str) -> Path:
    """The folder of the stream with a name: `streams/<percent-encoded name>`; see `encoded_name`.

    Raises ConfigError for an invalid name, StreamReadOnlyError for a root in object storage, which has no folders.
    """
    _check_writable(root)
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        raise ConfigError(f"stream name {name[:40]!r} has {len(name)} characters; expected 1 to {MAX_NAME_CHARACTERS}")
    return Path(root) / STREAMS_FOLDER / encoded_name(name)


def storage_root(root: str | Path) -> str | None:
    """The location of a root in object storage, such as `s3://bucket/prefix`; None for a folder.

    It has the streams with objects in `<root>/<name>/`, without their folders, and is only read. Raises ConfigError if
    it has a secret in it.
    """
    # A `Path` made of it has lost a slash.
    found = _LOCATION.fullmatch(str(root))
    if found is None:
        return None
    scheme, rest = found[1].lower(), found[2].rstrip("/")
    location = f"file:///{rest}" if scheme == "file" else f"{scheme}://{rest}"
    check_no_secret(location, what="the root")
    return location


def shown_root(root: str | Path) -> str:
    """A root for messages, with all slashes of a URL."""
    return storage_root(root) or str(root)


def check_root(root: str | Path) -> None:
    """Raise LogError for a folder that is no root: it is missing, or holds other things; an empty folder is a root."""
    if storage_root(root) is not None:
        return
    folder = Path(root)
    try:
        found = {entry.name for entry in os.scandir(folder)}
    except FileNotFoundError:
        raise LogError(f"there is no such folder; {_WHAT_NAMES_IT}", path=folder) from None
    except OSError as error:
        raise storage_error(error, folder) from error
    if not found or not found.isdisjoint((STREAMS_FOLDER, PRIVATE_FOLDER)):
        return
    advice = place_in_folder(folder)
    if advice is None:
        above, name = folder.absolute().parent, folder.absolute().name
        advice = f"give the folder above: --root {above}" if name == STREAMS_FOLDER else _WHAT_NAMES_IT
    raise LogError(f"the folder is no root: it has no folder {STREAMS_FOLDER!r}; {advice}", path=folder)


def private_folder(root: Path) -> Path:
    """The folder of a root for users, keys and others but streams. Raises StreamReadOnlyError as `stream_folder`."""
    _check_writable(root)
    return root / PRIVATE_FOLDER


def absolute_root(root: str | Path) -> Path:
    """A root, in a form that does not depend on the working folder."""
    return Path(root) if storage_root(root) is not None else Path(root).absolute()


def _check_writable(root: str | Path) -> None:
    location = storage_root(root)
    if location is not None:
        raise StreamReadOnlyError(
            "a root in object storage is only read; for everything else name the root on disk whose streams have this "
            "place as their remote",
            path=location,
        )


def name_of_folder(folder: str | Path) -> str:
    """The stream name of a folder under `streams/`; for a shortened folder name it is read from its `stream.json`.

    Where that cannot be read, it is the decoded folder name.
    """
    folder = Path(folder)
    if SHORTENED in folder.name:
        with contextlib.suppress(LogError):
            settings = load_settings(folder)
            if settings is not None:
                return settings.name
    return unquote(folder.name)


def server_lock_folder(root: Path) -> Path:
    """The folder with the lock that the server of a root holds. Raises StreamReadOnlyError as `stream_folder`."""
    return private_folder(root) / _SERVER_FOLDER


def lock_root(root: Path, *, now_ms: int, note: Mapping[str, str] = MappingProxyType({})) -> StreamLock:
    """Take the right to serve a root, or to act in place of its server. Raises StreamLockedError, LogError."""
    folder = server_lock_folder(root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, folder) from error
    return StreamLock.acquire(folder, now_ms=now_ms, note=note)


def set_aside(root: Path, folder: Path) -> Path | None:
    """Move a stream's folder away with one rename; returns its new place, None if the folder was missing.

    The caller holds the stream's lock, and removes the files. The next server removes the rest when it starts. Raises
    LogError and its kinds.
    """
    target = deleted_folder(root) / secrets.token_hex(8)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(folder, target)
        sync_folder(folder.parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(error, folder) from error
    return target


def remove_set_aside(folder: Path) -> None:
    """Delete what a deleted stream has in object storage, then its folder, which was set aside. Any thread.

    Raises RemoteStorageError; then the folder stays, as it says what is to be deleted.
    """
    try:
        delete_remote(Stream.open(folder))
    except StreamNotFoundError:
        pass  # what is left of one whose deletion was interrupted
    except RemoteStorageError:
        raise
    except LogError as error:
        # With damaged settings nothing says where anything is.
        logger.warning("%s: what it may have in object storage is left there: %s", folder, error)
    shutil.rmtree(folder, ignore_errors=True)


def deleted_folder(root: Path) -> Path:
    """The folder with the files of deleted streams until they are removed."""
    return root / PRIVATE_FOLDER / _DELETED_FOLDER


def list_streams(root: str | Path, *, damaged: Callable[[Path, LogError], None] | None = None) -> list[Stream]:
    """The streams under a root, by name; folders without a stream are skipped.

    `damaged` is called with each folder whose `stream.json` is wrong; without it that raises LogError.
    """
    location = storage_root(root)
    folder = Path(root) / STREAMS_FOLDER
    streams = []
    for name in _folder_names(root):
        try:
            streams.append(Stream.open(folder / name) if location is None else Stream.open_remote(location, name))
        except StreamNotFoundError:
            continue
        except LogError as error:
            if damaged is None:
                raise
            damaged(folder / name, error)
    return sorted(streams, key=lambda stream: stream.name)


def foreign_stream(root: str | Path, name: str) -> Stream | None:
    """The stream with a name in a folder of RabbitMQ, which has another name; None if there is none.

    Cost: listing the folder with all streams.
    """
    for folder_name in _folder_names(root):
        folder = f"{root}/{STREAMS_FOLDER}/{folder_name}"
        # A link may have another name than the folder.
        if foreign_name(os.path.basename(os.path.realpath(folder)) if os.path.islink(folder) else folder_name) == name:
            with contextlib.suppress(LogError):
                found = Stream.open(folder)
                if found.is_foreign:
                    return found
    return None


def stream_names(root: str | Path) -> list[str]:
    """The stream names of the folders under a root; opens none, so a folder may hold no stream."""
    folder = Path(root) / STREAMS_FOLDER
    return [name_of_folder(folder / name) if SHORTENED in name else unquote(name) for name in _folder_names(root)]


def _folder_names(root: str | Path) -> list[str]:
    location = storage_root(root)
    if location is not None:
        return storage_at(location).folders()
    try:
        return sorted(entry.name for entry in os.scandir(Path(root) / STREAMS_FOLDER) if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def find_stream(text: str, root: str | Path) -> Stream | None:
    """The stream meant by `text`, as for `resolve_stream`; None without one."""
    for candidate in _meant(text, root):
        try:
            return Stream.open(candidate)
        except StreamNotFoundError:
            continue
    return None


def resolve_stream(text: str, root: str | Path) -> Stream:
    """The stream meant by `text`: a name under `root`, or the path of a stream folder.

    A text with a slash is a path if it leads to a stream, else a name; a text without a slash is tried as a name first.
    Under a root in object storage the stream is only read, from its objects.
    Raises StreamNotFoundError with the places tried and similar names; it says if the path is a folder or file without
    a stream.
    """
    location = storage_root(root)
    if location is not None:
        return _resolve_remote(text, location)
    found = find_stream(text, root)
    if found is not None:
        return found
    _check_no_location(text)
    by_path = Path(text)
    if os.path.isdir(by_path):
        at_path = f"the folder {by_path} has neither stream.json nor a pair of log files"
    elif os.path.exists(by_path):
        at_path = f"{by_path} is a file, and a stream is a folder"
    else:
        at_path = f"there is no folder {by_path}"
    advice = f"headgate stream ls --root {root} lists what is there{did_you_mean(text, stream_names(root))}"
    try:
        check_root(root)
    except LogError as error:
        advice = str(error)
    raise StreamNotFoundError(f"no stream {text!r}, and {at_path}; {advice}", path=_meant(text, root)[0])


def _check_no_location(text: str) -> None:
    """Raise StreamNotFoundError for a missing stream that is given by its location in object storage."""
    location = storage_root(text) if "://" in text else None
    if location is not None:
        root, _, folder_name = location.rpartition("/")
        raise StreamNotFoundError(
            f"no stream of that name; one in object storage is given by its root and its name: --root {root} and "
            f"{unquote(folder_name)!r}",
            path=location,
        )


def place_in_folder(root: str | Path) -> str | None:
    """Says how to read the streams whose objects lie in the folder of a root; None if there are none."""
    folder = Path(root).absolute()
    if next(folder.glob(f"*/{CATALOGUE_OBJECT}"), None) is None:
        return None
    return f"objects of streams lie in this folder, as in object storage: --root {folder.as_uri()} reads them"


def _meant(text: str, root: str | Path) -> list[Path]:
    """The folders where a stream meant by `text` may be."""
    by_name, by_path = stream_folder(root, text), Path(text)
    if any(len(os.fsencode(part)) > MAX_FOLDER_NAME_BYTES for part in by_path.parts):
        return [by_name]
    return [by_path, by_name] if os.sep in text else [by_name, by_path]


def _resolve_remote(text: str, location: str) -> Stream:
    if os.sep in text:
        with contextlib.suppress(StreamNotFoundError):
            return Stream.open(text)
    folder_name = encoded_name(text)
    try:
        return Stream.open_remote(location, folder_name)
    except StreamNotFoundError as error:
        _check_no_location(text)
        if folder_name in _folder_names(location):
            raise
        near = did_you_mean(text, stream_names(location))
        raise StreamNotFoundError(
            f"no stream {text!r}; headgate stream ls --root {location} lists what is there{near}",
            path=storage_at(location).url(folder_name),
        ) from error
