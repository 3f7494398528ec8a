"""A topic with two subscriptions and three receivers against a model of a page.

The promise: every copy that is there has one holder or none, comes in order, as often as it may, and never again once
it is settled; counts say so at any time, over restarts and changes of rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from brokers import publish
from examples import examples
from headgate.broker import DeadLetterReason, Delivery, Receiver, ReceiverCalls
from headgate.errors import HeadgateError
from headgate.ledger import MAX_RULE, copy_number
from headgate.message import Message
from headgate.topic import AddRule, CreateSubscription, RemoveRule, RuleDefinition, SubscriptionName
from headgate.topic import SubscriptionSettings as Settings
from log_streams import quick_folder
from topic_lab import Lab

LOCK_MS, MAX_DELIVERIES, BACKOFF_MS = 1_000, 3, (0, 500)
SETTINGS = Settings(lock_ms=LOCK_MS, max_delivery_count=MAX_DELIVERIES, backoff_ms=BACKOFF_MS)
MESSAGES = {
    kind: Message(b"m", application_properties=properties).encode()
    for kind, properties in {"red": {"color": "red"}, "blue": {"color": "blue"}, "odd": {"odd": "x"}}.items()
}
NAMES = ("a", "b")


@dataclass
class Copy:
    """A copy that is not settled: available if it has no token, from `until_ms` on; else its holder's until then."""

    attempts: int = 0
    until_ms: int = 0
    token: bytes | None = None
    note: int | None = None
    """A property that it got meanwhile."""


@dataclass
class Model:
    """One subscription: rules by number, each for a kind of message, or all, and whether it has an action."""

    rules: dict[int, tuple[str, bool]] = field(default_factory=dict)
    copies: dict[int, Copy] = field(default_factory=dict)
    dead: list[int] = field(default_factory=list)
    deferred: dict[int, Copy] = field(default_factory=dict)
    """Those that are given out by number only; they never wait."""

    def publish(self, offset: int, kind: str) -> None:
        taken = {number: acts for number, (wanted, acts) in self.rules.items() if wanted in (kind, "all")}
        for number in sorted({number if acts else 0 for number, acts in taken.items()}):
            self.copies[copy_number(offset, number)] = Copy()
        if kind == "odd" and any(wanted == "fails" for wanted, _ in self.rules.values()):
            self.dead.append(copy_number(offset, MAX_RULE))

    def due(self, now_ms: int) -> None:
        for copies in (self.copies, self.deferred):
            for number, copy in sorted(copies.items()):
                if copy.until_ms <= now_ms:
                    if copy.token is not None and copy.attempts >= MAX_DELIVERIES:
                        self.die(number, copies)
                    copy.token, copy.until_ms = None, 0

    def die(self, number: int, copies: dict[int, Copy]) -> None:
        del copies[number]
        self.dead.append(number)

    @staticmethod
    def held(copies: dict[int, Copy], tokens: Sequence[bytes]) -> list[int | None]:
        by_token = {copy.token: number for number, copy in copies.items() if copy.token is not None}
        return [by_token.get(token) for token in tokens]

    def counts(self) -> tuple[int, int, int, int]:
        locked = sum(copy.token is not None for copy in self.copies.values())
        waiting = sum(copy.token is None and copy.until_ms > 0 for copy in self.copies.values())
        return len(self.copies) - locked - waiting, locked, waiting, len(self.dead)


class Peer:
    """A receiver, which checks what it is given."""

    def __init__(self, machine: TopicMachine, name: str) -> None:
        self.machine = machine
        self.model = machine.models[name]
        self.name = name
        self.wanted = 0
        self.ends: list[HeadgateError] = []
        self.receiver: Receiver = machine.lab.session.receiver(
            SubscriptionName("orders", name), ReceiverCalls(deliver=self.deliver, ended=self.ends.append)
        )

    def want(self, count: int) -> None:
        self.wanted = count
        self.receiver.want(count)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        copies = [each.copy for each in deliveries]
        assert copies == sorted(set(copies))
        assert len(copies) <= self.wanted
        self.wanted -= len(copies)
        now_ms = self.machine.lab.clock.now
        for each in deliveries:
            copy = self.model.copies[each.copy]
            assert copy.token is None and copy.until_ms == 0, "it has a holder, or waits"
            take(copy, each, now_ms)
            self.machine.tokens[self.name].append(each.token)


def take(copy: Copy, given: Delivery, now_ms: int) -> None:
    """A copy has a holder, who was given what it is by now."""
    copy.attempts, copy.until_ms, copy.token = copy.attempts + 1, given.locked_until_ms, given.token
    assert (given.attempt, given.locked_until_ms) == (copy.attempts, now_ms + LOCK_MS)
    noted = (Message.decode(given.message).application_properties or {}).get("note")
    assert (noted and noted.value) == copy.note


class TopicMachine(RuleBasedStateMachine):
    """Blocks of postings are small, so that they are written all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = quick_folder()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("headgate.topic.decisions.block.BLOCK_OFFSETS", 8)
        self.patch.setattr("headgate.broker.topics.subscription_source._AHEAD", 2)
        self.models = {name: Model() for name in NAMES}
        self.tokens: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.deferred_tokens: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.peers: list[Peer | None] = [None] * 3
        self.next_rule = 1
        self.next_offset = 0

    @initialize()
    def begin(self) -> None:
        self.lab = Lab(Path(self.folder.name))
        self.lab.topic(
            *(CreateSubscription(name, settings=SETTINGS, dead_letter_on_errors=name == "b") for name in NAMES),
            AddRule("b", RuleDefinition("Fails", sql="odd > 5")),
            AddRule("b", RuleDefinition("Red", sql="color = 'red'")),
        )
        self.models["b"].rules = {1: ("fails", False), 2: ("red", False)}

    def teardown(self) -> None:
        if hasattr(self, "lab"):
            for name, model in self.models.items():
                letters = self.lab.broker.topics.get("orders").browser.peek(name, 0, 10_000, dead_letters=True)
                annotations = [Message.decode(each.message).message_annotations for each in letters]
                copies = [each["x-headgate-copy"].value for each in annotations if each is not None]
                assert sorted(copies) == sorted(model.dead), "each once"
            self.lab.broker.close()
        self.patch.undo()
        self.folder.cleanup()

    def turn(self, after_ms: int = 0) -> None:
        for model in self.models.values():
            model.due(self.lab.clock.now + after_ms)
        self.lab.turn(after_ms)

    @rule(kinds=st.lists(st.sampled_from(sorted(MESSAGES)), min_size=1, max_size=12))
    def publish(self, kinds: list[str]) -> None:
        for kind in kinds:
            for model in self.models.values():
                model.publish(self.next_offset, kind)
            self.next_offset += 1
        publisher = self.lab.session.publisher("orders")
        assert publish(self.lab.broker, publisher, [MESSAGES[kind] for kind in kinds]) is None
        publisher.close()
        self.turn()

    # receivers

    @rule(place=st.integers(0, 2), name=st.sampled_from(NAMES), count=st.sampled_from([0, 1, 1, 2, 5, 100]))
    def want(self, place: int, name: str, count: int) -> None:
        peer = self.peers[place]
        if peer is None:
            peer = self.peers[place] = Peer(self, name)
        peer.want(count)
        self.turn()

    @precondition(lambda self: any(self.peers))
    @rule(place=st.integers(0, 2))
    def close(self, place: int) -> None:
        peer, self.peers[place] = self.peers[place], None
        if peer is not None:
            peer.receiver.close()
            self.turn()

    # settling

    @precondition(lambda self: any(self.peers))
    @rule(
        place=st.integers(0, 2),
        what=st.sampled_from(["complete", "release", "give back", "dead letter", "defer", "renew"]),
        delay_ms=st.sampled_from([None, 0, 700]),
        note=st.none() | st.integers(1, 9),
        data=st.data(),
    )
    def settle(self, place: int, what: str, delay_ms: int | None, note: int | None, data: st.DataObject) -> None:
        peer = self.peers[place]
        if peer is None or not self.tokens[peer.name]:
            return
        model, receiver = peer.model, peer.receiver
        # The last ones count most; some are those of claims that ended.
        tokens = data.draw(st.lists(st.sampled_from(self.tokens[peer.name][-12:]), min_size=1, max_size=4, unique=True))
        copies = model.held(model.copies, tokens)
        if len({copy for copy in copies if copy is not None}) < sum(copy is not None for copy in copies):
            return
        answers: list[object] = []
        now_ms = self.lab.clock.now
        for number in sorted(copy for copy in copies if copy is not None):
            copy = model.copies[number]
            match what:
                case "complete":
                    del model.copies[number]
                case "defer":
                    del model.copies[number]
                    model.deferred[number] = Copy(copy.attempts, note=note or copy.note)
                case "dead letter":
                    model.die(number, model.copies)
                case "renew":
                    copy.until_ms = now_ms + LOCK_MS
                case "release" if copy.attempts >= MAX_DELIVERIES:
                    model.die(number, model.copies)
                case _:
                    copy.note = note or copy.note
                    wait_ms = delay_ms
                    if delay_ms is None:
                        wait_ms = BACKOFF_MS[copy.attempts - 1] if what == "release" else 0
                    copy.token, copy.until_ms = None, now_ms + wait_ms if wait_ms else 0
                    copy.attempts -= what == "give back"
        properties = {} if note is None else {"note": note}
        match what:
            case "complete":
                receiver.settler.complete(tokens, answers.append)
            case "release":
                receiver.settler.release(tokens, answers.append, counts=True, delay_ms=delay_ms, properties=properties)
            case "give back":
                receiver.settler.release(tokens, answers.append, counts=False, delay_ms=delay_ms, properties=properties)
            case "dead letter":
                receiver.settler.dead_letter(tokens, answers.append, why=DeadLetterReason("R"))
            case "defer":
                receiver.settler.defer(tokens, answers.append, properties=properties)
            case _:
                assert receiver.settler.renew(tokens, answers.append) == now_ms + LOCK_MS
        self.turn()
        assert answers == [[copy is not None for copy in copies]]

    # deferred copies

    @precondition(lambda self: any(model.deferred for model in self.models.values()))
    @rule(name=st.sampled_from(NAMES), deletes=st.sampled_from([False, False, True]), data=st.data())
    def receive_deferred(self, name: str, deletes: bool, data: st.DataObject) -> None:
        model = self.models[name]
        numbers = st.sampled_from([*sorted(model.deferred), *sorted(model.copies)[:1], 1 << 40])
        asked = data.draw(st.lists(numbers, min_size=1, max_size=4, unique=True))
        answers: list[object] = []
        topic = self.lab.broker.topics.get("orders")
        topic.receivers.receive_deferred(name, asked, answers.append, settles_first=deletes)
        free = [number for number in asked if number in model.deferred and model.deferred[number].token is None]
        self.turn()
        (found,) = answers
        assert isinstance(found, list)
        assert [each.copy for each in found] == free
        for each in found:
            take(model.deferred[each.copy], each, self.lab.clock.now)
            if deletes:
                del model.deferred[each.copy]
            else:
                self.deferred_tokens[name].append(each.token)

    @precondition(lambda self: any(self.deferred_tokens.values()))
    @rule(
        name=st.sampled_from(NAMES),
        what=st.sampled_from(["complete", "release", "give back", "dead letter", "defer", "renew"]),
        note=st.none() | st.integers(1, 9),
        data=st.data(),
    )
    def settle_deferred(self, name: str, what: str, note: int | None, data: st.DataObject) -> None:
        model, given = self.models[name], self.deferred_tokens[name]
        if not given:
            return
        tokens = data.draw(st.lists(st.sampled_from(given[-6:]), min_size=1, max_size=3, unique=True))
        copies = model.held(model.deferred, tokens)
        answers: list[object] = []
        settler = self.lab.broker.topics.get("orders").receivers.settler(name, deferred=True)
        properties = {} if note is None else {"note": note}
        for number in sorted(copy for copy in copies if copy is not None):
            copy = model.deferred[number]
            match what:
                case "complete":
                    del model.deferred[number]
                case "dead letter":
                    model.die(number, model.deferred)
                case "release" if copy.attempts >= MAX_DELIVERIES:
                    model.die(number, model.deferred)
                case "renew":
                    copy.until_ms = self.lab.clock.now + LOCK_MS
                case _:
                    copy.token, copy.until_ms, copy.note = None, 0, note or copy.note
                    copy.attempts -= what == "give back"
        match what:
            case "complete":
                settler.complete(tokens, answers.append)
            case "release" | "give back":
                settler.release(tokens, answers.append, counts=what == "release", properties=properties)
            case "dead letter":
                settler.dead_letter(tokens, answers.append, why=DeadLetterReason("R"))
            case "defer":
                settler.defer(tokens, answers.append, properties=properties)
            case _:
                settler.renew(tokens, answers.append)
        self.turn()
        assert answers == [[copy is not None for copy in copies]]

    @rule(name=st.sampled_from(NAMES))
    def purge(self, name: str) -> None:
        answers: list[object] = []
        self.lab.broker.topics.get("orders").receivers.purge(name, answers.append)
        expected = len(self.models[name].copies)
        self.models[name].copies.clear()
        self.turn()
        assert answers == [expected]

    # everything else

    @rule(after_ms=st.sampled_from([1, 499, 500, LOCK_MS - 1, LOCK_MS, 20_000]))
    def wait(self, after_ms: int) -> None:
        self.turn(after_ms)

    @rule(kind=st.sampled_from(["red", "blue", "all"]), acts=st.booleans())
    def add_rule(self, kind: str, acts: bool) -> None:
        sql = "1=1" if kind == "all" else f"color = '{kind}'"
        action = "SET changed = 1" if acts else None
        self.lab.change(AddRule("a", RuleDefinition(f"r{self.next_rule}", sql=sql, action=action)))
        self.models["a"].rules[self.next_rule] = kind, acts
        self.next_rule += 1

    @precondition(lambda self: self.models["a"].rules)
    @rule(data=st.data())
    def remove_rule(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.models["a"].rules)))
        self.lab.change(RemoveRule("a", f"r{number}"))
        del self.models["a"].rules[number]

    @rule()
    def restart(self) -> None:
        self.peers = [None] * 3
        self.lab.restart()
        # It opens the streams beside the topic, one at a tick.
        self.lab.broker.topics.get("orders").subscriptions.infos()
        self.turn()

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        if not hasattr(self, "lab"):
            return
        topic = self.lab.broker.topics.get("orders")
        for name, model in self.models.items():
            assert self.lab.counts(name) == model.counts(), name
            assert topic.subscriptions.info(name).deferred == len(model.deferred)
            peers = [peer for peer in self.peers if peer is not None and peer.name == name]
            if any(peer.wanted for peer in peers):
                assert model.counts()[0] == 0, "a receiver waits, and there are copies for it"
            peeked = topic.browser.peek(name, 0, 100_000)
            assert [each.copy for each in peeked] == sorted([*model.copies, *model.deferred])
        assert all(peer is None or not peer.ends for peer in self.peers)


TestTopicMachine = TopicMachine.TestCase
TestTopicMachine.settings = examples(0.5)
