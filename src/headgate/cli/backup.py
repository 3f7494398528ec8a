"""`headgate backup`: a copy of a root, also of one that is served."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.options import DEFAULT_ROOT, AsJson, Root
from headgate.cli.output import write_json, write_line
from headgate.cli.units import counted, shown_size


def backup(
    target: Annotated[Path, Parameter(help="A folder that is not there; it is made when all is copied.")],
    /,
    *,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Copy the streams under --root with all that belongs to them, also while a server serves them.

    The copy has everything that was confirmed before the command began. To restore it, serve it, or a copy of it, as
    --root. What can be made anew is left out: which subscription has which copies is decided again at the first start.
    """
    from headgate.broker import back_up
    from headgate.log import check_root

    check_root(root)
    report = back_up(root, target)
    if as_json:
        write_json({"target": str(target), "files": report.files, "size_bytes": report.size_bytes})
    else:
        write_line(f"{target}: {counted(report.files, 'file')}, {shown_size(report.size_bytes)}")
    return 0
