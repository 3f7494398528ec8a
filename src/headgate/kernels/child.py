"""A process that compiles kernels for another: `python -m headgate.kernels.child MODULE…`.

Prints the name of each module when its kernels are in the cache. It continues after the process that started it has
ended: the next process finds the kernels. If another process is compiling a module, it waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import sys
from collections.abc import Iterator, Sequence

from headgate.kernels.loader import load
from headgate.kernels.precompile import missing, source_of

_NICENESS = 10


def main(modules: Sequence[str]) -> None:
    """Compile the modules, in order."""
    os.nice(_NICENESS)
    for module in modules:
        with _alone_with(module):
            if missing([module]):
                load(module)
        if not missing([module]):
            with contextlib.suppress(BrokenPipeError):
                print(module, flush=True)


@contextlib.contextmanager
def _alone_with(module: str) -> Iterator[None]:
    """Keep other compiling processes from the same module; a lock of the system, which ends with the process."""
    folder = importlib.import_module("headgate.kernels.cache").cache_folder(source_of(module))
    with (folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main(sys.argv[1:])
