"""Delivery tags of a channel, in both directions: publisher confirms, and deliveries that wait to be acknowledged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

C = TypeVar("C", bound=Hashable)


class Confirm(msgspec.Struct, frozen=True):
    """An answer to published messages: that of the tag, and with `multiple` of all before it that have none yet."""

    delivery_tag: int
    multiple: bool
    is_kept: bool


class Confirms:
    """Numbers published messages from 1 and joins what is known of them into few answers."""

    __slots__ = ("_below", "_kept", "_known", "_refused", "last_tag")

    def __init__(self) -> None:
        self.last_tag = 0
        self._below = 0
        """All tags up to this one have been answered, or are in `_kept`."""
        self._known: set[int] = set()
        """Tags above `_below` of which it is known what became of them."""
        self._kept: list[int] = []
        self._refused: list[int] = []

    def published(self) -> int:
        """The tag of the next message."""
        self.last_tag += 1
        return self.last_tag

    def settle(self, tags: Iterable[int], *, is_kept: bool) -> None:
        """It is known what became of these messages; each is settled once."""
        (self._kept if is_kept else self._refused).extend(tags)

    def take(self) -> list[Confirm]:
        """The answers to everything settled since the last time, in the order in which they are to be sent."""
        kept, below = self._kept, self._below
        if not self._refused and not self._known and kept == list(range(below + 1, below + 1 + len(kept))):
            # As nearly always: in the order in which they were published.
            self._below += len(kept)
            self._kept = []
            return [Confirm(self._below, multiple=len(kept) > 1, is_kept=True)] if kept else []
        answers = [Confirm(tag, multiple=False, is_kept=False) for tag in self._refused]
        self._known.update(self._refused)
        self._known.update(self._kept)
        while below + 1 in self._known:
            below += 1
            self._known.remove(below)
        self._below = below
        joined = [tag for tag in self._kept if tag <= below]
        if joined:
            # Refused ones among them have their answer by then, so that `multiple` does not speak of them.
            answers.append(Confirm(max(joined), multiple=len(joined) > 1, is_kept=True))
        answers += [Confirm(tag, multiple=False, is_kept=True) for tag in self._kept if tag > below]
        self._kept, self._refused = [], []
        return answers


class Unacknowledged(Generic[C]):
    """Deliveries of a channel that the client has not settled, each with the consumer that it belongs to.

    The first delivery has the tag behind `last_tag`.
    """

    __slots__ = ("_open", "last_tag")

    def __init__(self, last_tag: int = 0) -> None:
        self.last_tag = last_tag
        self._open: OrderedDict[int, C] = OrderedDict()

    def delivered(self, consumer: C) -> int:
        """The tag of the next delivery."""
        self.last_tag += 1
        self._open[self.last_tag] = consumer
        return self.last_tag

    def sent(self) -> int:
        """The tag of the next delivery, which nobody acknowledges."""
        self.last_tag += 1
        return self.last_tag

    def settle(self, delivery_tag: int, *, multiple: bool) -> dict[C, list[int]] | None:
        """The tags of deliveries that are done with, by consumer; None if there is no such delivery.

        With `multiple` all up to the tag, and all there are for tag 0.
        """
        if multiple and delivery_tag == 0:
            if not self._open:
                return {}
            delivery_tag = next(reversed(self._open))
        if delivery_tag not in self._open:
            return None
        if not multiple:
            return {self._open.pop(delivery_tag): [delivery_tag]}
        settled: dict[C, list[int]] = {}
        while True:
            tag, consumer = self._open.popitem(last=False)
            settled.setdefault(consumer, []).append(tag)
            if tag == delivery_tag:
                return settled

    def take(self, consumer: C) -> list[int]:
        """The tags of all deliveries of one consumer, which are done with."""
        tags = [tag for tag, owner in self._open.items() if owner == consumer]
        for tag in tags:
            del self._open[tag]
        return tags
