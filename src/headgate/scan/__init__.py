"""A cursor over one log: where to begin, stage 1 (chunks), match index, stage 2 (messages), counters. No credit.

Broker, Spark, tail and back-tests all read through this package, so a filter gives the same messages everywhere.
`Cursor` follows a stream as it grows; `plan` and `read_range` cut a bounded read into ranges for tasks.
"""

from headgate.scan.cursor import Cursor
from headgate.scan.match_index.count import MatchCount, count_matches
from headgate.scan.plan import ChunkRange, Plan, check_start, plan, read_range, resolve_range
from headgate.scan.reading import ScanBatch
from headgate.scan.request import OffsetRange, OnCorrupt, ScanCounters, ScanRequest

__all__ = [
    "ChunkRange",
    "Cursor",
    "MatchCount",
    "OffsetRange",
    "OnCorrupt",
    "Plan",
    "ScanBatch",
    "ScanCounters",
    "ScanRequest",
    "count_matches",
    "plan",
    "read_range",
    "check_start",
    "resolve_range",
]
