"""Headgate: a Spark data pipeline whose storage is a broker's log, with broker-grade message filters.

Importing the package is cheap: numpy, pyarrow, numba and pyspark are imported where they are used, and the names below
when they are first asked for.

    from headgate import Action, Filter, Message, Rule, Subscription, Topic
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.evaluate.actions import Action
    from headgate.evaluate.filter import Filter
    from headgate.evaluate.rules import RuleSet
    from headgate.message import EncodedMessages, Message
    from headgate.topic import Rule, Subscription, Topic

__version__ = "0.1.0"

_HOMES = {
    "Action": "headgate.evaluate.actions",
    "EncodedMessages": "headgate.message",
    "Filter": "headgate.evaluate.filter",
    "Message": "headgate.message",
    "Rule": "headgate.topic",
    "RuleSet": "headgate.evaluate.rules",
    "Subscription": "headgate.topic",
    "Topic": "headgate.topic",
}

__all__ = ["Action", "EncodedMessages", "Filter", "Message", "Rule", "RuleSet", "Subscription", "Topic", "__version__"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
