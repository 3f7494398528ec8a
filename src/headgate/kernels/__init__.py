"""Compiled kernels: how they are declared, cached and guarded, and the raw loads and stores they are made of.

Hides numba and its traps (`compiler.py`), where compiled code is kept (`cache.py`), how it is called without numba
(`linker.py`) and without LLVM (`shared_object.py`), and the memory intrinsics (`memory.py`). Kernels themselves live in
the module `kernel.py` of the package they belong to, take integers only (addresses, counts) and are reached through
`load`, so that importing a package neither imports numba nor fails where numba cannot be used.

    load, loaded, load_in_background     the kernels of a module, or None where they cannot be used
    address_of, places                   memory as kernels take it: arrays, and the fields of a block of words
    missing, compile_missing             modules to compile ahead of use; `FILTER` and `READ` are what commands need
    shared_modules, link_shared          all kernels in one file, which needs neither numba nor LLVM
"""

from headgate.kernels.byte_table import byte_table
from headgate.kernels.loader import (
    KernelUnavailableWarning,
    address_of,
    is_compiled,
    load,
    load_in_background,
    loaded,
    places,
)
from headgate.kernels.precompile import (
    CACHED,
    FILTER,
    READ,
    SWITCH,
    cache_entries,
    compile_missing,
    link_shared,
    missing,
    served_modules,
)
from headgate.kernels.processor import PROCESSOR_VARIABLE, SHARED
from headgate.kernels.shared_object import shared_modules
from headgate.kernels.sources import kernel_modules

__all__ = [
    "CACHED",
    "FILTER",
    "KernelUnavailableWarning",
    "PROCESSOR_VARIABLE",
    "READ",
    "SHARED",
    "SWITCH",
    "address_of",
    "byte_table",
    "cache_entries",
    "compile_missing",
    "is_compiled",
    "kernel_modules",
    "link_shared",
    "load",
    "load_in_background",
    "loaded",
    "missing",
    "places",
    "served_modules",
    "shared_modules",
]
