"""`headgate kernels`: the compiled kernels of this version in the disk cache."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import App, Parameter

from headgate.cli.options import AsJson
from headgate.cli.output import write_line, write_rows
from headgate.cli.units import counted
from headgate.errors import HeadgateError

commands = App(name="kernels", help="Compiled kernels: what makes filters fast, once per version and machine.")

_COLUMNS = ("module", "kernels", "is_compiled", "folder")


@commands.command(name="compile")
def compile_all(*, shared: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Compile all kernels that are not in the cache, on all cores: for images and CI, so that nobody waits later.

    Parameters
    ----------
    shared
        Compile them for every usual server, and link them with `cc` into one file of this Python environment, which is
        used from then on: it needs neither numba nor LLVM.
    """
    from headgate import kernels

    if shared:
        os.environ[kernels.PROCESSOR_VARIABLE] = kernels.SHARED
        kernels.compile_missing(kernels.shared_modules())
        write_line(f"all kernels are in {kernels.link_shared()}")
        return 0
    kernels.compile_missing(kernels.kernel_modules())
    entries = kernels.cache_entries()
    left = [entry.module for entry in entries if not entry.is_compiled]
    if left:
        # Loaded here, the first one says why.
        kernels.load(left[0])
        raise HeadgateError(
            f"not in the cache: {', '.join(left)}; reference implementations serve, or each process compiles"
        )
    write_line(f"{counted(sum(entry.kernels for entry in entries), 'kernel')} compiled")
    return 0


@commands.command
def ls(*, as_json: AsJson = False) -> int:
    """The modules with kernels, whether they are compiled, and where that is kept."""
    from headgate import kernels

    write_rows([each._asdict() for each in kernels.cache_entries()], _COLUMNS, as_json=as_json)
    return 0
