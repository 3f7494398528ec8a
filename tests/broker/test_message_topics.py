"""Message topics: streams and super streams as topics of queues, their kinds, changes, and when one is made unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers import START_MS, SetClock, open_broker, publish, stored
from headgate.broker import Broker, MessageKind, MessageTopic, TopicCreation
from headgate.broker.settings import BrokerSettings
from headgate.broker.users import Permissions
from headgate.errors import (
    AccessRefusedError,
    ConfigError,
    PreconditionFailedError,
    ResourceExistsError,
    ResourceNotFoundError,
    StorageFullError,
)
from headgate.log import Stream, StreamArguments, stream_folder
from headgate.message import Message

ALL = frozenset(MessageKind)
ONLY_NORMAL = frozenset({MessageKind.NORMAL})


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return open_broker(tmp_path)


def test_a_stream_and_a_super_stream_of_any_client_are_topics_and_their_queues_are_none(broker: Broker) -> None:
    session = broker.open_session("guest", protocol="test", connection="1")
    session.declare_stream("audit", {})
    session.create_super_stream("orders", ["b", "a"], ["x", "y"], {})
    topics = broker.message_topics
    assert topics.find("audit") == MessageTopic("audit", ("audit",), ALL)
    assert topics.find("orders") == MessageTopic("orders", ("b", "a"), ALL)
    assert topics.names() == ["audit", "orders"]
    assert topics.find("a") == MessageTopic("a", ("a",), ALL), "a queue is found by its own name, too"
    session.declare_exchange("invoices")
    session.bind("invoices", "audit", "key")
    assert topics.find("invoices") is None, "not every exchange is a topic"
    session.delete_super_stream("orders")
    assert topics.find("orders") is None and topics.names() == ["audit"]


def test_a_topic_that_is_made_has_queues_in_order_and_its_kinds_survive_a_restart(broker: Broker) -> None:
    topics = broker.message_topics
    assert topics.create("orders", 12).streams == tuple(f"orders-{number}" for number in range(12))
    assert topics.create("plain", 1, ONLY_NORMAL) == MessageTopic("plain", ("plain",), ONLY_NORMAL)
    assert len(topics.create("usual").streams) == broker.settings.topic_queues == 4
    with pytest.raises(ResourceExistsError):
        topics.create("plain", 2)
    again = open_broker(broker.root).message_topics
    assert [again.get(name) for name in topics.names()] == [topics.get(name) for name in topics.names()]
    assert again.names() == ["orders", "plain", "usual"]


def test_what_is_refused_leaves_nothing(broker: Broker) -> None:
    topics = broker.message_topics
    broker.streams.declare("orders-2", {"max-age": "7D"})
    for queues, accepts in ((4, ALL), (0, ALL), (1_025, ALL), (1, frozenset[MessageKind]())):
        with pytest.raises((ResourceExistsError, PreconditionFailedError)):
            topics.create("orders", queues, accepts)
    with pytest.raises(PreconditionFailedError):
        topics.create("amq.orders", 1)
    assert topics.names() == ["orders-2"] and broker.catalogue.names() == ["orders-2"]


def test_what_is_left_of_a_process_that_died_making_a_topic_becomes_part_of_it(broker: Broker) -> None:
    broker.streams.declare("orders-1", {})
    topics = broker.message_topics
    assert len(topics.create("orders", 2).streams) == 2
    broker.streams.declare("orders-3", {})
    assert topics.change("orders", queues=4).streams[3] == "orders-3" and topics.names() == ["orders"]
    broker.streams.declare("audit-0", {})
    publisher = broker.open_session("guest", protocol="test", connection="1").publisher("audit-0")
    assert publish(broker, publisher, [Message(b"x").encode()]) is None
    with pytest.raises(ResourceExistsError):
        topics.create("audit", 2)
    broker.close()


def test_a_topic_gets_more_queues_like_those_it_has_and_other_kinds(broker: Broker) -> None:
    topics = broker.message_topics
    session = broker.open_session("guest", protocol="test", connection="1")
    session.create_super_stream("orders", ["orders-0", "orders-1"], ["0", "1"], {"max-age": "7D"})
    changed = topics.change("orders", queues=3, accepts=ONLY_NORMAL)
    assert changed == MessageTopic("orders", ("orders-0", "orders-1", "orders-2"), ONLY_NORMAL)
    assert session.stream_info("orders-2").arguments == {"max-age": "7D"}
    assert session.route("orders", "2") == ["orders-2"], "publishers of the super stream reach it by its key"
    assert open_broker(broker.root).message_topics.get("orders") == changed
    assert topics.change("orders", accepts=ALL).accepts == ALL
    assert topics.change("orders", queues=3) == topics.get("orders")
    broker.streams.declare("audit", {})
    for name, queues in (("orders", 2), ("audit", 2)):
        with pytest.raises(PreconditionFailedError):
            topics.change(name, queues=queues)
    with pytest.raises(ResourceNotFoundError):
        topics.change("missing", queues=3)


def test_a_deleted_topic_leaves_nothing_to_one_of_the_same_name(broker: Broker) -> None:
    topics = broker.message_topics
    for queues in (1, 3):
        topics.create("orders", queues, ONLY_NORMAL)
        topics.delete("orders")
        assert topics.names() == [] and topics.find("orders") is None
        assert topics.create("orders", queues).accepts == ALL
        topics.delete("orders")
    with pytest.raises(ResourceNotFoundError):
        topics.delete("orders")


def test_what_another_process_declares_counts_within_a_second(tmp_path: Path) -> None:
    clock_ms = [0]
    broker = open_broker(tmp_path, clock=lambda: clock_ms[0])
    broker.message_topics.create("orders", 2)
    other = open_broker(tmp_path)
    other.message_topics.change("orders", accepts=ONLY_NORMAL)
    clock_ms[0] = 1_000
    broker.tick(1_000)
    assert broker.message_topics.get("orders").accepts == ONLY_NORMAL
    Stream.create(stream_folder(tmp_path, "late"), name="late", now_ms=0, arguments=StreamArguments())
    assert broker.message_topics.get("late").streams == ("late",)


@pytest.mark.parametrize(
    ("setting", "producer", "consumer"),
    [
        (TopicCreation.NEVER, False, False),
        (TopicCreation.PRODUCERS, True, False),
        (TopicCreation.ANYBODY, True, True),
    ],
)
def test_a_topic_is_made_unasked_for_whom_the_settings_say(
    tmp_path: Path, setting: TopicCreation, producer: bool, consumer: bool
) -> None:
    broker = open_broker(tmp_path, settings=BrokerSettings(create_topics=setting, topic_queues=2))
    session = broker.open_session("guest", protocol="test", connection="1")
    for name, for_producer, is_made in (("p", True, producer), ("c", False, consumer)):
        if is_made:
            assert len(session.ensure_message_topic(name, for_producer=for_producer).streams) == 2
        else:
            with pytest.raises(ResourceNotFoundError):
                session.ensure_message_topic(name, for_producer=for_producer)
        assert (session.message_topic(name) is not None) == is_made


def test_who_may_not_configure_makes_no_topic_by_using_it(broker: Broker) -> None:
    broker.users.add("reader", "secret", permissions=Permissions("", ".*", ".*"))
    session = broker.open_session("reader", protocol="test", connection="1")
    with pytest.raises(AccessRefusedError):
        session.ensure_message_topic("orders", for_producer=True)
    assert broker.message_topics.names() == []
    broker.message_topics.create("orders", 1)
    assert session.ensure_message_topic("orders", for_producer=True).streams == ("orders",)


def test_a_message_for_later_of_a_topic_is_published_in_its_queue_or_recalled(tmp_path: Path) -> None:
    clock = SetClock()
    broker = open_broker(tmp_path, clock=clock)
    topic = broker.message_topics.create("orders", 2)
    session = broker.open_session("guest", protocol="test", connection="1")
    handles: list[object] = []
    answers: list[object] = []
    for queue, body in ((1, b"recalled"), (1, b"kept"), (0, b"other")):
        session.schedule_message(topic, queue, Message(body).encode(), START_MS + 1_000, handles.append)
    broker.end_turn()
    recalled, kept, other = (str(each) for each in handles)
    session.recall_message(topic, recalled, answers.append)
    session.recall_message(topic, other.replace("0.", "1.", 1), answers.append)
    broker.end_turn()
    assert isinstance(answers[0], ResourceNotFoundError), "a handle is that of its queue"
    assert answers[1] is None
    for wrong in ("", "1.2", "x.1.y", "7.1.y", kept + ".1"):
        with pytest.raises(PreconditionFailedError):
            session.recall_message(topic, wrong, answers.append)
    clock.now += 1_000
    for _ in range(3):
        broker.tick(clock.now)
        broker.write_queued()
        broker.end_turn()
    bodies = [[Message.decode(each).body for each in stored(tmp_path, name)] for name in topic.streams]
    assert bodies == [[Message(b"other").body], [Message(b"kept").body]]
    session.recall_message(topic, kept, answers.append)
    broker.end_turn()
    assert isinstance(answers[2], ResourceNotFoundError)
    broker.users.add("reader", "secret", permissions=Permissions("", "", ".*"))
    reader = broker.open_session("reader", protocol="test", connection="2")
    with pytest.raises(AccessRefusedError):
        reader.schedule_message(topic, 0, Message(b"x").encode(), 0, answers.append)
    with pytest.raises(AccessRefusedError):
        reader.recall_message(topic, kept, answers.append)
    broker.message_topics.delete("orders")
    again = broker.message_topics.create("orders", 2)
    session.schedule_message(again, 1, Message(b"x").encode(), START_MS + 9_000, handles.append)
    session.recall_message(again, recalled, answers.append)
    broker.end_turn()
    assert isinstance(answers[3], ResourceNotFoundError), "nor does it mean another stream's message"
    broker.close()


def test_a_wrong_file_is_refused_at_start_and_changes_nothing_later(broker: Broker) -> None:
    path = broker.root / ".headgate" / "message-topics.json"
    broker.message_topics.create("orders", 1, ONLY_NORMAL)
    for text in ("{", '{"format": 2, "accepts": {}}', '{"format": 1, "accepts": {"a": ["other"]}}'):
        path.write_text(text)
        with pytest.raises(ConfigError):
            broker.message_topics.reload()
        assert broker.message_topics.get("orders").accepts == ONLY_NORMAL
        with pytest.raises(ConfigError):
            open_broker(broker.root)


def test_where_the_file_cannot_be_written_kinds_stay_as_they_were(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_arguments: object, **_named: object) -> None:
        raise StorageFullError("no room", path=path)

    broker.message_topics.create("orders", 1)
    monkeypatch.setattr("headgate.broker.private_file.replace_file", full)
    with pytest.raises(StorageFullError):
        broker.message_topics.change("orders", accepts=ONLY_NORMAL)
    assert broker.message_topics.get("orders").accepts == ALL
    with pytest.raises(StorageFullError):
        broker.message_topics.create("audit", 1, ONLY_NORMAL)
    assert broker.message_topics.names() == ["orders"], "a topic is made as it was asked for, or not at all"
