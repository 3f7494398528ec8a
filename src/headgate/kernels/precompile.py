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

_FIRST = (*FILTER, "headgate.message.arrow.encode.kernel", "headgate.message.arrow.decode.kernel")
_LAST = ("headgate.protocols.",)
"""Compiled last: only servers use them, and they cost a fifth of all."""

_NOT_SERVED = ("headgate.message.arrow.", "headgate.derived.columns.", "headgate.derived.lookup.")
"""Modules that only other processes use: Spark's, commands, and the builder of derived files."""

_PACKAGE = Path(__file__).parent.parent

CHILD = (sys.executable, "-m", "headgate.kernels.child")
"""The command that compiles modules; their names are its arguments."""

logger = logging.getLogger("headgate.kernels")


def kernel_modules() -> list[str]:
    """The dotted names of all modules with kernels in this package; modules that most processes wait for come first."""
    sources = [_PACKAGE / "kernels" / "checksum.py", *sorted(_PACKAGE.rglob("kernel.py"))]
    found = [
        ".".join(("headgate", *source.relative_to(_PACKAGE).with_suffix("").parts))
        for source in sources
        if "@kernel(" in source.read_text(encoding="utf-8")
    ]
    return sorted(found, key=lambda module: (module not in _FIRST, module.startswith(_LAST)))


def served_modules() -> list[str]:
    """The modules for a server."""
    return [module for module in kernel_modules() if not module.startswith(_NOT_SERVED)]


def missing(modules: Iterable[str]) -> list[str]:
    """The modules with kernels that are not in the cache and could be kept there.

    Empty where kernels are switched off or cannot be used. Cost: imports LLVM, a twentieth of a second.
    """
    cache = _cache()
    if cache is None:
        return []
    return [module for module in modules if cache.is_missing(source_of(module))]


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
                    left.pop(line.strip(), None)
                    tell_progress(total - sum(left.values()), total)

    tell_progress(0, total)
    # A child is free to compile, whatever this process was told.
    environment = {name: value for name, value in os.environ.items() if name != SWITCH}
    followers = []
    for share in shares(modules, _cores()):
        child = subprocess.Popen(
            [*CHILD, *share],
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


def tell_progress(done: int, total: int) -> None:
    """Log the progress: `done` of `total` kernels are compiled."""
    level = logging.INFO if done in (0, total) else logging.DEBUG
    logger.log(level, "compiling filter kernels, once per version: %d of %d", done, total)


class _Group(NamedTuple):
    modules: list[str]
    sources: frozenset[Path]

    @property
    def weight(self) -> int:
        return sum(source.stat().st_size for source in self.sources)


def shares(modules: Iterable[str], count: int) -> list[list[str]]:
    """The modules in at most `count` lists of about the same work, none empty.

    Importing a module compiles the kernels of the modules that it imports, and helpers are compiled once per process:
    modules that import the same kernels stay together.
    """
    cache = importlib.import_module("headgate.kernels.cache")
    order = list(modules)
    groups: list[_Group] = []
    for module in order:
        group = _Group([module], cache.compiled_together(source_of(module)))
        for other in list(groups):
            if any(map(cache.kernel_count, other.sources & group.sources)):
                groups.remove(other)
                group = _Group(other.modules + group.modules, other.sources | group.sources)
        groups.append(group)
    made: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(count, len(groups)))]
    for group in sorted(groups, key=lambda group: group.weight, reverse=True):
        made.sort(key=lambda share: share[0])
        weight, held = made[0]
        made[0] = (weight + group.weight, held + group.modules)
    return [sorted(held, key=order.index) for _, held in made]


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
