"""AMQP 0.9.1 and STOMP of the server, beside RabbitMQ where `HEADGATE_RABBITMQ_AMQP091` (host:port) is set.

A lean client in a process of its own over a plain socket: what it sends is made before the time starts, and what it
receives is counted more than read. With `HEADGATE_RABBITMQ_STOMP` (host:port) STOMP runs against that RabbitMQ, too.
Argument: the number of messages, by default 1 000 000; STOMP has a fifth of them. Server and client share the machine,
so ratios within one run say more than rates.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable

from harness import Measurement, report
from serving import Served, served

from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codec import decode_method, encode_method
from headgate.protocols.amqp091.fields import Table, long_string
from headgate.protocols.amqp091.frames import FRAME_HEAD, PROTOCOL_HEADER, FrameType, encode_content, encode_frame
from headgate.protocols.amqp091.properties import BasicProperties, encode_content_header

ORIGINALS = {"amqp": "HEADGATE_RABBITMQ_AMQP091", "stomp": "HEADGATE_RABBITMQ_STOMP"}
BODY = b"x" * 200
FRAME_BYTES = 131_072
BLOCK_MESSAGES = 10_000
"""Messages that are made before; they differ in their ids and are sent again and again."""
MAX_UNCONFIRMED = 20_000
PREFETCH = 2_000
ACK_EVERY = 500
RECEIPT_EVERY = 100
ROUNDS = 3

ACK = struct.Struct(">BHIHHQBB")
"""A frame with basic.ack or basic.nack."""


class Peer:
    """A blocking connection of AMQP 0.9.1 with channel 1 open."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = connected(address)
        self.received = b""
        self.socket.sendall(PROTOCOL_HEADER)
        self.method()
        self.ask(0, m.ConnectionStartOk(response=b"\0guest\0guest"))
        self.send(0, m.ConnectionTuneOk(channel_max=10, frame_max=FRAME_BYTES, heartbeat=0))
        self.ask(0, m.ConnectionOpen())
        self.ask(1, m.ChannelOpen())

    def send(self, channel: int, method: m.Method) -> None:
        self.socket.sendall(encode_frame(FrameType.METHOD, channel, encode_method(method)))

    def ask(self, channel: int, method: m.Method) -> m.Method:
        self.send(channel, method)
        return self.method()

    def method(self) -> m.Method:
        """The next method, which has to be a good answer."""
        while len(self.received) < FRAME_HEAD.size or len(self.received) < self._frame_bytes():
            self.received += self.read()
        size = self._frame_bytes()
        method = decode_method(self.received[FRAME_HEAD.size : size - 1])
        self.received = self.received[size:]
        if isinstance(method, m.ChannelClose | m.ConnectionClose):
            raise SystemExit(f"the server ended it: {method}")
        return method

    def _frame_bytes(self) -> int:
        return FRAME_HEAD.size + FRAME_HEAD.unpack_from(self.received)[2] + 1

    def read(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise SystemExit("the server ended it")
        return data

    def declare(self, stream: str) -> None:
        self.ask(1, m.QueueDelete(queue=stream))
        arguments: Table = {"x-queue-type": long_string("stream")}
        self.ask(1, m.QueueDeclare(queue=stream, durable=True, arguments=arguments))


def connected(address: tuple[str, int]) -> socket.socket:
    opened = socket.create_connection(address, timeout=600)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def sent_within_window(
    peer: socket.socket, count: int, sized: Callable[[int], bytes], confirmed: Callable[[bytes], int]
) -> float:
    """Seconds until `count` messages are confirmed; at most `MAX_UNCONFIRMED` of them are on their way.

    `sized` gives so many messages; `confirmed` is told what came and gives how many are confirmed by now.
    """
    blocks = {size: sized(size) for size in {min(BLOCK_MESSAGES, count), count % BLOCK_MESSAGES} if size}
    sent = done = 0
    waiting = memoryview(b"")
    peer.setblocking(False)
    start = time.perf_counter()
    while done < count:
        size = min(BLOCK_MESSAGES, count - sent)
        if not waiting and size and sent + size - done <= MAX_UNCONFIRMED:
            waiting = memoryview(blocks[size])
            sent += size
        readable, writable, _ = select.select([peer], [peer] if waiting else [], [], 60)
        if writable:
            waiting = waiting[peer.send(waiting) :]
        if readable:
            data = peer.recv(1 << 20)
            if not data:
                raise SystemExit("the server ended it")
            done = confirmed(data)
    seconds = time.perf_counter() - start
    peer.setblocking(True)
    return seconds


def publish(address: tuple[str, int], stream: str, count: int, *, distinct: bool) -> float:
    """Seconds until everything is confirmed; with `distinct` no two headers that follow each other are alike."""
    peer = Peer(address)
    peer.declare(stream)
    peer.ask(1, m.ConfirmSelect())
    method = encode_method(m.BasicPublish(routing_key=stream))
    headers: Table = {"region": long_string("emea")}

    def message(number: int) -> bytes:
        properties = BasicProperties(headers=headers, delivery_mode=2, message_id=f"{number:08}" if distinct else None)
        return encode_content(1, method, encode_content_header(properties, len(BODY)), BODY, FRAME_BYTES)

    left = b""
    last_tag = 0

    def confirmed(data: bytes) -> int:
        nonlocal left, last_tag
        data = left + data
        whole = len(data) - len(data) % ACK.size
        for _, _, _, class_id, method_id, tag, _, _ in ACK.iter_unpack(data[:whole]):
            if (class_id, method_id) != m.BasicAck.CODE:
                raise SystemExit(f"no confirm but method {method_id} of class {class_id}")
            last_tag = max(last_tag, tag)
        left = data[whole:]
        return last_tag

    return sent_within_window(
        peer.socket, count, lambda size: b"".join(message(number) for number in range(size)), confirmed
    )


def consume(address: tuple[str, int], stream: str, count: int) -> float:
    """Seconds until everything is there and acknowledged. All deliveries have the size of the first one."""
    peer = Peer(address)
    peer.ask(1, m.BasicQos(prefetch_count=PREFETCH))
    start = time.perf_counter()
    arguments: Table = {"x-stream-offset": long_string("first")}
    peer.ask(1, m.BasicConsume(queue=stream, consumer_tag="c", arguments=arguments))
    size = delivery_bytes(peer)
    received = len(peer.received)
    acknowledged = 0
    last = peer.received
    while received < count * size:
        messages = received // size
        if messages - acknowledged >= ACK_EVERY:
            acknowledged = messages
            peer.send(1, m.BasicAck(messages, multiple=True))
        data = peer.read()
        received += len(data)
        last = (last + data)[-size:] if len(data) < size else data
    seconds = time.perf_counter() - start
    method = decode_method(last[-size:][FRAME_HEAD.size :][: FRAME_HEAD.unpack_from(last[-size:])[2]])
    if not isinstance(method, m.BasicDeliver) or method.delivery_tag != count:
        raise SystemExit(f"the last delivery is {method}, expected tag {count}")
    return seconds


def delivery_bytes(peer: Peer) -> int:
    """The size of the first delivery: method, header and body, each one frame."""
    position = 0
    for _ in range(3):
        while len(peer.received) < position + FRAME_HEAD.size:
            peer.received += peer.read()
        position += FRAME_HEAD.size + FRAME_HEAD.unpack_from(peer.received, position)[2] + 1
    return position


def stomp(address: tuple[str, int]) -> socket.socket:
    peer = connected(address)
    peer.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
    answer = peer.recv(1 << 16)
    if not answer.startswith(b"CONNECTED"):
        raise SystemExit(f"the server ended it: {answer!r}")
    return peer


def stomp_publish(address: tuple[str, int], stream: str, count: int, *, distinct: bool) -> float:
    """Seconds until the last receipt; every hundredth message asks for one."""
    peer = stomp(address)
    left = b""
    receipts = 0

    def message(number: int) -> bytes:
        receipt = "receipt:r\n" if number % RECEIPT_EVERY == RECEIPT_EVERY - 1 else ""
        identity = f"amqp-message-id:{number:08}\n" if distinct else ""
        head = f"SEND\ndestination:/amq/queue/{stream}\npersistent:true\nregion:emea\n{identity}{receipt}\n"
        return b"%b%b\0" % (head.encode(), BODY)

    def confirmed(data: bytes) -> int:
        nonlocal left, receipts
        frames = (left + data).split(b"\0")
        left = frames.pop()
        for frame in frames:
            if not frame.lstrip(b"\n").startswith(b"RECEIPT"):
                raise SystemExit(f"no receipt: {frame!r}")
        receipts += len(frames)
        return receipts * RECEIPT_EVERY

    return sent_within_window(peer, count, lambda size: b"".join(message(number) for number in range(size)), confirmed)


def stomp_consume(address: tuple[str, int], stream: str, count: int) -> float:
    """Seconds until everything is there; acknowledgements stand for all messages before theirs."""
    peer = stomp(address)
    start = time.perf_counter()
    peer.sendall(
        f"SUBSCRIBE\nid:s\ndestination:/amq/queue/{stream}\nack:client\nprefetch-count:{PREFETCH}\n"
        "x-stream-offset:first\n\n\0".encode()
    )
    received = acknowledged = 0
    while received < count:
        data = peer.recv(1 << 20)
        if not data or data.startswith(b"ERROR"):
            raise SystemExit(f"the server ended it: {data!r}")
        received += data.count(b"\0")
        line = data.rfind(b"\nack:", 0, data.rfind(b"\n"))
        if received - acknowledged >= ACK_EVERY and line >= 0:
            acknowledged = received
            peer.sendall(b"ACK\nid:%b\n\n\0" % data[line + 5 : data.index(b"\n", line + 5)])
    return time.perf_counter() - start


CASES: dict[str, tuple[str, str, Callable[..., float]]] = {
    "publish": ("amqp", "AMQP 0.9.1: publish with confirms", publish),
    "publish-distinct": ("amqp", "AMQP 0.9.1: publish with confirms, an id each", publish),
    "consume": ("amqp", "AMQP 0.9.1: consume", consume),
    "consume-distinct": ("amqp", "AMQP 0.9.1: consume, an id each", consume),
    "stomp-publish": ("stomp", "STOMP: send with receipts", stomp_publish),
    "stomp-publish-distinct": ("stomp", "STOMP: send with receipts, an id each", stomp_publish),
    "stomp-consume": ("stomp", "STOMP: consume", stomp_consume),
    "stomp-consume-distinct": ("stomp", "STOMP: consume, an id each", stomp_consume),
}
"""Consuming reads what the publishing of the same kind left."""


def client(case: str, address: tuple[str, int], count: int) -> float:
    """One round of a case, in a process of its own."""
    run = CASES[case][2]
    stream = f"bench-{case.replace('consume', 'publish')}"
    if "publish" in case:
        return run(address, stream, count, distinct=case.endswith("distinct"))
    return run(address, stream, count)


def run_client(case: str, addresses: dict[str, tuple[str, int]], count: int) -> float:
    protocol = CASES[case][0]
    if case.startswith("stomp-publish"):
        Peer(addresses["amqp"]).declare(f"bench-{case}")
    host, port = addresses[protocol]
    command = [sys.executable, __file__, str(count), case, host, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{case}: {done.stderr}")
    seconds: float = json.loads(done.stdout)
    return seconds


def messages_of(case: str, count: int) -> int:
    """How many messages a case has: whole receipts in STOMP."""
    return count if CASES[case][0] == "amqp" else count // 5 // RECEIPT_EVERY * RECEIPT_EVERY


def measure_all(server: Served, count: int, originals: dict[str, tuple[str, int]]) -> list[Measurement]:
    """All cases, the servers in turn in each round."""
    ours = {protocol: ("127.0.0.1", port) for protocol, port in server.ports.items()}
    measurements = []
    for case, (protocol, title, _) in CASES.items():
        messages = messages_of(case, count)
        seconds: dict[str, list[float]] = {}
        spent_s = []
        for _ in range(ROUNDS):
            before_s = server.cpu_s()
            seconds.setdefault("Headgate", []).append(run_client(case, ours, messages))
            spent_s.append(server.cpu_s() - before_s)
            if protocol in originals:
                seconds.setdefault("RabbitMQ", []).append(run_client(case, originals, messages))
        print(f"{title}: {1e6 * min(spent_s) / messages:.2f} µs of the server's processor time a message")
        measurements += [Measurement(f"{name}: {title}", messages, taken) for name, taken in seconds.items()]
    return measurements


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    originals = {}
    for protocol, variable in ORIGINALS.items():
        if variable in os.environ:
            host, _, port = os.environ[variable].rpartition(":")
            originals[protocol] = (host, int(port))
    with served("amqp", "stomp") as server:
        measurements = measure_all(server, count, originals)
        print(f"anonymous resident memory of Headgate afterwards: {server.anonymous_bytes() >> 20} MiB")
    report("broker_amqp091", f"AMQP 0.9.1 and STOMP, {count:,} events", measurements, baseline=measurements[0].name)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(client(sys.argv[2], (sys.argv[3], int(sys.argv[4])), int(sys.argv[1]))))
    else:
        main()
