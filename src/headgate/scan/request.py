"""The request of a reader."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from headgate.errors import ConfigError
from headgate.evaluate import Filter
from headgate.log import EXPANSION_LIMIT_BYTES
from headgate.message import FieldReference
from headgate.scan.answers import SourceKind


class OnCorrupt(enum.Enum):
    """The behaviour of a reader at a damaged chunk."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The request of one reader: stage 1 (`filter_values`, `match_unfiltered`) and stage 2 (`filter`).

    Stage 1 keeps a chunk if one of the wanted values may be in it; without values it keeps the chunks that the filter
    itself does not rule out. Stage 2 keeps the messages for which the filter is true. `now_ms` is the value of `UTC()`.
    With `exact` all four verdicts are counted, without early rejection. Picklable.
    """

    filter: Filter | None = None
    filter_values: tuple[bytes, ...] = ()
    match_unfiltered: bool = False
    now_ms: int = 0
    exact: bool = False
    verify_checksums: bool = True
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    max_expanded_bytes: int = EXPANSION_LIMIT_BYTES
    sources: tuple[SourceKind, ...] = ()
    """The kinds of derived files that may rule messages out or replace evaluation, in order of preference; the results
    are the same. `exact` asks none."""
    known_values: tuple[tuple[FieldReference | None, frozenset[bytes]], ...] = ()
    """The caller wants only messages in which each of these fields has one of its values, and drops the others itself.
    Where a field is the declared filter source (None: the one declared now), chunks without these are skipped."""

    def over(self, body_schema: str | None) -> ScanRequest:
        """The request to a stream that declares this schema of its bodies (`Filter.over`)."""
        if body_schema is None or self.filter is None:
            return self
        return replace(self, filter=self.filter.over(body_schema))

    def __post_init__(self) -> None:
        if self.match_unfiltered and not self.filter_values:
            raise ConfigError(
                "match_unfiltered has no effect without filter_values; give the values that are wanted besides"
            )
