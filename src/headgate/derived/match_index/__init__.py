"""The match index: results of registered filters, calculated ahead, so that a reader need not evaluate them again.

    FilterRegistry, Registration                    the registered filters of a stream, each a `RegisteredFilter`
    IndexSettings                                   whether a broker keeps it up
    Announcement, Change                            the filter that a consumer group announces, and the outcome
    MATCH_INDEX, BuildCounters                      the kind: makes the sidecars that are missing, with a report
    GrowingIndex                                    the same while a stream is written, step by step
    MatchIndex                                      answers about chunks (`headgate.scan.answers`)
    SegmentIndex                                    the sidecar of an open segment, for all its readers
    coverage                                        how much of a stream is covered

Hidden: when a sidecar is out of date. The bytes of a sidecar are `log/sidecar.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.derived.match_index.build import BuildCounters
    from headgate.derived.match_index.identity import text_hash
    from headgate.derived.match_index.incremental_build import GrowingIndex
    from headgate.derived.match_index.index_coverage import Coverage, coverage
    from headgate.derived.match_index.kind import MATCH_INDEX
    from headgate.derived.match_index.registry import (
        REGISTRY_NAME,
        Announcement,
        Change,
        FilterRegistry,
        RegisteredFilter,
        Registration,
    )
    from headgate.derived.match_index.settings import IndexSettings
    from headgate.derived.match_index.source import MatchIndex, SegmentIndex
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
