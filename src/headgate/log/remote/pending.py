"""What a mover may leave over in object storage, in the file `remote.pending` of a stream's folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from headgate.errors import LogError
from headgate.log.checked_json import decode_checked, encode_checked
from headgate.log.files import remove_file, replace_file

_NAME = "remote.pending"


class Pending(msgspec.Struct, frozen=True):
    """First offsets of `segments`, and names of derived `files`, whose objects a crash may leave over."""

    segments: frozenset[int] = frozenset()
    files: frozenset[str] = frozenset()


def load_pending(folder: Path) -> Pending:
    """What is pending in a stream's folder. Raises LogError for a damaged file."""
    path = folder / _NAME
    try:
        fields, fault = decode_checked(path.read_bytes())
        found = msgspec.convert(fields, Pending)
    except FileNotFoundError:
        return Pending()
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise LogError(f"not a list of pending moves: {error}; remove it", path=path) from error
    if fault is not None:
        raise LogError(f"not a list of pending moves: {fault}; remove it", path=path)
    return found


def note_pending(folder: Path, *, segments: Iterable[int] | None = None, files: Iterable[str] | None = None) -> None:
    """Replace the pending segments, or files, or both. Raises LogError and its kinds."""
    before = load_pending(folder)
    segments = sorted(before.segments if segments is None else segments)
    files = sorted(before.files if files is None else files)
    path = folder / _NAME
    if segments or files:
        replace_file(path, encode_checked({"segments": segments, "files": files}))
    elif path.exists():
        remove_file(path)
