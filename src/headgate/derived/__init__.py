"""What is made from streams, and may be believed instead of them: column files, lookup files and the match index.

    sources_of                     the kinds that a reader may ask, as `ScanRequest.sources` takes them
    COLUMNS, LOOKUP, MATCH_INDEX   these kinds

Each kind is a package with declarations, builders, checks and a source of answers for readers. Deleting derived files
costs only speed. Readers (`headgate.scan`) know none of the kinds: they are handed to them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.derived.sources import COLUMNS, LOOKUP, MATCH_INDEX, sources_of
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
