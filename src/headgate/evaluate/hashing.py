"""The hash by which kernels find a text in a table, computed for texts of Python.

`values/kernel.py` computes it for texts in memory, and for other values.
"""

from __future__ import annotations

FIRST_FACTOR = -7046029254386353131
SECOND_FACTOR = -4658895280553007687
SPREAD = 32


def text_hash(text: bytes) -> int:
    """64 bits as a signed integer."""
    if len(text) < 8:
        return _mixed(_mixed(_word(text) ^ len(text), FIRST_FACTOR), SECOND_FACTOR)
    found = _mixed(_word(text[:8]) ^ len(text), FIRST_FACTOR)
    for offset in range(8, len(text) - 7, 8):
        found = _mixed(found ^ _word(text[offset : offset + 8]), FIRST_FACTOR)
    return _mixed(found ^ _word(text[-8:]), SECOND_FACTOR)


def _mixed(value: int, factor: int) -> int:
    value = (value * factor + (1 << 63)) % (1 << 64) - (1 << 63)
    return value ^ (value >> SPREAD)


def _word(octets: bytes) -> int:
    return int.from_bytes(octets.ljust(8, b"\0"), "little", signed=True)
