"""Application properties of another type than they are declared with: the option `on_mismatch`.

| `on_mismatch` | a value that the declared type does not take |
| --- | --- |
| `null` (default) | is null in the row |
| `cast` | is converted where that is exact (`headgate.message.arrow.decode.conversions`), else null |
| `fail` | ends the read with a MismatchError |

Values that are null because of it are counted (`properties_mismatched` beside the other counters of a read), and the
first of a read gives a warning. A property that a message does not have, or has as the AMQP null, is no mismatch.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa

from headgate.errors import MismatchError
from headgate.message import AmqpValue, EncodedMessages, plain_json
from headgate.message.arrow import DeclaredProperty, Mismatches, columns_of, mismatches_in
from headgate.spark.options import OnMismatch
from headgate.spark.scans import Scan

_MOST_SHOWN_CHARACTERS = 80


class PropertyReader:
    """Makes the columns of messages, with the declared properties of one read, and counts values that do not fit."""

    def __init__(self, properties: tuple[DeclaredProperty, ...], on_mismatch: OnMismatch, scan: Scan) -> None:
        self._properties = properties
        self._on_mismatch = on_mismatch
        self._scan = scan
        self._found = 0

    @property
    def counters(self) -> dict[str, int]:
        """The counters by name; none without declared properties."""
        return {"properties_mismatched": self._found} if self._properties else {}

    def columns(
        self, messages: EncodedMessages, columns: list[str], place_of: Callable[[int], tuple[str, int]]
    ) -> dict[str, pa.Array]:
        """Some columns; `place_of` gives stream and offset of a row. Raises MismatchError with the mode `fail`."""
        cast = self._on_mismatch is OnMismatch.CAST
        found = Mismatches()
        arrays = columns_of(messages, columns, self._properties or None, cast=cast, mismatches=found)
        if found.first_row is not None:
            if not self._found or self._on_mismatch is OnMismatch.FAIL:
                self._tell(messages.message(found.first_row), *place_of(found.first_row), cast=cast)
            self._found += found.count
        return arrays

    def _tell(self, message: bytes, stream: str, offset: int, *, cast: bool) -> None:
        declared, value = mismatches_in(message, self._properties, cast=cast)[0]
        reason = (
            f"application property {declared.name!r} is of type {value.type.value} ({_shown(value)}), "
            f"declared {declared.ddl}"
        )
        if self._on_mismatch is OnMismatch.FAIL:
            raise MismatchError(reason, stream=stream, offset=offset)
        way_out = "" if cast else ", cast converts what can be converted exactly"
        self._scan.warn(
            f"stream {stream}, offset {offset}: {reason}; it is null in the row. Such values are counted "
            "(properties_mismatched in headgate.spark.last_scan); the option on_mismatch = fail ends the read at the "
            f"first{way_out}"
        )


def _shown(value: AmqpValue) -> str:
    shown = json.dumps(plain_json(value), ensure_ascii=False)
    return shown if len(shown) <= _MOST_SHOWN_CHARACTERS else shown[: _MOST_SHOWN_CHARACTERS - 1] + "…"
