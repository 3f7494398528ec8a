"""Lean peers of each protocol for `live_load.py`: set up by our own client cores, then raw bytes.

Each setup function gives a `Rig`: connections over streams that were made for one round.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import broker_amqp091
import broker_amqp10
import broker_stream
from live_load import BODY_BYTES, Consumer, Publisher

from headgate.log.offsets import OffsetSpecification
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codec import encode_method
from headgate.protocols.amqp091.fields import Table, long_string
from headgate.protocols.amqp091.frames import FRAME_HEAD, FrameType, encode_frame
from headgate.protocols.amqp091.properties import BasicProperties, encode_content_header
from headgate.protocols.amqp10.performatives import UNSETTLED
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codes import Command
from headgate.protocols.stream.deliver_frames import DELIVER_HEAD_BYTES

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
    """Names of one round's streams, which end with their numbers from 0."""
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
    with contextlib.ExitStack() as stack:
        publishers, consumers = [], []
        for name in created(stack, addresses["stream"], count):
            publisher, consumer = (stream_peer(stack, addresses["stream"]) for _ in ("publisher", "consumer"))
            publisher.check(f.DeclarePublisher(0, None, name))
            consumer.check(f.Subscribe(0, name, OffsetSpecification.first(), CREDIT_CHUNKS, {}))
            publishers.append(StreamPublisher(publisher))
            consumers.append(StreamConsumer(consumer))
        yield Rig(publishers, consumers)


def created(stack: contextlib.ExitStack, address: Address, count: int) -> list[str]:
    """New streams, created by the stream protocol; the stack deletes them after what is entered later has ended."""
    manager = stream_peer(stack, address)
    names = stream_names("stream", count)
    for name in names:
        manager.check(f.Create(name))
        stack.callback(manager.check, f.Delete(name))
    return names


def stream_peer(stack: contextlib.ExitStack, address: Address) -> broker_stream.Peer:
    peer = broker_stream.Peer(*address)
    stack.callback(peer.socket.close)
    return peer


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
    with contextlib.ExitStack() as stack:
        publishers, consumers = [], []
        for name in declared(stack, addresses["amqp"], "amqp091", count):
            publisher, consumer = (amqp091_peer(stack, addresses["amqp"]) for _ in ("publisher", "consumer"))
            publisher.ask(1, m.ConfirmSelect())
            consumer.ask(1, m.BasicQos(prefetch_count=PREFETCH))
            arguments: Table = {"x-stream-offset": long_string("first")}
            consumer.ask(1, m.BasicConsume(queue=name, consumer_tag="c", arguments=arguments))
            publishers.append(Amqp091Publisher(publisher, name))
            consumers.append(Amqp091Consumer(consumer))
        yield Rig(publishers, consumers)


def amqp091_peer(stack: contextlib.ExitStack, address: Address) -> broker_amqp091.Peer:
    peer = broker_amqp091.Peer(address)
    stack.callback(peer.socket.close)
    return peer


def declared(stack: contextlib.ExitStack, address: Address, protocol: str, count: int) -> list[str]:
    """New streams, declared by AMQP 0.9.1; the stack deletes them after what is entered later has ended."""
    manager = amqp091_peer(stack, address)
    names = stream_names(protocol, count)
    for name in names:
        manager.declare(name)
        stack.callback(manager.ask, 1, m.QueueDelete(queue=name))
    return names


# AMQP 1.0

ENOUGH_CREDIT = 100_000
"""For a round, so that no flow is needed."""
FLOW, TRANSFER, DISPOSITION = 0x13, 0x14, 0x15
ACCEPTED = b"\0\0\0\x1a\2\0\0\0\0\x53\x15\xc0\x0d\5\x41\x70%b\x40\x41\0\x53\x24\x45"
"""A frame on channel 0: the receiver settles the delivery with this id as accepted."""


def amqp10_frames(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The code of each performative with the bytes from its first field to the end of the frame, and what is left."""
    frames = []
    at = 0
    while len(data) - at >= 8 and len(data) - at >= (size := int.from_bytes(data[at : at + 4], "big")):
        if size > 8:
            fields = at + (14 if data[at + 11] == 0xC0 else 20)
            frames.append((data[at + 10], data[fields : at + size]))
        at += size
    return frames, data[at:]


def uint(fields: bytes, at: int, *, absent: int = 0) -> tuple[int, int]:
    """The unsigned integer at this place, `absent` for null, and the place behind it."""
    match fields[at]:
        case 0x40:
            return absent, at + 1
        case 0x43:
            return 0, at + 1
        case 0x52:
            return fields[at + 1], at + 2
        case 0x70:
            return int.from_bytes(fields[at + 1 : at + 5], "big"), at + 5
    raise SystemExit(f"{fields[at]:#x} is no unsigned integer")


class Amqp10Publisher:
    """Unsettled transfers of a message that is one data section, on handle 0 of channel 0."""

    def __init__(self, peer: broker_amqp10.Peer) -> None:
        self.socket = peer.socket
        self.left = b""

    def message(self, number: int, body: bytes) -> bytes:
        size = broker_amqp10.PREFIX.size + 5 + len(body)
        head = broker_amqp10.PREFIX.pack(
            size, 0x0200, 0, 0x005314C0, 0x1405, 0x52, 0, 0x70, number, 0xA008, number, 0x43, 0x42
        )
        return b"%b\0\x53\x75\xa0%c%b" % (head, len(body), body)

    def confirmed(self, data: bytes) -> list[int]:
        numbers: list[int] = []
        frames, self.left = amqp10_frames(self.left + data)
        for code, fields in frames:
            if code == DISPOSITION:
                first, at = uint(fields, 1)  # behind the role
                last, _ = uint(fields, at, absent=first)
                if b"\0\x53\x24" not in fields:
                    raise SystemExit(f"a message was not accepted: {fields!r}")
                numbers += range(first, last + 1)
            elif code != FLOW:
                raise SystemExit(f"performative {code:#x} instead of an outcome")
        return numbers


class Amqp10Consumer:
    """A consumer that accepts each message."""

    def __init__(self, peer: broker_amqp10.Peer) -> None:
        self.socket = peer.socket
        self.left = b""

    def delivered(self, data: bytes) -> tuple[list[bytes], bytes]:
        bodies: list[bytes] = []
        answers: list[bytes] = []
        frames, self.left = amqp10_frames(self.left + data)
        for code, fields in frames:
            if code == TRANSFER:
                _, at = uint(fields, 0)
                delivery, _ = uint(fields, at)
                bodies.append(fields[-BODY_BYTES:])
                answers.append(ACCEPTED % delivery.to_bytes(4, "big"))
            elif code != FLOW:
                raise SystemExit(f"performative {code:#x} instead of a message")
        return bodies, b"".join(answers)


@contextlib.contextmanager
def amqp10_rig(addresses: dict[str, Address], count: int) -> Iterator[Rig]:
    with contextlib.ExitStack() as stack:
        publishers, consumers = [], []
        for name in declared(stack, addresses["amqp"], "amqp10", count):
            publisher, consumer = (
                stack.enter_context(broker_amqp10.connected(addresses["amqp"])) for _ in ("publisher", "consumer")
            )
            publisher.sender(name)
            consumer.receiver(name, (), snd_settle_mode=UNSETTLED).grant(ENOUGH_CREDIT)
            consumer.flush()
            publishers.append(Amqp10Publisher(publisher))
            consumers.append(Amqp10Consumer(consumer))
        yield Rig(publishers, consumers)


# STOMP 1.2


class StompPublisher:
    """SEND frames that ask for a receipt each."""

    def __init__(self, peer: socket.socket, stream: str) -> None:
        self.socket = peer
        self.left = b""
        self.head = f"SEND\ndestination:/amq/queue/{stream}\npersistent:true\nreceipt:".encode()

    def message(self, number: int, body: bytes) -> bytes:
        return b"%b%d\n\n%b\0" % (self.head, number, body)

    def confirmed(self, data: bytes) -> list[int]:
        *frames, self.left = (self.left + data).split(b"\0")
        return [int(stomp_header(frame, b"RECEIPT", b"\nreceipt-id:")) for frame in frames]


class StompConsumer:
    """A consumer that acknowledges each message."""

    def __init__(self, peer: socket.socket) -> None:
        self.socket = peer
        self.left = b""

    def delivered(self, data: bytes) -> tuple[list[bytes], bytes]:
        *frames, self.left = (self.left + data).split(b"\0")
        answers = [b"ACK\nid:%b\n\n\0" % stomp_header(frame, b"MESSAGE", b"\nack:") for frame in frames]
        return [frame[-BODY_BYTES:] for frame in frames], b"".join(answers)


def stomp_header(frame: bytes, command: bytes, name: bytes) -> bytes:
    """The value of a header of a frame that has to be this command."""
    if not frame.lstrip(b"\r\n").startswith(command):
        raise SystemExit(f"not {command!r} but {frame!r}")
    start = frame.index(name) + len(name)
    return frame[start : frame.index(b"\n", start)].rstrip(b"\r")


@contextlib.contextmanager
def stomp_rig(addresses: dict[str, Address], count: int) -> Iterator[Rig]:
    with contextlib.ExitStack() as stack:
        publishers, consumers = [], []
        for name in declared(stack, addresses["amqp"], "stomp", count):
            publisher, consumer = (
                stack.enter_context(broker_amqp091.stomp(addresses["stomp"])) for _ in ("publisher", "consumer")
            )
            consumer.sendall(
                f"SUBSCRIBE\nid:s\ndestination:/amq/queue/{name}\nack:client-individual\n"
                f"prefetch-count:{PREFETCH}\nx-stream-offset:first\nreceipt:subscribed\n\n\0".encode()
            )
            stomp_header(consumer.recv(1 << 16), b"RECEIPT", b"\nreceipt-id:")
            publishers.append(StompPublisher(publisher, name))
            consumers.append(StompConsumer(consumer))
        yield Rig(publishers, consumers)


RIGS = {"stream": stream_rig, "amqp091": amqp091_rig, "amqp10": amqp10_rig, "stomp": stomp_rig}
