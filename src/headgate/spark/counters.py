"""What the stages of a query examined, skipped and kept, gathered from its tasks.

    <root>/.headgate/counters/<token>/<name>.json      what one task or one planning counted
    <root>/.headgate/counters/<token>/folded.json      sums of files that were folded, and their names

Spark has no way for a Python source to report counts of its own. A task that is repeated writes the same file again, so
nothing is counted twice; a streaming query folds what finished batches left, so files do not pile up.
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

_FOLDED = "folded.json"
_FOLD_FROM = 64


def counters(token: str, *, root: str | Path | None = None) -> dict[str, int]:
    """The sums so far of the query that was given the option `counters=<token>`; empty if it has counted nothing.

    `root` is the query's option `root`, or its default.
    """
    folder = _folder(default_root() if root is None else Path(root), token)
    return dict(_sums(folder, _files(folder)))


def forget_counters(token: str, *, root: str | Path | None = None) -> None:
    """Remove what a query counted."""
    shutil.rmtree(_folder(default_root() if root is None else Path(root), token), ignore_errors=True)


def record_counters(root: Path, token: str, name: str, values: Mapping[str, int]) -> None:
    """Keep what one task counted; the same `name` again replaces it."""
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
    """What was folded, and what the files count that were not."""
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
