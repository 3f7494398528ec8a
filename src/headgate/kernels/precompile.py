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

_PACKAGE = Path(__file__).parent.parent

CHILD = (sys.executable, "-m", "headgate.kernels.child")
"""The command that compiles modules; their names are its arguments."""

logger = logging.getLogger("headgate.kernels")


def kernel_modules() -> list[str]:
    """The dotted names of all modules with kernels or shared functions in this package."""
    sources = [_PACKAGE / "kernels" / "checksum.py", *sorted(_PACKAGE.rglob("kernel.py"))]
    texts = {module_of(source): source.read_text(encoding="utf-8") for source in sources}
    return [module for module, text in texts.items() if "\n@kernel(" in text or "\n@shared\n" in text]


def served_modules() -> list[str]:
    """The modules for a server."""
    return [module for module in kernel_modules() if not module.startswith(_NOT_SERVED)]


def missing(modules: Iterable[str]) -> list[str]:
    """The modules, and the modules whose shared functions they call, that the cache lacks and could keep.

    Empty where kernels are switched off or cannot be used. Cost: imports LLVM, a twentieth of a second.
    """
    cache = _cache()
    if cache is None:
        return []
    linked = {source: None for module in modules for source in cache.linked_together(source_of(module))}
    return [module_of(source) for source in linked if cache.is_missing(source)]


def is_missing(module: str) -> bool:
    """Whether the module's own code is not in the cache, where kernels can be used."""
    cache = _cache()
    return cache is not None and bool(cache.is_missing(source_of(module)))


class CacheEntry(NamedTuple):
    """A module with kernels: how many, whether the cache holds them, and its folder there."""

    module: str
    kernels: int
    is_compiled: bool
    folder: str | None


def cache_entries() -> list[CacheEntry]:
    """All modules with kernels. Raises HeadgateError where kernels cannot be used, with the reason."""
    cache = _cache()
    if cache is None:
        raise HeadgateError(
            "kernels are switched off, or numba cannot be imported here: reference implementations serve"
        )
    entries = []
    for module in kernel_modules():
        source = source_of(module)
        folder = cache.cache_folder(source)
        compiled = folder is not None and not cache.is_missing(source)
        entries.append(CacheEntry(module, cache.kernel_count(source), compiled, folder and str(folder)))
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
    sizes = {module: cache.kernel_count(source_of(module)) for module in modules}
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
    longest_first = sorted(modules, key=lambda module: _size(cache, source_of(module)), reverse=True)
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


def _size(cache: ModuleType, source: Path) -> int:
    """About how long a module takes: the bytes of the sources that are compiled into it."""
    linked = set(cache.linked_together(source)) - {source}
    return sum(part.stat().st_size for part in cache.compiled_together(source) - linked)


def tell_progress(done: int, total: int) -> None:
    """Log the progress: `done` of `total` kernels are compiled."""
    level = logging.INFO if done in (0, total) else logging.DEBUG
    logger.log(level, "compiling filter kernels, once per version: %d of %d", done, total)


def module_of(source: Path) -> str:
    """The dotted name of a file of this package."""
    return ".".join(("headgate", *source.relative_to(_PACKAGE).with_suffix("").parts))


def source_of(module: str) -> Path:
    """The file of a module of this package."""
    return _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")


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


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
