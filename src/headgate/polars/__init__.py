"""Streams in polars.

    scan    a range of a stream as a LazyFrame: what a query asks for is what is read

Hidden: what the predicate of a query says about offsets, times, filter values and fields (`predicates`). Importing this
package imports nothing; `scan` imports polars, which the extra `headgate[polars]` installs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.polars.scanning import scan
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
