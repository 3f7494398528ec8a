"""The values at paths into the JSON bodies of many messages, side by side: what filters compare there."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate.errors import MessageError
from headgate.message.batch import EncodedMessages
from headgate.message.fields import Section
from headgate.message.json_body import JsonPaths, JsonScalar
from headgate.message.message import Message

BodyPath: TypeAlias = tuple[bytes | int, ...]
"""Names of members and numbers of elements."""


class FoundKind(enum.IntEnum):
    """What was found at a path of a message."""

    NOTHING = 0
    """No value for filters."""
    INTEGER = 1
    """The payload."""
    DECIMAL = 2
    """The shortest text of the double whose bits the payload is; between -2^53 and 2^53."""
    STRING = 3
    """The payload is its place in the buffer of the messages."""
    UNESCAPED = 4
    """A string that stands in the body with escapes: the payload is its place in `texts`, which has it without them."""
    BOOLEAN = 5
    OTHER = 6
    """A value that is in `others`."""


@dataclass(frozen=True, slots=True)
class FieldValues:
    """What filters compare at one path: `kinds` (of FoundKind), `payloads` and `lengths` (of strings), `(messages,)`.

    `texts` is `(bytes,)`, with `SLACK_BYTES` at the end. `others` are the values of the `rows` of kind OTHER, in their
    order.
    """

    kinds: NDArray[np.uint8]
    payloads: NDArray[np.int64]
    lengths: NDArray[np.int64]
    texts: NDArray[np.uint8]
    rows: NDArray[np.intp]
    others: list[JsonScalar]

    @property
    def doubles(self) -> NDArray[np.float64]:
        """The nearest double of each number of kind INTEGER and DECIMAL."""
        return np.where(self.kinds == FoundKind.DECIMAL, self.payloads.view(np.float64), self.payloads)


@dataclass(frozen=True, slots=True)
class BodyValues:
    """What filters compare in the bodies of a batch, by path; `malformed` `(messages,)` are no messages.

    Where no path was asked for, no message is looked at, and none is malformed.
    """

    at_paths: dict[BodyPath, FieldValues]
    malformed: NDArray[np.bool_]


class _Field(Protocol):
    @property
    def section(self) -> Section: ...

    @property
    def path(self) -> BodyPath: ...


def paths_of(fields: Iterable[_Field]) -> list[BodyPath]:
    """The paths into bodies among some fields or columns, each once."""
    return list(dict.fromkeys(field.path for field in fields if field.section is Section.DATA))


def reference_body_values(batch: EncodedMessages, fields: Iterable[_Field]) -> BodyValues:
    """The values of the fields or columns that are paths into bodies, message by message.

    Cost: checking each body, and a walk over each object and array on the way of the paths.
    """
    asked = paths_of(fields)
    paths = JsonPaths(asked)
    found: list[list[JsonScalar]] = [[None] * len(batch) for _ in asked]
    malformed = np.zeros(len(batch), dtype=np.bool_)
    for row in range(len(batch)) if asked else ():
        try:
            document = Message.decode(batch.message(row)).json
        except MessageError:
            malformed[row] = True
            continue
        for values, value in zip(found, paths.values(document), strict=True):
            values[row] = None if value is None else value.scalar()
    kinds = np.full(len(batch), FoundKind.OTHER, dtype=np.uint8)
    nothing, rows = np.zeros(len(batch), dtype=np.int64), np.arange(len(batch))
    texts = np.empty(0, dtype=np.uint8)
    at_paths = {
        path: FieldValues(kinds, nothing, nothing, texts, rows, values)
        for path, values in zip(asked, found, strict=True)
    }
    return BodyValues(at_paths, malformed)
