"""Lookup files as a kind of derived files."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from headgate.derived.kind import LOOKUP_SUFFIX, BuildReport, Names, SealedKind
from headgate.derived.lookup.build import make_files
from headgate.derived.lookup.declaration import lookup_fields
from headgate.derived.lookup.files import Origin
from headgate.derived.lookup.keys import may_ask
from headgate.derived.lookup.source import LookupSource, SegmentLookup, ValueLookup
from headgate.errors import CorruptChunkError, OffsetOutOfRangeError
from headgate.evaluate import Filter
from headgate.log import Segment, SegmentReader, Stream, StreamSettings
from headgate.scan.answers import Purpose

Fields = tuple[str, ...]


class LookupKind(SealedKind[Fields]):
    """Lookup files: from the values of a field to the blocks of a sealed segment, one file a field."""

    name = "lookup"
    files = "lookup files"
    suffix = LOOKUP_SUFFIX

    def __reduce__(self) -> str:
        return "LOOKUP_FILES"

    def declared(self, stream: Stream) -> Fields | None:
        """See `DerivedKind`."""
        return lookup_fields(stream) or None

    def make(self, stream: Stream, segment: Segment, declared: Fields, folder: Path, *, distrust: bool) -> BuildReport:
        """See `SealedKind`. Memory: 30 bytes for each message and field."""
        return make_files(segment, declared, folder, distrust=distrust)

    def lacks(self, stream: Stream, segment: Segment, declared: Fields, there: Collection[str]) -> bool:
        """See `SealedKind`."""
        return not all(Origin.of(segment, field).name in there for field in declared)

    def superseded(self, stream: Stream, names: Names) -> set[str]:
        """See `SealedKind`: files of fields that are not declared, and of earlier states of a segment."""
        fields = lookup_fields(stream)
        found: set[str] = set()
        for segment in self.segments(stream):
            if segment.first_chunk_id not in names:
                continue
            with contextlib.suppress(OffsetOutOfRangeError, FileNotFoundError, CorruptChunkError):
                there = {path.name for path in names.get(segment.first_chunk_id, ())}
                found |= there - {Origin.of(segment, field).name for field in fields}
        return found

    def source(self, filter_: Filter, now_ms: int, purpose: Purpose) -> LookupSource | None:
        """See `SourceKind`; for filters with an equality on a field that could be a lookup field.

        None for chunks that a plan left: lookup files rule out chunks only, and the plan has asked them.
        """
        return LookupSource(filter_) if purpose is not Purpose.PLANNED and may_ask(filter_) else None

    def segment_files(self, reader: SegmentReader) -> SegmentLookup:
        """See `SourceKind`."""
        return SegmentLookup(reader.segment)

    def chunk_test(self, settings: StreamSettings, values: Collection[bytes]) -> ValueLookup | None:
        """See `SourceKind`."""
        return ValueLookup(settings, values) if settings.declared else None


LOOKUP_FILES = LookupKind()
