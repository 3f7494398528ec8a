"""The sources that readers are handed: the kinds of derived files in the order in which their answers are preferred."""

from __future__ import annotations

from headgate.derived.columns import COLUMN_FILES
from headgate.derived.lookup import LOOKUP_FILES
from headgate.derived.match_index import MATCH_INDEX
from headgate.scan.answers import SourceKind


def sources_of(*, match_index: bool = True, lookup: bool = True, columns: bool = True) -> tuple[SourceKind, ...]:
    """The kinds of derived files that a request may ask; each can be switched off."""
    switches: tuple[tuple[SourceKind, bool], ...] = (
        (MATCH_INDEX, match_index),
        (LOOKUP_FILES, lookup),
        (COLUMN_FILES, columns),
    )
    return tuple([kind for kind, is_on in switches if is_on])
