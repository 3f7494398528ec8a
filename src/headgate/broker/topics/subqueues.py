"""The small streams of a topic: dead letters and deferred copies of its subscriptions, each made when first needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from headgate.broker.delivery import MovedCopies, Mover, TargetKind
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.policy import SubscriptionPolicy
from headgate.broker.topics.subqueue import Subqueue
from headgate.broker.topics.subscription import BrokerSubscription
from headgate.errors import HeadgateError, LogError
from headgate.ledger import Ledger
from headgate.topic import (
    DEFAULT_SETTINGS,
    SubscriptionName,
    dead_letters_folder,
    deferred_folder,
    subscription_folder,
)


class Subqueues:
    """The small streams of one topic, by kind and number of the subscription; without any they cost nothing."""

    def __init__(
        self,
        stream: BrokerStream,
        environment: Environment,
        mover_of: Callable[[Ledger, MovedCopies], Mover],
    ) -> None:
        """`mover_of` gives the mover of deferred copies to the dead letters, and of dead letters to streams."""
        self._stream = stream
        self._environment = environment
        self._mover_of = mover_of
        self._queues: dict[tuple[TargetKind, int], Subqueue] = {}
        self._open: dict[Subqueue, None] = {}
        self.touched: dict[Subqueue, None] = {}
        """Subqueues with work for the next turn."""
        self._uncounted: list[Subqueue] = []

    def find(self, subscription: BrokerSubscription) -> None:
        """Note the small streams that a subscription has on disk. Cost: one `stat` where it has none."""
        if subscription_folder(self._stream.stream, subscription.version.number).exists():
            found = [self.get(kind, subscription) for kind in (TargetKind.DEAD_LETTERS, TargetKind.DEFERRED)]
            self._uncounted += [queue for queue in found if queue.known_count is None]

    def get(self, kind: TargetKind, subscription: BrokerSubscription) -> Subqueue:
        """A small stream of a subscription; its files are made when the first message comes."""
        number = subscription.version.number
        queue = self._queues.get((kind, number))
        if queue is None:
            queue = self._queues[kind, number] = self._made(kind, subscription)
        return queue

    def _made(self, kind: TargetKind, subscription: BrokerSubscription) -> Subqueue:
        topic, stream, version = self._stream.name, self._stream.stream, subscription.version
        if kind is TargetKind.DEAD_LETTERS:
            return Subqueue(
                str(SubscriptionName(topic, version.name, is_dead_letter=True)),
                dead_letters_folder(stream, version.number),
                self._stream,
                self._environment,
                # They are given out until they are settled, however often.
                SubscriptionPolicy(DEFAULT_SETTINGS, expires=False),
                is_deferred=False,
                mover_of=self._mover_of,
                touched=self._was_touched,
            )
        return Subqueue(
            f"{SubscriptionName(topic, version.name)}/$Deferred",
            deferred_folder(stream, version.number),
            self._stream,
            self._environment,
            subscription.policy,
            is_deferred=True,
            mover_of=self._mover_of,
            touched=self._was_touched,
        )

    def _was_touched(self, queue: Subqueue) -> None:
        self._open[queue] = self.touched[queue] = None
        self._environment.wake()

    def exists(self, kind: TargetKind, number: int) -> bool:
        """Whether a message ever came to a small stream."""
        queue = self._queues.get((kind, number))
        return queue is not None and queue.exists

    def count(self, kind: TargetKind, number: int) -> int:
        """How many messages of a small stream are unsettled; opens its files if that is not known. Raises LogError."""
        queue = self._queues.get((kind, number))
        return 0 if queue is None else queue.count()

    def known_count(self, kind: TargetKind, number: int) -> int | None:
        """The same without opening a file; None where only the files know it."""
        queue = self._queues.get((kind, number))
        return 0 if queue is None else queue.known_count

    def is_received(self, number: int) -> bool:
        """Whether the dead letters of a subscription have receivers."""
        queue = self._queues.get((TargetKind.DEAD_LETTERS, number))
        return queue is not None and queue.is_received

    def end_receivers(self, number: int, error: HeadgateError) -> None:
        """End the receivers of the dead letters of a subscription; others may come later."""
        queue = self._queues.get((TargetKind.DEAD_LETTERS, number))
        if queue is not None:
            queue.end_receivers(error)

    def remove(self, number: int, error: HeadgateError) -> None:
        """A subscription is removed: end its small streams."""
        for kind in (TargetKind.DEAD_LETTERS, TargetKind.DEFERRED):
            queue = self._queues.pop((kind, number), None)
            if queue is not None:
                queue.end(error)
                self._open.pop(queue, None)
                self.touched.pop(queue, None)

    def turn(self, now_ms: int) -> None:
        """Give a turn to each small stream with work."""
        touched, self.touched = self.touched, {}
        for queue in touched:
            queue.turn(now_ms)

    def tick(self, now_ms: int) -> None:
        """Close unused files, and count one more of the small streams found at the start."""
        if self._uncounted:
            queue = self._uncounted.pop()
            with contextlib.suppress(LogError):
                if queue.exists:
                    queue.count()
        for queue in list(self._open):
            queue.tick(now_ms)
            if not queue.is_open:
                del self._open[queue]

    def close(self) -> None:
        """Close all files; again is harmless."""
        for queue in self._open:
            queue.close()

    def end(self, error: HeadgateError) -> None:
        """The topic is gone: end the receivers."""
        for queue in self._open:
            queue.end(error)
