"""Column files as a kind of derived files. Importing this imports no pyarrow; the first file does."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.derived.columns.source import ColumnAnswers, SegmentColumns
from headgate.derived.kind import COLUMN_SUFFIX, BuildReport, Names, SealedKind
from headgate.errors import LogError
from headgate.evaluate import Filter
from headgate.log import Segment, SegmentReader, Stream
from headgate.scan.answers import Purpose

if TYPE_CHECKING:
    from headgate.derived.columns.declaration import ColumnDeclaration


class ColumnKind(SealedKind["ColumnDeclaration"]):
    """Column files: declared columns of a sealed segment, as Parquet, one file a segment."""

    name = "columns"
    files = "column files"
    suffix = COLUMN_SUFFIX

    def __reduce__(self) -> str:
        return "COLUMN_FILES"

    def declared(self, stream: Stream) -> ColumnDeclaration | None:
        """See `DerivedKind`."""
        from headgate.derived.columns.declaration import declaration_of

        return declaration_of(stream)

    def make(
        self, stream: Stream, segment: Segment, declared: ColumnDeclaration, folder: Path, *, distrust: bool
    ) -> BuildReport:
        """See `SealedKind`. Memory: a row group, some 128 k rows."""
        from headgate.derived.columns.build import make_file

        paths = self.names(stream).get(segment.first_chunk_id, [])
        return make_file(stream, segment, declared, folder, paths, distrust=distrust)

    def lacks(self, stream: Stream, segment: Segment, declared: ColumnDeclaration, there: Collection[str]) -> bool:
        """See `SealedKind`."""
        from headgate.derived.columns.build import name_of

        start = name_of(stream, segment, declared)
        return not any(name.startswith(start) for name in there)

    def superseded(self, stream: Stream, names: Names) -> set[str]:
        """See `SealedKind`: all but the one of the newest declaration."""
        from headgate.derived.columns.files import best_of

        found = set()
        for segment in self.segments(stream):
            paths = names.get(segment.first_chunk_id, [])
            if len(paths) < 2:
                continue
            ignored: list[LogError] = []
            best = best_of(stream, segment, paths, ignored)
            if best is not None:
                found |= {path.name for path in paths if path.name != best.path.name}
        return found

    def source(self, filter_: Filter, now_ms: int, purpose: Purpose) -> ColumnAnswers | None:
        """See `SourceKind`.

        Reading columns for one reader is expensive where one pass decides for many, and results that depend on the time
        would have to be decided again at the next time.
        """
        return None if filter_.has_own_rules or purpose is Purpose.SHARED else ColumnAnswers(filter_, now_ms, purpose)

    def segment_files(self, reader: SegmentReader) -> SegmentColumns:
        """See `SourceKind`."""
        return SegmentColumns(reader.segment)


COLUMN_FILES = ColumnKind()
