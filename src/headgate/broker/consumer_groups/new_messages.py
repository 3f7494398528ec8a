"""Fresh messages of a queue, which a group never looked at: one consumer reads them with the filter of a request.

Messages for which the filter is not true are passed over: `position` is behind all given and passed messages.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.broker.consumers import ConsumerOptions, MessageConsumer
from headgate.broker.environment import RunInWorker
from headgate.errors import HeadgateError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification
from headgate.scan import ScanBatch, ScanCounters
from headgate.scan.engine import Scan


class NewMessages:
    """Reads on from a position of one stream, with one filter at a time; in the broker's thread but for long scans."""

    def __init__(
        self,
        open_consumer: Callable[[ConsumerOptions], MessageConsumer],
        position: int,
        *,
        group: str,
        woken: Callable[[], None],
        failed: Callable[[HeadgateError], None],
        lost: Callable[[int], None],
        worker: RunInWorker | None,
        storage: RunInWorker | None = None,
    ) -> None:
        """`woken` is called when there may be messages to look at or to take, `failed` for damaged messages.

        `lost` is called with the number of offsets that retention deleted before they were read. A `worker` runs long
        scans, if there is one, `storage` those that may wait for object storage, by default `worker`.
        """
        self._open_consumer = open_consumer
        self._position = position
        self._group = group
        self._woken = woken
        self._failed = failed
        self._lost = lost
        self._worker = worker
        self._storage = storage or worker
        self._filter: Filter | None = None
        self._consumer: MessageConsumer | None = None
        self._ended = ScanCounters()

    @property
    def position(self) -> int:
        """The offset below which all messages were given or passed over."""
        consumer = self._consumer
        return self._position if consumer is None else max(self._position, consumer.next_offset)

    def has_some(self, wanted: Filter | None) -> bool:
        """Whether `take` has messages for a filter."""
        return self._consumer is not None and self._consumer.has_pending and wanted == self._filter

    @property
    def is_behind(self) -> bool:
        """Whether committed messages were not looked at, and no found messages wait before them."""
        consumer = self._consumer
        return consumer is None or not (consumer.has_pending or consumer.at_end)

    @property
    def consumer(self) -> MessageConsumer | None:
        """The consumer that reads for the group now; None without recent requests."""
        return self._consumer

    @property
    def counters(self) -> ScanCounters:
        """Counters of the messages examined, skipped and kept."""
        counters = self._ended.copy()
        if self._consumer is not None:
            counters.add(self._consumer.counters)
        return counters

    def look(self, wanted: Filter | None, count: int) -> bool:
        """Look for `count` messages for which a filter is true; whether to call again at once.

        Reads nothing while found messages wait. Raises LogError.
        """
        consumer = self._reading(wanted)
        consumer.want(count)
        scan = None if consumer.has_pending else consumer.scan_due()
        if scan is None:
            return False
        if self._worker is not None and not consumer.is_small(scan):
            run = self._storage if scan.may_wait_for_storage and self._storage is not None else self._worker
            self._scan_in_worker(run, consumer, scan)
            return False
        consumer.begin_scan(scan, may_wait=False)
        consumer.run(scan)
        error = consumer.end_scan(scan)
        if error is not None:
            raise error
        return not consumer.has_pending and not consumer.at_end

    def take(self, wanted: Filter | None, count: int, max_bytes: int) -> ScanBatch | None:
        """The next messages that were found with this filter; None without any."""
        consumer = self._consumer
        if consumer is None or not self.has_some(wanted):
            return None
        consumer.want(count)
        return consumer.take(count, max_bytes)

    def rest(self) -> None:
        """Stop looking, as no request waits."""
        if self._consumer is not None:
            self._consumer.want(0)

    def go_to(self, position: int) -> None:
        """Read on from another position."""
        self.close()
        self._position = position

    def close(self) -> None:
        """Close files and free memory; the position stays."""
        consumer, position = self._consumer, self.position
        if consumer is not None:
            self._consumer = None
            self._ended.add(consumer.counters)
            consumer.listen(_nothing)
            consumer.close()
        self._position = position

    def _reading(self, wanted: Filter | None) -> MessageConsumer:
        if self._consumer is not None and (self._consumer.is_closed or wanted != self._filter):
            self.close()
        if self._consumer is None:
            start = OffsetSpecification.offset(self._position)
            self._filter = wanted
            self._consumer = self._open_consumer(ConsumerOptions(start, filter=wanted, name=self._group))
            self._consumer.listen(self._woken)
            self._consumer.when_lost(self._lost)
        return self._consumer

    def _scan_in_worker(self, run_in_worker: RunInWorker, consumer: MessageConsumer, scan: Scan) -> None:
        if not consumer.begin_scan(scan, may_wait=True):
            return

        def ended(result: BaseException | None) -> None:
            error = consumer.end_scan(scan)
            if result is not None:
                raise result
            if consumer is not self._consumer:
                return
            if error is not None:
                self._failed(error)
            else:
                self._woken()

        run_in_worker(lambda: consumer.run(scan), ended)


def _nothing() -> None:
    """For consumers that are closed."""
