"""Which bytes are not an AMQP message, by the rule of docs/design/message-validity.md."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate.filter import Filter
from headgate.evaluate.verdict import Verdict
from headgate.message import EncodedMessages


def malformed_rows(batch: EncodedMessages) -> NDArray[np.intp]:
    """The rows of a batch that are not AMQP messages, ascending; some 10 ns for each message."""
    if not len(batch.starts):
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(_of_any_message().verdicts(batch) == Verdict.ERROR)


@functools.cache
def _of_any_message() -> Filter:
    """A filter that gives an error only for bytes that are not a message."""
    return Filter.parse("TRUE", "rabbitmq")
