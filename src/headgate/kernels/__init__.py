"""Compiled kernels: how they are declared, cached and guarded, and the raw loads and stores they are made of.

Hides numba and its traps (`compiler.py`) and the memory intrinsics (`memory.py`). Kernels themselves live in the
module `kernel.py` of the package they belong to, take integers only (addresses, counts) and are reached through `load`,
so that importing a package neither imports numba nor fails where numba cannot be used.
"""

from headgate.kernels.loading import KernelUnavailableWarning, address_of, kernel_modules, load, load_in_background
from headgate.kernels.workspace import Workspace

__all__ = ["KernelUnavailableWarning", "Workspace", "address_of", "kernel_modules", "load", "load_in_background"]
