"""Compiled kernels on disk: one file per module, in a folder that is named after all that its code depends on.

    kernels-<digest>/code     SHA-256 of the rest, length of the table (8 bytes), the table (JSON), object code
    kernels-<digest>/lock     held by the process that compiles them

The table names the kernels and has the whole numbers among the module's constants, so that a process which uses
compiled kernels imports neither their module nor numba. The digest is over versions, the kind of processor and all
sources that a module may use: itself, and what it imports from this package.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import llvmlite

from headgate.cache_folders import CACHE_VARIABLE, cache_folders
from headgate.kernels.processor import is_for_shared_object, processor
from headgate.kernels.sources import compiled_together, digest_of, kernel_count

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
    versions = (_numba(), llvmlite.__version__, sys.version)
    kind = ["shared"] if is_for_shared_object() else []
    name = f"kernels-{digest_of(compiled_together(source), *versions, *processor(), *kind)}"
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


def is_missing(source: Path) -> bool:
    """Whether kernels of a module are not in the cache, although they could be kept there."""
    folder = cache_folder(source) if kernel_count(source) else None
    return folder is not None and not (folder / "code").exists()
