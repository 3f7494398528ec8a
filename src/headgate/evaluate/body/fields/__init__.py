"""Values at paths into the bodies of many messages, without a filter: what declared sources of filter values need.

locate_values     where the bytes of a declared field stand, as `message.lookup.locate_bytes`, quickly for bodies too
read_paths        kind, payload and length of the value at each path, as registers of a program
unreadable_bodies which bodies paths find nothing in, because they are no JSON, or not of the schema
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import layout
from headgate.evaluate.assembler import Assembler
from headgate.evaluate.program import Program, program_of
from headgate.kernels import address_of, load
from headgate.language.tree import ValueRules
from headgate.message import SLACK_BYTES, EncodedMessages, FieldReference, Message, Section
from headgate.message.body_schema import BodySchema
from headgate.message.lookup import locate_bytes

__all__ = ["KERNEL_MODULE", "locate_values", "read_paths", "unreadable_bodies"]

KERNEL_MODULE = "headgate.evaluate.body.fields.kernel"

_WHOLE_BODY = FieldReference(Section.DATA)


def locate_values(batch: EncodedMessages, field: FieldReference) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts (in `batch.data`) and lengths of a field's bytes, `(messages,)` each; length −1 = it has none.

    The same as `locate_bytes`, which finds fields in bodies message by message: the kernel walks each body here.
    """
    found = read_paths(batch, [field]) if field.section is Section.DATA else None
    if found is None:
        return locate_bytes(batch, field)
    kinds, starts, lengths = np.ascontiguousarray(found[:, 0].T)
    has_none = (kinds != layout.BYTES) | (starts < 0)
    # A payload of another kind is no place.
    starts[has_none], lengths[has_none] = 0, -1
    open_rows = np.flatnonzero(kinds == layout.OPEN)
    if len(open_rows):
        starts[open_rows], lengths[open_rows] = locate_bytes(batch.take(open_rows), field)
    return starts, lengths


def read_paths(batch: EncodedMessages, fields: Sequence[FieldReference]) -> NDArray[np.int64] | None:
    """The values at paths into bodies, `(messages, fields, 3)`: kind, payload and length of a `layout.RegisterBlock`.

    A string's payload is its place in `batch.data`, below zero if it has escapes. OPEN: only the reference can say.
    None without kernels. Raises ValueError for messages that do not lie in the buffer. Cost: a third of a microsecond
    a message with a body of 300 bytes.
    """
    kernel = load(KERNEL_MODULE)
    if kernel is None:
        return None
    found = np.empty((len(batch), len(fields), len(layout.REGISTER)), dtype=np.int64)
    if not fields:
        # A program without paths has no table for the walk.
        return found
    program = _program(tuple(fields))
    registers = program.registers_at(0)
    starts = np.ascontiguousarray(batch.starts, dtype=np.int64)
    lengths = np.ascontiguousarray(batch.lengths, dtype=np.int64)
    data = np.ascontiguousarray(batch.data)
    bad_row = kernel.read_paths(
        address_of(data),
        len(data) - SLACK_BYTES,
        address_of(starts),
        address_of(lengths),
        len(starts),
        program.words_address,
        program.pool_address,
        address_of(registers),
        len(fields),
        address_of(found),
    )
    if bad_row >= 0:
        raise ValueError(
            f"message {bad_row} is {lengths[bad_row]} bytes from {starts[bad_row]} on, the buffer has {len(data)}"
        )
    return found


def unreadable_bodies(batch: EncodedMessages, schema: BodySchema | None) -> NDArray[np.intp]:
    """The rows of messages whose body is no JSON or, with a schema, is not decoded by it: every path is unknown there.

    All must be messages, else MessageError may be raised. Cost: as `read_paths`; with a schema, each body is decoded.
    """
    found = read_paths(batch, [_WHOLE_BODY]) if schema is None else None
    kinds = np.full(len(batch), layout.OPEN) if found is None else found[:, 0, 0]
    is_unreadable = kinds == layout.ABSENT
    for row in np.flatnonzero(kinds == layout.OPEN).tolist():
        is_unreadable[row] = Message.decode(batch.message(row)).document(schema) is None
    return np.flatnonzero(is_unreadable)


@functools.lru_cache(maxsize=64)
def _program(fields: tuple[FieldReference, ...]) -> Program:
    """A program without instructions: the slots of the paths, in their order."""
    assembler = Assembler(ValueRules.RABBITMQ)
    for field in fields:
        assembler.slot(field)
    assembler.body_scratch = assembler.scratch(layout.BODY_SCRATCH_REGISTERS)
    return program_of(assembler.assemble(0, 0, len(fields)))
