"""Values at paths into the bodies of many messages for columns: by the kernel, and the reference for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import layout
from headgate.evaluate.body.fields import read_paths
from headgate.evaluate.validity import malformed_rows
from headgate.message import EncodedMessages, FieldReference, Section

if TYPE_CHECKING:
    from headgate.message.arrow import BodyValues, DeclaredColumn


def body_values(batch: EncodedMessages, columns: Sequence[DeclaredColumn]) -> BodyValues | None:
    """The values of the columns that are paths into bodies; None where none is. The same as `reference_body_values`.

    Cost: that of `read_paths`; some 50 µs for a message with a value that only the reference reads: a string with
    escapes, a number of more than 15 digits.
    """
    # Imported here: it imports pyarrow.
    from headgate.message.arrow import BodyValues, FieldValues, FoundKind, paths_of, reference_body_values

    fields = paths_of(columns)
    if not fields:
        return None
    found = read_paths(batch, [FieldReference(Section.DATA, path=path) for path in fields.values()])
    if found is None:
        return reference_body_values(batch, columns)
    meanings = np.full(256, FoundKind.OTHER, dtype=np.uint8)
    meanings[[layout.NULL, layout.ABSENT, layout.VALUELESS]] = FoundKind.NOTHING
    meanings[layout.INTEGER] = FoundKind.INTEGER
    meanings[layout.FLOAT] = FoundKind.DECIMAL
    meanings[layout.BYTES] = FoundKind.STRING
    meanings[layout.BOOLEAN] = FoundKind.BOOLEAN
    kinds = meanings[found[:, :, 0]]
    kinds[(found[:, :, 0] == layout.BYTES) & (found[:, :, 1] < 0)] = FoundKind.OTHER
    left = np.flatnonzero((kinds == FoundKind.OTHER).any(axis=1))
    read = reference_body_values(batch.take(left), columns)
    assert read is not None
    of_fields = {}
    for number, field in enumerate(fields):
        rows = np.flatnonzero(kinds[:, number] == FoundKind.OTHER)
        others = read.of_fields[field].others
        payloads, lengths = (np.ascontiguousarray(found[:, number, word]) for word in (1, 2))
        of_fields[field] = FieldValues(
            np.ascontiguousarray(kinds[:, number]),
            payloads,
            lengths,
            rows,
            [others[place] for place in np.searchsorted(left, rows).tolist()],
        )
    return BodyValues(of_fields, _malformed(batch))


def _malformed(batch: EncodedMessages) -> NDArray[np.bool_]:
    found = np.zeros(len(batch), dtype=np.bool_)
    found[malformed_rows(batch)] = True
    return found
