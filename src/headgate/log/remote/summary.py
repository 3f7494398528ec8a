"""The summary of a remote segment, one object: everything that stage 1 and finding an offset or a time need.

It has the index, the header and the Bloom filter of each chunk one after the other, and the seal, if there is one. With
it a segment can be planned, attached to and skipped without a request for each chunk. `areas` says how the bytes lie.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptSidecarError
from headgate.log import format as f
from headgate.log.areas import Area, AreaParts, encode_areas, read_area, read_directory

SUMMARY_FORMAT = 1
_MAGIC = b"HGRS"
_BLOOM_LENGTH_AT = f.CHUNK_HEADER_BYTES - 4


class _Directory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`segment_bytes` is the size of the segment, the areas are the fields of `Summary`."""

    segment_bytes: int
    index: Area
    fronts: Area
    seal: Area


@dataclass(frozen=True, slots=True)
class Summary:
    """`index` and `seal` are the bytes of these files, `seal` empty without one.

    `fronts` has header and Bloom bytes of each chunk, in the order of the index.
    """

    segment_bytes: int
    index: bytes
    fronts: bytes
    seal: bytes

    def encode(self) -> bytes:
        """The bytes of the object."""
        areas = AreaParts()
        directory = _Directory(self.segment_bytes, areas.add(self.index), areas.add(self.fronts), areas.add(self.seal))
        return encode_areas(_MAGIC, SUMMARY_FORMAT, directory, areas)

    @staticmethod
    def decode(raw: bytes, *, url: str) -> Summary:
        """The summary in an object's bytes. Raises CorruptSidecarError for damaged bytes."""

        def read(position: int, count: int) -> bytes:
            return raw[position : position + count]

        found = read_directory(read, _Directory, _MAGIC, SUMMARY_FORMAT, path=url)  # type: ignore[arg-type]
        if found is None:
            raise CorruptSidecarError(f"a summary of {len(raw)} bytes, which ends early", path=url)
        directory, areas_at = found
        index, fronts, seal = (
            read_area(read, area, 0, area.length, path=url, areas_at=areas_at)  # type: ignore[arg-type]
            for area in (directory.index, directory.fronts, directory.seal)
        )
        return Summary(directory.segment_bytes, index, fronts, seal)

    def fill(self, segment: NDArray[np.uint8]) -> None:
        """Write what is known into an empty segment, `(segment_bytes,)`: the head, and the front of each chunk."""
        segment[: f.FILE_HEAD_BYTES] = np.frombuffer(f.SEGMENT_HEAD, dtype=np.uint8)
        positions = np.frombuffer(self.index, dtype=f.INDEX_DTYPE, offset=f.FILE_HEAD_BYTES)["position"].tolist()
        fronts, at = np.frombuffer(self.fronts, dtype=np.uint8), 0
        for position in positions:
            stop = at + f.CHUNK_HEADER_BYTES + int(fronts[at + _BLOOM_LENGTH_AT])
            segment[position : position + stop - at] = fronts[at:stop]
            at = stop
