"""A stream without its folder: what readers have of it on this machine, when only its objects are at hand.

    <cache>/roots/<digest of the root's location>/streams/<name>/
        stream.json         as the object of that name, with the location in it: nobody may write to this folder
        remote.catalogue    as the object `catalogue`
        remote.derived      as the object `derived`; the declarations in it are in the folder derived/
        shadow.state        the state of the object `catalogue` that was read; its time is that of the last look

The folder is a shadow: made when the stream is opened, looked after by all readers of the machine, once a second as
long as one of them asks for the segments. Losing it costs nothing but the next look.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headgate.errors import LogError, StreamNotFoundError
from headgate.log.checked_json import decode_checked, encode_checked
from headgate.log.files import replace_file, storage_error
from headgate.log.pairs import DERIVED_FOLDER, SETTINGS_NAME
from headgate.log.remote.cache import cache_folder
from headgate.log.remote.catalogue import CATALOGUE_NAME, CATALOGUE_OBJECT, Catalogue
from headgate.log.remote.derived_list import DECLARATIONS, DERIVED_NAME, load_derived, save_derived, stored_list
from headgate.log.remote.storage import ObjectStorage, storage_at

LOCATION_FIELD = "location"
"""The field of `stream.json` that only a shadow has."""

_STATE_NAME = "shadow.state"
_LOOK_AGAIN_S = 1.0
_DIGEST_DIGITS = 16


def shadow_folder(root: str, folder_name: str) -> Path:
    """The folder of the shadow of a stream below the location of a root; it may not exist."""
    digest = hashlib.sha256(root.encode()).hexdigest()[:_DIGEST_DIGITS]
    return cache_folder().parent / "roots" / digest / "streams" / folder_name


def refresh_shadow(folder: Path, location: str, *, at_once: bool = False) -> None:
    """Bring a shadow up to date, unless somebody on this machine did within the last second; with `at_once` always.

    Cost: a request; if the catalogue was replaced, reading it and the settings. Raises StreamNotFoundError if there is
    no stream at the location, or not any more, RemoteStorageError, LogError.
    """
    state = folder / _STATE_NAME
    if not at_once and _is_fresh(state):
        return
    try:
        with _locked(state) as descriptor:
            if at_once or not _is_fresh(state) or not os.fstat(descriptor).st_size:
                _look(folder, storage_at(location), descriptor)
    except OSError as error:
        raise storage_error(error, folder) from error


def doubt_shadow(folder: Path) -> None:
    """Let the next look read everything again. Raises LogError."""
    try:
        os.truncate(folder / _STATE_NAME, 0)
    except OSError as error:
        raise storage_error(error, folder) from error


def _is_fresh(state: Path) -> bool:
    try:
        # The folder's time is now; no clock is asked.
        os.utime(state.parent)
        return 0 <= os.stat(state.parent).st_mtime - os.stat(state).st_mtime < _LOOK_AGAIN_S
    except OSError:
        return False


@contextlib.contextmanager
def _locked(state: Path) -> Iterator[int]:
    state.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _look(folder: Path, storage: ObjectStorage, descriptor: int) -> None:
    found = storage.state_of(CATALOGUE_OBJECT)
    if found is None:
        _forget(folder, descriptor)
        raise StreamNotFoundError(
            "no stream here that readers could open: its catalogue is missing; it is written when the first segment "
            "was moved",
            path=storage.url(CATALOGUE_OBJECT),
        )
    known = os.pread(descriptor, 4096, 0)
    if known != found.encode() or not (folder / CATALOGUE_NAME).exists() or not (folder / SETTINGS_NAME).exists():
        # What is older than what was seen of the catalogue is read again at the next look.
        os.ftruncate(descriptor, 0)
        raw, settings = storage.read(CATALOGUE_OBJECT), storage.read(SETTINGS_NAME)
        if raw is None or settings is None:
            _forget(folder, descriptor)
            raise StreamNotFoundError(
                "no stream here: somebody is deleting it, or its stream.json is missing", path=storage.url("")
            )
        catalogue = Catalogue.decode(raw, path=storage.url(CATALOGUE_OBJECT))
        fields = _fields(settings, storage)
        if fields.get("identity") != catalogue.identity:
            raise LogError(
                f"the catalogue is of the stream with the identity {catalogue.identity}, stream.json of "
                f"{fields.get('identity')}: another stream is being made in its place, or two streams share it",
                path=storage.url(CATALOGUE_OBJECT),
            )
        _take_derived(folder, storage, catalogue.identity)
        # Declared ranges must not be older than the segments that they are about.
        replace_file(folder / SETTINGS_NAME, encode_checked(fields | {LOCATION_FIELD: storage.location}), flushed=False)
        replace_file(folder / CATALOGUE_NAME, raw, flushed=False)
        os.pwrite(descriptor, found.encode(), 0)
    os.utime(descriptor)


def _take_derived(folder: Path, storage: ObjectStorage, identity: str) -> None:
    """Take over the list of derived files, and declarations. Without them the stream can be read as well."""
    # A damaged list is made again by the next move that sends a file.
    found = stored_list(storage, identity)
    known = load_derived(folder)
    if known is not None and known.encode() == found.encode():
        return
    derived = folder / DERIVED_FOLDER
    derived.mkdir(exist_ok=True)
    declarations = found.files_of(DECLARATIONS)
    for each in declarations:
        content = storage.read(each.name)
        if content is not None:
            replace_file(derived / each.name, content, flushed=False)
    for path in derived.glob("*.json"):
        if path.name not in {each.name for each in declarations}:
            path.unlink(missing_ok=True)
    save_derived(folder, found, flushed=False)


def _fields(raw: bytes, storage: ObjectStorage) -> dict[str, object]:
    try:
        fields, fault = decode_checked(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogError(f"not the settings of a stream: {error}", path=storage.url(SETTINGS_NAME)) from error
    if fault is not None:
        raise LogError(f"not the settings of a stream: {fault}", path=storage.url(SETTINGS_NAME))
    return fields


def _forget(folder: Path, descriptor: int) -> None:
    """Leave nothing that looks like a stream; readers who have it open find that it was deleted."""
    os.ftruncate(descriptor, 0)
    for name in (CATALOGUE_NAME, SETTINGS_NAME, DERIVED_NAME):
        (folder / name).unlink(missing_ok=True)
