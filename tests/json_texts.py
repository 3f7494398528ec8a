"""Texts that are nearly JSON."""

from __future__ import annotations

import random

ODD_BYTES = b'{}[]:,"\\ 0123456789.eE+-tfnu\n\x00\x1f\x80\xc3\xff\xed\xa0'


def changed(chance: random.Random, text: bytes) -> bytes:
    """The text with a byte or two put in, left out or replaced."""
    made = bytearray(text)
    for _ in range(chance.randint(1, 2)):
        place = chance.randrange(len(made) + 1)
        made[place : place + chance.randrange(2)] = bytes([chance.choice(ODD_BYTES)])[: chance.randrange(4)]
    return bytes(made)
