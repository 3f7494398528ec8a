"""Copies that are given out by session: who gets which, in which order, and what a lock that ends leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from failing_disk import Disk
from headgate.broker import DeadLetterReason, Delivery, ReceiverCalls, SessionReceiver
from headgate.errors import (
    HeadgateError,
    PreconditionFailedError,
    ResourceNotFoundError,
    SessionLockedError,
    SessionLockLostError,
    StorageFullError,
)
from headgate.ledger import copy_number, offset_of, rule_of
from headgate.log import Stream, StreamArguments, Writer, stream_folder
from headgate.message import Message
from headgate.topic import (
    AddRule,
    ChangeSubscription,
    CreateSubscription,
    RemoveSubscription,
    RuleDefinition,
    SubscriptionName,
    SubscriptionSettings,
    postings_folder,
)
from log_streams import quick_folder
from topic_lab import RED, Lab

NAME = SubscriptionName("orders", "red")
DEAD = "orders/Subscriptions/red/$DeadLetterQueue"


def settings(**more: object) -> SubscriptionSettings:
    return SubscriptionSettings(requires_session=True, **more)  # type: ignore[arg-type]


def subscription(**more: object) -> tuple[CreateSubscription, AddRule]:
    return (
        CreateSubscription("red", settings=settings(**more)),
        AddRule("red", RuleDefinition("Red", sql="color = 'red'")),
    )


def of(session: str | None, color: str = "red") -> bytes:
    return Message(b"b", properties={"group-id": session}, application_properties={"color": color}).encode()


@dataclass(slots=True)
class SessionLink:
    """A peer's end of a session receiver."""

    lab: Lab
    accepted: list[str | None] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    ends: list[HeadgateError] = field(default_factory=list)
    answers: list[object] = field(default_factory=list)
    receiver: SessionReceiver = field(init=False)

    def open(self, session: str | None, want: int = 10, **more: object) -> SessionLink:
        self.receiver = self.lab.session.session_receiver(
            NAME,
            session,
            ReceiverCalls(deliver=self._deliver, ended=self.ends.append, **more),
            accepted=lambda receiver: self.accepted.append(receiver.session),
        )
        self.receiver.want(want)
        self.lab.turn()
        return self

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        assert self.accepted, "the peer knows its session before its copies"
        self.deliveries += deliveries

    def close(self) -> None:
        self.receiver.close()
        self.lab.turn()

    @property
    def tokens(self) -> list[bytes]:
        return [each.token for each in self.deliveries]

    @property
    def offsets(self) -> list[int]:
        return [offset_of(each.copy) for each in self.deliveries]


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def lab(disk: Disk) -> Iterator[Lab]:
    with quick_folder() as folder:
        lab = Lab(Path(folder), open_file=disk)
        yield lab
        disk.full = ""
        lab.broker.close()


def sessions(lab: Lab, **more: int) -> object:
    """The sessions of the subscription; they are told in the next turn."""
    found: list[object] = []
    lab.broker.topics.get("orders").browser.sessions("red", found.append, **more)
    assert found == []
    lab.turn()
    (answer,) = found
    return answer


def peeked(lab: Lab, session: str, start: int = 0, limit: int = 9) -> object:
    """The offsets of the copies of a session that are not settled."""
    found: list[object] = []
    lab.broker.topics.get("orders").browser.peek_session("red", session, copy_number(start), limit, found.append)
    lab.turn()
    (answer,) = found
    return answer if isinstance(answer, HeadgateError) else [offset_of(each.copy) for each in answer]


def link(lab: Lab, session: str | None = None, want: int = 10, **more: object) -> SessionLink:
    return SessionLink(lab).open(session, want, **more)


def test_a_receiver_gets_the_copies_of_its_session_in_order_and_no_others(lab: Lab) -> None:
    lab.topic(*subscription())
    lab.publish(of("a"), of("b"), of("a"), of("a", "blue"), of("c"))
    first = link(lab, want=1)
    second = link(lab)
    named = link(lab, "a2")
    assert [first.accepted, second.accepted, named.accepted] == [["a"], ["b"], ["a2"]]
    assert [first.offsets, second.offsets, named.offsets] == [[0], [1], []]
    assert lab.counts() == (2, 2, 0, 0)
    lab.publish(of("a"), of("a2"), of("b"))
    first.receiver.want(10)
    lab.turn()
    assert [first.offsets, second.offsets, named.offsets] == [[0, 2, 5], [1, 7], [6]]
    first.receiver.settler.complete(first.tokens, first.answers.append)
    lab.turn()
    assert first.answers == [[True] * 3]
    lab.restart()
    lab.turn(after_ms=60_000)
    assert link(lab, "a").offsets == []
    assert [link(lab).offsets for _ in "bcd"] == [[1, 7], [4], [6]]


def test_who_waits_for_a_session_gets_the_first_that_is_free(lab: Lab) -> None:
    lab.topic(*subscription())
    waiting = [link(lab) for _ in range(3)]
    gone = link(lab)
    assert [each.accepted for each in waiting] == [[], [], []]
    waiting[0].close()
    lab.publish(of("x"), of("x"))
    lab.publish(of("y"))
    assert [each.accepted for each in waiting] == [[], ["x"], ["y"]]
    gone.close()
    waiting[1].receiver.settler.complete(waiting[1].tokens[:1])
    waiting[1].close()
    again = link(lab)
    assert (again.accepted, again.offsets) == (["x"], [1])
    # Closing counts as no attempt.
    assert again.deliveries[0].attempt == 1


def test_a_session_has_one_receiver_and_plain_ones_are_refused(lab: Lab) -> None:
    lab.topic(*subscription(), CreateSubscription("plain"))
    holder = link(lab, "a")
    with pytest.raises(SessionLockedError):
        link(lab, "a")
    with pytest.raises(PreconditionFailedError, match="by session"):
        lab.link()
    topic = lab.broker.topics.get("orders")
    with pytest.raises(PreconditionFailedError, match="not received by session"):
        topic.receivers.open_session("plain", None, ReceiverCalls(deliver=print, ended=print), accepted=print)
    with pytest.raises(PreconditionFailedError, match="not received by session"):
        topic.browser.sessions("plain", print)
    with pytest.raises(PreconditionFailedError, match="not received by session"):
        topic.browser.peek_session("plain", "a", 0, 9, print)
    holder.close()
    assert link(lab, "a").accepted == ["a"]


def test_a_lock_that_ends_gives_the_session_and_its_copies_to_others(lab: Lab) -> None:
    lab.topic(*subscription())
    lab.publish(of("a"), of("a"), of("b"))
    first = link(lab)
    lab.turn(after_ms=40_000)
    until = first.receiver.renew_lock(first.answers.append)
    lab.turn()
    assert first.answers == [[True]] and until == lab.clock.now + 60_000 == first.receiver.locked_until_ms
    other = link(lab)
    assert other.offsets == [2]
    lab.turn(after_ms=59_999)
    assert first.ends == []
    third = link(lab)
    lab.turn(after_ms=1)
    assert isinstance(first.ends[0], SessionLockLostError)
    assert (third.accepted, third.offsets) == (["a"], [0, 1])
    third.receiver.settler.complete(first.tokens, third.answers.append)
    first.receiver.renew_lock(third.answers.append)
    first.receiver.set_state(b"late", third.answers.append)
    lab.turn()
    assert third.answers == [[False, False], [False], [False]]


def test_a_lock_outlives_its_process_and_its_tokens_settle(lab: Lab) -> None:
    lab.topic(*subscription())
    lab.publish(of("a"), of("a"), of("b"))
    first = link(lab)
    # As a process leaves them that is killed.
    lab = Lab(Path(shutil.copytree(lab.root, lab.root / "left")))
    with pytest.raises(SessionLockedError):
        link(lab, "a")
    other = link(lab)
    assert (other.accepted, other.offsets) == (["b"], [2])
    other.receiver.settler.complete(first.tokens[:1], other.answers.append)
    lab.turn()
    assert other.answers == [[True]]
    waiting = link(lab)
    lab.turn(after_ms=60_000)
    assert waiting.offsets == [1]
    lab.broker.close()


def test_released_copies_come_back_at_their_place_and_hold_up_those_behind(lab: Lab) -> None:
    lab.topic(*subscription(backoff_ms=[5_000], max_delivery_count=2))
    lab.publish(of("a"), of("a"), of("a"))
    first = link(lab, want=2)
    first.receiver.settler.release(first.tokens[:1], counts=False)
    first.receiver.want(10)
    lab.turn()
    assert first.offsets == [0, 1, 0, 2]
    first.receiver.settler.release(first.tokens[2:3], counts=True)
    lab.publish(of("a"))
    assert first.offsets == [0, 1, 0, 2]
    assert lab.counts() == (1, 2, 1, 0)
    lab.turn(after_ms=5_000)
    assert first.offsets == [0, 1, 0, 2, 0, 3]
    first.receiver.settler.release(first.tokens[4:5], counts=True)
    first.receiver.settler.dead_letter(first.tokens[1:2], why=DeadLetterReason("R"))
    first.receiver.settler.defer(first.tokens[3:4])
    lab.turn()
    assert lab.counts() == (0, 1, 0, 2)
    first.close()
    lab.publish(of("a"))
    assert link(lab).offsets == [3, 4]


def test_peeking_shows_a_session_whoever_has_its_copies(lab: Lab) -> None:
    lab.topic(*subscription(backoff_ms=[5_000]))
    lab.publish(of("a"), of("b"), of("a"), of("a"), of("a"))
    first = link(lab, "a", want=3)
    first.receiver.settler.complete(first.tokens[:1])
    first.receiver.settler.release(first.tokens[1:2], counts=True)
    lab.turn()
    assert lab.counts() == (2, 1, 1, 0)
    assert [peeked(lab, "a"), peeked(lab, "a", 3), peeked(lab, "a", 0, 2)] == [[2, 3, 4], [3, 4], [2, 3]]
    assert (peeked(lab, "b"), peeked(lab, "c")) == ([1], [])


def test_who_looks_at_sessions_is_answered_when_the_subscription_ends(lab: Lab, disk: Disk) -> None:
    lab.topic(*subscription())
    lab.publish(of("a"))
    topic, found = lab.broker.topics.get("orders"), []
    disk.full = "/ledger/"
    link(lab).close()
    topic.browser.sessions("red", found.append)
    lab.turn()
    assert found == []
    disk.full = ""
    for _ in range(15):
        lab.turn(after_ms=100)
    assert found == [["a"]]
    topic.browser.sessions("red", found.append)
    lab.change(RemoveSubscription("red"))
    assert isinstance(found[1], ResourceNotFoundError)


def test_a_session_whose_first_copy_waits_is_not_offered(lab: Lab) -> None:
    lab.topic(*subscription(backoff_ms=[5_000]))
    lab.publish(of("a"), of("a"), of("b"))
    first = link(lab, want=1)
    first.receiver.settler.release(first.tokens, counts=True)
    first.close()
    second, third = link(lab), link(lab)
    assert (second.accepted, third.accepted) == (["b"], [])
    lab.turn(after_ms=5_000)
    assert third.offsets == [0, 1]


def test_a_copy_without_attempts_left_does_not_hold_up_its_session(lab: Lab) -> None:
    lab.topic(*subscription())
    lab.publish(of("a"), of("a"))
    first = link(lab, want=1)
    first.receiver.settler.release(first.tokens, counts=True)
    first.close()
    lab.change(ChangeSubscription("red", settings=settings(max_delivery_count=1)))
    assert link(lab).offsets == [1]
    assert lab.counts()[3] == 1


def test_the_state_of_a_session_outlives_its_receivers_and_sessions_are_listed(lab: Lab) -> None:
    lab.topic(*subscription())
    lab.publish(of("b"), of("a"))
    first = link(lab, "b")
    first.receiver.set_state(b"\0state", first.answers.append)
    first.receiver.settler.complete(first.tokens)
    lab.turn()
    assert first.answers == [[True]]
    empty = link(lab, "empty")
    assert empty.receiver.state() is None
    first.close()
    lab.restart()
    assert sessions(lab) == ["a", "b"]
    set_ms = lab.clock.now
    assert (sessions(lab, set_after_ms=set_ms - 1), sessions(lab, set_after_ms=set_ms)) == (["b"], [])
    again = link(lab, "b")
    assert again.receiver.state() == b"\0state"
    again.receiver.set_state(None)
    lab.turn()
    assert sessions(lab) == ["a"]


def test_the_session_of_a_copy_is_what_its_action_leaves_and_without_one_it_is_a_dead_letter(lab: Lab) -> None:
    act = AddRule("red", RuleDefinition("Act", sql="color = 'red'", action="SET sys.SessionId = 'acted'"))
    lab.topic(*subscription(), act)
    lab.publish(of("a"), of(None), of("x" * 513))
    assert lab.counts() == (4, 0, 0, 2)
    acted = link(lab, "acted")
    assert [(offset_of(each.copy), rule_of(each.copy)) for each in acted.deliveries] == [(0, 2), (1, 2), (2, 2)]
    assert link(lab).accepted == ["a"]
    letter, _ = lab.link(DEAD, want=10).deliveries
    properties = Message.decode(letter.message).application_properties
    assert properties is not None and properties["DeadLetterReason"].value == "Session id is null"


def test_sessions_over_many_turns_restarts_and_a_purge(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.broker.topics.sessions.COPIES_A_TURN", 3)
    monkeypatch.setattr("headgate.topic.decisions.block.BLOCK_OFFSETS", 8)
    lab.topic(*subscription())
    lab.publish(*[of(f"s{number % 4}") for number in range(20)])
    lab.restart()
    # Also where a turn does not know them all.
    assert sessions(lab) == ["s0", "s1", "s2", "s3"]
    assert lab.counts() == (20, 0, 0, 0)
    links = [link(lab) for _ in range(4)]
    assert [each.offsets for each in links] == [list(range(first, 20, 4)) for first in range(4)]
    purged: list[object] = []
    lab.broker.topics.get("orders").receivers.purge("red", purged.append)
    lab.turn()
    assert purged == [20]
    lab.publish(of("s1"))
    assert links[1].offsets[5:] == [20]
    assert sessions(lab) == ["s1"]


def test_session_ids_are_decided_again_where_they_are_damaged(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.topic.decisions.block.BLOCK_OFFSETS", 8)
    lab.topic(*subscription())
    lab.publish(*[of(f"s{number // 8}-{number % 2}") for number in range(40)])
    lab.broker.close()
    (path,) = postings_folder(Stream.open(stream_folder(lab.root, "orders"))).glob("*.segment")
    content = path.read_bytes()
    assert content.count(b"s2-0s2-1") == 1
    path.write_bytes(content.replace(b"s2-0s2-1", b"s2-0s3-1"))
    lab.opened()
    lab.broker.topics.get("orders")
    lab.turn()
    assert lab.counts() == (40, 0, 0, 0)
    links = [link(lab) for _ in range(10)]
    assert [each.accepted for each in links] == [[f"s{number // 2}-{number % 2}"] for number in range(10)]
    assert links[4].offsets == [16, 18, 20, 22]


def test_copies_whose_messages_were_deleted_are_in_no_session(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.topic.decisions.block.BLOCK_OFFSETS", 8)
    lab.topic(*subscription())
    lab.publish(*[of(f"s{number // 8}") for number in range(20)])
    lab.broker.close()
    with Writer.open(Stream.open(stream_folder(lab.root, "orders")), now_ms=0) as writer:
        writer.pin(None)
        writer.change(now_ms=0, arguments=StreamArguments(max_segment_size_bytes=500))
        writer.append([(of("s2"), None)] * 4, now_ms=0)
        assert writer.drop_first_below(20)
    lab.opened()
    lab.broker.topics.get("orders")
    lab.turn()
    assert lab.counts() == (4, 0, 0, 0)
    assert sessions(lab) == ["s2"]
    assert link(lab).offsets == [20, 21, 22, 23]


def test_who_settles_first_and_who_lives_for_some_time(lab: Lab) -> None:
    lab.topic(*subscription(default_time_to_live_ms=30_000))
    lab.publish(of("a"), of("a"))
    lab.turn(after_ms=30_000)
    assert lab.counts() == (0, 0, 0, 0)
    lab.publish(of("a"), of("b"))
    first = link(lab, settles_first=True)
    assert (first.accepted, first.offsets, first.tokens) == (["a"], [2], [b""])
    assert lab.counts() == (1, 0, 0, 0)


def test_sessions_wait_for_room_in_the_ledger(lab: Lab, disk: Disk) -> None:
    lab.topic(*subscription())
    lab.publish(of("a"))
    first = link(lab)
    disk.full = "/ledger/"
    first.receiver.settler.complete(first.tokens, first.answers.append)
    lab.turn()
    assert isinstance(first.answers[0], StorageFullError)
    with pytest.raises(StorageFullError):
        link(lab, "c")
    waiting = link(lab)
    lab.publish(of("b"), of("a"))
    first.receiver.renew_lock(first.answers.append)
    assert isinstance(first.answers[1], StorageFullError)
    disk.full = ""
    for _ in range(15):
        lab.turn(after_ms=100)
    assert (waiting.accepted, waiting.offsets, first.offsets) == (["b"], [1], [0, 2])
    assert lab.counts() == (0, 2, 0, 0)


def test_copies_of_a_subscription_that_forwards_are_not_kept_by_session(lab: Lab) -> None:
    lab.session.create_topic("paid")
    lab.topic(*subscription())
    lab.change(ChangeSubscription("red", forward_to="paid", settings=settings()))
    lab.publish(of("a"), RED)
    assert lab.session.stream_info("paid").message_count == 2
    assert lab.counts() == (0, 0, 0, 0)
    with pytest.raises(PreconditionFailedError, match="forwards"):
        link(lab)
