"""The version of Headgate: in the lowest layer, so that every package may name it."""

from __future__ import annotations

__version__ = "0.1.0"
