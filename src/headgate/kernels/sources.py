"""The modules with kernels, and the files that the code of each is compiled from."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

SELF_TEST = "headgate.kernels.self_test"
"""The module with the kernel that runs before any other is used."""

_PACKAGE = Path(__file__).parent.parent
_IMPORTS = re.compile(r"^from headgate\.([a-z_0-9.]+) import (\w*)", re.MULTILINE)
_KERNELS = re.compile(r"^@(?:kernel\(|shared$)", re.MULTILINE)
_SHARED = re.compile(r"^@shared$", re.MULTILINE)


def kernel_modules() -> list[str]:
    """The dotted names of all modules with kernels or shared functions in this package."""
    sources = [_PACKAGE / "kernels" / "checksum.py", *sorted(_PACKAGE.rglob("kernel.py"))]
    return [module_of(source) for source in sources if kernel_count(source)]


def module_of(source: Path) -> str:
    """The dotted name of a file of this package."""
    return ".".join(("headgate", *source.relative_to(_PACKAGE).with_suffix("").parts))


def source_of(module: str) -> Path:
    """The file of a module of this package."""
    return _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")


@functools.cache
def kernel_count(source: Path) -> int:
    """How many kernels and shared functions a module declares."""
    return len(_KERNELS.findall(source.read_text(encoding="utf-8")))


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


def digest_of(sources: Iterable[Path], *others: str) -> str:
    """A name for code that is compiled from these files and depends on these texts."""
    digest = hashlib.sha256(" ".join(others).encode())
    for source in sorted(sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
