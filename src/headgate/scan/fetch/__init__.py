"""Fetching from one stream together: readers share open files, bytes in memory and the work of deciding.

`SharedLog` is one stream as its readers share it, `SharedReads` what the readers of all streams share: the limits of
memory and of open files. A `Fetcher` reads for one reader; it holds no file and no bytes between two calls. No clock.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.scan.fetch.appended_chunks import AppendedChunks
    from headgate.scan.fetch.fetcher import Fetcher, Takes
    from headgate.scan.fetch.filters import SharedFilters
    from headgate.scan.fetch.log import SharedLog
    from headgate.scan.fetch.portions import ChunkColumns, ChunkPortion, Portion
    from headgate.scan.fetch.reads import CpuTime, SharedReads, unmeasured
    from headgate.scan.fetch.results import SharedResults
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
