"""The request and the report of a pass of publishing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Retain: TypeAlias = Literal["log", "forever"]
"""Whether rows leave the table when the log and the column files no longer have them."""


@dataclass(slots=True)
class PublishReport:
    """Counts of one pass.

    They are: segments and rows added, segments replaced by files of a newer declaration, data files that left the table
    with their segments, expired snapshots, deleted files.
    """

    table: str
    location: str
    segments: int = 0
    rows: int = 0
    replaced: int = 0
    removed: int = 0
    expired: int = 0
    deleted_files: int = 0
