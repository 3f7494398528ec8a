"""Reaching a kernel module, or learning once why there is none."""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

SWITCH = "HEADGATE_KERNELS"
"""Environment variable; `off` makes every package use its reference implementation."""


class KernelUnavailableWarning(RuntimeWarning):
    """Kernels cannot be compiled or loaded here: the reference implementations serve, same results, slower."""


def address_of(array: NDArray[Any]) -> int:
    """Address of the first element of a C-contiguous array; the caller keeps the array alive while a kernel uses it."""
    return int(array.__array_interface__["data"][0])


@functools.cache
def load(module: str) -> ModuleType | None:
    """The module of that dotted name with its kernels compiled or read from the cache; None where they cannot be used.

    The first None of a process warns once with the reason, unless kernels were switched off on purpose. Cost of the
    first call: a fraction of a second from the disk cache, seconds to compile.
    """
    if os.environ.get(SWITCH, "").lower() == "off":
        return None
    reason = _unusable()
    if reason is not None:
        return None
    return importlib.import_module(module)


@functools.cache
def _unusable() -> str | None:
    try:
        compiler = importlib.import_module("headgate.kernels.compiler")
        compiler.self_test()
    except Exception as error:  # noqa: BLE001 - whatever keeps numba from working, the reference serves
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"compiled kernels are not available ({reason}); the reference implementation serves: same results, slower",
            KernelUnavailableWarning,
            stacklevel=3,
        )
        return reason
    return None


def empty_with_slack(size_bytes: int, slack_bytes: int = 64) -> NDArray[np.uint8]:
    """A new uninitialised byte buffer of `size_bytes` with readable bytes behind it."""
    return np.empty(size_bytes + slack_bytes, dtype=np.uint8)
