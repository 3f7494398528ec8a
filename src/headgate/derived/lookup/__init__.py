"""Lookup: from the values of a field to the blocks of messages that may hold them; derived, never the truth.

    lookup_fields, declare_lookup, drop_lookup     which fields of a stream are looked up
    build_segment, build_lookup, LookupReport      make the files that are missing, exactly once
    missing_segments, sweep_lookup                 which segments lack a file; remove files not needed any more
    LookupFile, lookup_file_of, drop_lookup_files  the files
    LookupKind, LookupSource, LookupWarning        answers from files (`headgate.scan.answers`)
    ValueLookup                                    the same for filter values, for stage 1

Hidden: fingerprints of values (`fingerprints`), how blocks are found by them (`table`), the bytes of a file (`files`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.derived.lookup.build import (
        LookupReport,
        build_lookup,
        build_segment,
        drop_lookup_files,
        missing_segments,
        sweep_lookup,
    )
    from headgate.derived.lookup.declaration import declare_lookup, drop_lookup, lookup_fields
    from headgate.derived.lookup.files import LookupFile, lookup_file_of
    from headgate.derived.lookup.source import LookupKind, LookupSource, LookupWarning, ValueLookup
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
