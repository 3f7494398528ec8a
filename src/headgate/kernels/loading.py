"""Reaching a kernel module, or learning once why there is none."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

SWITCH = "HEADGATE_KERNELS"
"""Environment variable; `off` makes every package use its reference implementation."""


class KernelUnavailableWarning(RuntimeWarning):
    """Kernels cannot be compiled or loaded here: the reference implementations serve, same results, slower."""


def address_of(array: NDArray[Any]) -> int:
    """Address of the first element of a C-contiguous array; the caller keeps the array alive while a kernel uses it."""
    return int(array.__array_interface__["data"][0])


_modules: dict[str, ModuleType | None] = {}
_loader: threading.Thread | None = None
"""The thread that loads kernels in the background, while it does."""


def load(module: str) -> ModuleType | None:
    """The module of that dotted name with its kernels compiled or read from the cache; None where they cannot be used.

    The first None of a process warns once with the reason, unless kernels were switched off on purpose. Cost of the
    first call: a fraction of a second from the disk cache, seconds to compile; while `load_in_background` is at work it
    is None instead.
    """
    try:
        return _modules[module]
    except KeyError:
        if _loader is not None:
            return None
        return _modules.setdefault(module, _load(module))


def kernel_modules() -> list[str]:
    """The dotted names of all modules with kernels in this package."""
    package = Path(__file__).parent.parent
    found = (source.relative_to(package).with_suffix("").parts for source in package.rglob("kernel.py"))
    return ["headgate.kernels.checksum", *sorted(".".join(("headgate", *parts)) for parts in found)]


def load_in_background(modules: Iterable[str]) -> threading.Thread:
    """Load kernels in a thread, which is given back; until all of them are there, `load` gives None at once.

    They become available together, so that a caller that was given one of them is given the others, too. What is not
    in the cache yet is compiled by a process of its own: compiling holds the interpreter's lock for seconds.
    """
    global _loader
    wanted = list(modules)

    def run() -> None:
        global _loader
        if os.environ.get(SWITCH, "").lower() != "off":
            _fill_cache(wanted)
        loaded = {module: _load(module) for module in wanted}
        _modules.update(loaded)
        _loader = None

    thread = _loader = threading.Thread(target=run, name="headgate-kernels", daemon=True)
    thread.start()
    return thread


_FILL_CACHE = """
import os, sys
from headgate.kernels import load
os.nice(10)
for module in sys.argv[2:]:
    if os.getppid() == int(sys.argv[1]):
        load(module)
"""
"""Run with the number of the process that waits for it: without that one it ends."""


def _fill_cache(modules: list[str]) -> None:
    """Have kernels compiled that are not in the cache; whatever goes wrong with it shows when they are loaded."""
    try:
        compiler = importlib.import_module("headgate.kernels.compiler")
        missing = [module for module in modules if not compiler.is_compiled(_source_of(module))]
        if missing:
            command = [sys.executable, "-c", _FILL_CACHE, str(os.getpid()), *missing]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    except (ImportError, OSError):
        return


def _source_of(module: str) -> Path:
    return Path(__file__).parent.parent.joinpath(*module.split(".")[1:]).with_suffix(".py")


def _load(module: str) -> ModuleType | None:
    if os.environ.get(SWITCH, "").lower() == "off":
        return None
    try:
        _self_test()
        return importlib.import_module(module)
    except Exception as error:  # whatever keeps numba from compiling here, the reference serves
        _warn(f"{type(error).__name__}: {error}")
        return None


@functools.cache
def _self_test() -> None:
    importlib.import_module("headgate.kernels.compiler").self_test()


_warned: list[str] = []


def _warn(reason: str) -> None:
    if not _warned:
        _warned.append(reason)
        warnings.warn(
            f"compiled kernels are not available ({reason}); the reference implementation serves: same results, slower",
            KernelUnavailableWarning,
            stacklevel=3,
        )
