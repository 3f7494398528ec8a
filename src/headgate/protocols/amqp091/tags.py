"""Delivery tags of a channel, in both directions: publisher confirms, and deliveries that wait to be acknowledged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

C = TypeVar("C", bound=Hashable)


class Confirm(msgspec.Struct, frozen=True):
    """An answer to the message of a tag; with `multiple`, also to all unanswered messages before it."""

    delivery_tag: int
    multiple: bool
    is_kept: bool


class Confirms:
    """Publisher confirms of a channel: numbers published messages from 1 and joins their answers into few."""

    __slots__ = ("_below", "_kept", "_known", "_refused", "last_tag")

    def __init__(self) -> None:
        self.last_tag = 0
        self._below = 0
        """All tags up to this one have been answered, or are in `_kept`."""
        self._known: set[int] = set()
        """Settled tags above `_below`."""
        self._kept: list[int] = []
        self._refused: list[int] = []

    def published(self) -> int:
        """The tag of the next message."""
        self.last_tag += 1
        return self.last_tag

    def settle(self, tags: Iterable[int], *, is_kept: bool) -> None:
        """Note that these messages were kept or refused; each is settled once."""
        (self._kept if is_kept else self._refused).extend(tags)

    def take(self) -> list[Confirm]:
        """The answers to the messages settled since the last call, in sending order."""
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
        """The tag of the next delivery, which needs no acknowledgement."""
        self.last_tag += 1
        return self.last_tag

    def settle(self, delivery_tag: int, *, multiple: bool) -> dict[C, list[int]] | None:
        """Remove deliveries and give their tags, by consumer; None if the tag is not open.

        With `multiple`, all deliveries up to the tag; tag 0 then means all deliveries.
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
        """Remove all deliveries of one consumer and give their tags."""
        tags = [tag for tag, owner in self._open.items() if owner == consumer]
        for tag in tags:
            del self._open[tag]
        return tags
