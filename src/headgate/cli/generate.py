"""`headgate generate`: made-up customer events to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from headgate.generate import DEFAULT_RUN_LENGTH


def generate(
    path: Annotated[Path, Parameter(help="File to write.")],
    /,
    *,
    events: Annotated[int, Parameter(help="How many events.")] = 500_000,
    seed: Annotated[int, Parameter(help="The same seed gives the same events.")] = 1,
    format: Annotated[Literal["parquet", "jsonl"], Parameter(help="Form of the file.")] = "parquet",
    run_length: Annotated[
        int, Parameter(help="Browsing events between two runs of orders, on average.")
    ] = DEFAULT_RUN_LENGTH,
) -> int:
    """Write customer events of a shop: logins, views, carts, orders, in three regions."""
    from headgate.generate import write_events

    path.parent.mkdir(parents=True, exist_ok=True)
    write_events(path, events=events, seed=seed, format=format, run_length=run_length)
    return 0
