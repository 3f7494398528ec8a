"""A cursor over one log: where to begin, stage 1 (chunks), match index, stage 2 (messages), counters. No credit.

Broker, Spark, tail and back-tests all read through this package, so a filter gives the same messages everywhere.

    ScanRequest, OffsetRange, OnCorrupt       what is asked for
    Cursor                                    follows a stream as it grows
    MessageReader                             messages by their offsets
    plan, read_range, ChunkRange              cut a bounded read into ranges for tasks, and read one
    spans_left                                the offsets of a segment's chunks that are left before one is read
    ScanBatch, ScanCounters                   what comes out: kept messages, and what each stage examined and skipped
    Decider                                   stage 2 for chunks that came over the network
    Window, open_window, open_windows         chunks in memory: where each lies, its header, its messages (read_window)
    read_in_full                              the messages of some chunks of a segment
    count_matches, MatchCount                 counts from derived files, no message read where they are certain
    savings, Saving                           what Bloom filters and each kind of derived files would spare a read
    MessageBuffer                             copies of kept messages, until there are enough of them
    declared_values, written_filter_value     the filter values that a stream's declared source gives; of one message

Hidden: how windows are read and checked, and how the stages meet. All readers of one stream are in
`headgate.scan.engine`, what they share in `headgate.scan.fetch`. Derived files are not known here: a request brings its
sources along (`headgate.derived.sources_of`), and `headgate.scan.answers` is all that readers know of them.
"""

from typing import TYPE_CHECKING

# At once: a module has the name of one of them.
from headgate.scan.plan import ChunkRange, Plan, check_start, plan, read_range, resolve_range

if TYPE_CHECKING:
    from headgate.scan.count import MatchCount, count_matches
    from headgate.scan.counters import ScanCounters
    from headgate.scan.cursor import Cursor
    from headgate.scan.filter_values import declared_values, written_filter_value
    from headgate.scan.message_buffer import MessageBuffer
    from headgate.scan.message_reader import Locate, MessageReader
    from headgate.scan.offset_range import EVERYWHERE, OffsetRange
    from headgate.scan.read_savings import Saving, savings
    from headgate.scan.reading import (
        WINDOW_BYTES,
        ScanBatch,
        Window,
        open_window,
        open_windows,
        read_in_full,
        read_window,
    )
    from headgate.scan.request import OnCorrupt, ScanRequest
    from headgate.scan.segments import opened_within, rows_within, segments_within
    from headgate.scan.spans import spans_left
    from headgate.scan.stage_two import Decider
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
