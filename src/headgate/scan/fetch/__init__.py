"""Fetching from one stream together: readers share open files, bytes in memory and the work of deciding.

`SharedLog` is one stream as its readers share it, `SharedReads` what the readers of all streams share: the bounds of
memory and of open files. A `Fetcher` is one reader's wishes; it holds no file and no bytes between two calls. No clock.
"""

from headgate.scan.fetch.appended import AppendedChunks
from headgate.scan.fetch.fetcher import Fetcher, Takes
from headgate.scan.fetch.log import SharedLog
from headgate.scan.fetch.portions import ChunkColumns, ChunkPortion, Portion
from headgate.scan.fetch.reads import SharedReads

__all__ = [
    "AppendedChunks",
    "ChunkColumns",
    "ChunkPortion",
    "Fetcher",
    "Portion",
    "SharedLog",
    "SharedReads",
    "Takes",
]
