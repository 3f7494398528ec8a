from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from headgate.errors import HeadgateError
from headgate.server.pump import SHARE_BYTES, TURN_BYTES, Pump
from server.links import FakeLink


@dataclass(slots=True)
class FakeScan:
    error: HeadgateError | None = None
    may_wait_for_storage = False


class FakeConsumer:
    """Scans give `per_scan` bytes each until `scans` are done; far behind means in a worker."""

    def __init__(self, *, scans: int, per_scan: int, small: bool = True) -> None:
        self.on_ready: Callable[[], None] = lambda: None
        self.takes_more: Callable[[], bool] = lambda: True
        self.left = scans
        self.per_scan = per_scan
        self.small = small
        self.pending = 0
        self.scanning: FakeScan | None = None
        self.fails: Exception | None = None
        self.waits = False

    def listen(self, on_ready: Callable[[], None], takes_more: Callable[[], bool] = lambda: True) -> None:
        self.on_ready, self.takes_more = on_ready, takes_more

    @property
    def has_pending(self) -> bool:
        return self.pending > 0

    def scan_due(self) -> FakeScan | None:
        return FakeScan() if self.pending == 0 and self.left > 0 and self.scanning is None else None

    def is_small(self, scan: FakeScan) -> bool:
        return self.small

    def begin_scan(self, scan: FakeScan, *, may_wait: bool) -> bool:
        if may_wait and self.waits:
            return False
        self.scanning = scan
        return True

    def run(self, scan: FakeScan) -> None:
        assert self.scanning is scan
        if isinstance(self.fails, HeadgateError):
            scan.error = self.fails
        elif self.fails:
            raise self.fails

    def end_scan(self, scan: FakeScan) -> HeadgateError | None:
        assert self.scanning is scan
        self.scanning = None
        if self.fails is None:
            self.left -= 1
            self.pending += self.per_scan
        return scan.error


class Served:
    """Consumers on one link, and in which order they delivered."""

    def __init__(self) -> None:
        self.link = FakeLink()
        self.pump = Pump(self.link)
        self.order: list[str] = []
        self.bytes: dict[str, int] = {}
        self.failed: list[Exception] = []

    def add(self, name: str, consumer: FakeConsumer) -> FakeConsumer:
        def deliver(budget: int) -> int | None:
            taken = min(budget, consumer.pending)
            if not taken:
                return None
            consumer.pending -= taken
            self.order.append(name)
            self.bytes[name] = self.bytes.get(name, 0) + taken
            self.link.write(bytes(taken))
            return taken

        self.pump.add(consumer, deliver, self.failed.append)
        return consumer


def test_a_consumer_at_the_tail_is_scanned_and_delivered_in_the_loop() -> None:
    served = Served()
    served.add("tail", FakeConsumer(scans=3, per_scan=10))
    served.link.turns()
    assert served.bytes == {"tail": 30} and served.link.works == []


def test_a_consumer_far_behind_is_scanned_in_a_worker_once_at_a_time() -> None:
    served = Served()
    consumer = served.add("behind", FakeConsumer(scans=2, per_scan=10, small=False))
    served.link.turns()
    consumer.on_ready()
    served.link.turns()
    assert len(served.link.works) == 1 and served.bytes == {}
    served.link.work()
    served.link.turns()
    assert served.bytes == {"behind": 10} and len(served.link.works) == 1


def test_a_consumer_that_waits_for_others_is_scanned_when_it_is_ready_again() -> None:
    served = Served()
    consumer = FakeConsumer(scans=1, per_scan=10, small=False)
    consumer.waits = True
    served.add("ahead", consumer)
    served.link.turns()
    assert served.link.works == [] and served.link.calls == []
    consumer.waits = False
    consumer.on_ready()
    served.link.turns()
    served.link.work()
    served.link.turns()
    assert served.bytes == {"ahead": 10}


def test_a_small_scan_waits_for_nobody() -> None:
    served = Served()
    consumer = FakeConsumer(scans=1, per_scan=10)
    consumer.waits = True
    served.add("tail", consumer)
    served.link.turns()
    assert served.bytes == {"tail": 10}


def test_consumers_of_one_link_take_turns() -> None:
    served = Served()
    for name in ("a", "b"):
        served.add(name, FakeConsumer(scans=1, per_scan=3 * SHARE_BYTES))
    served.link.turns()
    assert served.order[:4] == ["a", "b", "a", "b"]


def test_one_turn_writes_a_bounded_amount() -> None:
    served = Served()
    served.add("much", FakeConsumer(scans=1, per_scan=3 * TURN_BYTES))
    served.link.turn()
    assert len(served.link.written) == TURN_BYTES
    served.link.turns()
    assert len(served.link.written) == 3 * TURN_BYTES


def test_one_turn_scans_a_bounded_number_of_times_when_nothing_matches() -> None:
    served = Served()
    consumer = served.add("nothing matches", FakeConsumer(scans=1000, per_scan=0))
    served.link.turn()
    assert 900 < consumer.left < 1000
    served.link.turns()
    assert consumer.left == 0


def test_a_full_link_stops_and_goes_on_when_it_is_woken() -> None:
    served = Served()
    consumer = served.add("one", FakeConsumer(scans=2, per_scan=10))
    served.link.is_writable = False
    served.link.turns()
    consumer.on_ready()
    served.link.turns()
    assert served.bytes == {} and consumer.left == 2
    served.link.is_writable = True
    served.pump.wake()
    served.link.turns()
    assert served.bytes == {"one": 20}


def test_nobody_is_asked_while_nothing_is_ready() -> None:
    served = Served()
    consumer = served.add("idle", FakeConsumer(scans=0, per_scan=10))
    served.link.turns()
    assert served.link.calls == []
    consumer.left = 1
    consumer.on_ready()
    consumer.on_ready()
    assert len(served.link.calls) == 1
    served.link.turns()
    assert served.bytes == {"idle": 10}


def test_what_a_scan_raises_goes_to_the_owner_and_others_go_on() -> None:
    served = Served()
    for small in (True, False):
        served.add("bad", FakeConsumer(scans=1, per_scan=1, small=small)).fails = HeadgateError("gone")
    served.add("good", FakeConsumer(scans=1, per_scan=5))
    served.link.turns()
    served.link.work()
    served.link.turns()
    assert [str(error) for error in served.failed] == ["gone", "gone"] and served.bytes == {"good": 5}


def test_what_no_scan_should_raise_is_left_to_the_connection() -> None:
    served = Served()
    served.add("far behind", FakeConsumer(scans=1, per_scan=1, small=False)).fails = ZeroDivisionError("ours")
    served.link.turns()
    with pytest.raises(ZeroDivisionError):
        served.link.work()
    served.add("at the tail", FakeConsumer(scans=1, per_scan=1)).fails = ZeroDivisionError("ours")
    with pytest.raises(ZeroDivisionError):
        served.link.turns()
    assert served.failed == []


def test_a_removed_consumer_is_not_served_even_if_its_scan_ends_later() -> None:
    served = Served()
    consumer = served.add("gone", FakeConsumer(scans=1, per_scan=5, small=False))
    served.link.turns()
    served.pump.remove(consumer)
    served.link.work()
    served.link.turns()
    consumer.on_ready()
    assert served.bytes == {} and served.link.calls == []


def test_a_consumer_removed_while_it_delivers_is_not_asked_again() -> None:
    served = Served()
    consumer = FakeConsumer(scans=1, per_scan=10)

    def deliver(_budget: int) -> int | None:
        if not consumer.pending:
            return None
        served.pump.remove(consumer)
        return 5

    served.pump.add(consumer, deliver, served.failed.append)
    served.link.turns()
    assert consumer.pending == 10


def test_a_consumer_is_told_whether_its_link_takes_more() -> None:
    served = Served()
    consumer = served.add("one", FakeConsumer(scans=0, per_scan=0))
    for is_writable in (True, False):
        served.link.is_writable = is_writable
        assert consumer.takes_more() == is_writable
