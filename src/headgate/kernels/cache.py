"""Compiled kernels on disk: one file per module, in a folder that is named after all that its code depends on.

    kernels-<digest>/code     SHA-256 of the rest, length of the table (8 bytes), the table (JSON), object code
    kernels-<digest>/lock     held by the process that compiles them

The table names the kernels and has the whole numbers among the module's constants, so that a process which uses
compiled kernels imports neither their module nor numba. The digest is over versions, the kind of processor and all
sources that a module may use: itself, and what it imports from this package. Kernels in `share/headgate` of the Python
environment came with the installation, as in an image; they are used first, and only read.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding

from headgate.cache_folders import CACHE_VARIABLE, cache_folders

PROCESSOR_VARIABLE = "HEADGATE_PROCESSOR"
"""Environment variable: with `portable` kernels are compiled for every usual server of this kind of machine, such as in
an image, and not for the model of this processor."""

PORTABLE = "portable"

_PORTABLE_PROCESSORS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # Intel since Haswell (2013), AMD since Excavator (2015); `pclmul` is for checksums.
    "x86_64": (
        "x86-64-v3",
        "+pclmul",
        ("avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "pclmul", "popcnt"),
    ),
    "aarch64": ("generic", "", ()),
}
"""By machine: processor and features as LLVM names them, and all that a processor must have to run such code."""

_PACKAGE = Path(__file__).parent.parent
_IMPORTS = re.compile(r"^from headgate\.([a-z_0-9.]+) import (\w*)", re.MULTILINE)
_KERNELS = re.compile(r"^@(?:kernel\(|shared$)", re.MULTILINE)
_SHARED = re.compile(r"^@shared$", re.MULTILINE)
_DIGEST_BYTES = 32
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class CompiledKernels:
    """Machine code of the kernels of a module."""

    names: tuple[str, ...]
    constants: dict[str, int]
    """The integer constants of the module, truth values included, for callers of its kernels."""
    code: bytes
    """An object file; the function that Python calls for a kernel is `python.NAME`."""

    def to_bytes(self) -> bytes:
        """The content of a file."""
        table = json.dumps({"names": self.names, "constants": self.constants}).encode()
        rest = len(table).to_bytes(_LENGTH_BYTES, "little") + table + self.code
        return hashlib.sha256(rest).digest() + rest

    @classmethod
    def from_bytes(cls, data: bytes) -> CompiledKernels | None:
        """The content from the bytes of `to_bytes`; None for other bytes."""
        digest, rest = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if hashlib.sha256(rest).digest() != digest:
            return None
        end = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES], "little")
        table = json.loads(rest[_LENGTH_BYTES:end])
        return cls(tuple(table["names"]), table["constants"], rest[end:])


def read(source: Path) -> CompiledKernels | None:
    """The kernels of a module; None where they are not in the cache, or their file is damaged."""
    folder = cache_folder(source)
    try:
        return None if folder is None else CompiledKernels.from_bytes((folder / "code").read_bytes())
    except OSError:
        return None


def keep(source: Path, compiled: CompiledKernels) -> None:
    """Put the kernels of a module into the cache; where nothing can be written, they are not kept."""
    folder = cache_folder(source)
    if folder is None:
        return
    written = folder / f"code.{os.getpid()}"
    try:
        written.write_bytes(compiled.to_bytes())
        written.replace(folder / "code")
    except OSError:
        written.unlink(missing_ok=True)


@functools.cache
def cache_folder(source: Path) -> Path | None:
    """Where the kernels of a module are, or are to be kept; None where nothing can be written."""
    digest = hashlib.sha256(f"{_numba()} {llvmlite.__version__} {sys.version} {' '.join(processor())}".encode())
    for part in sorted(compiled_together(source)):
        digest.update(part.read_bytes())
    name = f"kernels-{digest.hexdigest()[:16]}"
    installed = Path(sys.prefix, "share", "headgate", name)
    if os.access(installed / "code", os.R_OK):
        return installed
    for parent in cache_folders(CACHE_VARIABLE):
        folder = parent / name
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return None


@functools.cache
def _numba() -> str:
    """The version of numba, without importing it, which takes a quarter of a second. Raises ImportError."""
    found = importlib.util.find_spec("numba")
    if found is None or found.origin is None:
        raise ImportError("numba is not installed")
    return Path(found.origin).with_name("_version.py").read_text(encoding="utf-8")


@functools.cache
def processor() -> tuple[str, str]:
    """The processor that code is compiled for and its features, as LLVM names them: code for one model serves no other.

    It is this one, unless the environment asks for portable code and this processor can run that.
    """
    found = llvmlite.binding.get_host_cpu_features()
    if os.environ.get(PROCESSOR_VARIABLE, "").lower() == PORTABLE and platform.machine() in _PORTABLE_PROCESSORS:
        name, features, needed = _PORTABLE_PROCESSORS[platform.machine()]
        if all(found.get(feature) for feature in needed):
            return name, features
    return llvmlite.binding.get_host_cpu_name(), found.flatten()


@functools.cache
def kernel_count(source: Path) -> int:
    """How many kernels and shared functions a module declares."""
    return len(_KERNELS.findall(source.read_text(encoding="utf-8")))


def is_missing(source: Path) -> bool:
    """Whether kernels of a module are not in the cache, although they could be kept there."""
    folder = cache_folder(source) if kernel_count(source) else None
    return folder is not None and not (folder / "code").exists()


@functools.cache
def linked_together(source: Path) -> tuple[Path, ...]:
    """The modules whose shared functions the kernels of a module may call, then the module itself."""
    others = sorted(compiled_together(source) - {source})
    return (*(other for other in others if _SHARED.search(other.read_text(encoding="utf-8"))), source)


@functools.cache
def compiled_together(source: Path) -> frozenset[Path]:
    """The module and all modules of this package that it imports, directly or not."""
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
