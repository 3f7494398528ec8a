"""kill -9 again and again while clients of all three systems work side by side; what is left as they see it.

The named producer sends again what was not confirmed, the others send everything once. So each message that was
confirmed is there once, and one that was not confirmed is there at most once.
"""

from __future__ import annotations

import contextlib
import functools
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.protocols.rocketmq import Status
from interop.entities import DEFAULT, connection_string, declare_queue, declare_topic
from interop.named_producer import NamedProducer
from interop.rocketmq import of_server
from interop.servers import Served, ServerProcess
from interop.test_faults import available, connect, everything
from server.rocketmq.grpc_peer import GrpcPeer, seconds
from waiting import LIMIT_S, eventually

pika = pytest.importorskip("pika", reason="the Python clients are not installed: `make clients`")
servicebus = pytest.importorskip("azure.servicebus", reason="the Python clients are not installed: `make clients`")
exceptions = pytest.importorskip("azure.servicebus.exceptions")

pytestmark = [
    pytest.mark.faults,
    pytest.mark.long,
    # rstream leaves its sockets to the collector when a connection breaks.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROUNDS = 20
_MOST_STEPS = 60
"""A round is killed before one kind of client has done so much more."""
_AHEAD = 300
"""Senders wait for who settles when they are so far ahead: what is left at the end is drained within a minute."""
NAMED, PLAIN, QUEUE, TOPIC, SUBSCRIPTION, ROCKETMQ, GROUP = (
    "named", "plain", "jobs", "orders", "all", "events", "workers",
)  # fmt: skip


@dataclass
class Account:
    """What clients were told of the messages of one entity."""

    sent: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    """What was to be settled: where no answer came it was, or comes again."""
    settled: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def came(self, body: str) -> None:
        """A message was received."""
        if body in self.settled:
            self.faults.append(f"{body!r} came again, it was settled")
        if body not in self.sent:
            self.faults.append(f"{body!r} came, nobody sent it")

    @property
    def is_ahead(self) -> bool:
        return len(self.confirmed) - len(self.asked) > _AHEAD

    def check(self, left: list[str]) -> None:
        """What was left at the end is all that was confirmed and not settled, once."""
        twice = [body for body, count in Counter(left).items() if count > 1]
        assert not twice, f"there twice: {twice[:5]}"
        assert self.faults == []
        lost = self.confirmed - self.asked - set(left)
        assert not lost, f"confirmed, and not there: {sorted(lost)[:5]}"


class Load:
    """Clients that work in threads of their own, and connect again when the server is back."""

    def __init__(self, served: Served, seed: int) -> None:
        self.served = served
        self.chance = random.Random(seed)
        self.accounts = {name: Account() for name in (PLAIN, QUEUE, TOPIC, ROCKETMQ)}
        self.read: list[str] = []
        """The stream of AMQP 0.9.1, by offsets."""
        self.steps: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.ends = threading.Event()
        self._kills = 0
        self._is_up = threading.Event()
        self._is_up.set()
        self._threads = [
            threading.Thread(target=self._over_kills, args=(work,), name=work.__name__)
            for work in (
                self._publish_amqp, self._consume_amqp, self._send_service_bus, self._settle_queue,
                self._settle_subscription, self._send_rocketmq, self._acknowledge_rocketmq,
            )
        ]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def kill(self, process: ServerProcess) -> None:
        """kill -9 at a moment of chance, after every client has worked since the last one."""
        kinds = [thread.name for thread in self._threads]
        least = {kind: self.steps[kind] + 1 for kind in kinds}
        least[self.chance.choice(kinds)] += self.chance.randrange(_MOST_STEPS)
        eventually(
            lambda: self._went_wrong() or all(self.steps[kind] >= count for kind, count in least.items()),
            lambda: f"stuck at {dict(self.steps)}, waiting for {least}",
        )
        assert self._went_wrong() == []
        self._is_up.clear()
        self._kills += 1
        process.kill()
        assert process.start() == self.served
        self._is_up.set()

    def stop(self) -> None:
        """Wait until every client has ended."""
        self.ends.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
        assert not any(thread.is_alive() for thread in self._threads)

    def _went_wrong(self) -> list[object]:
        return [*self.failures, *(fault for account in self.accounts.values() for fault in account.faults)]

    def _over_kills(self, work: Callable[[], None]) -> None:
        while not self.ends.is_set():
            kills = self._kills
            self._is_up.wait(LIMIT_S)
            try:
                work()
            except Exception as error:
                # A client may fail while its server is killed, and at no other time.
                if kills == self._kills:
                    self.failures.append(error)
                    return

    def _sends(self, name: str, kind: str) -> Iterator[str]:
        """Bodies to be sent one after the other; each is confirmed when the next is asked for."""
        account = self.accounts[name]
        while not self.ends.is_set():
            if account.is_ahead:
                self.steps[kind] += 1
                self.ends.wait(0.01)
                continue
            body = f"{name} {len(account.sent)} " + "x" * (len(account.sent) * 37 % 500)
            account.sent.add(body)
            yield body
            account.confirmed.add(body)
            self.steps[kind] += 1

    def _publish_amqp(self) -> None:
        with self.served.channel() as channel:
            channel.confirm_delivery()
            for body in self._sends(PLAIN, "_publish_amqp"):
                channel.basic_publish("", PLAIN, body.encode(), mandatory=True)

    def _consume_amqp(self) -> None:
        account = self.accounts[PLAIN]
        with self.served.channel() as channel:
            channel.basic_qos(prefetch_count=100)
            start = {"x-stream-offset": len(self.read)}
            for method, properties, body in channel.consume(PLAIN, inactivity_timeout=0.5, arguments=start):
                if self.ends.is_set():
                    return
                if method is not None:
                    offset = properties.headers["x-stream-offset"]
                    assert offset == len(self.read)
                    self.read.append(body.decode())
                    account.came(body.decode())
                    # Nothing settles what is in a stream; publishers follow their reader.
                    account.asked.add(body.decode())
                    channel.basic_ack(method.delivery_tag)
                self.steps["_consume_amqp"] += 1

    def _send_service_bus(self) -> None:
        with (
            service_bus_of(self.served) as client,
            client.get_queue_sender(QUEUE, keep_alive=0) as queue,
            client.get_topic_sender(TOPIC, keep_alive=0) as topic,
        ):
            of_queue, of_topic = (self._sends(name, "_send_service_bus") for name in (QUEUE, TOPIC))
            for body, other in zip(of_queue, of_topic, strict=False):
                queue.send_messages(servicebus.ServiceBusMessage(body))
                topic.send_messages(servicebus.ServiceBusMessage(other))

    def _settle_queue(self) -> None:
        with service_bus_of(self.served) as client, client.get_queue_receiver(QUEUE, keep_alive=0) as receiver:
            self._settle(receiver, self.accounts[QUEUE], "_settle_queue")

    def _settle_subscription(self) -> None:
        with (
            service_bus_of(self.served) as client,
            client.get_subscription_receiver(TOPIC, SUBSCRIPTION, keep_alive=0) as receiver,
        ):
            self._settle(receiver, self.accounts[TOPIC], "_settle_subscription")

    def _settle(self, receiver: Any, account: Account, kind: str) -> None:
        while not self.ends.is_set():
            for message in receiver.receive_messages(20, max_wait_time=0.5):
                body = str(message)
                account.came(body)
                if int(body.split()[1]) % 7 == 3 and message.delivery_count < 1:
                    receiver.abandon_message(message)
                    continue
                account.asked.add(body)
                try:
                    receiver.complete_message(message)
                except exceptions.MessageLockLostError:
                    continue
                account.settled.add(body)
                self.steps[kind] += 1

    def _send_rocketmq(self) -> None:
        with rocketmq_of(self.served) as peer:
            for body in self._sends(ROCKETMQ, "_send_rocketmq"):
                assert peer.send(ROCKETMQ, body.encode()).status.code == Status.OK

    def _acknowledge_rocketmq(self) -> None:
        account = self.accounts[ROCKETMQ]
        with rocketmq_of(self.served) as peer:
            while not self.ends.is_set():
                for body, handle in received_of(peer):
                    account.came(body)
                    account.asked.add(body)
                    (entry,) = peer.ack(GROUP, ROCKETMQ, handle).entries
                    # A handle that is over is one of a message that comes again.
                    if entry.status.code == Status.OK:
                        account.settled.add(body)
                    self.steps["_acknowledge_rocketmq"] += 1


def service_bus_of(served: Served) -> Any:
    return servicebus.ServiceBusClient.from_connection_string(connection_string(served), retry_total=0)


def rocketmq_of(served: Served) -> contextlib.closing[GrpcPeer]:
    """A client of the gRPC service."""
    return contextlib.closing(GrpcPeer(f"127.0.0.1:{served.ports['rocketmq']}"))


def received_of(peer: GrpcPeer) -> list[tuple[str, str]]:
    """Bodies that the consumer group gets now, and the handles to acknowledge them."""
    fields = {"invisible_duration": seconds(10), "long_polling_timeout": seconds(0.5)}
    status, found = peer.receive(GROUP, ROCKETMQ, **fields)
    assert status.code in (Status.OK, Status.MESSAGE_NOT_FOUND), status
    return [(each.body.decode(), each.system_properties.receipt_handle) for each in found]


def deleted_of(receiver: Any) -> list[str]:
    """Bodies that a receiver of Service Bus gets now, which are settled so."""
    return [str(message) for message in receiver.receive_messages(500, max_wait_time=1.0)]


def drain(account: Account, take: Callable[[], list[str]]) -> None:
    """Take what is left until nothing comes and all that must be there has come, and judge it."""
    left: list[str] = []

    def is_empty() -> bool:
        found = take()
        for body in found:
            account.came(body)
        left.extend(found)
        return not found and account.confirmed - account.asked <= set(left)

    try:
        eventually(is_empty)
    finally:
        account.check(left)


def check(load: Load, producer: NamedProducer) -> None:
    """What is left, as clients see it."""
    served, accounts = load.served, load.accounts
    assert everything(served, NAMED, producer.bodies[-1]) == producer.bodies
    with connect(served) as client:
        plain = [body.decode() for _, body in available(client, PLAIN)]
    # Nothing is settled in a stream, and what was read there stays where it was.
    accounts[PLAIN].asked.clear()
    accounts[PLAIN].check(plain)
    assert set(plain) <= accounts[PLAIN].sent
    assert plain[: len(load.read)] == load.read
    with service_bus_of(served) as client:
        receivers = {
            QUEUE: client.get_queue_receiver(QUEUE, receive_mode="receiveanddelete"),
            TOPIC: client.get_subscription_receiver(TOPIC, SUBSCRIPTION, receive_mode="receiveanddelete"),
        }
        for name, receiver in receivers.items():
            with receiver:
                drain(accounts[name], functools.partial(deleted_of, receiver))
    with rocketmq_of(served) as peer:

        def take() -> list[str]:
            found = received_of(peer)
            if found:
                peer.ack(GROUP, ROCKETMQ, *(handle for _, handle in found))
            return [body for body, _ in found]

        drain(accounts[ROCKETMQ], take)


def verify(root: Path) -> None:
    """`headgate stream verify` finds nothing wrong, whatever streams there are."""
    names = [folder.name for folder in (root / "streams").iterdir()]
    assert {NAMED, PLAIN, QUEUE} <= set(names), names
    for name in names:
        command = [sys.executable, "-m", "headgate.cli", "stream", "verify", name, "--root", str(root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_clients_of_all_systems_lose_nothing_when_the_server_is_killed(tmp_path: Path, seed: int) -> None:
    process = ServerProcess(tmp_path, {"timeouts": {"linger_s": 1.0}})
    try:
        served = process.start()
        for name in (NAMED, PLAIN):
            served.declare(name)
        delivery = {"lock_ms": 5_000, "max_delivery_count": 1000}
        declare_queue(served, QUEUE, **delivery)
        declare_topic(served, TOPIC, **{SUBSCRIPTION: {"rules": DEFAULT, "settings": delivery}})
        of_server(served).topic(ROCKETMQ, queues=2)
        producer, load = NamedProducer(served.stream, NAMED), Load(served, seed)
        try:
            for _ in range(ROUNDS):
                confirmed = len(producer.confirmed)
                eventually(lambda confirmed=confirmed: len(producer.confirmed) > confirmed)
                load.kill(process)
        finally:
            load.stop()
            producer.stop()
        assert load.failures == []
        check(load, producer)
        assert process.stop() == 0
        verify(process.root)
    finally:
        process.close()
