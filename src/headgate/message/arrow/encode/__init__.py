"""From Arrow columns to encoded messages: by the kernel where it can be used, by the reference for other rows."""

from __future__ import annotations

from collections.abc import Collection
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.kernels import address_of, load
from headgate.message.arrow.encode.inputs import (
    FieldsInput,
    MapInput,
    MessageInputs,
    SectionInput,
    StructInput,
    Values,
    VariantInput,
    check_types,
    inputs_of,
)
from headgate.message.arrow.encode.layout import LIST, MAP, STRUCT, VARIANT, SectionBlock, ValuesBlock
from headgate.message.arrow.encode.reference import encoded_row
from headgate.message.batch import SLACK_BYTES, EncodedMessages
from headgate.message.fields import Section

__all__ = ["check_types", "messages_of"]

_WIDEST_NUMBER = 10
_WIDEST_HEAD = 5
_SECTION_HEADS = 3 + 9


def messages_of(record_batch: pa.RecordBatch, *, exact: Collection[str] = ()) -> EncodedMessages:
    """One encoded message per row, from any of the columns `headgate.message.arrow.COLUMNS`.

    Where `message` is not null it is taken as it is; else the other columns make the message, in the encoding of
    `Message.encode`. `application_properties` and `message_annotations` are VARIANT, map<string, scalar> or a struct
    of scalars (types: `encode.inputs`). A null or missing body is an AMQP value section with null. Times between
    milliseconds are cut, decimals in a VARIANT become the nearest double; in the columns `exact` both are refused.
    Raises ConfigError, naming the column, before any message is made; for a VARIANT when its row is reached.
    """
    inputs = inputs_of(record_batch, exact)
    kernel = load("headgate.message.arrow.encode.kernel")
    if kernel is None or inputs.rows == 0:
        return EncodedMessages.of(encoded_row(inputs, row) for row in range(inputs.rows))
    return _Writer(kernel, inputs).run()


class _Writer:
    """The descriptors of one batch for the kernel (blocks of words: `layout.py`) and the run itself."""

    def __init__(self, kernel: ModuleType, inputs: MessageInputs) -> None:
        self._kernel = kernel
        self._inputs = inputs
        self._kept_alive: list[Any] = []
        self._size_bytes = 0

    def run(self) -> EncodedMessages:
        inputs = self._inputs
        sections = np.zeros((max(len(inputs.sections), 1), len(SectionBlock._fields)), dtype=np.int64)
        for index, section in enumerate(inputs.sections):
            sections[index] = self._section(section)
        body = self._values([inputs.body])
        message = self._values([inputs.message])
        self._size_bytes += inputs.rows * (3 + _WIDEST_HEAD)
        data = np.empty(self._size_bytes + SLACK_BYTES, dtype=np.uint8)
        starts = np.empty(inputs.rows, dtype=np.int64)
        lengths = np.empty(inputs.rows, dtype=np.int64)
        written = self._kernel.encode(
            address_of(sections),
            len(inputs.sections),
            body,
            message,
            inputs.rows,
            address_of(data),
            address_of(starts),
            address_of(lengths),
        )
        return self._with_left_rows(data[: written + SLACK_BYTES], starts, lengths)

    def _with_left_rows(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> EncodedMessages:
        """The messages with the rows that the reference encodes appended after the rest."""
        rows = np.flatnonzero(lengths < 0)
        if not len(rows):
            return EncodedMessages(data, starts, lengths)
        rest = EncodedMessages.of(encoded_row(self._inputs, int(row)) for row in rows)
        starts[rows] = len(data) + rest.starts
        lengths[rows] = rest.lengths
        return EncodedMessages(np.concatenate([data, rest.data]), starts, lengths)

    def _section(self, section: SectionInput) -> SectionBlock:
        rows = self._inputs.rows
        self._size_bytes += rows * _SECTION_HEADS
        valid = 0 if section.valid is None else self._address(section.valid)
        code = int(section.section)
        if isinstance(section, FieldsInput):
            columns = self._values(section.fields)
            return SectionBlock(LIST, code, valid, columns, len(section.fields))
        if isinstance(section, StructInput):
            columns = self._values(section.fields, section.keys)
            self._size_bytes += rows * sum(len(key) for key in section.keys)
            return SectionBlock(STRUCT, code, valid, columns, len(section.fields))
        if isinstance(section, MapInput):
            columns = self._values([section.keys, section.items])
            entries = int(section.offsets[-1] - section.offsets[0])
            self._size_bytes += entries * (_WIDEST_HEAD + _WIDEST_NUMBER)
            return SectionBlock(MAP, code, valid, columns, 2, offsets=self._address(section.offsets))
        assert isinstance(section, VariantInput)
        columns = self._values([section.value, section.metadata])
        own = section.value.size_bytes() + section.metadata.size_bytes()
        self._size_bytes += rows * self._kernel.VARIANT_BASE + own * self._kernel.VARIANT_SHARE
        short_key = 0xA1 if section.section is Section.APPLICATION_PROPERTIES else 0xA3
        return SectionBlock(VARIANT, code, valid, columns, 2, short_key=short_key, is_exact=int(section.exact))

    def _values(self, columns: list[Values] | list[Values | None], keys: list[bytes] | None = None) -> int:
        words = np.zeros((max(len(columns), 1), len(ValuesBlock._fields)), dtype=np.int64)
        for index, values in enumerate(columns):
            if values is None:
                words[index] = ValuesBlock(form=-1)
                self._size_bytes += self._inputs.rows
                continue
            held = values.offsets if values.numbers is None else values.numbers
            assert held is not None
            block = ValuesBlock(
                form=int(values.form),
                validity=0 if values.valid is None else self._address(values.valid),
                values=self._address(held),
                octets=0 if values.octets is None else self._address(values.octets),
            )
            if keys is not None:
                key = self._address(np.frombuffer(keys[index], dtype=np.uint8))
                block = block._replace(key=key, key_length=len(keys[index]))
            words[index] = block
            self._size_bytes += values.size_bytes() + self._inputs.rows * _WIDEST_NUMBER
        return self._address(words)

    def _address(self, array: NDArray[Any]) -> int:
        held = np.ascontiguousarray(array)
        self._kept_alive.append(held)
        return address_of(held)
