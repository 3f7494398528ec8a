"""The one place that imports numba to compile: decorators, the disk cache, and guards against known traps.

Traps guarded here (each met in practice, see docs/design/kernels.md):

* numba leaves the 128-bit division helpers of the C compiler's runtime unresolved; an innocent loop with a step that is
  no power of two then jumps into nowhere. They are registered before anything compiles or loads.
* The disk cache does not look at `nogil` nor at changed callees or constants in other files: every function here is
  compiled with `nogil`, and the name of a module's cache folder is a digest over versions, the kind of processor and
  all sources it may use: the module, and what it imports from this package.
* A cache folder that cannot be written, or files in it that are damaged, raise: then kernels are compiled in memory.
* Array objects inside kernels cost a factor of ten: signatures with anything but integers and floats are refused.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
import numba.core.config

from headgate.errors import HeadgateError

F = TypeVar("F", bound=Callable[..., Any])

# numba's own annotations cover only part of what is used here.
_njit: Any = numba.njit
_config: Any = numba.core.config

CACHE_VARIABLE = "HEADGATE_CACHE"
"""Environment variable: folder for compiled kernels; default is `headgate` in the user's cache folder."""

_DIVISION_SYMBOLS = ("__udivti3", "__divti3", "__umodti3", "__modti3")
_PACKAGE = Path(__file__).parent.parent
_IMPORTS = re.compile(r"^from headgate\.([a-z_0-9.]+) import (\w*)", re.MULTILINE)
_KERNELS = re.compile(r"^@kernel\(", re.MULTILINE)
_SCALARS = {"int64", "float64", "void", "int32", "uint64"}


def _register_division_symbols() -> None:
    name = ctypes.util.find_library("gcc_s") or "libgcc_s.so.1"
    runtime = ctypes.CDLL(name)
    for symbol in _DIVISION_SYMBOLS:
        address = ctypes.cast(getattr(runtime, symbol), ctypes.c_void_p).value
        llvmlite.binding.add_symbol(symbol, address)


_register_division_symbols()


@functools.cache
def cache_folder(source: Path) -> Path | None:
    """Where the kernels of a module are kept; None where nothing can be written.

    A folder per state of its sources, per kind of processor, and per place of the sources, as numba finds kernels only
    for the place they were compiled for.
    """
    digest = hashlib.sha256(f"{numba.__version__} {sys.version} {source} {_processor()}".encode())
    for part in sorted(compiled_together(source)):
        digest.update(part.read_bytes())
    base = os.environ.get(CACHE_VARIABLE)
    candidates = (
        [Path(base)]
        if base
        else [
            Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate",
            Path(tempfile.gettempdir()) / f"headgate-cache-{os.getuid()}",
        ]
    )
    for candidate in candidates:
        folder = candidate / f"kernels-{digest.hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
        except OSError:
            continue
    return None


@functools.cache
def _processor() -> str:
    """What numba compiles for: code for one model does not serve another."""
    return f"{llvmlite.binding.get_host_cpu_name()} {llvmlite.binding.get_host_cpu_features().flatten()}"


@functools.cache
def kernel_count(source: Path) -> int:
    """How many kernels a module declares."""
    return len(_KERNELS.findall(source.read_text(encoding="utf-8")))


def is_missing(source: Path) -> bool:
    """Whether kernels of a module are not in the cache, although they could be kept there."""
    folder = cache_folder(source) if kernel_count(source) else None
    return folder is not None and not _holds_all(folder, source)


def count_to_compile(source: Path) -> int:
    """How many kernels importing a module compiles: its own, and those of the modules it imports."""
    return sum(
        kernel_count(part)
        for part in compiled_together(source)
        if (folder := cache_folder(part)) is None or not _holds_all(folder, part)
    )


def _holds_all(folder: Path, source: Path) -> bool:
    # numba keeps each kernel in a file of its own, which it puts there complete.
    return sum(1 for _ in folder.rglob("*.nbc")) >= kernel_count(source)


@functools.cache
def compiled_together(source: Path) -> frozenset[Path]:
    """The module, the modules of this package that it imports, those that they import, and so on."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        module = waiting.pop()
        if module not in found and module.is_file():
            found.add(module)
            for name, imported in _IMPORTS.findall(module.read_text(encoding="utf-8")):
                # What is imported is a name of a module, or a module of a package.
                place = _PACKAGE.joinpath(*name.split("."))
                waiting += [place.with_suffix(".py"), place / f"{imported}.py"]
    return frozenset(found)


def kernel(signature: str) -> Callable[[F], F]:
    """Compile an entry point, at once, or read it from the disk cache; it runs without the interpreter lock.

    `signature` names scalars only, for example `"int64(int64, int64, float64)"`; arrays go in as addresses. Integer
    division by zero and float division follow the machine, so kernels test their divisors.
    """
    unknown = set(signature.replace("(", " ").replace(")", " ").replace(",", " ").split()) - _SCALARS
    if unknown:
        raise HeadgateError(
            f"kernel signature {signature!r}: only scalars may cross into a kernel, found {sorted(unknown)}"
        )

    def compile_with_cache(function: F) -> F:
        folder = cache_folder(Path(function.__code__.co_filename))
        options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
        previous = _config.CACHE_DIR
        _config.CACHE_DIR = str(folder) if folder else previous
        try:
            return _njit(signature, cache=folder is not None, **options)(function)  # type: ignore[no-any-return]
        except Exception:
            # An unwritable folder or damaged files in it; what is wrong with the function itself is raised again here.
            return _njit(signature, cache=False, **options)(function)  # type: ignore[no-any-return]
        finally:
            _config.CACHE_DIR = previous

    return compile_with_cache


def helper(function: F) -> F:
    """A function that kernels call; compiled into them, never called from Python.

    `forceinline` is said although it is the default: left out, it is taken over from the caller that compiles it first.
    """
    return _compiled_into_callers(function, forceinline=False)


def inlined(function: F) -> F:
    """Like `helper`, but pasted into its callers before optimisation: for tiny functions on the innermost path."""
    return _compiled_into_callers(function, forceinline=True)


def _compiled_into_callers(function: F, *, forceinline: bool) -> F:
    # Wrappers for callers in Python and C, which numba makes unless told otherwise, take a third of the time.
    made = _njit(
        nogil=True,
        error_model="numpy",
        boundscheck=False,
        forceinline=forceinline,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(function)
    template_for = made.get_call_template

    def template_for_any_integer(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        # numba would compile it anew for each constant that a caller passes. For truths that is wanted: their branches
        # are left out, which a loop over messages notices.
        plain = tuple(
            numba.types.unliteral(each) if isinstance(each, numba.types.IntegerLiteral) else each for each in arguments
        )
        return template_for(plain, keywords)

    made.get_call_template = template_for_any_integer
    return made  # type: ignore[no-any-return]


@functools.cache
def self_test() -> None:
    """Compile or load a loop that needs the 128-bit helpers and run it; raises when kernels cannot be trusted here."""
    from headgate.kernels.self_test import index_walk

    if index_walk(0, 29 * 7) != 7 or index_walk(5, 33) != 0:
        raise HeadgateError("the compiled self-test gave a wrong count")
