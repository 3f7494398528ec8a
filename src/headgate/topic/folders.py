"""The folders of a topic, all inside the folder of its stream, and the names of its subscriptions.

    streams/<topic>/                                      segments, stream.json, topic.journal, pin (the log's)
    streams/<topic>/postings/                             which copies each subscription has (`topic.decisions`)
    streams/<topic>/ledger/                               the state of these copies; a view for each subscription
    streams/<topic>/subscriptions/<number>/dead-letters/  a stream with a ledger of its own
    streams/<topic>/subscriptions/<number>/deferred/      a stream with a ledger of its own
    streams/<stream>/waiting/                             a stream: scheduled messages; of plain streams, too

So deleting a topic stays one rename, and lists of streams show none of them. A subscription's number is never used
again in its topic, so no later subscription gets the files of a removed one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from headgate.log import Stream

QUEUE_VIEW = "queue"
"""The key of the only view of a stream of dead letters or of deferred copies, in that stream's own ledger."""

WAITING_NAME = "waiting"
"""Its folder inside the folder of a stream."""

QUEUE_SUBSCRIPTION = "$queue"
"""The only subscription of a queue; clients use the name of the queue instead."""

DEAD_LETTER_QUEUE = "$DeadLetterQueue"
_SUBSCRIPTIONS = "Subscriptions"
# Greedy: the last `/Subscriptions/` counts. ASCII: letters that are an ASCII letter only without case are none.
_NAME = re.compile(
    rf"(?P<topic>.+)/{_SUBSCRIPTIONS}/(?P<subscription>[^/$][^/]*)(?P<dead>/{re.escape(DEAD_LETTER_QUEUE)})?",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SubscriptionName:
    """A subscription, or its dead letters, as a client names it: `orders/Subscriptions/red/$DeadLetterQueue`."""

    topic: str
    subscription: str
    is_dead_letter: bool = False

    @staticmethod
    def parse(name: str) -> SubscriptionName | None:
        """The parts of a name (servicebus_wire, section 4); None for another name, for example of a stream.

        `Subscriptions` and `$DeadLetterQueue` are compared without case; topic and subscription are given as they are
        written. The topic may hold `/`, so the last `/Subscriptions/` counts. Names of transfer dead letters
        (`…/$Transfer/$DeadLetterQueue`) give None: that queue does not exist.
        """
        found = _NAME.fullmatch(name)
        return None if found is None else SubscriptionName(found["topic"], found["subscription"], bool(found["dead"]))

    def __str__(self) -> str:
        """The name as Service Bus writes it; a queue has the name of its topic."""
        name = self.topic
        if self.subscription != QUEUE_SUBSCRIPTION:
            name = f"{name}/{_SUBSCRIPTIONS}/{self.subscription}"
        return f"{name}/{DEAD_LETTER_QUEUE}" if self.is_dead_letter else name


def view_key(number: int | str) -> str:
    """The key of a subscription's view in the ledger of its topic; `number` comes from the rule history."""
    return f"subscription/{number}"


def postings_folder(stream: Stream) -> Path:
    """The folder of a topic's postings."""
    return stream.path / "postings"


def waiting_folder(stream: Stream) -> Path:
    """The folder of the stream that holds a stream's scheduled messages until they are due."""
    return stream.path / WAITING_NAME


def state_folders(stream: Stream) -> tuple[Path, ...]:
    """The folders of a topic's postings, its ledger and its subscriptions' streams; a plain stream has none."""
    return tuple(stream.path / name for name in ("postings", "ledger", "subscriptions"))


def subscription_folder(stream: Stream, number: int) -> Path:
    """The folder of one subscription's own streams; it may be deleted when the subscription is removed."""
    return stream.path / "subscriptions" / str(number)


def dead_letters_folder(stream: Stream, number: int) -> Path:
    """The folder of the stream with a subscription's dead letters."""
    return subscription_folder(stream, number) / "dead-letters"


def deferred_folder(stream: Stream, number: int) -> Path:
    """The folder of the stream with the copies that a subscription deferred."""
    return subscription_folder(stream, number) / "deferred"
