"""One reading engine per stream: its readers, their places, the due scans, and the results for each reader.

    want, begin ──► ReadingEngine ──scan_due──► Scan.run (any thread) ──► fetch: index, results, window, alone
    take ◄── pending ◄──────────── end_scan ◄─────┘
               ▲
               └── appended: chunks are decided once for all readers that wait at the end, without a look at a file

`phases` is the table of a reader's phases and moves. `gathering` is the policy by which readers wait for each other.
The engine starts no thread and reads no clock.
"""

from headgate.scan.engine.engine import Reader, ReadingEngine, Scan
from headgate.scan.engine.pending_results import held_bytes
from headgate.scan.engine.phases import Event, Phase

__all__ = ["Event", "Phase", "Reader", "ReadingEngine", "Scan", "held_bytes"]
