"""Loading kernel modules, with one warning per process where kernels cannot be used."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import threading
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray

from headgate.errors import HeadgateError
from headgate.kernels import precompile, shared_object
from headgate.kernels.sources import SELF_TEST, kernel_count, linked_together, module_of, source_of

Block = TypeVar("Block", bound=NamedTuple)


class KernelUnavailableWarning(RuntimeWarning):
    """Kernels cannot be compiled or loaded here: the reference implementations serve, same results, slower."""


_address_of_buffer: Callable[[Any], int] = ctypes.addressof
_in_buffer: Callable[[Any], Any] = ctypes.c_char.from_buffer


def address_of(array: NDArray[Any]) -> int:
    """Address of the first element of a C-contiguous array; the caller keeps the array alive while a kernel uses it."""
    if array.flags.carray and array.size:
        # A fifth of what numpy's own way costs, for writable memory alone.
        return _address_of_buffer(_in_buffer(array))
    return int(array.__array_interface__["data"][0])


def places(block: type[Block]) -> Block:
    """The bytes from the beginning of a block of int64 words to each of its fields, as a kernel adds them.

    A block is a NamedTuple of words: the parameters of a kernel that takes more than a few. Python fills the words by
    the same declaration.
    """
    return block(*range(0, 8 * len(block._fields), 8))


_modules: dict[str, ModuleType | None] = {}
_loader: threading.Thread | None = None
"""The thread that loads kernels in the background, while it does."""


def load(module: str) -> ModuleType | None:
    """The module of that dotted name with its kernels compiled or read from the cache; None where they cannot be used.

    The first None of a process warns once with the reason, unless kernels were switched off on purpose. Cost of the
    first call: a fraction of a second from the disk cache, seconds to compile, which is logged. Also None while
    `load_in_background` is at work, and, if the environment allows cached kernels only, for a module that is not in
    the cache: then ask again for the next batch.
    """
    try:
        return _modules[module]
    except KeyError:
        if _loader is not None or (_is_cache_only() and precompile.missing([module])):
            return None
        return _modules.setdefault(module, _load(module))


def loaded(module: str) -> ModuleType | None:
    """The module of that dotted name if this process has loaded its kernels already, else None."""
    return _modules.get(module)


def is_compiled(module: str) -> bool:
    """Whether `load` need not compile: for work that is about as fast without that module."""
    return module in _modules or not precompile.missing([module])


def load_in_background(modules: Iterable[str]) -> threading.Thread:
    """Load kernels in a thread, which is returned; until all are loaded, `load` returns None at once.

    The modules become available together: a caller that gets one gets all. Separate processes compile the modules
    that are not in the cache.
    """
    global _loader
    wanted = list(modules)

    def run() -> None:
        global _loader
        # Without further processes they are compiled below; other errors show there, too.
        with contextlib.suppress(OSError):
            precompile.compile_missing(wanted)
        loaded = {module: _load(module) for module in wanted}
        _modules.update(loaded)
        _loader = None

    thread = _loader = threading.Thread(target=run, name="headgate-kernels", daemon=True)
    thread.start()
    return thread


def _is_cache_only() -> bool:
    return os.environ.get(precompile.SWITCH, "").lower() == precompile.CACHED


def _load(module: str) -> ModuleType | None:
    if precompile.is_switched_off():
        return None
    try:
        _self_test()
        return _linked(module, precompile.tell_progress)
    except Exception as error:  # whatever keeps numba from compiling here, the reference serves
        _warn(f"{type(error).__name__}: {error}")
        return None


def _linked(module: str, tell: Callable[[int, int], None]) -> ModuleType:
    """The kernels of a module from the shared object or the cache, or compiled and kept; `tell` hears of compiling."""
    opened = shared_object.kernels_of(module)
    if opened is not None:
        return opened
    # Importing LLVM and numba costs memory and time where kernels are switched off, and may fail.
    try:
        cache = importlib.import_module("headgate.kernels.cache")
        linking = importlib.import_module("headgate.kernels.linker")
    except ImportError as error:
        raise HeadgateError(f"{error}{shared_object.why_not()}") from error
    sources = linked_together(source_of(module))
    parts = {module_of(source): cache.read(source) for source in sources}
    counts = {
        name: kernel_count(source) for (name, part), source in zip(parts.items(), sources, strict=True) if not part
    }
    if counts:
        done = 0
        tell(0, sum(counts.values()))
        for name, count in counts.items():
            parts[name] = _compiled(name)
            done += count
            tell(done, sum(counts.values()))
    compiled = parts.pop(module)
    made: ModuleType = linking.link(module, compiled, parts.items())
    return made


def _compiled(module: str) -> Any:
    """The kernels of a module, compiled now and kept in the cache."""
    compiled = importlib.import_module("headgate.kernels.compiler").compile_kernels(module)
    importlib.import_module("headgate.kernels.cache").keep(source_of(module), compiled)
    return compiled


def compile_into_cache(module: str) -> None:
    """Compile the kernels of a module and keep them, without linking them; where that fails, warn."""
    try:
        _self_test()
        _compiled(module)
    except Exception as error:  # as for `_load`
        _warn(f"{type(error).__name__}: {error}")


@functools.cache
def _self_test() -> None:
    """Run a loop that needs the 128-bit helpers; raises when kernels cannot be trusted here."""
    index_walk = _linked(SELF_TEST, lambda _done, _total: None).index_walk
    if index_walk(0, 29 * 7) != 7 or index_walk(5, 33) != 0:
        raise HeadgateError("the compiled self-test gave a wrong count")


_warned: list[str] = []


def _warn(reason: str) -> None:
    if not _warned:
        _warned.append(reason)
        warnings.warn(
            f"compiled kernels are not available ({reason}); the reference implementation serves: same results, slower",
            KernelUnavailableWarning,
            stacklevel=3,
        )
