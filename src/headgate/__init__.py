"""Headgate: a Spark data pipeline whose storage is a broker's log, with broker-grade message filters.

Importing the package is cheap: numpy, pyarrow, numba and pyspark are imported where they are used, and the names below
when they are first asked for.

    from headgate import Action, Filter, Message, Rule, Subscription, Topic
    headgate.read("orders", columns="offset, region string, price double", filter="region = 'EMEA'").to_arrow()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.version import __version__

if TYPE_CHECKING:
    from headgate.evaluate import Action, Filter
    from headgate.evaluate.rules import RuleSet
    from headgate.message import EncodedMessages, Message
    from headgate.tables import StreamTable, read
    from headgate.topic import Rule, Subscription, Topic
    from headgate.trace import why
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "Action",
    "EncodedMessages",
    "Filter",
    "Message",
    "Rule",
    "RuleSet",
    "StreamTable",
    "Subscription",
    "Topic",
    "__version__",
    "read",
    "why",
]
