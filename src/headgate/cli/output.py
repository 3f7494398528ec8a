"""Output of commands: results on standard output, notes on standard error; colours and frames only on a terminal.

Off a terminal a table is tab-separated with a head line, so that `cut`, `awk` and spreadsheets take it.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headgate.cli.units import counted, shown_count
from headgate.visible import visible, visible_json


def write_json(value: object) -> None:
    """One value as one line of JSON, of visible characters."""
    sys.stdout.write(visible_json(msgspec.json.encode(value, enc_hook=_jsonable).decode()) + "\n")


def _jsonable(value: Any) -> object:
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def json_cell(value: object) -> str:
    """A value as JSON for a table, of visible characters; nothing where there is none."""
    return "" if value is None else visible_json(msgspec.json.encode(value).decode())


def write_line(text: str = "") -> None:
    """One line of result."""
    sys.stdout.write(text + "\n")


def write_note(text: str) -> None:
    """One line beside the result: a warning, a summary."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class _Notes(logging.Handler):
    """A package's log records during a command, as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        write_note(record.getMessage())


_NOTES = _Notes()


def tell_compiling() -> None:
    """Note when kernels are compiled, and on a terminal how far that is."""
    logger = logging.getLogger("headgate.kernels")
    logger.addHandler(_NOTES)
    logger.setLevel(logging.DEBUG if sys.stderr.isatty() else logging.INFO)


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows under `columns`; numbers go to the right on a terminal. Off a terminal rows are written as they come."""
    if not sys.stdout.isatty():
        write_line("\t".join(columns))
        for row in rows:
            write_line("\t".join("" if cell is None else visible(str(cell)) for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    held = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) or row[index] is None for row in held)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in held:
        table.add_row(*("" if cell is None else _escaped(str(cell)) for cell in row))
    Console().print(table)


def write_rows(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str] = (), *, as_json: bool, nothing: str = ""
) -> None:
    """Rows as lines of JSON, or their `columns` (all by default) as a table; `nothing` is noted where none are."""
    if as_json:
        for row in rows:
            write_json(row)
    elif rows:
        names = columns or tuple(rows[0])
        write_table(names, [[row[name] for name in names] for row in rows])
    elif nothing:
        write_note(nothing)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(visible(text))


def write_facts(facts: Mapping[str, object]) -> None:
    """Name and value per line, names padded to one width."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        write_line(f"{visible(name):<{width}}  {'–' if value is None else visible(str(value))}")


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
