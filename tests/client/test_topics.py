"""The client of topics and a real server of ours, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate import Message
from headgate.client import Client, Management, Topics
from headgate.errors import AuthenticationError, RuleError, RuleExistsError, RuleNotFoundError
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server
from waiting import LIMIT_S


@pytest.fixture
def served(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path, handlers={"stream": StreamHandler}) as running:
        yield running


@pytest.fixture
def topics(served: RunningServer) -> Topics:
    """A topic `a/b` with a subscription `all` that marks its copies, and five messages."""
    address = f"127.0.0.1:{served.ports['stream']}"
    topics = Management.of(address).topics
    topics.create_topic("a/b")
    rule = {"name": "marked", "sql": "1=1", "action": "SET seen = TRUE"}
    assert topics.create_subscription("a/b", "all", {"rules": [rule], "settings": {"max_delivery_count": 2}}) == 0
    with Client.connect(address) as client, client.publisher("a/b") as publisher:
        publisher.send_many([Message(b"%d" % number) for number in range(5)])
    return topics


def test_copies_are_received_with_their_actions_and_settled(topics: Topics) -> None:
    receiver = topics.receiver("a/b", "all")
    copies = receiver.receive(4, wait_s=LIMIT_S)
    assert [(copy.offset, copy.rule, copy.attempt) for copy in copies] == [(offset, 1, 1) for offset in range(4)]
    properties = copies[0].message.application_properties
    assert properties is not None and properties["seen"].value is True
    assert copies[0].locked_until_ms > copies[0].timestamp_ms

    assert receiver.complete(copies[:1]) == [True]
    assert receiver.complete([copies[0], copies[1].token]) == [False, True]
    assert receiver.renew([copies[2]]) == [True]
    assert receiver.abandon([copies[2]]) == [True]
    assert receiver.defer([]) == []
    assert receiver.dead_letter([copies[3]], reason="broken", properties={"size": 7}) == [True]
    (again, last) = receiver.receive(9)
    assert (again.offset, again.attempt, last.offset) == (2, 2, 4)
    # The second attempt was the last.
    assert receiver.abandon([again]) == [True]
    assert receiver.receive() == []
    letters = topics.receiver("a/b", "all", dead_letters=True).receive(9, wait_s=LIMIT_S)
    marks = [letter.message.application_properties or {} for letter in letters]
    assert [mark["DeadLetterReason"].value for mark in marks] == ["broken", "MaxDeliveryCountExceeded"]
    assert marks[0]["size"].value == 7


def test_copies_are_read_in_pages_and_purged(topics: Topics) -> None:
    assert [copy.offset for copy in topics.peek("a/b", "all", limit=3)] == [0, 1, 2]
    assert [copy.offset for copy in topics.peek("a/b", "all", offset=3)] == [3, 4]
    page = topics.copies("a/b", "all", limit=2)
    assert ([copy.offset for copy in page.copies], page.offset, page.rule, page.next_offset) == ([0, 1], 1, 2, 5)
    assert topics.purge("a/b", "all") == 5
    assert list(topics.peek("a/b", "all")) == []
    assert len(topics.copies("a/b", "all").copies) == 5


def test_subscriptions_and_rules_are_changed_and_told(topics: Topics) -> None:
    assert topics.add_rule("a/b", "all", {"name": "r", "sql": "x = 1"}) == 5
    assert topics.replace_rule("a/b", "all", {"name": "r", "sql": "x = 2"}) == 5
    assert [rule["sql"] for rule in topics.subscription("a/b", "all")["rules"]] == ["1=1", "x = 2"]
    assert topics.dry_run("a/b", "all", {"name": "q", "sql": "seen IS NULL"}, last=3)["matched"] == 3
    assert topics.change_subscription("a/b", "all", {"dead_letter_on_errors": True}) == 5
    assert {row["name"] for row in topics.history("a/b")} == {"marked", "r"}
    assert topics.remove_rule("a/b", "all", "r") == 5
    assert topics.topics()[0]["active"] == len(topics.topic("a/b")["subscriptions"]) * 5
    assert topics.remove_subscription("a/b", "all") == 5
    topics.remove_topic("a/b")
    assert topics.topics() == []


def test_what_the_server_refuses_is_an_error_of_its_kind(topics: Topics, served: RunningServer) -> None:
    with pytest.raises(RuleExistsError, match="'a/b'"):
        topics.create_topic("a/b")
    with pytest.raises(RuleNotFoundError, match="none"):
        topics.receiver("a/b", "none").receive()
    with pytest.raises(RuleError, match=r"refused(.|\n)*\^"):
        topics.add_rule("a/b", "all", {"name": "r", "sql": "x ="})
    with pytest.raises(RuleError, match="tokens"):
        topics.receiver("a/b", "all").complete(["no token"])
    with pytest.raises(AuthenticationError):
        Management(f"http://127.0.0.1:{served.ports['http']}", "guest", "wrong").topics.topics()
