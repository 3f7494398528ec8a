"""Values at paths into the JSON bodies of many messages, without a filter: one walk of the kernel over each body.

body_values       what filters compare there, for columns and lookup files
locate_values     where the bytes of a declared field stand, for filter values
unreadable_bodies which bodies paths find nothing in, because they are no JSON, or not of the schema

Hidden: the kernel, and which messages it leaves to the reference, as filters do (docs/design/body-paths.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import layout
from headgate.evaluate.assembler import Assembler
from headgate.evaluate.program import Program, program_of
from headgate.kernels import address_of, load
from headgate.language.tree import ValueRules
from headgate.message import (
    SLACK_BYTES,
    BodyPath,
    BodyValues,
    EncodedMessages,
    FieldReference,
    FieldValues,
    FoundKind,
    Message,
    Section,
    json_number,
    outside_of_buffer,
    paths_of,
    reference_body_values,
)
from headgate.message.body_schema import BodySchema
from headgate.message.lookup import locate_bytes

if TYPE_CHECKING:
    from headgate.message.arrow import DeclaredColumn

__all__ = ["KERNEL_MODULE", "body_values", "locate_values", "unreadable_bodies"]

KERNEL_MODULE = "headgate.evaluate.body.values.kernel"

_WHOLE_BODY: BodyPath = ()

_MEANINGS = np.full(256, FoundKind.OTHER, dtype=np.uint8)
_MEANINGS[[layout.NULL, layout.ABSENT, layout.VALUELESS, layout.NO_MESSAGE]] = FoundKind.NOTHING
_MEANINGS[layout.INTEGER] = FoundKind.INTEGER
_MEANINGS[layout.FLOAT] = FoundKind.DECIMAL
_MEANINGS[layout.BYTES] = FoundKind.STRING
_MEANINGS[layout.UNESCAPED] = FoundKind.UNESCAPED
_MEANINGS[layout.BOOLEAN] = FoundKind.BOOLEAN


def body_values(batch: EncodedMessages, fields: Iterable[FieldReference | DeclaredColumn]) -> BodyValues:
    """The values of the fields or columns that are paths into bodies; the same as `reference_body_values`.

    Raises ValueError for messages that do not lie in the buffer. Cost: 0.15 µs for a message with a body of 120 bytes;
    2 µs for each number of more than 15 digits; 50 µs for a message of a rare form, which the reference reads.
    """
    asked = list(fields)
    paths = paths_of(asked)
    found = _find(batch, paths)
    if found is None:
        return reference_body_values(batch, asked)
    malformed = found.whole == layout.NO_MESSAGE
    left = np.flatnonzero(found.whole == layout.OPEN)
    read = reference_body_values(batch.take(left), asked)
    malformed[left] = read.malformed
    at_paths = {}
    for path, kinds, payloads, lengths in zip(paths, found.kinds, found.payloads, found.lengths, strict=True):
        meanings = _MEANINGS[kinds]
        rows = np.flatnonzero(meanings == FoundKind.OTHER)
        of_left = iter(read.at_paths[path].others)
        others = [
            next(of_left) if kind == layout.OPEN else json_number(batch.data[start : start + length].tobytes())
            for kind, start, length in zip(*(each[rows].tolist() for each in (kinds, payloads, lengths)), strict=True)
        ]
        at_paths[path] = FieldValues(meanings, payloads, lengths, found.texts, rows, others)
    return BodyValues(at_paths, malformed)


def locate_values(batch: EncodedMessages, field: FieldReference) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts (in `batch.data`) and lengths of a field's bytes, `(messages,)` each; length −1 = it has none.

    The same as `locate_bytes`, which finds fields in bodies message by message: the kernel walks each body here.
    """
    found = _find(batch, [field.path]) if field.section is Section.DATA else None
    if found is None:
        return locate_bytes(batch, field)
    (kinds,), (starts,), (lengths,) = found.kinds, found.payloads, found.lengths
    has_none = kinds != layout.BYTES
    # A payload of another kind is no place.
    starts[has_none], lengths[has_none] = 0, -1
    open_rows = np.flatnonzero(kinds == layout.OPEN)
    if len(open_rows):
        starts[open_rows], lengths[open_rows] = locate_bytes(batch.take(open_rows), field)
    return starts, lengths


def unreadable_bodies(batch: EncodedMessages, schema: BodySchema | None) -> NDArray[np.intp]:
    """The rows of messages whose body is no JSON or, with a schema, is not decoded by it: every path is unknown there.

    All must be messages, else MessageError may be raised. Cost: as `body_values`; with a schema, each body is decoded.
    """
    found = _find(batch, [_WHOLE_BODY]) if schema is None else None
    kinds = np.full(len(batch), layout.OPEN) if found is None else found.whole
    is_unreadable = kinds == layout.ABSENT
    for row in np.flatnonzero(kinds == layout.OPEN).tolist():
        is_unreadable[row] = Message.decode(batch.message(row)).document(schema) is None
    return np.flatnonzero(is_unreadable)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the kernel found, `(paths, messages)` each: kinds of `layout`, payloads (places of texts) and lengths.

    `texts` are those of UNESCAPED, with slack behind them.
    """

    kinds: NDArray[np.uint8]
    payloads: NDArray[np.int64]
    lengths: NDArray[np.int64]
    texts: NDArray[np.uint8]

    @property
    def whole(self) -> NDArray[np.uint8]:
        """The kinds at the first path: OPEN and NO_MESSAGE are those of a message, at all of its paths."""
        kinds: NDArray[np.uint8] = self.kinds[0]
        return kinds


def _find(batch: EncodedMessages, paths: Sequence[BodyPath]) -> _Found | None:
    """The values at paths into bodies; None without kernels, and without paths."""
    kernel = load(KERNEL_MODULE)
    if kernel is None or not paths:
        # A program without paths has no table for the walk.
        return None
    program = _program(tuple(paths))
    registers = program.registers_at(0)
    starts = np.ascontiguousarray(batch.starts, dtype=np.int64)
    lengths = np.ascontiguousarray(batch.lengths, dtype=np.int64)
    data = np.ascontiguousarray(batch.data)
    shape = len(paths), len(batch)
    kinds = np.empty(shape, dtype=np.uint8)
    payloads, value_lengths = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
    # Texts without escapes are shorter than with them. What is not written takes no memory.
    texts = np.empty(int(lengths.clip(0, len(data)).sum()) + SLACK_BYTES, dtype=np.uint8)
    used = kernel.find_values(
        address_of(data),
        len(data) - SLACK_BYTES,
        address_of(starts),
        address_of(lengths),
        len(starts),
        program.words_address,
        program.pool_address,
        address_of(registers),
        len(paths),
        address_of(kinds),
        address_of(payloads),
        address_of(value_lengths),
        address_of(texts),
    )
    if used < 0:
        raise outside_of_buffer(batch, -1 - used)
    return _Found(kinds, payloads, value_lengths, texts[: used + SLACK_BYTES].copy())


@functools.lru_cache(maxsize=64)
def _program(paths: tuple[BodyPath, ...]) -> Program:
    """A program without instructions: the slots of the paths, in their order."""
    assembler = Assembler(ValueRules.RABBITMQ)
    for path in paths:
        assembler.slot(FieldReference(Section.DATA, path=path))
    assembler.body_scratch = assembler.scratch(layout.BODY_SCRATCH_REGISTERS)
    return program_of(assembler.assemble(0, 0, len(paths)))
