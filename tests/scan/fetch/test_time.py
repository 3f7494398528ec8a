"""The processor time of reading: what one reader does for several is divided among them, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.evaluate.filter import Filter
from headgate.log import Stream
from headgate.scan import ScanCounters, ScanRequest
from headgate.scan.fetch import Fetcher, SharedLog, SharedReads, Takes
from match_indexes import Write, create

NOW_MS = 1
MANY = [Write((("AMER", number % 7), ("EMEA", number % 5), (None, 2)), packed=False) for number in range(60)]


class Clock:
    """A clock that ticks once each time it is looked at, so that what is done between two looks takes one tick."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1_000_000
        return self.now_ns


class Follower:
    """A reader that reads on when it is told."""

    is_delivering = False

    def __init__(self, log: SharedLog, text: str | None, *, is_waiting: bool = True) -> None:
        self.offset, self.is_waiting = 0, is_waiting
        wanted = None if text is None else Filter.parse(text, "rabbitmq")
        self.fetcher = Fetcher(log, self, ScanRequest(filter=wanted), Takes.MESSAGES)
        self.counters = ScanCounters()

    def read(self) -> int:
        """Read once; gives the time that it is told it took."""
        portion = self.fetcher.fetch(self.offset, NOW_MS, self.fetcher.decided(self.offset))
        assert portion is not None
        self.offset = portion.next_offset
        self.counters.add(portion.counters)
        return portion.counters.cpu_ns


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return create(tmp_path / "s", MANY, segment_bytes=10**6)


def followers(stream: Stream, clock: Clock, texts: list[str], idle: int = 0) -> list[Follower]:
    log = SharedLog(stream, SharedReads(cpu_ns=clock))
    found = [Follower(log, text) for text in texts]
    for _ in range(idle):
        Follower(log, texts[0], is_waiting=False)
    clock.now_ns = 0
    return found


def test_a_reader_alone_pays_all_that_it_takes(stream: Stream) -> None:
    clock = Clock()
    (alone,) = followers(stream, clock, ["price > 3"])
    assert alone.read() == clock.now_ns - 1_000_000 > 0


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(["price > 3"] * 4, id="the same filter"),
        pytest.param(["price > 3", "price > 3", "price < 2"], id="two filters"),
        pytest.param([f"price > {number}" for number in range(6)], id="many filters, in one walk"),
    ],
)
def test_what_one_does_for_others_is_paid_by_all_in_equal_shares(stream: Stream, texts: list[str]) -> None:
    clock = Clock()
    readers = followers(stream, clock, texts, idle=3)
    first, *others = [reader.read() for reader in readers]
    total = first + sum(others)
    # Each call begins and ends with a look at the clock; between calls it stands still for nobody.
    assert total == pytest.approx(clock.now_ns - 1_000_000 * len(readers), abs=1000)
    if len(set(texts)) in (1, len(texts)):
        assert len({round(other, -3) for other in others}) == 1
    assert all(other > 0 for other in others)


def test_without_a_clock_nothing_takes_time(stream: Stream) -> None:
    log = SharedLog(stream, SharedReads())
    readers = [Follower(log, "price > 3") for _ in range(3)]
    assert [reader.read() for reader in readers] == [0, 0, 0]
