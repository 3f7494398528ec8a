"""Consumers with different filters let others come up to them, for a moment, so that they are decided together."""

from __future__ import annotations

import pytest

from brokers import SetClock, may_scan, open_session, publish, scan
from headgate.broker.broker import Broker
from headgate.broker.consumers import ConsumerOptions, MessageConsumer
from headgate.broker.session import Session
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification
from headgate.scan.engine import waiting_policy
from headgate.scan.engine.waiting_policy import MOST_WAIT_MS, NEWCOMER_MS
from headgate.scan.fetch import results
from shared_streams import body

MESSAGES = 4000
PER_CHUNK = 100
CREDIT = 1 << 20


@pytest.fixture
def session(broker: Broker) -> Session:
    opened = open_session(broker)
    opened.declare_stream("s", {})
    publisher = opened.publisher("s")
    for start in range(0, MESSAGES, PER_CHUNK):
        assert publish(broker, publisher, [body(number) for number in range(start, start + PER_CHUNK)]) is None
    return opened


def _consumer(session: Session, wanted: str | None, start: int = 0, *, credit: int = CREDIT) -> MessageConsumer:
    options = ConsumerOptions(
        start=OffsetSpecification.offset(start), filter=None if wanted is None else Filter.parse(wanted)
    )
    consumer = session.message_consumer("s", options)
    consumer.want(credit)
    return consumer


def _at(session: Session, *starts: int) -> list[MessageConsumer]:
    """Consumers with filters of their own that match nothing, at these offsets."""
    return [_consumer(session, f"n = -{number}", start) for number, start in enumerate(starts, 1)]


def _pass_time(broker: Broker, clock: SetClock, milliseconds: int) -> None:
    clock.now += milliseconds
    broker.tick(clock.now)


def _settle(broker: Broker, clock: SetClock, consumers: list[MessageConsumer]) -> None:
    """Nobody of them is new any more."""
    for consumer in consumers:
        may_scan(consumer)
    _pass_time(broker, clock, MOST_WAIT_MS)
    for consumer in consumers:
        may_scan(consumer)
        scan(consumer)
        consumer.drop_unused(clock.now)
    _pass_time(broker, clock, MOST_WAIT_MS)


def _wakes(consumer: MessageConsumer) -> list[int]:
    woken: list[int] = []
    consumer.listen(lambda: woken.append(1))
    return woken


def test_whoever_is_ahead_waits_until_the_last_one_behind_has_read_on(
    broker: Broker, clock: SetClock, session: Session
) -> None:
    ahead, *behind = _at(session, 2000, 1000, 1000, 500)
    woken = _wakes(ahead)
    assert not may_scan(ahead)
    last = behind[-1]
    assert may_scan(last)
    scan(last)
    assert not last.has_pending and last.next_offset > 2000
    assert woken == [1]
    assert not may_scan(ahead), "two are behind still"
    for consumer in behind[:-1]:
        assert len(woken) == 1
        scan(consumer)
        assert not consumer.has_pending
    assert len(woken) == 2
    _pass_time(broker, clock, NEWCOMER_MS)
    assert may_scan(ahead)


def test_readers_with_few_filters_wait_for_nobody(session: Session) -> None:
    for consumer in [*_at(session, 2000, 1000, 0), _consumer(session, "n = -1", 3000), _consumer(session, None)]:
        assert may_scan(consumer)


@pytest.mark.parametrize("wanted", [None, "n % 2 = 0"])
def test_nobody_waits_for_who_takes_everything_or_has_no_credit(session: Session, wanted: str | None) -> None:
    consumers = _at(session, 2000, 2000, 2000, 2000)
    other = _consumer(session, wanted, 0, credit=0 if wanted else CREDIT)
    assert may_scan(consumers[0])
    if wanted is None:
        assert may_scan(other)
    else:
        other.want(1)
        assert not may_scan(consumers[1])


def test_nobody_waits_for_who_delivers_what_it_found(session: Session) -> None:
    consumers = _at(session, 2000, 2000, 2000)
    slow = _consumer(session, "n % 2 = 0", 1500)
    assert not may_scan(consumers[0])
    scan(slow)
    assert slow.has_pending
    slow.activate(OffsetSpecification.offset(1500))
    assert not may_scan(consumers[1]), "it begins again there"
    scan(slow)
    assert slow.has_pending
    assert may_scan(consumers[1])


def test_who_is_far_behind_is_not_waited_for(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_policy, "NEAR_MESSAGES", 1000)
    ahead, near, behind, far = _at(session, 3000, 2000, 1500, 100)
    assert not may_scan(ahead)
    assert not may_scan(near)
    assert may_scan(behind) and may_scan(far)
    assert may_scan(_consumer(session, "n = -9", 3999)) is False
    for consumer in (ahead, near):
        consumer.close()
    assert may_scan(_consumer(session, "n = -10", 2501))


def test_who_waited_long_enough_reads_on_for_as_long(broker: Broker, clock: SetClock, session: Session) -> None:
    ahead, *_ = _at(session, 2000, 1000, 1000, 1000)
    woken = _wakes(ahead)
    assert not may_scan(ahead)
    for _ in range(MOST_WAIT_MS // 50 - 1):
        _pass_time(broker, clock, 50)
        assert not may_scan(ahead)
    assert woken == [], "whom it waits for did not move"
    _pass_time(broker, clock, 50)
    assert woken == [1]
    for _ in range(2):
        assert may_scan(ahead)
        scan(ahead)
        ahead.activate(OffsetSpecification.offset(2000))
        woken.clear()
        _pass_time(broker, clock, MOST_WAIT_MS // 2 - 1)
    assert woken == [], "whoever does not wait is not woken"
    assert may_scan(ahead)
    scan(ahead)
    ahead.activate(OffsetSpecification.offset(2000))
    _pass_time(broker, clock, 2)
    assert not may_scan(ahead)


def test_of_those_at_the_same_place_one_scans_and_the_others_take_what_it_decided(
    broker: Broker, clock: SetClock, session: Session
) -> None:
    consumers = _at(session, 500, 500, 500, 500)
    _settle(broker, clock, consumers)
    for consumer in consumers:
        consumer.activate(OffsetSpecification.offset(1000))
    broker.consumers.tick(clock.now)
    one, *others = consumers
    woken = [_wakes(other) for other in others]
    due = one.scan_due()
    assert due is not None and one.begin_scan(due, may_wait=True)
    assert not any(may_scan(other) for other in others)
    one.run(due)
    assert woken == [[], [], []], "not before the broker's thread has seen it"
    assert one.end_scan(due) is None and not one.has_pending
    assert woken == [[1], [1], [1]]
    assert all(may_scan(other) for other in others[:1])


@pytest.mark.parametrize("how", ["credit", "takes", "stops"])
def test_who_stops_reading_is_not_waited_for_any_more(session: Session, how: str) -> None:
    ahead, *_ = _at(session, 2000, 2000, 2000)
    behind = _consumer(session, "n % 2 = 0", 1000, credit=3)
    woken = _wakes(ahead)
    if how == "takes":
        scan(behind)
        assert behind.take(2, 1 << 20) is not None
        behind.activate(OffsetSpecification.offset(1000))
    assert not may_scan(ahead)
    if how == "credit":
        behind.want(0)
    elif how == "stops":
        behind.deactivated()
    else:
        scan(behind)
        assert behind.has_pending
    assert woken == [1]


def test_who_leaves_is_not_waited_for(session: Session) -> None:
    ahead, behind, *others = _at(session, 2000, 1000, 2000, 2000)
    woken = _wakes(ahead)
    assert not may_scan(ahead)
    behind.close()
    assert woken == [1]
    ahead.close()
    assert may_scan(_consumer(session, "n = -7", 2000))
    assert len(others) == 2


def test_a_newcomer_is_given_a_moment_in_which_more_may_come(broker: Broker, clock: SetClock, session: Session) -> None:
    consumers = _at(session, 1000, 1000, 1000, 1000)
    _settle(broker, clock, consumers)
    for consumer in consumers:
        consumer.activate(OffsetSpecification.offset(1000))
    newcomer = _consumer(session, "n = -10", 1000)
    assert may_scan(newcomer), "it does not wait for itself"
    scan(newcomer)
    assert not newcomer.has_pending
    woken = _wakes(consumers[0])
    assert not may_scan(consumers[0])
    _pass_time(broker, clock, NEWCOMER_MS)
    assert woken == [1]
    assert may_scan(consumers[0])


def test_consumers_that_come_one_after_another_are_decided_together_from_then_on(
    broker: Broker, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.consumers._reads, "smallest_window_bytes", 1 << 14)
    monkeypatch.setattr("headgate.scan.fetch.fetcher.LARGEST_RESULTS_BYTES", 1 << 14)
    decided: list[int] = []
    original = results.SharedResults._match

    def match(self: results.SharedResults, *arguments: object) -> object:
        decided.append(self.first_offset)
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(results.SharedResults, "_match", match)
    waiting = list(range(20))
    found: dict[int, list[int]] = {number: [] for number in waiting}
    reading: dict[int, MessageConsumer] = {}
    while waiting or reading:
        if waiting:
            number = waiting.pop(0)
            reading[number] = _consumer(session, f"n % 20 = {number}")
        for number, consumer in list(reading.items()):
            due = consumer.scan_due()
            if due is not None and (consumer.is_small(due) or may_scan(consumer)):
                scan(consumer)
            while (batch := consumer.take(CREDIT, 1 << 20)) is not None:
                found[number] += batch.offsets.tolist()
            if consumer.at_end:
                del reading[number]
    assert found == {number: list(range(number, MESSAGES, 20)) for number in range(20)}
    places = set(decided)
    assert len(places) > 15
    again = sorted(place for place in places if decided.count(place) > 1)
    assert len(again) <= 8, "only where the first ones were before there were many"
