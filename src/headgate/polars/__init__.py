"""Streams in polars.

    scan    a range of a stream as a LazyFrame: what a query asks for is what is read

Hidden: the conditions on offsets, times and fields that the predicate of a query implies (`predicates`). Importing this
package imports nothing; `scan` imports polars, which the extra `headgate[polars]` installs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.polars.source import scan
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
