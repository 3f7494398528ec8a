"""The unmodified clients of RocketMQ over gRPC, for Python, JavaScript, Java and Go."""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from interop.programs import (
    GO_ROCKETMQ,
    JAVA_ROCKETMQ,
    NODE_ROCKETMQ,
    PYTHON_ROCKETMQ,
    Client,
    ClientError,
    Program,
    bodies,
)
from interop.rocketmq import RocketMq, Walks, again_until, error_of
from waiting import eventually

CLIENTS = [PYTHON_ROCKETMQ, NODE_ROCKETMQ, JAVA_ROCKETMQ, GO_ROCKETMQ]

LARGE = (4 << 20) - 4096
"""Nearly as much as a message may have: with all else that is beside it, a client takes it in one piece."""

MESSAGES: list[dict[str, Any]] = [
    {"body": "m0", "tag": "a", "keys": ["k1", "k2"], "properties": {"color": "red", "n": "1", "größe": "漢字 ✓"}},
    {"body": "m1", "tag": "b", "properties": {"color": "red", "n": "3"}},
    {"body": "m2", "tag": "c", "keys": ["k1"], "properties": {"color": "blue", "n": "3"}},
    {"body": "ünï", "properties": {"color": "it's red", "n": "5", "real": "2.5"}},
    # Two tags of one hash.
    {"body": "m4", "tag": "Aa", "properties": {"color": "dark red", "big": "3000000000"}},
    {"body": "m5", "tag": "BB", "properties": {"n": "no number"}},
    {"body": "bad", "properties": {"kind": "bad"}},
]
ALL = bodies(MESSAGES)

FILTERS: list[tuple[dict[str, str], list[str]]] = [
    ({"tag": "a || b"}, ["m0", "m1"]),
    ({"sql": "color = 'red' AND n BETWEEN 2 AND 5"}, ["m1"]),
    ({"tag": "*"}, ALL),
    ({"tag": "Aa"}, ["m4"]),
    ({"sql": "TAGS IN ('a', 'BB') OR kind IS NOT NULL"}, ["m0", "m5", "bad"]),
    ({"sql": "KEYS CONTAINS 'k1' AND KEYS <> 'k1'"}, ["m0"]),
    ({"sql": "color NOT IN ('red', 'blue')"}, ["ünï", "m4"]),
    ({"sql": "(n > 2 AND n <> 3) OR (n >= 3 AND n < 4)"}, ["m1", "m2", "ünï"]),
    ({"sql": "n NOT BETWEEN 2 AND 4 OR n <= 0"}, ["m0", "ünï"]),
    ({"sql": "color CONTAINS 'red' AND color NOT STARTSWITH 'dark' AND color NOT ENDSWITH '''s red'"}, ["m0", "m1"]),
    ({"sql": "color = 'it''s red' OR big > 2147483648 OR big = -1"}, ["ünï", "m4"]),
    ({"sql": "real > 2.4 AND TRUE"}, ["ünï"]),
    ({"sql": "kind IS NULL AND n IS NULL"}, ["m4"]),
    ({"sql": "NOT (color = 'red') AND FALSE <> TRUE"}, ["m2", "ünï", "m4"]),
]
"""What passes each of them."""

FILTERS_OF_ALL = 2
"""The first ones are tried by every client, the others by one: a filter is the server's matter."""

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"body": "x", "tag": "a\x01"}, r"(40004|MESSAGE_TAG).*tag cannot contain control character"),
    ({"body": "x", "tag": "a|b"}, r"tag (can|should )not contain ['\"]\|['\"]"),
    ({"body": "x", "tag": " "}, r"tag cannot be the char sequence of whitespace|tag should not be blank"),
    ({"body": "x", "keys": ["a\x01"]}, r"(40005|MESSAGE_KEY).*key cannot contain control character"),
    ({"body": "x", "keys": [" "]}, r"key cannot be the char sequence of whitespace|key should not be blank"),
    ({"body": "x", "properties": {"TAGS": "a"}}, r"(40007|PROPERTY_KEY).*property is used by system: TAGS"),
    ({"body": "x", "properties": {"a\x01": "a"}}, r"(40007|PROPERTY_KEY).*the key of property cannot contain control"),
    ({"body": "x", "properties": {"a": "\x02"}}, r"(40007|PROPERTY_KEY).*the value of property cannot contain control"),
    (
        {"body": "x", "properties": {f"p{number}": "v" for number in range(129)}},
        r"(43101|PROPERTIES_TOO_LARGE).*too many user properties, max is 128",
    ),
    (
        {"body": "x", "properties": {"p": "v" * 17_000}},
        r"(43101|PROPERTIES_TOO_LARGE).*the total size of user property is too large, max is 16384",
    ),
    ({"body": ""}, r"body (cannot|should not) be (empty|blank)"),
    ({"size": (4 << 20) + 1}, r"essage body size exceeds the threshold, max size=4194304 bytes"),
    ({"body": "x", "group": "g"}, r"urrent message type not match"),
    ({"body": "x", "due_ms": 1}, r"urrent message type not match"),
]
"""Messages that a topic for plain ones does not take, and why; some clients find out by themselves."""

FIRST_RECEIVE = r"\"settings\" is null"
"""The original refuses what comes before a client's settings: a client that does not wait for them is told to."""

ILLEGAL_FILTER = r"50001|INTERNAL_SERVER_ERROR|40010|FILTER_EXPRESSION|Stream is already completed"
"""The last is what the client for Java makes of settings that are refused."""

NOT_THERE = r"40402|TOPIC_NOT_FOUND|failed to fetch topic|Failed to fetch topic"


@dataclass(slots=True)
class Walk:
    """One client on its way: its program, its topics, and what it has sent."""

    place: RocketMq
    client: Client
    program: Program
    name: str
    sent: dict[str, dict[str, Any]] = field(default_factory=dict)
    due_ms: int = 0

    def topic(self, what: str) -> str:
        return f"{what}-{self.name}"

    def send(self, what: str, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        receipts: list[dict[str, Any]] = self.program.ask("send", topic=self.topic(what), messages=list(messages))
        return receipts

    def open(self, what: str, group: str, **how: str) -> str:
        """A simple consumer of a topic; its id."""
        name = f"{group}-{self.name}"
        self.program.ask("open", id=name, group=name, topics={self.topic(what): how})
        return name

    def push(self, what: str, group: str, fails: dict[str, int] | None = None, **how: str) -> None:
        """A push consumer of a topic."""
        name = f"{group}-{self.name}"
        self.program.ask("push", id=name, group=name, topics={self.topic(what): how}, fails=fails or {})

    def taken(self, group: str, *until: str) -> list[dict[str, Any]]:
        """What a push consumer was given."""
        found: list[dict[str, Any]] = self.program.ask("take", id=f"{group}-{self.name}", until=list(until))
        return found

    def receive(self, id: str, **how: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = again_until(self.program, "receive", FIRST_RECEIVE, id=id, **how)
        return found

    def received(self, id: str, count: int) -> list[dict[str, Any]]:
        """So many messages, by one receive after the other."""
        found: list[dict[str, Any]] = []

        def are_there() -> bool:
            found.extend(self.receive(id))
            return len(found) >= count

        eventually(are_there, lambda: f"{bodies(found)} were received")
        return found


def begin(walk: Walk) -> None:
    """Topics and groups are there, push consumers wait, messages of all kinds are sent."""
    walk.place.topic(walk.topic("plain"))
    walk.place.topic(walk.topic("ordered"), queues=2, accepts="fifo")
    walk.place.topic(walk.topic("later"), queues=1, accepts="delay")
    walk.place.group(f"in-order-{walk.name}", fifo=True)
    walk.place.group(f"two-attempts-{walk.name}", max_attempts=2, backoff_ms=[1_000])
    walk.push("plain", "tagged", tag="a || b")
    walk.push("plain", "chosen", {"m1": 1}, sql="color = 'red' AND n > 0")
    walk.push("plain", "two-attempts", {"bad": 9}, sql="kind = 'bad'")
    walk.push("ordered", "in-order", {"a1": 1})
    walk.due_ms = int(time.time() * 1000) + 2_000
    receipts = walk.send("later", [{"body": "soon", "due_ms": walk.due_ms}, {"body": "past", "due_ms": 1}])
    handle = walk.send("later", [{"body": "recalled", "due_ms": walk.due_ms - 100}])[0]
    if walk.client is not GO_ROCKETMQ:  # it has no word for this
        assert receipts[0]["recall"] is not None and receipts[1]["recall"] is None
        recall = {"topic": walk.topic("later"), "handle": handle["recall"]}
        assert walk.program.ask("recall", **recall) == handle["message_id"]
        if walk.place.differs("recalled twice"):
            assert "40400" in error_of(walk.program, "recall", **recall)
        else:
            assert walk.program.ask("recall", **recall) == handle["message_id"]
        error = error_of(walk.program, "recall", **recall | {"handle": "nonsense"})
        assert re.search("recall handle is invalid|no recall handle", error), error
    walk.sent = dict(zip(ALL, walk.send("plain", MESSAGES), strict=True))
    assert len({receipt["message_id"] for receipt in walk.sent.values()}) == len(ALL)
    ordered = [{"body": f"{group}{number}", "group": group} for number in range(3) for group in "abc"]
    walk.send("ordered", ordered)


def refuse(walk: Walk) -> None:
    """What the topic does not take is refused, with the original's words."""
    for message, reason in REFUSED:
        error = error_of(walk.program, "send", topic=walk.topic("plain"), messages=[message])
        assert re.search(reason, error), error
    too_far = [{"body": "x", "due_ms": int(time.time() * 1000) + 90_000_000}]
    error = error_of(walk.program, "send", topic=walk.topic("later"), messages=too_far)
    assert re.search(r"(40012|DELIVERY_TIME).*the max delay time of message is too large, max is 86400000", error), (
        error
    )
    # The client for Python finds out when it receives, the others when they are opened.
    with pytest.raises(ClientError, match=NOT_THERE):
        walk.receive(walk.open("none", "lost"))


def filter_messages(walk: Walk) -> None:
    """Tags and SQL92 choose; an illegal expression is refused."""
    count = len(FILTERS) if walk.client is PYTHON_ROCKETMQ else FILTERS_OF_ALL
    for number, (how, expected) in enumerate(FILTERS[:count]):
        found = walk.received(walk.open("plain", f"filter{number}", **how), len(expected))
        assert sorted(bodies(found)) == sorted(expected), how
    if walk.place.differs("illegal filters") and walk.client in (NODE_ROCKETMQ, GO_ROCKETMQ):
        return
    for number, sql in enumerate(["color = ", "n BETWEEN 5 AND 1"]):
        with pytest.raises(ClientError, match=ILLEGAL_FILTER):
            walk.receive(walk.open("plain", f"illegal{number}", sql=sql))


def settle(walk: Walk) -> None:
    """A message comes back until it is acknowledged, with another handle and one attempt more."""
    consumer = walk.open("plain", "simple")
    found = {message["body"]: message for message in walk.received(consumer, len(ALL))}
    for message in MESSAGES:
        given = found[message["body"]]
        assert given["topic"] == walk.topic("plain") and not given["is_corrupted"]
        assert given["message_id"] == walk.sent[message["body"]]["message_id"]
        assert given["tag"] == message.get("tag") and given["keys"] == message.get("keys", [])
        assert given["properties"] == message.get("properties", {})
        assert given["attempt"] == 1 and given["group"] is None
    late, *done = found
    walk.program.ask("ack", id=consumer, numbers=[found[body]["number"] for body in done])
    old = found[late]["number"]
    walk.program.ask("change_invisible", id=consumer, number=old, seconds=1)
    (given,) = walk.received(consumer, 1)
    assert (given["body"], given["attempt"]) == (late, 2)
    assert given["message_id"] == walk.sent[late]["message_id"]
    gone = r"40013|INVALID_RECEIPT_HANDLE|50001|INTERNAL_SERVER_ERROR"
    if walk.client is not GO_ROCKETMQ:  # it does not look at the answer
        assert re.search(gone, error_of(walk.program, "ack", id=consumer, numbers=[old]))
    assert re.search(gone, error_of(walk.program, "change_invisible", id=consumer, number=old, seconds=10))
    walk.program.ask("ack", id=consumer, numbers=[given["number"]])
    if not walk.place.differs("acknowledged twice"):
        walk.program.ask("ack", id=consumer, numbers=[given["number"]])
    elif walk.client is not GO_ROCKETMQ:
        assert re.search(gone, error_of(walk.program, "ack", id=consumer, numbers=[given["number"]]))
    for seconds, reason in (5, "too small. min is 10000"), (50_000, "too large. max is 43200000"):
        error = error_of(walk.program, "receive", id=consumer, invisible_seconds=seconds)
        assert re.search(r"40011|INVISIBLE_TIME", error) and reason in error, error
    walk.send("plain", [{"body": "last"}])
    assert bodies(walk.received(consumer, 1)) == ["last"]


def push_messages(walk: Walk) -> None:
    """A push consumer is given what it subscribed to, and again what its listener failed."""
    assert sorted(bodies(walk.taken("tagged", "m0", "m1"))) == ["m0", "m1"]
    found = walk.taken("chosen", "m0", "m1")
    while len(found) < 3:
        found += walk.taken("chosen", "m1")
    attempts = sorted((message["body"], message["attempt"]) for message in found)
    assert attempts == [("m0", 1), ("m1", 1), ("m1", 2)]


def keep_order(walk: Walk) -> None:
    """What belongs together comes one after the other, also when one of it fails."""
    # The client for JavaScript does not know the table of delays, and so makes what fails a dead letter at once.
    again = [] if walk.client is NODE_ROCKETMQ else ["a1"]
    found = walk.taken("in-order", *(f"{group}2" for group in "abc"))
    assert {message["group"] for message in found} == set("abc")
    orders = {"a": ["a0", "a1", *again, "a2"], "b": ["b0", "b1", "b2"], "c": ["c0", "c1", "c2"]}
    for group, expected in orders.items():
        assert bodies([message for message in found if message["group"] == group]) == expected


def bury(walk: Walk) -> None:
    """A message that failed as often as it may is a dead letter of the group."""
    found = walk.taken("two-attempts", "bad")
    while len(found) < 2:
        found += walk.taken("two-attempts", "bad")
    assert [(message["body"], message["attempt"]) for message in found] == [("bad", 1), ("bad", 2)]
    topic = f"%DLQ%two-attempts-{walk.name}"
    group = f"undertaker-{walk.name}"
    again_until(walk.program, "open", NOT_THERE, id=group, group=group, topics={topic: {}})
    found = []

    def is_there() -> bool:
        found.extend(again_until(walk.program, "receive", f"{FIRST_RECEIVE}|{NOT_THERE}", id=group))
        return bool(found)

    eventually(is_there)
    (letter,) = found
    assert letter["body"] == "bad" and letter["properties"]["kind"] == "bad" and letter["topic"] == topic


def wait_for_later(walk: Walk) -> None:
    """A message for later comes at its time, one that was recalled does not."""
    consumer = walk.open("later", "patient")
    expected = ["past", "soon"] if walk.client is not GO_ROCKETMQ else ["past", "recalled", "soon"]
    found = walk.received(consumer, len(expected))
    assert time.time() * 1000 >= walk.due_ms
    assert sorted(bodies(found)) == expected


def share(walk: Walk) -> None:
    """Two members of a group share its messages."""
    if walk.client is GO_ROCKETMQ:  # each start of its clients takes a second
        return
    members = [f"member{number}-{walk.name}" for number in range(2)]
    topics = {walk.topic("shared"): {"tag": "*"}}
    walk.place.topic(walk.topic("shared"))
    for member in members:
        walk.program.ask("open", id=member, group=f"shared-{walk.name}", topics=topics)
    walk.send("shared", [{"body": str(number)} for number in range(20)])
    found: list[dict[str, Any]] = []
    for member in itertools.cycle(members):
        given = walk.receive(member, count=3)
        walk.program.ask("ack", id=member, numbers=[message["number"] for message in given])
        found += given
        if len(found) >= 20:
            break
    assert sorted(bodies(found), key=int) == [str(number) for number in range(20)]


STEPS = [begin, refuse, filter_messages, settle, push_messages, keep_order, bury, wait_for_later, share]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_client(walks: Walks, client: Client, step: Any) -> None:
    walks.result(client, step)


def test_a_large_message(rocketmq: RocketMq) -> None:
    topic = rocketmq.topic(f"large-{int(time.time())}", queues=1)
    program = rocketmq.connected(PYTHON_ROCKETMQ)
    program.ask("send", topic=topic, messages=[{"size": LARGE}])
    program.ask("open", id="large", group=topic, topics={topic: {}})
    (found,) = again_until(program, "receive", FIRST_RECEIVE, id="large")
    assert found["body"] == f"{LARGE} {_md5(LARGE)}" and not found["is_corrupted"]
    program.stop()


def _md5(size: int) -> str:
    return hashlib.md5(b"x" * size).hexdigest()
