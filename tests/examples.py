"""How many examples a property takes where it is not the number of the profile (`conftest.py` has the profiles)."""

from __future__ import annotations

from hypothesis import settings


def examples(factor: float) -> settings:
    """The number of the profile times `factor`: below 1 where an example costs much, above where rare ones matter."""
    return settings(max_examples=max(1, round(settings.default.max_examples * factor)))
