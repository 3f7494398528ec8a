"""The verdict of a filter on one message."""

from __future__ import annotations

import enum

from headgate.language import EvaluationFailed, Value

__all__ = ["EvaluationFailed", "UNDECIDED", "Verdict"]


class Verdict(enum.IntEnum):
    """Three truth values, and ERROR: bytes that are not an AMQP message, or an error of the language.

    Only TRUE delivers.
    """

    FALSE = 0
    TRUE = 1
    UNKNOWN = 2
    ERROR = 3

    @staticmethod
    def of(value: Value) -> Verdict:
        """The verdict for the value of a tree: any value but a boolean is unknown."""
        return Verdict(value) if isinstance(value, bool) else Verdict.UNKNOWN


UNDECIDED = 4
"""Beside the verdicts in the answers of the kernel: this row belongs to the reference evaluator."""

EVALUATOR_REVISION = 1
"""Raised by every change that gives some filter another verdict for some message; kept results are then stale."""
