"""The sources that readers are handed: the kinds of derived files in the order in which their answers are preferred."""

from __future__ import annotations

from headgate.derived.columns import ColumnKind
from headgate.derived.lookup import LookupKind
from headgate.derived.match_index import MatchIndexKind
from headgate.scan.answers import SourceKind

MATCH_INDEX: SourceKind = MatchIndexKind()
LOOKUP: SourceKind = LookupKind()
COLUMNS: SourceKind = ColumnKind()


def sources_of(*, match_index: bool = True, lookup: bool = True, columns: bool = True) -> tuple[SourceKind, ...]:
    """The kinds of derived files that a request may ask: all, or those that are not switched off."""
    switches = ((MATCH_INDEX, match_index), (LOOKUP, lookup), (COLUMNS, columns))
    return tuple(kind for kind, is_on in switches if is_on)
