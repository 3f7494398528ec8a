"""What both protocols of subscriptions share: what clients hold, and clients that do not read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from headgate import Message
from headgate.broker import DeadLetterReason, GivenCopies, ReadCopies
from headgate.errors import HeadgateError, LogError
from headgate.ledger import Tokens
from headgate.message import EncodedMessages
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp10.terminus import Accepted
from headgate.server.unsettled_copies import HOLD_LIMIT_MS, Settlement, UnsettledCopies
from server import amqp091_client, amqp10_client
from server.running import RunningServer, running_server
from server.subscriptions import ServedTopic, address, served_topic
from waiting import eventually

LOCK_MS = 60_000


# what clients hold


@dataclass
class FakeReceiver:
    """Keeps what is settled; the clock is the test's."""

    now_ms: int = 0
    lock_ms: int = LOCK_MS
    error: LogError | None = None
    settled: list[tuple[str, list[bytes]]] = field(default_factory=list)
    calls: list[Callable[[], None]] = field(default_factory=list)

    def _settle(self, what: str, tokens: Sequence[bytes], then: Callable[[object], None]) -> None:
        self.settled.append((what, list(tokens)))
        then(self.error or [True] * len(tokens))

    def complete(self, tokens: Sequence[bytes], then: Callable[[object], None]) -> None:
        self._settle("complete", tokens, then)

    def dead_letter(self, tokens: Sequence[bytes], then: Callable[[object], None], *, why: DeadLetterReason) -> None:
        self._settle(f"dead letter: {why.reason}", tokens, then)

    def release(
        self, tokens: Sequence[bytes], then: Callable[[object], None] = lambda _: None, *, counts: bool
    ) -> None:
        self._settle("fail" if counts else "release", tokens, then)

    def renew(self, tokens: Sequence[bytes]) -> int:
        self.settled.append(("renew", list(tokens)))
        return self.now_ms + self.lock_ms

    def given(self, number: int) -> GivenCopies:
        copies, first = np.array([number]), np.array([1])
        read = ReadCopies(copies, np.array([self.now_ms]), EncodedMessages.of([b""]))
        return GivenCopies(read, Tokens(copies, first), first, self.now_ms + self.lock_ms)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def token(number: int) -> bytes:
    return Tokens.of([(number, 1)]).pack()[0]


def unsettled_of(
    receiver: FakeReceiver, failed: Callable[[HeadgateError], None], *, is_dead_letter: bool = False
) -> UnsettledCopies:
    return UnsettledCopies(receiver, failed, receiver.calls.append, is_dead_letter=is_dead_letter)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settlement", "is_dead_letter", "expected"),
    [
        (Settlement.COMPLETE, False, "complete"),
        (Settlement.RELEASE, False, "release"),
        (Settlement.FAIL, True, "fail"),
        (Settlement.DEAD_LETTER, False, "dead letter: rejected"),
        (Settlement.DEAD_LETTER, True, "complete"),
    ],
)
def test_what_is_settled_is_settled_once_and_by_one_call(settlement, is_dead_letter, expected):
    receiver = FakeReceiver()
    unsettled = unsettled_of(receiver, pytest.fail, is_dead_letter=is_dead_letter)
    for number in range(3):
        unsettled.add([number], receiver.given(number))
    answers: list[int] = []
    unsettled.settle([0, 2, 7], settlement, then=lambda: answers.append(1))
    receiver.turn()
    unsettled.settle([0], settlement, then=lambda: answers.append(2))
    receiver.turn()
    assert receiver.settled == [(expected, [token(0), token(2)])]
    assert (answers, len(unsettled)) == ([1, 2], 1)
    unsettled.give_back(Settlement.FAIL)
    assert receiver.settled[1:] == [("fail", [token(1)])]


def test_what_is_completed_in_one_turn_is_completed_together_also_where_the_client_goes_then():
    receiver = FakeReceiver()
    unsettled = unsettled_of(receiver, pytest.fail)
    answers: list[int] = []
    for number in range(4):
        unsettled.add([number], receiver.given(number))
    for number in range(2):
        unsettled.settle([number], Settlement.COMPLETE, then=lambda number=number: answers.append(number))
    assert receiver.settled == []
    receiver.turn()
    assert receiver.settled == [("complete", [token(0), token(1)])]
    assert answers == [0, 1]
    unsettled.settle([2], Settlement.COMPLETE)
    unsettled.give_back(Settlement.FAIL)
    receiver.turn()
    assert receiver.settled[1:] == [("complete", [token(2)]), ("fail", [token(3)])]


@pytest.mark.parametrize("settlement", [Settlement.COMPLETE, Settlement.RELEASE])
def test_a_settlement_that_is_not_on_disk_is_told(settlement):
    receiver = FakeReceiver(error=LogError("no space left", path=Path("ledger")))
    failures: list[HeadgateError] = []
    unsettled = unsettled_of(receiver, failures.append)
    unsettled.add([1], receiver.given(1))
    unsettled.settle([1], settlement, then=pytest.fail)
    receiver.turn()
    assert failures == [receiver.error]


def test_what_is_held_is_renewed_half_way_for_half_an_hour():
    receiver = FakeReceiver()
    unsettled = unsettled_of(receiver, pytest.fail)
    unsettled.add([1], receiver.given(1))
    renewed_ms = []
    for receiver.now_ms in range(0, 2 * HOLD_LIMIT_MS, 500):
        if receiver.now_ms == 600_000:
            unsettled.add([2], receiver.given(2))
        before = len(receiver.settled)
        unsettled.tick(receiver.now_ms)
        renewed_ms += [(receiver.now_ms, tokens) for _, tokens in receiver.settled[before:]]
    assert renewed_ms[0] == (LOCK_MS // 2, [token(1)])
    assert all(later - earlier == LOCK_MS // 2 for (earlier, _), (later, _) in itertools.pairwise(renewed_ms))
    assert max(now_ms for now_ms, tokens in renewed_ms if token(1) in tokens) == HOLD_LIMIT_MS - LOCK_MS // 2
    assert max(now_ms for now_ms, tokens in renewed_ms if token(2) in tokens) == HOLD_LIMIT_MS + 600_000 - LOCK_MS // 2


# clients that do not read

BODY = bytes(200_000)
MESSAGES = 160
"""32 MB: more than the limit of a connection and the buffers of both sockets together hold."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as running:
        yield running


@pytest.fixture
def topic(server: RunningServer) -> ServedTopic:
    topic = served_topic(server, "orders")
    message = Message(BODY, application_properties={"color": "red"})
    with amqp10_client.client_of(server.ports["amqp"]) as client:
        assert client.send(client.sender("/queues/orders"), *[message] * MESSAGES) == [Accepted()] * MESSAGES
    return topic


def by_amqp10(topic: ServedTopic, while_not_reading: Callable[[], None]) -> int:
    with amqp10_client.client_of(topic.server.ports["amqp"]) as client:
        link = client.receiver(address(topic.queue), credit=10_000)
        while_not_reading()
        return len(client.receive(link, MESSAGES))


def by_amqp091(topic: ServedTopic, while_not_reading: Callable[[], None]) -> int:
    with amqp091_client.Client(topic.server.ports["amqp"]).open(1) as client:
        client.call(1, m.BasicConsume(queue=topic.queue, consumer_tag="c"))
        while_not_reading()
        return sum(len(client.receive(1).body) == len(BODY) for _ in range(MESSAGES))


@pytest.mark.parametrize("read", [by_amqp10, by_amqp091])
def test_a_client_that_does_not_read_is_given_no_more_until_it_does(topic: ServedTopic, read) -> None:
    def receivers() -> list[int]:
        sessions = list(topic.server.context.broker.sessions)
        return [receiver.wanted for session in sessions for receiver in session.receivers]

    def is_full() -> None:
        eventually(lambda: topic.server.call(receivers) == [0] and topic.counts()[1] > 0)
        assert topic.counts()[0] > 0

    assert read(topic, is_full) == MESSAGES
