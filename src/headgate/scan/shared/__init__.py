"""Reading one log together: readers at the same place share open files, bytes in memory and the work of deciding.

`SharedLog` is one stream as its readers share it, `SharedReads` what the readers of all streams share: the bounds of
memory and of open files. A `SharedReader` is one reader's wishes; it holds no file and no bytes between two reads, so
a thousand of them at the end of a stream cost nothing. What it gives is what `scan.Cursor` gives. No credit, no clock.
"""

from headgate.scan.shared.chunks import ChunkPortion
from headgate.scan.shared.log import SharedLog
from headgate.scan.shared.reader import Portion, SharedReader
from headgate.scan.shared.reads import SharedReads

__all__ = ["ChunkPortion", "Portion", "SharedLog", "SharedReader", "SharedReads"]
