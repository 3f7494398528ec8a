"""The origin of a derived file: the state of the sealed segment that it was made of, by which it is believed."""

from __future__ import annotations

import msgspec

from headgate.errors import OffsetOutOfRangeError
from headgate.log import Segment, headers_digest


class SegmentOrigin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sealed segment when a file was made: `segment` is the first offset, `stop` the offset behind it.

    `headers` is a digest of the chunk headers, which hold the checksums of all data.
    """

    identity: str
    segment: int
    stop: int
    size: int
    headers: str

    def is_of(self, segment: Segment) -> bool:
        """Whether a segment is still as it was when the file was made. Raises as `state_of`."""
        return (self.identity, self.segment, self.stop, self.size, self.headers) == state_of(segment)


def state_of(segment: Segment) -> tuple[str, int, int, int, str]:
    """The fields of `SegmentOrigin` of a sealed segment now. Raises CorruptChunkError, OffsetOutOfRangeError."""
    size = segment.segment_bytes()
    if not size:
        raise OffsetOutOfRangeError("retention deleted the segment", path=segment.segment_path)
    return segment.identity, segment.first_chunk_id, segment.stop_offset or 0, size, headers_digest(segment)
