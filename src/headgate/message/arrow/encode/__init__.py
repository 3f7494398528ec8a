"""From Arrow columns to encoded messages: the kernel where it can be used, the reference for what it leaves."""

from __future__ import annotations

import pyarrow as pa

from headgate.message.arrow.encode.inputs import check_types, inputs_of
from headgate.message.arrow.encode.reference import encoded_row
from headgate.message.batch import EncodedMessages

__all__ = ["check_types", "messages_of"]


def messages_of(record_batch: pa.RecordBatch) -> EncodedMessages:
    """One encoded message per row, from any of the columns `headgate.message.arrow.COLUMNS`.

    Where `message` is not null it is taken as it is; else the other columns make the message, in the encoding of
    `Message.encode`. `application_properties` and `message_annotations` are VARIANT, map<string, scalar> or a struct of
    scalars (types: `encode.inputs`). A null or missing body is an AMQP value section with null. Raises ConfigError, naming
    the column, before any message is made; for a VARIANT that is no object when its row is reached.
    """
    inputs = inputs_of(record_batch)
    return EncodedMessages.of(encoded_row(inputs, row) for row in range(inputs.rows))
