"""Messages that clients publish one by one, on their way to the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from headgate.broker.batches import PublishBatch
from headgate.broker.session import Session
from headgate.errors import HeadgateError, ResourceNotFoundError
from headgate.server.outbox import IDLE_MS, Outbox
from headgate.server.settings import Limits
from server.links import SetClock

LIMITS = Limits(publishers=2)


class FakePublisher:
    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.is_closed = False
        self.batches: list[PublishBatch] = []

    def publish(self, batch: PublishBatch) -> None:
        self.batches.append(batch)

    def close(self) -> None:
        self.is_closed = True


class FakeSession:
    """Gives publishers of all streams but `missing`."""

    def __init__(self) -> None:
        self.publishers: list[FakePublisher] = []
        self.routed: list[str] = []
        self.is_closed = False

    def route(self, exchange: str, routing_key: str, headers: Callable[[], dict[str, object]]) -> list[str]:
        self.routed.append(routing_key)
        return [str(headers().get("to", routing_key))]

    def needs_headers(self, exchange: str) -> bool:
        return exchange == "by headers"

    def publisher(self, stream: str, *, exchange: str) -> FakePublisher:
        if stream == "missing":
            raise ResourceNotFoundError("no such stream", subject=stream)
        self.publishers.append(FakePublisher(stream))
        return self.publishers[-1]

    def close(self) -> None:
        self.is_closed = True

    def open(self) -> list[str]:
        return [publisher.stream for publisher in self.publishers if not publisher.is_closed]

    def written(self, error: HeadgateError | None = None) -> None:
        """The broker answers everything that it was given."""
        for publisher in self.publishers:
            batches, publisher.batches = publisher.batches, []
            for batch in batches:
                batch.written(error)


class Case:
    """An outbox with all that it knows, and what it settled."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.session = FakeSession()
        self.settled: list[tuple[list[int], HeadgateError | None]] = []
        self.outbox: Outbox[int] = Outbox(
            self.clock,
            LIMITS,
            lambda tickets, error: self.settled.append((tickets, error)),
        )
        self.outbox.open(cast(Session, cast(Any, self.session)))

    def publish(self, stream: str, *tickets: int) -> None:
        for ticket in tickets:
            self.outbox.add("", [stream], b"%d" % ticket, None, ticket)
        self.outbox.flush()


@pytest.fixture
def case() -> Case:
    return Case()


def test_messages_of_one_stream_go_to_the_broker_as_one_batch(case):
    for ticket in (1, 2, 3):
        case.outbox.add("", ["orders"], b"%d" % ticket, b"v" if ticket == 2 else None, ticket)
    assert not case.session.publishers
    case.outbox.flush()
    case.outbox.flush()
    (publisher,) = case.session.publishers
    (batch,) = publisher.batches
    entries = batch.entries
    assert (entries.data.tobytes(), entries.starts.tolist(), entries.lengths.tolist()) == (b"123", [0, 1, 2], [1, 1, 1])
    assert entries.filter_values is not None and entries.filter_values.data.tobytes() == b"v"
    case.session.written()
    assert case.settled == [([1, 2, 3], None)]


def test_a_message_of_several_streams_is_settled_when_it_is_in_all_of_them(case):
    case.outbox.add("", ["a", "b"], b"m", None, 1)
    case.outbox.flush()
    first, second = case.session.publishers
    first.batches.pop().written(None)
    assert not case.settled
    second.batches.pop().written(None)
    assert case.settled == [([1], None)]


def test_a_stream_that_is_gone_settles_its_messages_with_the_reason(case):
    case.publish("missing", 1, 2)
    ((tickets, error),) = case.settled
    assert tickets == [1, 2] and isinstance(error, ResourceNotFoundError)


def test_a_way_is_looked_up_once_for_what_is_handed_over_together(case):
    for _ in range(3):
        assert case.outbox.route("", "orders", dict) == ["orders"]
        assert case.outbox.route("", "other", dict) == ["other"]
    assert case.session.routed == ["orders", "other"]
    case.outbox.flush()
    case.outbox.route("", "orders", dict)
    assert case.session.routed == ["orders", "other", "orders"]


def test_a_way_that_depends_on_headers_is_looked_up_for_each_message(case):
    for stream in ("orders", "other", "orders"):
        assert case.outbox.route("by headers", "key", lambda stream=stream: {"to": stream}) == [stream]
    assert case.session.routed == ["key"] * 3


def test_an_outbox_that_ends_hands_over_what_there_is_and_takes_its_session_with_it(case):
    case.publish("orders", *range(9))
    case.outbox.add("", ["orders"], b"last", None, 9)
    case.outbox.end()
    assert [len(batch.entries) for batch in case.session.publishers[0].batches] == [9, 1]
    assert case.session.is_closed
    case.outbox.end()
    case.session.written()
    assert [tickets for tickets, _ in case.settled] == [list(range(9)), [9]]


def test_an_outbox_that_was_never_opened_ends_in_silence(case):
    settled: list[list[int]] = []
    unopened: Outbox[int] = Outbox(case.clock, LIMITS, lambda tickets, _error: settled.append(tickets))
    unopened.flush()
    unopened.tick(case.clock.now_ms())
    unopened.end()
    assert not settled


def test_publishers_are_given_back_when_they_are_too_many_or_idle(case):
    case.publish("a", 1)
    case.publish("b", 2)
    case.publish("a", 3)
    case.clock.seconds += IDLE_MS / 2000
    case.publish("c", 4)
    assert case.session.open() == ["a", "c"]
    case.clock.seconds += IDLE_MS / 2000
    case.outbox.tick(case.clock.now_ms())
    assert case.session.open() == ["c"]
