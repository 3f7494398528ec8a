"""Lookup: from the values of a field to the blocks of messages that may hold them; derived, never the truth.

    lookup_fields, declare_lookup, drop_lookup     which fields of a stream are looked up
    LOOKUP_FILES                                   the kind: builds, sweeps and drops files (`headgate.derived.kind`)
    LookupFile, lookup_file_of                     the files
    LookupSource, LookupWarning                    answers from files (`headgate.scan.answers`)
    ValueLookup                                    the same for filter values, for stage 1

Hidden: fingerprints of values (`fingerprints`), how blocks are found by them (`table`), the bytes of a file (`files`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.derived.lookup.declaration import declare_lookup, drop_lookup, lookup_fields
    from headgate.derived.lookup.files import LookupFile, lookup_file_of
    from headgate.derived.lookup.kind import LOOKUP_FILES
    from headgate.derived.lookup.source import LookupSource, LookupWarning, ValueLookup
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
