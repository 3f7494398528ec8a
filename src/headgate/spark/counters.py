"""Counters of a query: how much its stages examined, skipped and kept, gathered from its tasks.

    <root>/.headgate/counters/<token>/<name>.json      what one task or one planning counted
    <root>/.headgate/counters/<token>/folded.json      sums of files that were folded, and their names
    <root>/.headgate/counters/<token>.lock             locked by the run that counts for itself and forgets in the end

Spark has no way for a Python source to report counts of its own. A task that is repeated writes the same file again, so
nothing is counted twice; a streaming query folds the files of finished batches, so files do not pile up. Own counters
of a killed run are removed by the next one; counters under a user's token stay until `forget_counters`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headgate.tables import default_root
from headgate.temporary import locked_file

_FOLDED = "folded.json"
_FOLD_FROM = 64


def counters(token: str, *, root: str | Path | None = None) -> dict[str, int]:
    """The sums so far of the query that was given the option `counters=<token>`; empty if it has counted nothing.

    `root` is the query's option `root`, or its default.
    """
    folder = _folder(default_root() if root is None else Path(root), token)
    return dict(_sums(folder, _files(folder)))


def forget_counters(token: str, *, root: str | Path | None = None) -> None:
    """Remove the counters of a query."""
    shutil.rmtree(_folder(default_root() if root is None else Path(root), token), ignore_errors=True)


class OwnCounters:
    """A run's own counters, removed when its block ends; counters of killed runs are removed when it begins."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._locks: dict[str, int | None] = {}
        with contextlib.suppress(OSError):
            _sweep(root)

    def claim(self, token: str) -> None:
        """Begin to count under a token that no other run has."""
        self._locks[token] = None
        path = _lock_path(self._root, token)
        # Where the folder cannot be written nothing is counted either. A lock that was swept at once is made again.
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            while self._locks[token] is None:
                self._locks[token] = locked_file(path, create=True)

    def sums(self) -> list[dict[str, int]]:
        """The counters so far, in the order of the claims."""
        return [counters(token, root=self._root) for token in self._locks]

    def __enter__(self) -> OwnCounters:
        return self

    def __exit__(self, *_: object) -> None:
        for token, lock in self._locks.items():
            _forget_own(self._root, token, lock)


def _sweep(root: Path) -> None:
    for path in _folder(root, "").glob("*.lock"):
        lock = locked_file(path, create=False) if path.is_file() else None
        if lock is not None:
            _forget_own(root, path.stem, lock)


def _forget_own(root: Path, token: str, lock: int | None) -> None:
    """Remove counters, their lock last: while it exists, a later run still removes the rest."""
    forget_counters(token, root=root)
    if lock is not None:
        with contextlib.suppress(OSError):
            _lock_path(root, token).unlink()
        os.close(lock)


def _lock_path(root: Path, token: str) -> Path:
    return _folder(root, f"{token}.lock")


def record_counters(root: Path, token: str, name: str, values: Mapping[str, int]) -> None:
    """Keep the counters of one task; the same `name` again replaces them."""
    folder = _folder(root, token)
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / f"{name}.json", dict(values))


def fold_counters(root: Path, token: str) -> None:
    """Sum up the files of finished batches; to be called by one process at a time, when no task is running."""
    folder = _folder(root, token)
    files = _files(folder)
    if len(files) < _FOLD_FROM:
        return
    _replace(folder / _FOLDED, {"sums": _sums(folder, files), "folded": [path.name for path in files]})
    for path in files:
        path.unlink(missing_ok=True)


def _folder(root: Path, token: str) -> Path:
    return root / ".headgate" / "counters" / token


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if path.name != _FOLDED)


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        values: dict[str, Any] = json.loads(path.read_bytes())
        return values
    return {}


def _sums(folder: Path, files: Iterable[Path]) -> Counter[str]:
    """The sums of the folded files and of all others."""
    folded = _read(folder / _FOLDED) or {"sums": {}, "folded": []}
    sums = Counter[str](folded["sums"])
    for path in files:
        if path.name not in folded["folded"]:
            sums.update(_read(path))
    return sums


def _replace(path: Path, content: object) -> None:
    written = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    written.write_text(json.dumps(content))
    os.replace(written, path)
