"""Compiling kernels into the disk cache ahead of their use, on all cores, in separate processes.

Compiling holds the interpreter's lock for seconds, so a process that has other work leaves it to children. Progress is
logged: begin and end at `info`, each module between at `debug`, as kernels compiled of kernels to compile.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from headgate.errors import HeadgateError
from headgate.kernels import shared_object
from headgate.kernels.processor import is_for_shared_object, lacking_for_portable
from headgate.kernels.sources import (
    compiled_together,
    kernel_count,
    kernel_modules,
    linked_together,
    module_of,
    source_of,
)

SWITCH = "HEADGATE_KERNELS"
"""Environment variable: with `off` every package uses its reference implementation; with `cached` kernels come from the
disk cache only, where another process compiles them: the reference implementations serve until it has done so."""

OFF = "off"
CACHED = "cached"

READ = ("headgate.kernels.checksum", "headgate.log.kernel")
"""The modules for reading a stream."""

FILTER = (*READ, "headgate.evaluate.kernel", "headgate.scan.kernel", "headgate.scan.answers.kernel")
"""The modules for reading a stream with a filter."""

_NOT_SERVED = ("headgate.message.arrow.", "headgate.derived.columns.", "headgate.derived.lookup.")
"""Modules that only other processes use: Spark's, commands, and the builder of derived files."""

CHILD = (sys.executable, "-m", "headgate.kernels.child")
"""The command that compiles modules; their names are its arguments."""

logger = logging.getLogger("headgate.kernels")


def served_modules() -> list[str]:
    """The modules for a server."""
    return [module for module in kernel_modules() if not module.startswith(_NOT_SERVED)]


def missing(modules: Iterable[str]) -> list[str]:
    """The modules, and the modules whose shared functions they call, that the cache lacks and could keep.

    Empty where kernels are switched off or cannot be used. Cost: imports LLVM, a twentieth of a second.
    """
    cache = _cache()
    if cache is None or shared_object.is_usable():
        return []
    linked = {source: None for module in modules for source in linked_together(source_of(module))}
    return [module_of(source) for source in linked if cache.is_missing(source)]


def is_missing(module: str) -> bool:
    """Whether the module's own code is not in the cache, where kernels can be used."""
    cache = _cache()
    return cache is not None and bool(cache.is_missing(source_of(module)))


class CacheEntry(NamedTuple):
    """A module with kernels: how many, whether they are compiled, and the folder in the cache or the shared object."""

    module: str
    kernels: int
    is_compiled: bool
    folder: str | None


def cache_entries() -> list[CacheEntry]:
    """All modules with kernels. Raises HeadgateError where kernels cannot be used, with the reason."""
    if shared_object.is_usable() and not is_switched_off():
        place = str(shared_object.path())
        return [CacheEntry(module, kernel_count(source_of(module)), True, place) for module in kernel_modules()]
    cache = _usable_cache()
    entries = []
    for module in kernel_modules():
        source = source_of(module)
        folder = cache.cache_folder(source)
        compiled = folder is not None and not cache.is_missing(source)
        entries.append(CacheEntry(module, kernel_count(source), compiled, folder and str(folder)))
    return entries


def compile_missing(modules: Iterable[str]) -> None:
    """Compile the modules that are not in the cache: tens of seconds of CPU for an empty cache.

    Child processes compile, at a low priority, and continue if this process ends: the next one finds their kernels.
    Kernels that cannot be compiled stay missing. Raises OSError where no process can be started.
    """
    cache = _cache()
    modules = missing(modules)
    if cache is None or not modules:
        return
    sizes = {module: kernel_count(source_of(module)) for module in modules}
    total = sum(sizes.values())
    left = dict(sizes)
    lock = threading.Lock()

    def follow(child: subprocess.Popen[str]) -> None:
        with child:
            assert child.stdout is not None
            for line in child.stdout:
                with lock:
                    # Each child tells of all modules.
                    if left.pop(line.strip(), None):
                        tell_progress(total - sum(left.values()), total)

    tell_progress(0, total)
    # A child is free to compile, whatever this process was told.
    environment = {name: value for name, value in os.environ.items() if name != SWITCH}
    followers = []
    # What takes longest comes first, so that all end at about the same time.
    longest_first = sorted(modules, key=lambda module: _size(source_of(module)), reverse=True)
    for _ in range(min(_cores(), len(modules))):
        child = subprocess.Popen(
            [*CHILD, *longest_first],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        followers.append(threading.Thread(target=follow, args=(child,), name="headgate-kernels", daemon=True))
        followers[-1].start()
    for follower in followers:
        follower.join()


def link_shared() -> Path:
    """Link all kernels, which the cache has for every usual server, into the shared object of this Python environment.

    From then on kernels come from that file, which is returned. Raises HeadgateError where the cache lacks some, where
    this processor cannot run portable code, and where there is no C compiler.
    """
    if is_switched_off() or not shared_object.is_usable():
        cache = _usable_cache()
        lacking = lacking_for_portable()
        if lacking != [] or not is_for_shared_object():
            needed = f"a processor with {', '.join(lacking)}" if lacking else "x86-64 or ARMv8, and HEADGATE_PROCESSOR"
            raise HeadgateError(f"kernels for every usual server cannot be compiled here: they need {needed}")
        modules = {module: cache.read(source_of(module)) for module in shared_object.shared_modules()}
        if left := [module for module, compiled in modules.items() if compiled is None]:
            raise HeadgateError(f"kernels are not in the cache, so they cannot be linked: {', '.join(left)}")
        importlib.import_module("headgate.kernels.linker").link_into_file(shared_object.path(), modules)
    return shared_object.path()


def _size(source: Path) -> int:
    """About how long a module takes: the bytes of the sources that are compiled into it."""
    linked = set(linked_together(source)) - {source}
    return sum(part.stat().st_size for part in compiled_together(source) - linked)


def tell_progress(done: int, total: int) -> None:
    """Log the progress: `done` of `total` kernels are compiled."""
    level = logging.INFO if done in (0, total) else logging.DEBUG
    logger.log(level, "compiling filter kernels, once per version: %d of %d", done, total)


def is_switched_off() -> bool:
    """Whether the environment says that kernels are not to be used."""
    return os.environ.get(SWITCH, "").lower() == OFF


def _cache() -> ModuleType | None:
    """The module of the disk cache; None where kernels are switched off or cannot be used."""
    if is_switched_off():
        return None
    try:
        return importlib.import_module("headgate.kernels.cache")
    except (ImportError, OSError):
        return None


def _usable_cache() -> ModuleType:
    cache = _cache()
    if cache is None:
        raise HeadgateError(
            "kernels are switched off, or numba cannot be imported here: reference implementations serve"
        )
    return cache


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
