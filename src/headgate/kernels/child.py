"""A process that compiles kernels for another: `python -m headgate.kernels.child MODULE…`.

All children of a process get the same modules, and each takes the next one that no other is at: there is a lock per
module. Prints the name of each module when its kernels are in the cache. It continues after the process that started
it has ended: the next process finds the kernels.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from headgate.kernels.loader import compile_into_cache
from headgate.kernels.precompile import is_missing
from headgate.kernels.sources import source_of

_NICENESS = 10


def main(modules: Sequence[str]) -> None:
    """Compile, in order, the modules that no other process is compiling; then wait for the others."""
    os.nice(_NICENESS)
    left = [module for module in modules if not _compiled_alone(module)]
    for module in left:
        with _lock_of(module) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        _tell(module)


def _compiled_alone(module: str) -> bool:
    """Compile a module that is missing; False if another process is at it. The lock ends with its process."""
    with _lock_of(module) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if is_missing(module):
            compile_into_cache(module)
    _tell(module)
    return True


def _lock_of(module: str) -> BinaryIO:
    folder: Path = importlib.import_module("headgate.kernels.cache").cache_folder(source_of(module))
    return (folder / "lock").open("wb")


def _tell(module: str) -> None:
    if not is_missing(module):
        with contextlib.suppress(BrokenPipeError):
            print(module, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
