"""The unmodified classic clients of RocketMQ, for Java and Go."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from interop.programs import GO_ROCKETMQ_CLASSIC, JAVA_ROCKETMQ_CLASSIC, Client, Program, bodies
from interop.rocketmq import RocketMq, Walks, error_of
from waiting import eventually

CLIENTS = [JAVA_ROCKETMQ_CLASSIC, GO_ROCKETMQ_CLASSIC]

COMPRESSED = 1 << 20
"""A body of one letter: what is sent is far less."""

MESSAGES: list[dict[str, Any]] = [
    {"body": "m0", "tag": "a", "keys": ["k1", "k2"], "properties": {"color": "red", "n": "1", "größe": "漢字 ✓"}},
    {"body": "m1", "tag": "b", "properties": {"color": "red", "n": "3"}},
    {"body": "ünï", "tag": "Aa", "properties": {"n": "5"}},
    {"body": "m3", "tag": "BB"},
]
BATCH = [{"body": f"b{number}", "tag": "a", "properties": {"n": str(number)}} for number in range(5)]


@dataclass(slots=True)
class Walk:
    """One client on its way: its program, its topics, and what it has sent."""

    place: RocketMq
    client: Client
    program: Program
    name: str
    sent: dict[str, dict[str, Any]] = field(default_factory=dict)
    due_ms: int = 0

    @property
    def is_java(self) -> bool:
        return self.client is JAVA_ROCKETMQ_CLASSIC

    def topic(self, what: str) -> str:
        return f"{what}-{self.name}"

    def send(self, what: str, messages: Sequence[dict[str, Any]], how: str = "plain") -> Any:
        return self.program.ask("send", topic=self.topic(what), messages=list(messages), how=how)

    def push(self, what: str, id: str, group: str | None = None, *, tag: str = "*", sql: str = "", **how: Any) -> None:
        """A push consumer of a topic; its group has its name, too, unless it is given."""
        expression = {"sql": sql} if sql else {"tag": tag}
        group = f"{group or id}-{self.name}"
        self.program.ask("push", id=id, group=group, topics={self.topic(what): expression}, **how)

    def taken(self, id: str, count: int) -> list[dict[str, Any]]:
        """So many messages that a push consumer was given."""
        found: list[dict[str, Any]] = []

        def are_there() -> bool:
            found.extend(self.program.ask("take", id=id, until=[]))
            return len(found) >= count

        eventually(are_there, lambda: f"{bodies(found)} were taken")
        return found


def begin(walk: Walk) -> None:
    """Messages of all kinds are sent; push consumers are there, some before, some after."""
    walk.place.topic(walk.topic("plain"))
    walk.place.topic(walk.topic("single"), queues=1)
    walk.push("single", "orderly", orderly=True, fails={"o1": 2})
    for number in range(2):
        walk.push("plain", f"broadcast{number}", "broadcast", broadcasting=True)
    receipts = walk.send("plain", MESSAGES)
    walk.sent = dict(zip(bodies(MESSAGES), receipts, strict=True))
    assert sorted(receipt["queue"] for receipt in receipts) == [0, 1, 2, 3]
    batch = walk.send("plain", BATCH, "batch")
    assert len(batch["offset_id"].split(",")) == len(BATCH)
    walk.send("plain", [{"body": "one way"}], "oneway")
    assert [receipt["offset"] for receipt in walk.send("single", [{"body": f"o{n}"} for n in range(4)])] == [0, 1, 2, 3]
    walk.push("plain", "all", fails={"m0": 1})
    walk.push("plain", "tagged", tag="Aa || b")
    walk.push("plain", "chosen", sql="n BETWEEN 2 AND 4 AND TAGS IS NOT NULL")
    walk.push("plain", "dead", sql="color = 'red' AND n = 3", fails={"m1": 9}, max_retries=1)


def refuse(walk: Walk) -> None:
    """What is too large is refused; so are illegal expressions, where the client asks."""
    if walk.is_java:
        error = error_of(
            walk.program, "send", topic=walk.topic("plain"), messages=[{"size": (4 << 20) + 1, "random": True}]
        )
        assert "CODE: 13" in error and "message is illegal" in error, error
        illegal = {"id": "illegal", "group": f"illegal-{walk.name}"}
        reasons = {"a = ": "Encountered|found the end of the filter", "a BETWEEN 5 AND 1": "Illegal values of between"}
        for sql, reason in reasons.items():
            error = error_of(walk.program, "push", topics={walk.topic("plain"): {"sql": sql}}, **illegal)
            assert "CODE: 23" in error and re.search(reason, error), error
    else:
        nowhere = {walk.topic("none"): {"tag": "*"}}
        error = error_of(walk.program, "push", id="lost", group=f"lost-{walk.name}", topics=nowhere)
        assert "route info not found" in error, error


def push_messages(walk: Walk) -> None:
    """Each group is given what it subscribed to, and again what its listener failed."""
    expected = sorted([*bodies(MESSAGES), *bodies(BATCH), "one way"])
    found = walk.taken("all", len(expected) + 1)
    assert sorted(bodies(found)) == sorted([*expected, "m0"])
    first = {message["body"]: message for message in reversed(found)}
    for message in MESSAGES:
        given = first[message["body"]]
        assert given["topic"] == walk.topic("plain")
        assert given["tag"] == message["tag"] and given["keys"] == message.get("keys", [])
        assert given["properties"] == message.get("properties", {})
        assert (given["message_id"], given["attempt"]) == (walk.sent[message["body"]]["message_id"], 1)
        assert (given["queue"], given["offset"]) == (
            walk.sent[message["body"]]["queue"],
            walk.sent[message["body"]]["offset"],
        )
    again = next(message for message in reversed(found) if message["body"] == "m0")
    assert again["attempt"] == 2 and again["topic"] == walk.topic("plain")
    assert again["message_id"] == walk.sent["m0"]["message_id"]
    assert sorted(bodies(walk.taken("tagged", 2))) == ["m1", "ünï"]
    assert sorted(bodies(walk.taken("chosen", 4))) == ["b2", "b3", "b4", "m1"]


def broadcast(walk: Walk) -> None:
    """Each member of a broadcasting group is given everything that comes."""
    expected = sorted([*bodies(MESSAGES), *bodies(BATCH), "one way"])
    for number in range(2):
        assert sorted(bodies(walk.taken(f"broadcast{number}", len(expected)))) == expected


def keep_order(walk: Walk) -> None:
    """An orderly listener that fails is given the same message again before the next."""
    assert bodies(walk.taken("orderly", 6)) == ["o0", "o1", "o1", "o1", "o2", "o3"]


def keep_message_groups(walk: Walk) -> None:
    """Both kinds of listeners are given all in a group that keeps message groups in order, and again what failed."""
    if not walk.is_java:
        return
    topic = walk.place.topic(walk.topic("fifo"), queues=2, accepts="fifo")
    for group in "fifo-orderly", "fifo-concurrent":
        walk.place.group(f"{group}-{walk.name}", fifo=True)
    walk.push("fifo", "fifo-orderly", orderly=True, fails={"f1": 1})
    walk.push("fifo", "fifo-concurrent", fails={"f1": 1})
    keyed = [
        {"body": f"{key}{n}", "queue": queue, "properties": {"__SHARDINGKEY": key}}
        for n in range(3)
        for queue, key in enumerate("fg")
    ]
    walk.program.ask("send", topic=topic, messages=keyed, how="plain")
    found = bodies(walk.taken("fifo-orderly", 7))
    assert [body for body in found if body[0] == "f"] == ["f0", "f1", "f1", "f2"]
    assert [body for body in found if body[0] == "g"] == ["g0", "g1", "g2"]
    again = walk.taken("fifo-concurrent", 7)
    assert sorted(bodies(again)) == ["f0", "f1", "f1", "f2", "g0", "g1", "g2"]
    assert sorted(message["attempt"] for message in again) == [1, 1, 1, 1, 1, 1, 2]
    assert {message["properties"]["__SHARDINGKEY"] for message in again} == {"f", "g"}


def bury(walk: Walk) -> None:
    """A message that failed as often as it may is a dead letter of the group."""
    assert [message["attempt"] for message in walk.taken("dead", 2)] == [1, 2]
    topic = f"%DLQ%dead-{walk.name}"
    if not walk.is_java:
        return
    walk.program.ask("push", id="undertaker", group=f"undertaker-{walk.name}", topics={topic: {"tag": "*"}})
    (letter,) = walk.taken("undertaker", 1)
    assert letter["body"] == "m1" and letter["properties"] == MESSAGES[1]["properties"] and letter["tag"] == "b"


def share(walk: Walk) -> None:
    """Members share the queues of a topic; when one leaves the others have all, and go on where it was."""
    if not walk.is_java:
        return
    ask, topic = walk.program.ask, walk.topic("shared")
    walk.place.topic(topic)
    for number in range(2):
        walk.push("shared", f"member{number}", "members", persist_ms=500)
    shares = ask("assigned", ids=["member0", "member1"], topic=topic, count=4)
    assert sorted(map(len, shares)) == [2, 2]
    walk.send("shared", [{"body": str(number), "queue": number % 4} for number in range(8)])
    found = [walk.taken(f"member{number}", 4) for number in range(2)]
    assert [sorted({message["queue"] for message in each}) for each in found] == shares
    ask("shut", id="member0")
    assert ask("assigned", ids=["member1"], topic=topic, count=4) == [[0, 1, 2, 3]]
    walk.send("shared", [{"body": f"more{number}", "queue": number} for number in range(4)])
    assert sorted(bodies(walk.taken("member1", 4))) == [f"more{number}" for number in range(4)]


def pull(walk: Walk) -> None:
    """A lite pull consumer seeks and commits; another of its group goes on where it was."""
    if not walk.is_java:
        return
    ask, topic = walk.program.ask, walk.topic("single")
    group = f"pullers-{walk.name}"
    ask("pull", id="lite", group=group, topics={topic: {"tag": "*"}})
    assert bodies(ask("poll", id="lite", until=["o3"])) == ["o0", "o1", "o2", "o3"]
    ask("seek", id="lite", topic=topic, queue=0, offset=2)
    assert bodies(ask("poll", id="lite", until=["o3"])) == ["o2", "o3"]
    ask("seek", id="lite", topic=topic, queue=0, offset="begin")
    assert bodies(ask("poll", id="lite", until=["o3"])) == ["o0", "o1", "o2", "o3"]
    ask("commit", id="lite", topic=topic, queue=0, offset=3)
    assert ask("committed", id="lite", topic=topic, queue=0) == 3
    ask("shut", id="lite")
    walk.send("single", [{"body": "o4"}])
    ask("pull", id="lite", group=group, topics={topic: {"tag": "*"}})
    assert bodies(ask("poll", id="lite", until=["o4"])) == ["o3", "o4"]
    ask("shut", id="lite")
    ask("pull", id="assigned", group=f"alone-{walk.name}", assign=topic)
    assert bodies(ask("poll", id="assigned", until=["o4"])) == ["o0", "o1", "o2", "o3", "o4"]
    ask("shut", id="assigned")
    assert ask("offsets", topic=topic, at_ms=0) == [[0, 5, 0]]


def pull_by_expression(walk: Walk) -> None:
    """A pull consumer knows from its first words on that the broker takes expressions; an empty queue has no place."""
    if not walk.is_java:
        return
    ask, topic = walk.program.ask, walk.place.topic(walk.topic("chosen"))
    walk.send("chosen", [{"body": f"c{n}", "queue": 0, "properties": {"n": str(n)}} for n in range(4)])
    found = ask("pull_once", group=f"choosing-{walk.name}", topic=topic, queue=0, sql="n > 1")
    assert bodies(found["messages"]) == ["c2", "c3"] and found["is_kept"]
    ask("pull", id="empty", group=f"empty-{walk.name}", assign=topic)
    assert [ask("committed", id="empty", topic=topic, queue=queue) for queue in range(2)] == [0, -1]
    ask("shut", id="empty")


def leave_dividing(walk: Walk) -> None:
    """Members that leave dividing the queues to the broker are given all messages between them."""
    if not walk.is_java:
        return
    walk.place.topic(walk.topic("divided"))
    for number in range(2):
        walk.push("divided", f"divided{number}", "divided", server_divides=True)
    walk.send("divided", [{"body": f"d{n}", "queue": n % 4} for n in range(8)])
    found: list[str] = []

    def are_there() -> bool:
        for number in range(2):
            found.extend(bodies(walk.program.ask("take", id=f"divided{number}", until=[])))
        return set(found) == {f"d{n}" for n in range(8)}

    eventually(are_there, lambda: f"{found} were taken")


def look_up(walk: Walk) -> None:
    """Messages are found by key, and by both of their ids."""
    if not walk.is_java:
        return
    ask, topic = walk.program.ask, walk.topic("plain")
    (found,) = ask("query", topic=topic, key="k2", count=1)
    assert (found["body"], found["message_id"]) == ("m0", walk.sent["m0"]["message_id"])
    for name in "offset_id", "message_id":
        assert ask("view", topic=topic, message_id=walk.sent["m1"][name])["body"] == "m1"
    assert "CODE: 208" in error_of(walk.program, "query", topic=topic, key="none")


def delay(walk: Walk) -> None:
    """A message for later comes at its time, one that was recalled does not; bodies are compressed and large."""
    if not walk.is_java:
        return
    ask, topic = walk.program.ask, walk.topic("later")
    walk.place.topic(topic, queues=1, accepts="delay")
    due_ms = int(time.time() * 1000) + 1_500
    level, soon = walk.send("later", [{"body": "level", "level": 1}, {"body": "soon", "due_ms": due_ms}])
    assert level["status"] == soon["status"] == "SEND_OK"
    (recalled,) = walk.send("later", [{"body": "recalled", "due_ms": due_ms + 300}])
    ask("recall", topic=topic, handle=recalled["recall"])
    walk.push("later", "patient")
    assert sorted(bodies(walk.taken("patient", 2))) == ["level", "soon"]
    assert time.time() * 1000 >= due_ms
    walk.send("single", [{"size": COMPRESSED}, {"size": (4 << 20) - (1 << 16), "random": True}])
    sizes = [int(message["body"].split()[0]) for message in walk.taken("orderly", 3)[-2:]]
    assert sizes == [COMPRESSED, (4 << 20) - (1 << 16)]


def reply(walk: Walk) -> None:
    """Who asks by a message is given the reply of its consumer; with no consumer it waits in vain."""
    if not walk.is_java:
        return
    walk.place.topic(walk.topic("asked"), queues=1)
    asked = {"topic": walk.topic("asked"), "tag": "a"}
    assert "RequestTimeoutException" in error_of(walk.program, "request", body="nobody", seconds=1, **asked)
    walk.push("asked", "answering", reply="re: ")
    assert walk.program.ask("request", body="?", **asked) == "re: ?"
    body = walk.program.ask("request", size=COMPRESSED, **asked)
    assert body.startswith(f"{COMPRESSED + 4} ")


STEPS = [
    begin,
    refuse,
    push_messages,
    broadcast,
    keep_order,
    keep_message_groups,
    bury,
    share,
    pull,
    pull_by_expression,
    leave_dividing,
    look_up,
    delay,
    reply,
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_client(walks: Walks, client: Client, step: Any) -> None:
    walks.result(client, step)
