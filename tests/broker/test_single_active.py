"""Single active consumer: who reads, and who is told what, against a small model."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from brokers import open_broker, open_session, publish, scan
from headgate.broker.consumers import ChunkConsumer, ConsumerOptions
from headgate.broker.session import Session
from headgate.broker.single_active import SharedName, SharingState
from headgate.errors import PreconditionFailedError
from headgate.log import OffsetSpecification, Stream, Writer, stream_folder

FIRST = OffsetSpecification.first()


class Asked:
    """A member that notes what it is asked."""

    def __init__(self, group: SharedName) -> None:
        self.group = group
        self.questions: list[bool] = []
        self.open: bool | None = None

    def asked(self, active: bool) -> None:
        assert self.open is None, "asked again before it answered"
        self.questions.append(active)
        self.open = active

    def answer(self) -> None:
        self.open = None
        self.group.answered(self)


class GroupMachine(RuleBasedStateMachine):
    """Members come, answer late, and go, in any order."""

    partition: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.group = SharedName(partition=self.partition)
        self.members: list[Asked] = []
        self.gone: list[Asked] = []

    @rule()
    def join(self) -> None:
        member = Asked(self.group)
        self.members.append(member)
        self.group.join(member)
        self.group.settle()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        going = data.draw(st.lists(st.sampled_from(self.members), min_size=1, max_size=2, unique=True))
        self.members = [member for member in self.members if member not in going]
        self.gone += going
        for member in going:
            member.open = None
        self.group.leave(*going)

    @precondition(lambda self: any(member.open is not None for member in self.members))
    @rule()
    def answer(self) -> None:
        next(member for member in self.members if member.open is not None).answer()

    @precondition(lambda self: self.members or self.gone)
    @rule(data=st.data())
    def answer_unasked(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from([*self.members, *self.gone]))
        if member.open is None and not self.group.is_active(member):
            self.group.answered(member)

    def wanted(self) -> Asked | None:
        if not self.members:
            return None
        return self.members[0 if self.partition is None else self.partition % len(self.members)]

    @invariant()
    def questions_alternate_and_begin_with_being_active(self) -> None:
        for member in [*self.members, *self.gone]:
            assert member.questions == [number % 2 == 0 for number in range(len(member.questions))]

    @invariant()
    def at_most_one_member_is_active_or_on_its_way(self) -> None:
        held = [
            member for member in self.members if member.questions and (member.questions[-1] or member.open is False)
        ]
        assert len(held) <= 1

    @invariant()
    def who_shall_read_reads_as_soon_as_nobody_owes_an_answer(self) -> None:
        if all(member.open is None for member in self.members):
            wanted = self.wanted()
            assert self.group.holder is wanted
            assert self.group.state is (SharingState.VACANT if wanted is None else SharingState.ACTIVE)
            assert [member for member in self.members if self.group.is_active(member)] == ([wanted] if wanted else [])

    @invariant()
    def members_are_in_order_of_registration(self) -> None:
        assert list(self.group.members) == self.members


class PartitionMachine(GroupMachine):
    partition = 2


TestGroupOfAStream = GroupMachine.TestCase
TestGroupOfAPartition = PartitionMachine.TestCase


def consumer(
    session: Session, stream: str, told: list[tuple[str, bool]], label: str, *, super_stream: str | None = None
) -> ChunkConsumer:
    return session.chunk_consumer(
        stream,
        ConsumerOptions(
            FIRST,
            name="app",
            single_active=True,
            super_stream=super_stream,
            on_active=lambda active: told.append((label, active)),
        ),
    )


def test_the_first_consumer_of_a_name_reads_and_the_next_one_when_it_leaves(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    one, two = open_session(broker), open_session(broker)
    one.declare_stream("s", {})
    publish(broker, one.publisher("s"), [b"1", b"2"])
    told: list[tuple[str, bool]] = []
    first, second = consumer(one, "s", told, "first"), consumer(two, "s", told, "second")
    assert told == []  # the subscription is answered first
    broker.write_queued()
    assert told == [("first", True)]
    for waiting in (first, second):
        waiting.want(10)
        assert not waiting.scan_due()
    first.activate(OffsetSpecification.offset(1))
    assert first.scan_due() and not second.scan_due()
    one.close()
    assert told == [("first", True), ("second", True)]
    second.activate(None)
    assert second.scan_due()
    two.close()
    assert not broker.shared_names
    broker.close()


def test_a_consumer_whose_turn_comes_begins_in_the_stream_as_it_is_then(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("s", {})
    first = consumer(session, "s", [], "first")
    broker.write_queued()
    with Writer.open(Stream.open(stream_folder(tmp_path, "s")), now_ms=0) as another_process:
        another_process.append([(b"1", None), (b"2", None)], now_ms=0)
    first.activate(OffsetSpecification.next())
    assert first.next_offset == 2
    broker.close()


def test_consumers_of_a_super_stream_share_its_partitions(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    one, two = open_session(broker), open_session(broker)
    partitions = [f"s-{number}" for number in range(3)]
    one.create_super_stream("s", partitions, ["0", "1", "2"], {})
    told: list[tuple[str, bool]] = []
    first = [consumer(one, name, told, f"one {name}", super_stream="s") for name in partitions]
    broker.write_queued()
    assert told == [(f"one {name}", True) for name in partitions]
    for member in first:
        member.activate(None)
    del told[:]
    second = [consumer(two, name, told, f"two {name}", super_stream="s") for name in partitions]
    broker.write_queued()
    assert told == [("one s-1", False)]
    first[1].deactivated()
    assert told == [("one s-1", False), ("two s-1", True)]
    second[1].activate(None)
    del told[:]
    two.close()
    assert told == [("one s-1", True)]
    broker.close()


def test_a_consumer_that_shall_stop_gives_nothing_more_even_before_it_answers(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    one, two = open_session(broker), open_session(broker)
    one.create_super_stream("s", ["s-0", "s-1"], ["0", "1"], {})
    publish(broker, one.publisher("s-1"), [b"1"])
    told: list[tuple[str, bool]] = []
    first = consumer(one, "s-1", told, "first", super_stream="s")
    broker.write_queued()
    first.activate(None)
    first.want(10)
    scan(first)
    second = consumer(two, "s-1", told, "second", super_stream="s")
    broker.write_queued()
    assert told == [("first", True), ("first", False)]
    assert first.take(1 << 20) is None and not first.scan_due()
    first.deactivated()
    second.activate(None)
    second.want(10)
    scan(second)
    taken = second.take(1 << 20)
    assert taken is not None and len(taken) == 1
    broker.close()


def test_a_session_that_ends_with_all_its_consumers_asks_none_of_its_own(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("s", {})
    told: list[tuple[str, bool]] = []
    first = consumer(session, "s", told, "first")
    consumer(session, "s", told, "second")
    broker.write_queued()
    first.activate(None)
    session.close()
    assert told == [("first", True)]
    broker.close()


def test_a_deleted_stream_asks_nobody(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("s", {})
    told: list[tuple[str, bool]] = []
    consumer(session, "s", told, "first")
    consumer(open_session(broker), "s", told, "second")
    broker.write_queued()
    session.delete_stream("s")
    broker.write_queued()
    assert told == [("first", True)] and not broker.shared_names
    broker.close()


def test_an_answer_that_comes_when_the_stream_is_deleted_changes_nothing(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("s", {})
    told: list[tuple[str, bool]] = []
    late = consumer(session, "s", told, "late")
    broker.write_queued()
    session.delete_stream("s")
    late.activate(FIRST)
    assert not late.is_active
    late.deactivated()
    assert told == [("late", True)] and not broker.shared_names
    broker.close()


def test_a_consumer_that_ends_before_it_was_asked_is_not_asked(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("s", {})
    told: list[tuple[str, bool]] = []
    consumer(session, "s", told, "first").close()
    broker.write_queued()
    assert told == []
    broker.close()


def test_a_single_active_consumer_needs_a_name(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("s", {})
    with pytest.raises(PreconditionFailedError, match="needs a name"):
        session.chunk_consumer("s", ConsumerOptions(FIRST, single_active=True))
    with pytest.raises(PreconditionFailedError, match="255"):
        session.chunk_consumer("s", ConsumerOptions(FIRST, name="n" * 256))
    assert session.stream_info("s").consumer_count == 0


@pytest.mark.parametrize("super_stream", ["unknown", "other", ""])
def test_on_a_stream_that_is_no_partition_of_it_a_super_stream_has_no_effect(tmp_path: Path, super_stream: str) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("s", {})
    session.create_super_stream("other", ["other-0"], ["0"], {})
    options = ConsumerOptions(FIRST, name="n", single_active=True, super_stream=super_stream)
    first = session.chunk_consumer("s", options)
    second = session.chunk_consumer("s", options)
    broker.write_queued()
    assert first.is_active and not second.is_active
    first.close()
    assert second.is_active
    broker.close()
