"""All kernels in one shared object, which is opened without numba and LLVM: an image needs neither.

    share/headgate/kernels-<digest>.so      in the Python environment

`headgate kernels compile --shared` makes it. It is portable (`processor.py`), and the digest is over Python's version
and the sources of all kernels: of another state of the sources it is not found, and on a processor that lacks something
it is not opened. A symbol of it is the table: JSON, by module the names of its kernels and its constants.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from headgate.kernels.functions import keep_for_ever, module_with
from headgate.kernels.processor import lacking_for_portable, portable
from headgate.kernels.sources import SELF_TEST, compiled_together, digest_of, kernel_modules, source_of

TABLE_SYMBOL = "headgate.table"


def kernels_of(module: str) -> ModuleType | None:
    """The kernels of a module from the shared object; None where there is none that can be used, or it lacks them."""
    opened = _opened()
    if opened is None or module not in opened[1]:
        return None
    shared, table = opened
    names, constants = table[module]
    return module_with(module, names, constants, lambda symbol: ctypes.cast(shared[symbol], ctypes.c_void_p).value or 0)


def is_usable() -> bool:
    """Whether kernels come from the shared object."""
    return _opened() is not None


def why_not() -> str:
    """What this processor lacks for the shared object, as the end of a sentence; empty where it lacks nothing."""
    lacking = lacking_for_portable()
    if not lacking or not path().exists():
        return ""
    return f"; the kernels that came with this installation need a processor with {', '.join(lacking)}"


@functools.cache
def path() -> Path:
    """Where the shared object for the sources as they are is, or is to be made. Cost: reads all sources of kernels."""
    sources = frozenset().union(*(compiled_together(source_of(module)) for module in shared_modules()))
    return Path(sys.prefix, "share", "headgate", f"kernels-{digest_of(sources, sys.version, *portable())}.so")


def shared_modules() -> list[str]:
    """The modules whose kernels the shared object has."""
    return [*kernel_modules(), SELF_TEST]


@functools.cache
def _opened() -> tuple[ctypes.CDLL, dict[str, Any]] | None:
    """The shared object and its table."""
    if lacking_for_portable() != [] or not path().exists():
        return None
    # One that does not open is as none.
    with contextlib.suppress(OSError):
        shared = ctypes.CDLL(str(path()))
        keep_for_ever(shared)
        table = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(shared, TABLE_SYMBOL)))
        return shared, json.loads(table)
    return None
