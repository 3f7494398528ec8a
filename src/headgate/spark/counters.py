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
from collections.abc import Mapping
from pathlib import Path

from headgate.spark.declarations import default_root

_FOLDED = "folded.json"
_FOLD_FROM = 64


def counters(token: str, *, root: str | Path | None = None) -> dict[str, int]:
    """The sums so far of the query that was given the option `counters=<token>`; empty if it has counted nothing.

    `root` is the query's option `root`, or its default.
    """
    folder = _folder(default_root() if root is None else Path(root), token)
    sums, folded = _read_folded(folder)
    for path in _files(folder):
        if path.name not in folded:
            sums.update(_read(path))
    return dict(sums)


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
    sums, folded = _read_folded(folder)
    for path in files:
        if path.name not in folded:
            sums.update(_read(path))
    _replace(folder / _FOLDED, {"sums": sums, "folded": [path.name for path in files]})
    for path in files:
        path.unlink(missing_ok=True)


def _folder(root: Path, token: str) -> Path:
    return root / ".headgate" / "counters" / token


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if path.name != _FOLDED)


def _read(path: Path) -> dict[str, int]:
    with contextlib.suppress(FileNotFoundError):
        values: dict[str, int] = json.loads(path.read_bytes())
        return values
    return {}


def _read_folded(folder: Path) -> tuple[Counter[str], frozenset[str]]:
    try:
        content = json.loads((folder / _FOLDED).read_bytes())
    except FileNotFoundError:
        return Counter(), frozenset()
    return Counter(content["sums"]), frozenset(content["folded"])


def _replace(path: Path, content: object) -> None:
    written = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    written.write_text(json.dumps(content))
    os.replace(written, path)
