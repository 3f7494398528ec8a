"""What a session's publishers have queued: counted from queueing to the answer, whatever the answer is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers import batch, open_broker, open_session
from headgate.broker.backlog import Backlog

Steps = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 900)), max_size=40)


@given(added=Steps, data=st.data())
def test_it_is_told_once_when_it_is_full_and_once_when_there_is_room(added, data):
    told: list[str] = []
    backlog = Backlog()
    backlog.limit(entries=20, size_bytes=1500, full=lambda: told.append("full"), room=lambda: told.append("room"))
    queued: list[tuple[int, int]] = []
    expected = False
    for step in added:
        while queued and data.draw(st.booleans()):
            backlog.remove(*queued.pop(0))
            if sum(one[0] for one in queued) <= 5 and sum(one[1] for one in queued) <= 375:
                expected = False
        queued.append(step)
        backlog.add(*step)
        expected |= sum(one[0] for one in queued) > 20 or sum(one[1] for one in queued) > 1500
        assert backlog.is_full is expected
        assert (backlog.entries, backlog.size_bytes) == (sum(e for e, _ in queued), sum(b for _, b in queued))
    assert told == ["full", "room"] * (len(told) // 2) + ["full"] * (len(told) % 2)
    assert (len(told) % 2 == 1) is expected


def test_a_session_counts_what_its_publishers_queued_until_it_is_answered(tmp_path):
    broker = open_broker(tmp_path)
    session, other = open_session(broker), open_session(broker)
    session.declare_stream("orders", {})
    answers: list[object] = []
    publisher, second = session.publisher("orders"), session.publisher("orders")
    publisher.publish(batch([b"one", b"three"], written=answers.append))
    second.publish(batch([b"alone"], answers.append))
    assert (session.backlog.entries, session.backlog.size_bytes) == (3, 13)
    assert other.backlog.entries == 0
    broker.write_queued()
    assert answers == [None, None] and (session.backlog.entries, session.backlog.size_bytes) == (0, 0)
    publisher.publish(batch([b"alone"], answers.append))
    broker.write_queued()
    assert len(answers) == 3 and (session.backlog.entries, session.backlog.size_bytes) == (0, 0)
    publisher.publish(batch([b"late"], answers.append))
    session.delete_stream("orders")
    publisher.publish(batch([b"later"], answers.append))
    assert [type(answer).__name__ for answer in answers[3:]] == ["NoneType", "ResourceNotFoundError"]
    assert (session.backlog.entries, session.backlog.size_bytes) == (0, 0)


def test_a_session_that_is_closed_hears_no_more_of_it(tmp_path):
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    told: list[object] = []
    session.backlog.limit(entries=1, size_bytes=100, full=lambda: told.append("full"), room=lambda: told.append("room"))
    session.publisher("orders").publish(batch([b"one", b"two"], told.append))
    session.close()
    broker.write_queued()
    assert told == ["full", None]
