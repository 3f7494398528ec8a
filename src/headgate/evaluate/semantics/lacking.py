"""The stand-in for an operator that a language does not have."""

from __future__ import annotations

from typing import NoReturn


def lacking(*_operands: object) -> NoReturn:
    """No tree of the language has the operator."""
    raise TypeError("the language has no such operator")
