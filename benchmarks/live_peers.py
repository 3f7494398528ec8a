"""Lean peers of each protocol for `live_load.py`: set up by our own client cores, then raw bytes.

Each setup function gives a `Rig`: connections over streams that were made for one round.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import broker_amqp091
import broker_stream
from live_load import BODY_BYTES, Consumer, Publisher

from headgate.log.offsets import OffsetSpecification
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codec import encode_method
from headgate.protocols.amqp091.fields import Table, long_string
from headgate.protocols.amqp091.frames import FRAME_HEAD, FrameType, encode_frame
from headgate.protocols.amqp091.properties import BasicProperties, encode_content_header
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codes import Command
from headgate.protocols.stream.delivery import DELIVER_HEAD_BYTES

Address = tuple[str, int]
PREFETCH = 200
"""As perf-test sets it for streams."""
CREDIT_CHUNKS = 10
"""As the Java client of streams grants at first; then one for each chunk."""


@dataclass(frozen=True, slots=True)
class Rig:
    """Publishers and consumers, one of each per stream."""

    publishers: Sequence[Publisher]
    consumers: Sequence[Consumer]


def stream_names(protocol: str, count: int) -> list[str]:
    run = uuid.uuid4()
    return [f"live-{protocol}-{run}-{number}" for number in range(count)]


# Stream protocol


class StreamPublisher:
    """Publish frames with one message; the body is an AMQP data section."""

    HEAD = struct.Struct(">IHHBIQI4sB")
    """Size, command, version, publisher, count, publishing id, length, start of a data section, its length."""
    CONFIRM = struct.Struct(">HHBI")

    def __init__(self, peer: broker_stream.Peer) -> None:
        self.socket = peer.socket
        self.left = b""

    def message(self, number: int, body: bytes) -> bytes:
        entry = len(body) + 5
        head = self.HEAD.pack(self.HEAD.size - 4 + len(body), 2, 1, 0, 1, number, entry, b"\0\x53\x75\xa0", len(body))
        return head + body

    def confirmed(self, data: bytes) -> list[int]:
        numbers: list[int] = []
        data = self.left + data
        at = 0
        while len(data) - at >= 4 and len(data) - at >= 4 + (size := int.from_bytes(data[at : at + 4], "big")):
            command, _, _, count = self.CONFIRM.unpack_from(data, at + 4)
            if command != Command.PUBLISH_CONFIRM:
                raise SystemExit(f"command {command:#x} instead of a confirm")
            numbers += struct.unpack_from(f">{count}Q", data, at + 13)
            at += 4 + size
        self.left = data[at:]
        return numbers


class StreamConsumer:
    """Chunks of any number of messages; a credit for each chunk."""

    HEAD = struct.Struct(">IHH")
    ENTRIES = struct.Struct(">HI")
    CREDIT = struct.pack(">IHHBH", 7, Command.CREDIT, 1, 0, 1)

    def __init__(self, peer: broker_stream.Peer) -> None:
        self.socket = peer.socket
        self.left = b""

    def delivered(self, data: bytes) -> tuple[list[bytes], bytes]:
        bodies: list[bytes] = []
        chunks = at = 0
        data = self.left + data
        while len(data) - at >= 8:
            size, command, version = self.HEAD.unpack_from(data, at)
            if len(data) - at < 4 + size:
                break
            if command != Command.DELIVER:
                raise SystemExit(f"command {command:#x} instead of a chunk")
            chunk = at + DELIVER_HEAD_BYTES[version]
            entries, _ = self.ENTRIES.unpack_from(data, chunk + 2)
            entry = chunk + 48
            for _ in range(entries):
                end = entry + 4 + int.from_bytes(data[entry : entry + 4], "big")
                bodies.append(data[end - BODY_BYTES : end])
                entry = end
            at += 4 + size
            chunks += 1
        self.left = data[at:]
        return bodies, self.CREDIT * chunks


@contextlib.contextmanager
def stream_rig(addresses: dict[str, Address], count: int) -> Iterator[Rig]:
    names = stream_names("stream", count)
    address = addresses["stream"]
    with contextlib.ExitStack() as stack:

        def peer() -> broker_stream.Peer:
            opened = broker_stream.Peer(*address)
            stack.callback(opened.socket.close)
            return opened

        manager = peer()
        publishers, consumers = [], []
        for name in names:
            manager.check(f.Create(name))
            stack.callback(manager.check, f.Delete(name))
            publisher, consumer = peer(), peer()
            publisher.check(f.DeclarePublisher(0, None, name))
            consumer.check(f.Subscribe(0, name, OffsetSpecification.first(), CREDIT_CHUNKS, {}))
            publishers.append(StreamPublisher(publisher))
            consumers.append(StreamConsumer(consumer))
        yield Rig(publishers, consumers)


# AMQP 0.9.1


class Amqp091Publisher:
    """A publisher in confirm mode on channel 1."""

    ACK = broker_amqp091.ACK

    def __init__(self, peer: broker_amqp091.Peer, stream: str) -> None:
        self.socket = peer.socket
        self.left = b""
        self.unconfirmed = 0
        self.head = encode_frame(FrameType.METHOD, 1, encode_method(m.BasicPublish(routing_key=stream)))
        properties = BasicProperties(delivery_mode=2)
        self.head += encode_frame(FrameType.HEADER, 1, encode_content_header(properties, BODY_BYTES))
        self.head += FRAME_HEAD.pack(FrameType.BODY, 1, BODY_BYTES)

    def message(self, number: int, body: bytes) -> bytes:
        return b"%b%b\xce" % (self.head, body)

    def confirmed(self, data: bytes) -> list[int]:
        numbers: list[int] = []
        data = self.left + data
        whole = len(data) - len(data) % self.ACK.size
        for _, _, _, class_id, method_id, tag, is_multiple, _ in self.ACK.iter_unpack(data[:whole]):
            if (class_id, method_id) != m.BasicAck.CODE:
                raise SystemExit(f"method {method_id} of class {class_id} instead of a confirm")
            if is_multiple:
                numbers += range(self.unconfirmed, tag)
            else:
                numbers.append(tag - 1)
            self.unconfirmed = max(self.unconfirmed, tag)
        self.left = data[whole:]
        return numbers


class Amqp091Consumer:
    """A consumer that acknowledges each message, as perf-test does."""

    TAG_AT = FRAME_HEAD.size + 4
    """Of a basic.deliver: its consumer tag; the delivery tag follows."""
    ACK = broker_amqp091.ACK

    def __init__(self, peer: broker_amqp091.Peer) -> None:
        self.socket = peer.socket
        self.left = peer.received
        self.ready = b""

    def delivered(self, data: bytes) -> tuple[list[bytes], bytes]:
        bodies: list[bytes] = []
        answers: list[bytes] = []
        data = self.left + data
        at = start = 0
        tag = 0
        while len(data) - at >= FRAME_HEAD.size:
            kind, _, size = FRAME_HEAD.unpack_from(data, at)
            end = at + FRAME_HEAD.size + size + 1
            if len(data) < end:
                break
            if kind == FrameType.METHOD:
                tag_at = at + self.TAG_AT
                tag_at += 1 + data[tag_at]
                tag = int.from_bytes(data[tag_at : tag_at + 8], "big")
            elif kind == FrameType.BODY:
                bodies.append(data[end - 1 - size : end - 1])
                answers.append(self.ACK.pack(1, 1, 13, 60, 80, tag, 0, 0xCE))
                start = end
            at = end
        self.left = data[start:]
        return bodies, b"".join(answers)


@contextlib.contextmanager
def amqp091_rig(addresses: dict[str, Address], count: int) -> Iterator[Rig]:
    names = stream_names("amqp091", count)
    with contextlib.ExitStack() as stack:
        peer = peers_in(stack, addresses["amqp"])
        manager = peer()
        publishers, consumers = [], []
        for name in names:
            manager.declare(name)
            stack.callback(manager.ask, 1, m.QueueDelete(queue=name))
            publisher, consumer = peer(), peer()
            publisher.ask(1, m.ConfirmSelect())
            consumer.ask(1, m.BasicQos(prefetch_count=PREFETCH))
            arguments: Table = {"x-stream-offset": long_string("first")}
            consumer.ask(1, m.BasicConsume(queue=name, consumer_tag="c", arguments=arguments))
            publishers.append(Amqp091Publisher(publisher, name))
            consumers.append(Amqp091Consumer(consumer))
        yield Rig(publishers, consumers)


def peers_in(stack: contextlib.ExitStack, address: Address) -> Callable[[], broker_amqp091.Peer]:
    def peer() -> broker_amqp091.Peer:
        opened = broker_amqp091.Peer(address)
        stack.callback(opened.socket.close)
        return opened

    return peer


RIGS = {"stream": stream_rig, "amqp091": amqp091_rig}
