"""A broker at work on a topic until it is killed; it says what it was told.

    python topic_child.py

Each line of its input is a life, a JSON object (`Life`): the process is forked for it, because starting one takes
longer than most lives. Each line of its output is a JSON list:

    pid P                                     first of a life
    now T                                     its clock, milliseconds, before everything that happens at that time
    published WHO FIRST STOP                  confirmed
    delivered VIEW COPY ATTEMPT UNTIL SHA     VIEW: `orders/1`, `orders/1/dead`, `paid/1`
    asked VIEW WHAT COPIES                    before a receiver settles
    done VIEW WHAT COPIES                     acknowledged
    changing N, changed N OFFSET              a change of rules, before and after
    drained                                   nothing is left (`drain`)
    ended STATUS                              last of a life
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from brokers import batch
from headgate.broker import Broker, DeadLetterReason, Delivery, Receiver, ReceiverCalls, Session
from headgate.broker.settings import BrokerSettings
from headgate.errors import HeadgateError, ResourceNotFoundError
from headgate.ledger import ledger as ledger_module
from headgate.log import Durability
from headgate.message import Message
from headgate.topic import (
    AddRule,
    Change,
    ChangeSubscription,
    ChangeTopic,
    CreateSubscription,
    RemoveSubscription,
    ReplaceRule,
    RuleDefinition,
    SubscriptionName,
    SubscriptionSettings,
    TopicSettings,
    TopicStatus,
)
from headgate.topic.decisions import block
from log_streams import quick_folder
from nursery import dying, say, serve_lives, silence

LOCK_MS = 5_000
MAX_DELIVERIES = 3
COLORS = ("red", "blue", "green")
_TOPICS = {
    "orders": TopicSettings(requires_duplicate_detection=True, duplicate_detection_window_ms=604_800_000),
    "paid": TopicSettings(),
}
_SETTINGS = SubscriptionSettings(lock_ms=LOCK_MS, max_delivery_count=MAX_DELIVERIES, backoff_ms=(0, 700))


@dataclass
class Life:
    """What a life begins with: the first numbers that were not confirmed before, and the time."""

    root: str
    seed: int
    now: int
    sequences: dict[str, int] = field(default_factory=dict)
    change: int = 1
    last_write: int = 0
    """It dies in the middle of this write to a file; 0: not by itself."""
    in_worker: bool = False
    to_disk: bool = False
    drain: bool = False


def message_of(who: str, sequence: int) -> bytes:
    """The message that a publisher gives this number: always the same. Those of nobody are known by their ids."""
    kind = int.from_bytes(hashlib.sha256(f"{who} {sequence}".encode()).digest()[:4], "big")
    if kind % 23 == 0 and who != "nobody":
        return b"\x00\x53\x99 %s %d" % (who.encode(), sequence)
    properties = {"color": COLORS[kind % 3], "n": kind % 1000, "who": who, "sequence": sequence}
    message_id = f"{who}-{sequence}" if who == "nobody" else None
    return Message(b"x" * (kind % 300), application_properties=properties, message_id=message_id).encode()


def version_changes(number: int) -> list[Change]:
    """Both subscriptions get the version of that number, together."""
    sql = f"n % 5 = {number % 5} AND {number} = {number}"
    return [
        ReplaceRule("red", RuleDefinition("Version", sql=sql)),
        ReplaceRule("blue", RuleDefinition("Version", sql=sql, action=f"SET version = {number}")),
    ]


def first_changes() -> list[Change]:
    """The topic as it begins."""
    version = "n % 5 = 0 AND 0 = 0"
    return [
        CreateSubscription("red", settings=_SETTINGS),
        AddRule("red", RuleDefinition("Red", sql="color = 'red'")),
        AddRule("red", RuleDefinition("Double", sql="color = 'red' AND n > 500", action="SET n = n * 2; REMOVE who")),
        AddRule("red", RuleDefinition("Version", sql=version)),
        CreateSubscription("blue", settings=_SETTINGS),
        AddRule("blue", RuleDefinition("Blue", correlation={"properties": {"color": "blue"}})),
        AddRule("blue", RuleDefinition("Version", sql=version, action="SET version = 0")),
        CreateSubscription("strict", dead_letter_on_errors=True, settings=_SETTINGS),
        AddRule("strict", RuleDefinition("Fails", sql="color > 5 AND n % 10 = 0")),
        AddRule("strict", RuleDefinition("Green", sql="color = 'green' AND n < 300")),
        CreateSubscription("on", forward_to="paid"),
        AddRule("on", RuleDefinition("Even", sql="n % 2 = 0", action="SET forwarded = 1")),
    ]


class Peer:
    """One receiver: it settles what it is given at random, now or later."""

    def __init__(self, child: Child, view: str, name: str) -> None:
        self.child = child
        self.view = view
        self.is_over = False
        self.held: dict[int, bytes] = {}
        parsed = SubscriptionName.parse(name)
        assert parsed is not None
        self.receiver: Receiver = child.session.receiver(parsed, ReceiverCalls(deliver=self.deliver, ended=self.ended))

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            digest = hashlib.sha256(each.message).hexdigest()[:16]
            say("delivered", self.view, each.copy, each.attempt, each.locked_until_ms, digest)
            self.held[each.copy] = each.token

    def ended(self, error: HeadgateError) -> None:
        self.is_over = True

    def act(self, random: Random, *, drain: bool) -> None:
        self.receiver.want(50 if drain else random.choice([0, 1, 3, 20]))
        while self.held and (drain or random.random() < 0.8):
            count = len(self.held) if drain else random.randint(1, 4)
            copies = sorted(random.sample(sorted(self.held), min(count, len(self.held))))
            weights = [1, 0, 0, 0, 0, 0] if drain else [10, 3, 1, 2, 1, 2]
            what = random.choices(["complete", "release", "untouched", "dead_letter", "defer", "renew"], weights)[0]
            if self.view.endswith("dead") and what in ("dead_letter", "defer"):
                what = "complete"
            self.settle(what, copies)
        if not drain and random.random() < 0.02:
            # Who forgets what it has: it comes back when its time is over.
            self.receiver.close()
            self.is_over = True

    def settle(self, what: str, copies: list[int]) -> None:
        say("asked", self.view, what, copies)
        tokens = [self.held[copy] for copy in copies]

        def then(result: list[bool] | HeadgateError) -> None:
            if not isinstance(result, HeadgateError):
                say("done", self.view, what, [copy for copy, held in zip(copies, result, strict=True) if held])

        receiver = self.receiver
        match what:
            case "complete":
                receiver.settler.complete(tokens, then)
            case "release":
                receiver.settler.release(tokens, then, counts=True)
            case "untouched":
                receiver.settler.release(tokens, then, counts=False)
            case "dead_letter":
                receiver.settler.dead_letter(tokens, then, why=DeadLetterReason("No", "why", {"n": 1}))
            case "defer":
                receiver.settler.defer(tokens, then)
            case _:
                receiver.settler.renew(tokens, then)
                return
        for copy in copies:
            del self.held[copy]


class Child:
    """One life."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.now = life.now
        self.random = Random(f"{life.seed} {life.sequences}")
        self.jobs: list[tuple[Callable[[], object], Callable[..., None]]] = []
        self.thread = ThreadPoolExecutor(1)
        self.results: list[tuple[Future[object], Callable[..., None]]] = []
        self.broker = Broker(
            Path(life.root),
            now_ms=lambda: self.now,
            settings=BrokerSettings(
                durability=Durability.DISK if life.to_disk else Durability.PROCESS,
                open_file=dying(life),
            ),
            run_in_worker=self.run_in_thread if life.in_worker else None,
            run_in_background=self.run_later if life.in_worker else None,
        )
        self.session: Session = self.broker.open_session("guest", protocol="test", connection="child")
        self.peers: dict[str, Peer] = {}
        self.sequences = dict(life.sequences)
        self.change_number = life.change

    def run_later(self, work: Callable[[], object], then: Callable[..., None]) -> None:
        self.jobs.append((work, then))

    def run_in_thread(self, work: Callable[[], object], then: Callable[..., None]) -> None:
        self.results.append((self.thread.submit(work), then))

    def run_jobs(self) -> None:
        """Workers are done with something, sooner or later."""
        while self.results and (self.life.drain or self.results[0][0].done()):
            future, then = self.results.pop(0)
            then(future.exception())
        while self.jobs and (self.life.drain or self.random.random() < 0.7):
            work, then = self.jobs.pop(0)
            try:
                work()
            except HeadgateError as error:
                then(error)
            else:
                then(None)

    def set_up(self) -> None:
        """Make what an earlier life did not."""
        for topic, changes in (
            ("paid", [CreateSubscription("all", settings=_SETTINGS), AddRule("all", RuleDefinition("All", sql="1=1"))]),
            ("orders", first_changes()),
        ):
            if topic not in self.broker.topics.names():
                self.broker.topics.create(topic, settings=_TOPICS[topic])
            if not self.broker.topics.get(topic).subscriptions.infos():
                results: list[int | HeadgateError] = []
                self.session.change_topic(topic, changes, results.append)
                while not results:
                    self.turn()
                assert results == [0], results

    def turn(self) -> None:
        self.broker.tick(self.now)
        self.run_jobs()
        self.broker.write_queued()
        self.broker.end_turn()

    def live(self, turns: int) -> None:
        self.set_up()
        publishers = {}
        for who in self.sequences:
            publishers[who] = self.session.publisher("orders", reference=None if who == "nobody" else who)
        for number in range(turns):
            random = self.random
            self.now += random.choices([1, 300, 2_000, LOCK_MS + 1_000], [20, 5, 2, 1])[0]
            say("now", self.now)
            for who, publisher in publishers.items():
                if random.random() < 0.4:
                    first = self.sequences[who]
                    stop = self.sequences[who] = first + random.choice([1, 1, 2, 7, 40])
                    sequences = None if who == "nobody" else range(first, stop)
                    bodies = [message_of(who, each) for each in range(first, stop)]
                    told = functools.partial(self.published, who, first, stop)
                    publisher.publish(batch(bodies, told, sequences=sequences))
            if number % 6 == 5:
                self.change()
            self.receive(drain=False)
            self.turn()

    def published(self, who: str, first: int, stop: int, error: HeadgateError | None) -> None:
        assert error is None, error
        say("published", who, first, stop)

    def change(self) -> None:
        number = self.change_number
        self.change_number += 1
        changes = version_changes(number)
        has_temporary = any(each.name == "temp" for each in self.broker.topics.get("orders").subscriptions.infos())
        if self.random.random() < 0.3:
            if has_temporary:
                changes.append(RemoveSubscription("temp"))
            else:
                changes += [
                    CreateSubscription("temp", settings=_SETTINGS),
                    AddRule("temp", RuleDefinition("All", sql="n > 900")),
                ]
        elif self.random.random() < 0.2:
            changes.append(ChangeSubscription("blue", settings=_SETTINGS))
        if self.random.random() < 0.3:
            # What its target does not take meanwhile, `on` keeps as dead letters.
            status = self.random.choice([TopicStatus.ACTIVE, TopicStatus.SEND_DISABLED])
            self.session.change_topic("paid", [ChangeTopic(TopicSettings(status=status))], lambda _result: None)
        say("changing", number)

        def then(result: int | HeadgateError) -> None:
            # Behind a change that is on its way `temp` may be there, or not, already.
            if not isinstance(result, HeadgateError):
                say("changed", number, result)

        self.session.change_topic("orders", changes, then)

    def receive(self, *, drain: bool) -> None:
        for topic in ("orders", "paid"):
            for info in self.broker.topics.get(topic).subscriptions.infos():
                view, name = f"{topic}/{info.number}", f"{topic}/Subscriptions/{info.name}"
                if info.name != "on":
                    self.peer(view, name)
                if info.dead_lettered and info.name != "temp":
                    self.peer(f"{view}/dead", f"{name}/$DeadLetterQueue")
        for view, peer in list(self.peers.items()):
            if peer.is_over:
                del self.peers[view]
            elif drain or self.random.random() < 0.7:
                peer.act(self.random, drain=drain)

    def peer(self, view: str, name: str) -> None:
        if view not in self.peers:
            try:
                self.peers[view] = Peer(self, view, name)
            except ResourceNotFoundError:
                assert name.endswith("temp"), name

    def drain(self) -> None:
        """Receive and complete all that is left, but for dead letters."""
        quiet = 0
        left: object = None
        for _ in range(2_000):
            if quiet == 3:
                break
            self.now += LOCK_MS + 1_000
            say("now", self.now)
            self.receive(drain=True)
            self.turn()
            topics = map(self.broker.topics.get, ("orders", "paid"))
            infos = [info for topic in topics for info in topic.subscriptions.infos()]
            left = [
                (info.name, info.counts, info.dead_lettered)
                for info in infos
                if info.counts.active + info.counts.locked + info.counts.waiting
                or (info.dead_lettered and info.name != "temp")
            ]
            quiet = 0 if left else quiet + 1
        else:
            raise AssertionError(f"there is always something left: {left}")
        self.broker.close()
        say("drained")


def warm_up() -> None:
    """What is loaded or compiled at first use is so before the first life."""
    with silence(), quick_folder() as folder:
        life = Life(folder, 0, now=1_000_000, sequences={"p": 0, "nobody": 0})
        child = Child(life)
        child.live(40)
        child.drain()


def main() -> None:
    ledger_module.LEAST_BYTES_BETWEEN_SNAPSHOTS = 4_000
    ledger_module.SEGMENT_BYTES = 4_000
    block.BLOCK_OFFSETS = 64
    warm_up()
    serve_lives(live)


def live(described: dict[str, Any]) -> None:
    """One life, as it is described."""
    life = Life(**described)
    child = Child(life)
    if life.drain:
        child.set_up()
        child.drain()
    else:
        # It is killed long before.
        child.live(5_000)


if __name__ == "__main__":
    main()
