"""How far a command is, as a line on a terminal that goes away."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from headgate.cli.units import counted, shown_count


@contextlib.contextmanager
def shown_progress(noun: str, *, total: int | None) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the number done, of `total` if known. Off a terminal it costs nothing."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = () if total is None else (BarColumn(),)
    columns = (SpinnerColumn(), *bar, TextColumn("{task.description}"), TimeElapsedColumn())
    behind = "" if total is None else f" of {shown_count(total)}"
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(counted(0, noun), total=total)
        yield lambda done: shown.update(task, completed=done, description=counted(done, noun) + behind)
