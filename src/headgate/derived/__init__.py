"""Derived files, which are made from streams and read instead of them: column files, lookup files, the match index.

    COLUMN_FILES, LOOKUP_FILES, MATCH_INDEX   the kinds, each declared for streams, built, swept and reported in one way
    DerivedKind, SealedKind, BuildReport      this way: of any kind, and of files of sealed segments (`kind.py`)
    sources_of                                the kinds that a reader may ask, as `ScanRequest.sources` takes them

Each kind is a package with its declarations, its files, their checks and a source of answers for readers. Deleting
derived files costs only speed. Readers (`headgate.scan`) know none of the kinds: they are handed to them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.derived.columns import COLUMN_FILES
    from headgate.derived.kind import BuildReport, DerivedKind, SealedKind
    from headgate.derived.lookup import LOOKUP_FILES
    from headgate.derived.match_index import MATCH_INDEX
    from headgate.derived.sources import sources_of
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
