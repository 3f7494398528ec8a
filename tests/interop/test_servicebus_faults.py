"""kill -9 while clients of Service Bus send, receive, settle and change rules; what is left as the Python client sees.

The load comes from the client of the server's own tests, which is quick and keeps account; what each round left is
judged by azure-servicebus, unmodified: by its receivers, and the rules by its administration.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.message import Message
from headgate.protocols.amqp10 import Error, Link
from headgate.protocols.amqp10.events import Detached
from headgate.protocols.amqp10.performatives import RECEIVER, Disposition
from headgate.protocols.amqp10.terminus import Accepted, DeliveryState, Modified, Rejected
from interop.entities import DEFAULT, connection_string, declare_topic
from interop.servers import Served, ServerProcess
from server.amqp10_client import Client, client_of
from server.servicebus_client import Requests, peek_lock, send_batch
from waiting import LIMIT_S, eventually

servicebus = pytest.importorskip("azure.servicebus", reason="the Python clients are not installed: `make clients`")
management = pytest.importorskip("azure.servicebus.management")

pytestmark = [pytest.mark.faults, pytest.mark.slow]

TOPIC, ALL, RULED = "orders", "all", "ruled"
NEVER = {"name": "never", "sql": "1 = 0"}
ROUNDS, LONG_ROUNDS = 4, 100
_MOST_STEPS = {"sent": 200, "settled": 60, "changes": 8}
"""A round is killed before so many answers of one kind have come."""
_MODULUS = 5
"""A rule takes every fifth message."""
_GROUP = 20
_MOST_SENT = 600
"""In one round: what nobody has received is no better test for being more."""
_RULES = 4
_LOCK_MS = 1_000

Clock = Callable[[], int]


@dataclass(slots=True)
class Sent:
    """When a message was sent, and when its answer came: never while `is_known` is false."""

    began: int
    batch: int | None
    ended: int = 0
    is_known: bool = False


@dataclass(slots=True)
class Rule:
    """When the adding and the removing of a rule were asked for, and answered."""

    remainder: int
    asked: int
    added: int = 0
    removal_asked: int | None = None
    removed: int | None = None

    def surely(self, message: Sent) -> bool:
        """Whether it was in force all the time that a message was on its way."""
        return self.added < message.began and (self.removal_asked is None or message.ended < self.removal_asked)

    def perhaps(self, message: Sent) -> bool:
        """Whether it may have been in force."""
        return self.asked < message.ended and (self.removed is None or message.began < self.removed)


@dataclass
class Account:
    """What clients were told in all rounds, in the order of one clock."""

    sent: dict[int, Sent] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    settled: dict[int, str] = field(default_factory=dict)
    """What answers say has become of messages."""
    asked: dict[int, str] = field(default_factory=dict)
    """What was last asked for, answered or not."""
    deliveries: dict[int, int] = field(default_factory=dict)
    """How often each message came: each time counts as an attempt the next time."""
    faults: list[str] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_MOST_STEPS, 0))
    change: str | None = None
    """The rule whose change is under way."""
    clock: Clock = field(default_factory=lambda: itertools.count(1).__next__)

    def delivered(self, number: int, attempts: int) -> None:
        """A message came, after so many attempts as it says."""
        if number in self.settled:
            self.faults.append(f"{number} came again, it was {self.settled[number]}")
        if attempts < self.deliveries.get(number, 0):
            self.faults.append(f"{number} says {attempts} attempts, it came {self.deliveries[number]} times before")
        self.deliveries[number] = self.deliveries.get(number, 0) + 1


class Load:
    """One round of clients: each works until its connection breaks, what it then knows is in the account."""

    def __init__(self, port: int, account: Account, chance: random.Random) -> None:
        self._port = port
        self._account = account
        self.may_break = False
        """Whether the server is being killed."""
        self.failures: list[BaseException] = []
        works = (self._send, self._settle, self._change_rules)
        seeds = [chance.randrange(2**32) for _ in works]
        self._threads = [
            threading.Thread(target=self._until_broken, args=(work, random.Random(seed)))
            for work, seed in zip(works, seeds, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def work_on(self, kind: str, steps: int) -> None:
        """Wait until so many more answers of a kind have come."""
        steps += self._account.steps[kind]
        eventually(
            lambda: self._account.steps[kind] >= steps or self.failures,
            lambda: f"stuck at {self._account.steps}, waiting for {kind} up to {steps}",
        )

    def join(self) -> None:
        """After the server was killed: wait until every client has noticed."""
        for thread in self._threads:
            thread.join(LIMIT_S)
        assert not any(thread.is_alive() for thread in self._threads)
        assert self.failures == []

    def _until_broken(self, work: Callable[[Client, random.Random], None], chance: random.Random) -> None:
        try:
            with client_of(self._port, mechanism="MSSBCBS", response=b"") as client:
                work(client, chance)
        except BaseException as error:
            if not (self.may_break and isinstance(error, OSError)):
                self.failures.append(error)

    def _send(self, client: Client, chance: random.Random) -> None:
        account, link = self._account, client.sender(TOPIC)
        before = len(account.sent)
        while len(account.sent) < before + _MOST_SENT:
            numbers = [len(account.sent) + at for at in range(chance.randint(1, _GROUP))]
            is_batch = chance.random() < 0.3
            began = account.clock()
            for number in numbers:
                account.sent[number] = Sent(began, numbers[0] if is_batch else None)
            try:
                if is_batch:
                    assert send_batch(client, link, *map(encoded, numbers)) == Accepted()
                else:
                    assert client.send(link, *map(encoded, numbers)) == [Accepted()] * len(numbers)
            finally:
                ended = account.clock()
                for number in numbers:
                    account.sent[number].ended = ended
            for number in numbers:
                account.sent[number].is_known = True
            account.steps["sent"] += len(numbers)
            client.outcomes.clear()
            client.events.clear()
        client.pump(lambda: False)

    def _settle(self, client: Client, chance: random.Random) -> None:
        account, link = self._account, peek_lock(client, f"{TOPIC}/Subscriptions/{ALL}", credit=_GROUP)
        while True:
            found = client.receive(link, 1)
            link.grant(_GROUP)
            states: dict[int, tuple[int, DeliveryState, str]] = {}
            for one in found:
                number, attempts = numbered(one.message), int(one.message.header["delivery-count"].value)
                account.delivered(number, attempts)
                how, state = outcome(number, attempts)
                if state is not None:
                    states[one.id] = (number, state, how)
                    account.asked[number] = how
            chosen = list(states)
            chance.shuffle(chosen)
            for one_id in chosen:
                link.session.send(Disposition(RECEIVER, one_id, one_id, False, states[one_id][1]))
            answers = self._answers(client, link, chosen)
            for one_id, answer in answers.items():
                number, state, how = states[one_id]
                # A lock that was over meanwhile: it comes again.
                is_lost = isinstance(answer, Rejected) and answer.error is not None
                if not is_lost:
                    assert type(answer) is type(state)
                    if how != "abandoned":
                        account.settled[number] = how
                account.steps["settled"] += 1

    @staticmethod
    def _answers(client: Client, link: Link, ids: Iterable[int]) -> dict[int, DeliveryState | None]:
        """The answers to dispositions, as long as they come."""
        found: dict[int, DeliveryState | None] = {}
        wanted = set(ids)

        def all_there() -> bool:
            for event in client.events:
                if getattr(event, "settled", False) and not event.received:
                    found.update(dict.fromkeys(range(event.first, event.last + 1), event.state))
                assert not isinstance(event, Detached), event
            client.events.clear()
            return wanted <= found.keys()

        with contextlib.suppress(ConnectionError):
            client.pump(all_there)
        return {key: found[key] for key in wanted if key in found}

    def _change_rules(self, client: Client, chance: random.Random) -> None:
        account = self._account
        requests = Requests(client, f"{TOPIC}/Subscriptions/{RULED}/$management")
        while True:
            there = [name for name, rule in account.rules.items() if rule.removed is None]
            if len(there) >= _RULES or (there and chance.random() < 0.3):
                name = chance.choice(there)
                account.rules[name].removal_asked, account.change = account.clock(), name
                assert requests.do("remove-rule", rule_name=name) == (200, {})
                account.rules[name].removed = account.clock()
            else:
                name = f"rule{len(account.rules)}"
                remainder = chance.randrange(_MODULUS)
                account.rules[name], account.change = Rule(remainder, account.clock()), name
                described = {
                    "sql-filter": {"expression": f"n % {_MODULUS} = {remainder}"},
                    "sql-rule-action": {"expression": "SET seen = TRUE"},
                }
                assert requests.do("add-rule", rule_name=name, rule_description=described) == (200, {})
                account.rules[name].added = account.clock()
            account.change = None
            account.steps["changes"] += 1
            client.events.clear()


def encoded(number: int) -> bytes:
    return Message(b"%d" % number, application_properties={"n": number}).encode()


def numbered(message: Message) -> int:
    assert message.body is not None
    return int(message.body.octets())


def outcome(number: int, attempts: int) -> tuple[str, DeliveryState | None]:
    """What a client does with a message: some are left until their lock is over, and are done with later."""
    match number % 10:
        case 6 if attempts < 2:
            return "abandoned", Modified(delivery_failed=True)
        case 7:
            why = Error("com.microsoft:dead-letter")
            return "made a dead letter", Rejected(why)
        case 8 if attempts < 1:
            return "left", None
        case 9:
            return "put aside", Modified(delivery_failed=False, undeliverable_here=True)
    return "completed", Accepted()


# What is left, as the Python client sees it


def check_rules(served: Served, account: Account) -> None:
    """The rules are those whose adding was answered; the change under way when the server died is done or is not."""
    text = connection_string(served).replace(str(served.amqp), str(served.servicebus))
    with management.ServiceBusAdministrationClient.from_connection_string(
        text, connection_verify=str(served.authority)
    ) as client:
        there = {rule.name for rule in client.list_rules(TOPIC, RULED)} - {NEVER["name"]}
    name, account.change = account.change, None
    if name is not None:
        rule = account.rules[name]
        if rule.removal_asked is None:
            if name in there:
                rule.added = account.clock()
            else:
                del account.rules[name]
        elif name in there:
            rule.removal_asked = None
        else:
            rule.removed = account.clock()
    assert there == {name for name, rule in account.rules.items() if rule.removed is None}


def check_messages(served: Served, account: Account) -> None:
    """Everything that was confirmed is there once or was settled; what was settled does not come again.

    What a client asked for and was not answered is done or is not.
    """
    confirmed = {number for number, sent in account.sent.items() if sent.is_known}
    with servicebus.ServiceBusClient.from_connection_string(connection_string(served), retry_total=0) as client:
        left = received(client, confirmed - account.settled.keys() - account.asked.keys(), account)
        letters = [int(str(message)) for message in drained(client, ALL, sub_queue="deadletter")]
    assert len(letters) == len(set(letters)) and left.isdisjoint(letters)
    asked = {
        how: {number for number, last in account.asked.items() if last == how} for how in set(account.asked.values())
    }
    dead = asked["made a dead letter"]
    told = {number for number, how in account.settled.items() if how == "made a dead letter"}
    assert told <= set(letters) <= dead
    there = left.union(letters, asked["completed"], asked["put aside"])
    assert confirmed <= there <= account.sent.keys()
    batches: dict[int, list[int]] = {}
    for number, sent in account.sent.items():
        if sent.batch is not None:
            batches.setdefault(sent.batch, []).append(number)
    for numbers in batches.values():
        assert len(there.intersection(numbers)) in (0, len(numbers)), f"half of a batch: {numbers}"


def received(client: Any, wanted: set[int], account: Account) -> set[int]:
    """All that a receiver gets until everything wanted has come and nothing more waits."""
    found: set[int] = set()

    def all_there() -> bool:
        for message in drained(client, ALL):
            account.delivered(int(str(message)), message.delivery_count)
            found.add(int(str(message)))
        return wanted <= found

    eventually(all_there, lambda: f"{sorted(wanted - found)[:20]} did not come")
    return found


def drained(client: Any, subscription: str, **options: Any) -> list[Any]:
    """All messages of a subscription that are not put aside, received and deleted; locks are waited for."""
    found: list[Any] = []
    with client.get_subscription_receiver(
        TOPIC, subscription, receive_mode="receiveanddelete", prefetch_count=1000, **options
    ) as receiver:
        while True:
            batch = receiver.receive_messages(1000, max_wait_time=0.5)
            found += batch
            # Peeking does not see what the client has fetched before it was asked for.
            if not batch and not waiting(receiver):
                return found


def waiting(receiver: Any) -> list[Any]:
    return [each for each in receiver.peek_messages(250, sequence_number=1) if each.state.name == "ACTIVE"]


def check_copies(served: Served, account: Account) -> None:
    """Each message met the rules of its time, and gave one copy by each that took it."""
    with servicebus.ServiceBusClient.from_connection_string(connection_string(served), retry_total=0) as client:
        drawn = drained(client, RULED)
    found = [(int(str(copy)), copy.application_properties[b"RuleName"].decode()) for copy in drawn]
    copies = set(found)
    assert len(copies) == len(found)
    of_message: dict[int, set[str]] = {}
    for number, name in copies:
        of_message.setdefault(number, set()).add(name)
    for number, sent in account.sent.items():
        by = of_message.get(number, set())
        matching = {name: rule for name, rule in account.rules.items() if number % _MODULUS == rule.remainder}
        assert by <= {name for name, rule in matching.items() if rule.perhaps(sent)}, number
        if sent.is_known:
            assert {name for name, rule in matching.items() if rule.surely(sent)} <= by, number


def survives(process: ServerProcess, seed: int, rounds: int) -> None:
    chance, account = random.Random(seed), Account()
    served = process.start()
    declare_topic(
        served, TOPIC,
        all={"rules": DEFAULT, "settings": {"lock_ms": _LOCK_MS, "max_delivery_count": 1000}}, ruled=[NEVER],
    )  # fmt: skip
    for _ in range(rounds):
        load = Load(served.amqp, account, chance)
        kind, most = chance.choice(list(_MOST_STEPS.items()))
        load.work_on(kind, chance.randrange(most))
        load.may_break = True
        process.kill()
        load.join()
        assert process.start() == served
        assert account.faults == []
        check_rules(served, account)
    check_messages(served, account)
    assert account.faults == []
    check_copies(served, account)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path)
    yield server
    server.close()


def test_kill_9_loses_nothing_that_was_answered(process: ServerProcess, seed: int) -> None:
    survives(process, seed, ROUNDS)


@pytest.mark.long
def test_kill_9_a_hundred_times_loses_nothing_that_was_answered(process: ServerProcess, seed: int) -> None:
    survives(process, seed + 1, LONG_ROUNDS)
