"""The match index as a kind of derived files."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.derived.kind import DerivedKind
from headgate.derived.match_index.build import BuildCounters, bring_up_to_date
from headgate.derived.match_index.registry import REGISTRY_NAME, FilterRegistry, Registration
from headgate.derived.match_index.source import MatchIndex, SegmentIndex
from headgate.errors import ConfigError, FilterError, LogError
from headgate.evaluate import Filter
from headgate.log import MATCH_SUFFIX, Segment, SegmentReader, Stream, sidecar_path
from headgate.scan.answers import Purpose


class MatchIndexKind(DerivedKind[Registration, BuildCounters]):
    """The match index: results of registered filters, calculated ahead, in a sidecar of each segment."""

    name = "match_index"
    files = "sidecars"
    report = BuildCounters

    def __reduce__(self) -> str:
        return "MATCH_INDEX"

    def declared(self, stream: Stream) -> Registration | None:
        """See `DerivedKind`; None without a registry."""
        registry = FilterRegistry(stream)
        return registry.read() if registry.is_there else None

    def prepare(self, stream: Stream, *, now_ms: int) -> Registration:
        """The registered filters, checked; filters dead for more than a day are left out.

        Raises LogError that names the registry, if it cannot be read or has a filter that cannot be used here.
        """
        with FilterRegistry(stream).changing() as change:
            change.clean(now_ms=now_ms)
            registration = change.registration
        for each in registration.filters:
            try:
                each.parsed()
            except (FilterError, ConfigError) as error:
                path = stream.path / REGISTRY_NAME
                raise LogError(f"filter {each.id!r} cannot be used: {error}", path=path) from error
        return registration

    def segments(self, stream: Stream) -> Sequence[Segment]:
        """All segments in the stream's folder: a sidecar grows with its segment, and goes with its files."""
        segments = stream.segments()
        return segments[segments.num_remote :]

    def build_segment(
        self, stream: Stream, segment: Segment, declared: Registration, *, distrust: bool = False
    ) -> BuildCounters:
        """See `DerivedKind`; with `distrust` everything is calculated anew."""
        return bring_up_to_date(segment, declared, full=distrust)

    def sweep(self, stream: Stream, *, now_ms: int) -> int:
        """Remove sidecars without a segment, and all of them where no filter is registered."""
        segments = self.segments(stream) if FilterRegistry(stream).read().filters else []
        wanted = {sidecar_path(segment) for segment in segments}
        found = [path for path in stream.path.glob(f"*.segment{MATCH_SUFFIX}") if path not in wanted]
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)

    def source(self, filter_: Filter, now_ms: int, purpose: Purpose) -> MatchIndex:
        """See `SourceKind`."""
        return MatchIndex(filter_)

    def segment_files(self, reader: SegmentReader) -> SegmentIndex:
        """See `SourceKind`."""
        return SegmentIndex(reader)


MATCH_INDEX = MatchIndexKind()
