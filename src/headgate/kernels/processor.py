"""Which processor kernels are compiled for: that of this machine, or every usual server of its kind."""

from __future__ import annotations

import functools
import os
import platform
import re
from pathlib import Path

PROCESSOR_VARIABLE = "HEADGATE_PROCESSOR"
"""Environment variable: with `portable` kernels are compiled for every usual server of this kind of machine, such as in
an image, and not for the model of this processor; with `shared` they are also made for a shared object, and not for
LLVM's linker in memory."""

PORTABLE, SHARED = "portable", "shared"

_PORTABLE_PROCESSORS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # Intel since Haswell (2013), AMD since Excavator (2015); `pclmul` is for checksums.
    "x86_64": (
        "x86-64-v3",
        "+pclmul",
        ("abm", "avx2", "bmi1", "bmi2", "cx16", "f16c", "fma", "movbe", "pclmulqdq", "popcnt"),
    ),
    "aarch64": ("generic", "", ()),
}
"""By machine: processor and features as LLVM names them, and all that a processor must have to run such code, as Linux
names it."""

_PROCESSORS = Path("/proc/cpuinfo")


@functools.cache
def processor() -> tuple[str, str]:
    """The processor that code is compiled for and its features, as LLVM names them: code for one model serves no other.

    It is this one, unless the environment asks for portable code and this processor can run that.
    """
    if _asked_for() in (PORTABLE, SHARED) and lacking_for_portable() == []:
        return portable()
    # It takes a twentieth of a second, and is not there where all kernels are in one shared object.
    import llvmlite.binding

    return llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()


def is_for_shared_object() -> bool:
    """Whether code may lie anywhere, near all that it calls, as in a shared object.

    LLVM's linker in memory may put it further from its symbols than such code reaches, and then ends the process.
    """
    return _asked_for() == SHARED


def _asked_for() -> str:
    return os.environ.get(PROCESSOR_VARIABLE, "").lower()


def portable() -> tuple[str, str]:
    """The processor that portable code is compiled for and its features, where `lacking_for_portable` gives a list."""
    return _PORTABLE_PROCESSORS[platform.machine()][:2]


def lacking_for_portable() -> list[str] | None:
    """What this processor lacks to run portable code, by Linux's names; None where there is no portable code."""
    if platform.machine() not in _PORTABLE_PROCESSORS:
        return None
    _, _, needed = _PORTABLE_PROCESSORS[platform.machine()]
    described = _PROCESSORS.read_text() if needed and _PROCESSORS.exists() else ""
    found = re.search(r"^flags\s*:(.*)$", described, re.MULTILINE)
    return [feature for feature in needed if found is None or feature not in found[1].split()]
