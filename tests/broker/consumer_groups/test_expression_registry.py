"""Expressions of consumer groups: announced in memory at once, registered with streams by a worker, soon."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from brokers import Background, SetClock, open_broker, open_session
from headgate.broker.broker import Broker
from headgate.broker.consumer_groups.expression_registry import CLEAN_MS, LOOK_MS, RETRY_MS
from headgate.broker.settings import BrokerSettings
from headgate.derived.match_index.registry import KEPT_DEAD_MS, REGISTRY_NAME, Announcement, FilterRegistry
from headgate.derived.match_index.settings import IndexSettings
from headgate.log import Stream, stream_folder

SQL = "rocketmq"
SECOND_MS = 1_000


class Lab:
    """A broker with the topics `orders` and `audit`, and a super stream `events` with two queues."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock, self.worker = root, SetClock(), Background()
        self.settings = BrokerSettings(match_index=IndexSettings(calculate_filter_bitmap=True))
        self.broker = self.opened()
        session = open_session(self.broker)
        for name in ("orders", "audit"):
            session.declare_stream(name, {})
        session.create_super_stream("events", ["events-0", "events-1"], ["0", "1"], {})

    def opened(self) -> Broker:
        return open_broker(self.root, clock=self.clock, settings=self.settings, run_in_worker=self.worker)

    def restart(self) -> None:
        self.broker.close()
        self.worker.jobs.clear()
        self.broker = self.opened()

    def announce(self, client: str, **topics: Announcement) -> list[str]:
        """A heartbeat of the group `billing`; gives the topics whose expressions were refused."""
        return sorted(self.broker.expressions.announce("billing", client, topics))

    def tick(self, delay_ms: int = SECOND_MS) -> int:
        """Time passes, and the worker does what it is given; gives how many jobs that were."""
        self.clock.now += delay_ms
        self.broker.tick(self.clock.now)
        count = len(self.worker.jobs)
        while self.worker.jobs:
            self.worker.run_one()
        return count

    def registered(self, stream: str) -> dict[str, tuple[str, int, bool]]:
        """Id → text, version, and whether it is alive."""
        found = FilterRegistry(Stream.open(stream_folder(self.root, stream))).read()
        return {each.id: (each.text, each.version, each.dead_ms is None) for each in found.filters}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path)
    made.tick()
    return made


def sql(text: str, version: int = 1) -> Announcement:
    return Announcement(text, SQL, version)


def test_what_a_member_announces_is_in_force_at_once_and_registered_soon_with_every_queue(lab: Lab) -> None:
    assert lab.announce("a", orders=sql("x = 1"), events=sql("y > 2", 7)) == []
    in_force = lab.broker.expressions.expression("billing", "events")
    assert in_force is not None and in_force.filter.text == "y > 2"
    assert lab.broker.expressions.expression("other", "events") is None
    assert lab.registered("orders") == {}
    assert lab.tick() == 1
    assert lab.registered("orders") == {"billing#orders": ("x = 1", 1, True)}
    for queue in ("events-0", "events-1"):
        assert lab.registered(queue) == {"billing#events": ("y > 2", 7, True)}
    settings = FilterRegistry(Stream.open(stream_folder(lab.root, "orders"))).read().settings
    assert settings.calculate_filter_bitmap


def test_a_heartbeat_that_says_the_same_brings_no_work(lab: Lab) -> None:
    lab.announce("a", orders=sql("x = 1"))
    lab.tick()
    for version in (1, 2, 3):
        lab.announce("a", orders=sql("x = 1", version))
        assert lab.tick() == 0
    lab.announce("a", orders=sql("x = 2", 3))
    assert lab.tick() == 0, "a version that is not newer changes nothing"
    lab.announce("a", orders=sql("x = 2", 4))
    assert lab.tick() == 1
    assert lab.registered("orders") == {"billing#orders": ("x = 2", 4, True)}


def test_tags_and_empty_expressions_are_nothing_to_register(lab: Lab) -> None:
    assert lab.announce("a", orders=Announcement("A || B", "tags", 1), audit=sql("")) == []
    assert lab.tick() == 0
    assert lab.broker.expressions.expression("billing", "orders") is None


def test_an_illegal_expression_comes_back_with_the_reason_each_time_and_ends_the_old_one(lab: Lab) -> None:
    lab.announce("a", orders=sql("x = 1"), audit=sql("x = 1"))
    lab.tick()
    for _ in range(2):
        refused = lab.broker.expressions.announce("billing", "a", {"orders": sql("x =", 2), "audit": sql("x = 1")})
        assert list(refused) == ["orders"] and "x =" in str(refused["orders"])
    assert lab.broker.expressions.expression("billing", "orders") is None
    lab.tick()
    assert lab.registered("orders") == {}
    assert lab.registered("audit") == {"billing#audit": ("x = 1", 1, True)}
    assert lab.announce("b", orders=sql("x <", 1)) == ["orders"]


def test_an_expression_is_alive_while_a_member_lists_its_topic(lab: Lab) -> None:
    lab.announce("a", orders=sql("x = 1"), audit=sql("x = 1"))
    lab.announce("b", orders=sql("x = 1"))
    lab.tick()
    lab.announce("a", audit=sql("x = 1"))
    assert lab.tick() == 0
    lab.broker.expressions.leave("billing", "b")
    lab.broker.expressions.leave("billing", "b")
    lab.tick()
    assert lab.registered("orders") == {"billing#orders": ("x = 1", 1, False)}
    assert lab.registered("audit") == {"billing#audit": ("x = 1", 1, True)}
    lab.broker.expressions.leave("billing", "a")
    lab.announce("c", orders=sql("x = 1"))
    lab.tick()
    assert lab.registered("orders") == {"billing#orders": ("x = 1", 1, True)}
    assert lab.registered("audit") == {"billing#audit": ("x = 1", 1, False)}


def test_a_request_says_what_a_member_asks_of_one_topic(lab: Lab) -> None:
    registering = lab.broker.expressions
    assert registering.subscribe("billing", "a", "orders", sql("x = 1", 10)) is None
    assert registering.subscribe("billing", "a", "audit", sql("x =", 10)) is not None
    lab.tick()
    assert registering.subscribe("billing", "a", "orders", sql("x = 1", 20)) is None
    assert registering.subscribe("billing", "a", "audit", sql("x =", 20)) is not None
    assert lab.tick() == 0
    registering.subscribe("billing", "a", "orders", sql("x = 3", 30))
    lab.tick()
    assert lab.registered("orders") == {"billing#orders": ("x = 3", 30, True)}


def test_after_a_restart_expressions_are_dead_until_a_member_comes_and_gone_after_a_day(lab: Lab) -> None:
    lab.announce("a", orders=sql("x = 1"), audit=sql("x = 1"))
    lab.tick()
    lab.restart()
    lab.announce("a", orders=sql("x = 1"))
    lab.tick()
    assert lab.registered("orders") == {"billing#orders": ("x = 1", 1, True)}
    assert lab.registered("audit") == {"billing#audit": ("x = 1", 1, False)}
    lab.tick(KEPT_DEAD_MS - CLEAN_MS)
    assert "billing#audit" in lab.registered("audit")
    lab.tick(CLEAN_MS)
    assert lab.registered("audit") == {}
    assert "billing#orders" in lab.registered("orders")


def test_a_topic_and_queues_that_come_later_get_the_expressions_of_their_groups(lab: Lab) -> None:
    lab.announce("a", later=sql("x = 1"))
    assert lab.tick() == 0
    open_session(lab.broker).declare_stream("later", {})
    lab.tick(LOOK_MS)
    assert lab.registered("later") == {"billing#later": ("x = 1", 1, True)}
    lab.tick(LOOK_MS)
    assert not lab.worker.jobs


def test_what_came_while_the_worker_was_busy_is_done_in_its_next_job(lab: Lab) -> None:
    lab.announce("a", orders=sql("x = 1"))
    lab.clock.now += SECOND_MS
    lab.broker.tick(lab.clock.now)
    lab.announce("a", orders=sql("x = 2", 2))
    lab.clock.now += SECOND_MS
    lab.broker.tick(lab.clock.now)
    assert len(lab.worker.jobs) == 1
    lab.worker.run_one()
    assert lab.registered("orders") == {"billing#orders": ("x = 1", 1, True)}
    lab.tick()
    assert lab.registered("orders") == {"billing#orders": ("x = 2", 2, True)}


def test_a_registry_that_cannot_be_read_is_tried_again(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    damaged = stream_folder(lab.root, "orders") / REGISTRY_NAME
    damaged.write_text("{")
    lab.announce("a", orders=sql("x = 1"), audit=sql("x = 1"))
    with caplog.at_level(logging.WARNING, logger="headgate.broker"):
        lab.tick()
    assert [record.getMessage().count("stream 'orders' are not registered") for record in caplog.records] == [1]
    assert "billing#audit" in lab.registered("audit")
    damaged.unlink()
    lab.announce("a", orders=sql("x = 2", 2), audit=sql("x = 1"))
    lab.tick(RETRY_MS)
    assert lab.registered("orders") == {"billing#orders": ("x = 2", 2, True)}


def test_a_stream_that_is_gone_is_forgotten(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.announce("a", orders=sql("x = 1"))
    open_session(lab.broker).delete_stream("orders")
    with caplog.at_level(logging.WARNING, logger="headgate.broker"):
        while lab.tick():
            pass
    assert not caplog.records


def test_an_id_that_cannot_be_shown_is_left_out(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="headgate.broker"):
        lab.broker.expressions.announce("a\nb", "client", {"orders": sql("x = 1")})
        lab.announce("a", orders=sql("x = 1"))
        lab.tick()
    assert [record.getMessage().count("filter id") for record in caplog.records] == [1]
    assert list(lab.registered("orders")) == ["billing#orders"]
