"""Clients that log in, open something, and then send what is broken: their frames, and ways to break them."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hpack
import msgspec

from headgate.log.offsets import OffsetSpecification
from headgate.message import Message, amqp_value
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codec import encode_method
from headgate.protocols.amqp091.fields import boolean, long, long_string, table
from headgate.protocols.amqp091.frames import HEARTBEAT, PROTOCOL_HEADER, FrameType, encode_content, encode_frame
from headgate.protocols.amqp091.properties import BasicProperties, encode_content_header
from headgate.protocols.amqp10.performatives import SENDER
from headgate.protocols.amqp10.terminus import RawEntry, Source, Target
from headgate.protocols.grpc import frames as grpc_frames
from headgate.protocols.grpc.frames import PREFACE, ErrorCode, Frame, Setting
from headgate.protocols.grpc.framing import prefixed
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.protocols.rocketmq.remoting import Command, RemotingConnection
from headgate.protocols.stomp.frames import FrameReader, Version
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codec import encode
from server.amqp091_client import STREAM as ARGUMENTS
from server.amqp10_client import Client as Client10
from server.amqp10_client import Management, client_of
from server.websocket_client import PATH
from stream_frames import publish, sub_batch
from waiting import LIMIT_S

STREAM, STREAM_091, STREAM_10, STREAM_STOMP = ("attacked-stream", "attacked-091", "attacked-10", "attacked-stomp")
"""One for each protocol: a sub-batch whose content is broken is stored, and no other protocol can read behind it."""
EXCHANGE = "exchange"
HUGE = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
"""Lengths that nobody has memory for."""


@dataclass
class Corpus:
    """What a client of one protocol says: `opening` up to an open connection with things on it, the last of its answers
    has `ready` in it; `frames` may come behind that. `reframed` puts the length into the head of a frame that was
    changed, `torn` says what is left of the server's answers behind the last whole frame.
    """

    name: str
    listener: str
    opening: bytes
    ready: bytes
    frames: Sequence[bytes]
    reframed: Callable[[bytes], bytes]
    torn: Callable[[bytes], bytes]
    is_http: bool = False
    """Whose client is answered nothing once it has said its last, and may be reset while it still sends."""


# The stream protocol.


def _numbered(frames: Sequence[f.Frame]) -> list[bytes]:
    return [
        encode(msgspec.structs.replace(frame, correlation_id=number) if isinstance(frame, f.Request) else frame)
        for number, frame in enumerate(frames, 1)
    ]


def stream_corpus(port: int) -> Corpus:
    first = OffsetSpecification.first()
    filters = {"filter.0": "emea", "match-unfiltered": "true", "headgate-sql": "region = 'emea' AND n > 3"}
    opening = _numbered(
        [
            f.PeerProperties({"product": "garbage"}),
            f.SaslHandshake(),
            f.SaslAuthenticate("ANONYMOUS", b""),
            f.Tune(1 << 20, 0),
            f.Open("/"),
            f.Create(STREAM),
            f.DeclarePublisher(0, None, STREAM),
            f.DeclarePublisher(1, "named", STREAM),
            f.Subscribe(0, STREAM, first, 10),
        ]
    )
    frames = _numbered(
        [
            f.ExchangeCommandVersions(((2, 1, 2),)),
            f.Subscribe(1, STREAM, first, 3, filters),
            f.Subscribe(2, STREAM, OffsetSpecification.offset(7), 3, {"single-active-consumer": "true", "name": "one"}),
            f.Credit(0, 5),
            f.StoreOffset("reader", STREAM, 5),
            f.QueryOffset("reader", STREAM),
            f.QueryPublisherSequence("named", STREAM),
            f.Metadata((STREAM, "other")),
            f.Route("key", EXCHANGE),
            f.Partitions(EXCHANGE),
            f.StreamStats(STREAM),
            f.ResolveOffsetSpecification(STREAM, first),
            f.CreateSuperStream("super", ("super-0", "super-1"), ("0", "1"), {"max-length-bytes": "100000"}),
            f.DeleteSuperStream("super"),
            f.Create("other", {"max-segment-size-bytes": "1000", "stream-filter-size-bytes": "32"}),
            f.Delete("other"),
            f.ConsumerUpdateReply(first, correlation_id=1),
            f.SaslAuthenticate("PLAIN", b"\0guest\0guest"),
            f.Heartbeat(),
            f.Tune(1 << 20, 60),
            f.Unsubscribe(0),
            f.DeletePublisher(1),
            f.Close(1, "enough"),
        ]
    )
    body = Message(b"body", application_properties={"region": "emea"}).encode()
    frames += [
        publish([(number, body) for number in range(5)]),
        publish([(number, body, b"emea") for number in range(5, 9)]),
        publish([(number, body) for number in range(3)], publisher_id=1),
        encode(f.DeclarePublisher(2, "named-too", STREAM, correlation_id=90)),
        publish([(20, sub_batch(2, (struct.pack(">I", len(body)) + body) * 2))], has_heads=True),
    ]

    def torn(answers: bytes) -> bytes:
        while len(answers) >= 4 and len(answers) >= (size := 4 + int.from_bytes(answers[:4], "big")):
            answers = answers[size:]
        return answers

    return Corpus(
        "stream",
        "stream",
        b"".join(opening),
        b"\x80\x07\x00\x01\x00\x00\x00\x09\x00\x01",
        frames,
        lambda frame: struct.pack(">I", max(len(frame) - 4, 0)) + frame[4:],
        torn,
    )


# AMQP 0.9.1.


def amqp091_corpus(port: int) -> Corpus:
    def method(channel: int, *methods: m.Method) -> bytes:
        return b"".join(encode_frame(FrameType.METHOD, channel, encode_method(one)) for one in methods)

    def content(exchange: str, key: str, body: bytes, **properties: Any) -> bytes:
        header = encode_content_header(BasicProperties(**properties), len(body))
        return encode_content(1, encode_method(m.BasicPublish(0, exchange, key)), header, body, 131_072)

    properties = {"product": long_string("garbage"), "capabilities": table({"basic.nack": boolean(True)})}
    declare = m.QueueDeclare(queue=STREAM_091, durable=True, arguments=ARGUMENTS)
    offset = {"x-stream-offset": long_string("first")}
    opening = PROTOCOL_HEADER + b"".join(
        [
            method(0, m.ConnectionStartOk(properties, "ANONYMOUS", b"", "en_US")),
            method(0, m.ConnectionTuneOk(2047, 131_072, 0), m.ConnectionOpen("/")),
            method(1, m.ChannelOpen(), m.ConfirmSelect(), declare, m.BasicQos(0, 100)),
            method(1, m.BasicConsume(0, STREAM_091, "consumer", arguments=offset)),
        ]
    )
    aged = {**ARGUMENTS, "x-max-age": long_string("7D")}
    headers = {"x-stream-filter-value": long_string("emea"), "n": long(3), "deep": table({"CC": boolean(True)})}
    filtered = {**offset, "x-stream-filter": long_string("emea"), "x-headgate-sql": long_string("n > 3")}
    frames = [
        content("", STREAM_091, b"body" * 20, headers=headers, content_type="text/plain", message_id="1"),
        content(EXCHANGE, "key", b"", delivery_mode=2, timestamp=1, user_id="guest", priority=1),
        content("amq.direct", "nowhere", b"x" * 5000),
        method(1, m.BasicAck(1)),
        method(1, m.BasicNack(2, multiple=True)),
        method(1, m.BasicReject(3)),
        method(1, m.ExchangeDeclare(exchange=EXCHANGE, durable=True, arguments={"a": long(1)})),
        method(
            1, m.QueueBind(queue=STREAM_091, exchange=EXCHANGE, routing_key="key", arguments={"x": long_string("y")})
        ),
        method(1, m.QueueUnbind(queue=STREAM_091, exchange=EXCHANGE, routing_key="key")),
        method(1, m.ExchangeDelete(exchange=EXCHANGE)),
        method(1, m.QueueDeclare(queue="other", durable=True, arguments=aged)),
        method(1, m.QueueDelete(queue="other")),
        method(1, m.QueueDeclare(queue=STREAM_091, passive=True)),
        method(1, m.QueuePurge(queue=STREAM_091)),
        method(1, m.BasicConsume(0, STREAM_091, "filtered", arguments=filtered)),
        method(1, m.BasicCancel("consumer")),
        method(1, m.BasicGet(queue=STREAM_091)),
        method(1, m.ChannelFlow(active=True)),
        method(1, m.TxSelect()),
        method(2, m.ChannelOpen(), m.BasicQos(0, 1), m.ChannelClose()),
        method(1, m.ChannelClose()),
        method(0, m.ConnectionUpdateSecret(b"secret", "reason")),
        method(0, m.ConnectionClose()),
        HEARTBEAT,
    ]

    def torn(answers: bytes) -> bytes:
        while len(answers) >= 8 and len(answers) >= (size := 8 + int.from_bytes(answers[3:7], "big")):
            assert answers[size - 1] == 0xCE
            answers = answers[size:]
        return answers

    def reframed(frame: bytes) -> bytes:
        return frame[:3] + struct.pack(">I", len(frame) - 8) + frame[7:-1] + b"\xce" if len(frame) > 8 else frame

    return Corpus(
        "amqp091", "amqp", opening, encode_method(m.BasicConsumeOk("consumer")), [*_split091(frames)], reframed, torn
    )


def _split091(pieces: Sequence[bytes]) -> list[bytes]:
    """Single frames, and the whole pieces where they are several."""
    found: list[bytes] = []
    for piece in pieces:
        found.append(piece)
        at = 0
        while at < len(piece):
            end = at + 8 + int.from_bytes(piece[at + 3 : at + 7], "big")
            if end - at < len(piece):
                found.append(piece[at:end])
            at = end
    return found


# AMQP 1.0: what the client of the other tests says is written down.


class _Recorded:
    """A socket that keeps what is sent through it."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.sent: list[bytes] = []

    def __enter__(self) -> _Recorded:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def sendall(self, data: bytes) -> None:
        if data:
            self.sent.append(data)
        self._socket.sendall(data)

    def recv(self, size: int) -> bytes:
        return self._socket.recv(size)


def amqp10_corpus(port: int) -> Corpus:
    recorded: Any = _Recorded(socket.create_connection(("127.0.0.1", port), LIMIT_S))
    first = RawEntry.of("offset", "rabbitmq:stream-offset-spec", amqp_value("first"))
    sql = RawEntry.of("sql-filter", "amqp:sql-filter", amqp_value("n > 3 AND properties.subject LIKE 'a%'"))
    values = RawEntry.of("values", "rabbitmq:stream-filter", amqp_value(["emea", "amer"]))
    with client_of(port, connected=recorded, mechanism="ANONYMOUS", response=b"") as client:
        management = Management(client)
        management.declare(STREAM_10)
        sender = client.sender(f"/queues/{STREAM_10}")
        client.receiver(f"/queues/{STREAM_10}", filters=(first,), credit=100, name="last")
        opened = len(recorded.sent)
        _converse10(client, management, sender, (first, sql, values))
    frames = [frame for piece in recorded.sent[opened:] for frame in [piece, *_split10(piece)]]
    return Corpus(
        "amqp10",
        "amqp",
        b"".join(recorded.sent[:opened]),
        b"last",
        frames,
        lambda frame: struct.pack(">I", len(frame)) + frame[4:],
        lambda answers: rest10(answers),
    )


def _converse10(client: Client10, management: Management, sender: Any, filters: tuple[RawEntry, ...]) -> None:
    message = Message(b"body", properties={"subject": "abc"}, application_properties={"n": 4, "region": "emea"})
    client.send(sender, message, message)
    client.send(sender, message, settled=True)
    client.send(sender, Message(b"large" * 60_000))
    receiver = client.receiver(f"/queues/{STREAM_10}", filters=filters, credit=10)
    client.send(client.sender(None), Message(b"somewhere", properties={"to": f"/queues/{STREAM_10}"}))
    client.drain(receiver)
    management.declare("other", max_age="7D")
    management.request("GET", "/queues/other")
    management.request("PUT", f"/exchanges/{EXCHANGE}", {"type": "direct", "durable": True, "arguments": {}})
    binding = {"source": EXCHANGE, "destination_queue": "other", "binding_key": "key", "arguments": {"a": 1}}
    management.request("POST", "/bindings", binding)
    (bound,) = management.request("GET", f"/bindings?src={EXCHANGE}&dstq=other&key=key")[1]
    management.request("DELETE", bound["location"])
    management.request("DELETE", f"/exchanges/{EXCHANGE}")
    management.request("DELETE", "/queues/other")
    client.attach(SENDER, target=Target(amqp_value("/bad/address")), source=Source())
    client.connection.heartbeat()
    receiver.detach()
    client.connection.sessions[0].end()
    client.connection.close()
    client.flush()


def _split10(piece: bytes) -> list[bytes]:
    found = []
    while len(piece) >= 8:
        size = int.from_bytes(piece[:4], "big")
        found.append(piece[:size])
        piece = piece[size:]
    return found


def rest10(answers: bytes) -> bytes:
    """Protocol headers are frames of eight bytes, by their looks."""
    while len(answers) >= 8:
        size = 8 if answers.startswith(b"AMQP") else int.from_bytes(answers[:4], "big")
        if not 8 <= size <= len(answers):
            break
        answers = answers[size:]
    return answers


# STOMP.


def stomp_corpus(port: int) -> Corpus:
    stream = "x-queue-type:stream\ndurable:true\nauto-delete:false\n"
    opening = (
        "CONNECT\naccept-version:1.0,1.1,1.2\nhost:/\n\n\0"
        f"SEND\ndestination:/queue/{STREAM_STOMP}\n{stream}receipt:sent\n\nbody\0"
        f"SUBSCRIBE\nid:s\ndestination:/amq/queue/{STREAM_STOMP}\nack:client\nprefetch-count:100\nreceipt:ready\n"
        "x-stream-offset:first\n\n\0"
    )
    frames = [
        f"SEND\ndestination:/queue/{STREAM_STOMP}\n{stream}receipt:1\ncontent-length:4\n\nbo\0y\0",
        f"SEND\ndestination:/amq/queue/{STREAM_STOMP}\npersistent:true\npriority:3\nn:5\nx-stream-filter-value:emea\n\nb\0",
        "SEND\ndestination:/exchange/amq.direct/key\ncontent-type:text/plain\nreceipt:2\n\nbody\0",
        f"SEND\ndestination:/queue/other\n{stream}x-max-age:7D\nx-max-length-bytes:1000\n\nbody\0",
        f"SUBSCRIBE\nid:t\ndestination:/amq/queue/{STREAM_STOMP}\nack:client-individual\nprefetch-count:9\n"
        "x-stream-offset:offset=3\nx-stream-filter:emea,amer\nx-headgate-sql:n > 3\n\n\0",
        "ACK\nid:T_s@@session@@1\n\n\0",
        "NACK\nid:T_s@@session@@2\nreceipt:3\n\n\0",
        "UNSUBSCRIBE\nid:s\nreceipt:4\n\n\0",
        "BEGIN\ntransaction:t\n\n\0",
        "DISCONNECT\nreceipt:5\n\n\0",
        "\n\r\n\n",
    ]

    def torn(answers: bytes) -> bytes:
        reader = FrameReader(max_body_bytes=1 << 24)
        reader.version = Version.V1_2
        reader.add(answers)
        while reader.next() is not None:
            pass
        return bytes(reader._buffer).strip(b"\n")

    return Corpus(
        "stomp",
        "stomp",
        opening.encode(),
        b"receipt-id:ready",
        [one.encode() for one in frames],
        lambda frame: frame,
        torn,
    )


# RocketMQ's classic protocol.


def remoting_corpus(port: int) -> Corpus:
    """What real clients said to RocketMQ, all of it."""
    recorded = Path(__file__).parents[1] / "protocols/rocketmq/remoting/frames.jsonl"
    lines = [json.loads(line) for line in recorded.read_text().splitlines()]
    frames = [bytes.fromhex(line["frame"]) for line in lines if line["what"] == "request"]
    by_code = {line["request"]: bytes.fromhex(line["frame"]) for line in lines if line["what"] == "request"}
    opening = [by_code[code] for code in (310, 34, 11)]
    connection = RemotingConnection()
    connection.send(Command(code=9_999))

    def reframed(frame: bytes) -> bytes:
        return struct.pack(">I", max(0, len(frame) - 4)) + frame[4:]

    def torn(answers: bytes) -> bytes:
        position = 0
        while len(answers) - position >= 4:
            (length,) = struct.unpack_from(">I", answers, position)
            if length > len(answers) - position - 4:
                break
            position += 4 + length
        return answers[position:]

    return Corpus(
        "rocketmq_classic",
        "rocketmq_classic",
        b"".join([*opening, *connection.take_output()]),
        b"request type 9999 not supported",
        frames,
        reframed,
        torn,
    )


# RocketMQ's gRPC.


def grpc_corpus(port: int) -> Corpus:
    """Calls of a client, whole and in parts, and the frames of HTTP/2 between them."""
    topic = pb.Resource(name="attacked-grpc")
    message = pb.Message(
        topic=topic, system_properties=pb.SystemProperties(message_id="id", body_encoding=1), body=b"x"
    )
    requests = {
        "QueryRoute": pb.QueryRouteRequest(topic=topic),
        "SendMessage": pb.SendMessageRequest(messages=[message]),
        "Telemetry": pb.TelemetryCommand(settings=pb.Settings(client_type=pb.ClientType.PRODUCER)),
        "Heartbeat": pb.HeartbeatRequest(group=topic),
    }
    opening = PREFACE + grpc_frames.settings({}) + b"".join(grpc_call(1, "Heartbeat", requests["Heartbeat"]))
    frames = [
        frame
        for number, (name, request) in enumerate(requests.items())
        for frame in grpc_call(3 + 2 * number, name, request)
    ]
    frames += [
        grpc_frames.settings({Setting.INITIAL_WINDOW_SIZE: 10, Setting.MAX_FRAME_SIZE: 1 << 20}),
        grpc_frames.window_update(0, 1000),
        grpc_frames.window_update(3, 1000),
        grpc_frames.reset(3, ErrorCode.CANCEL),
        grpc_frames.frame(Frame.PING, 0, 0, bytes(8)),
        grpc_frames.frame(Frame.PRIORITY, 0, 3, bytes(5)),
        grpc_frames.frame(Frame.HEADERS, 0, 11, grpc_headers("QueryRoute")[:20]),
        grpc_frames.frame(Frame.CONTINUATION, 4, 11, grpc_headers("QueryRoute")[20:]),
        grpc_frames.frame(Frame.DATA, 9, 3, b"\x02abcd\x00\x00"),
        grpc_frames.go_away(0, ErrorCode.NO_ERROR),
        *_extremes(requests["QueryRoute"]),
    ]

    def reframed(frame: bytes) -> bytes:
        return max(0, len(frame) - 9).to_bytes(3, "big") + frame[3:]

    def torn(answers: bytes) -> bytes:
        position = 0
        while len(answers) - position >= 9:
            length = int.from_bytes(answers[position : position + 3], "big")
            if length > len(answers) - position - 9:
                break
            position += 9 + length
        return answers[position:]

    return Corpus("rocketmq", "rocketmq", opening, b"grpc-status", frames, reframed, torn)


def _extremes(request: Any) -> list[bytes]:
    """What HTTP/2 allows and no client does: odd blocks of fields, settings and windows at their ends, floods."""
    encoder = hpack.Encoder()
    fields = [(":method", "POST"), (":path", f"/{pb.SERVICE}/QueryRoute"), ("content-type", "application/grpc")]
    # The first block fills the table of fields, the second is numbers in it.
    blocks = [bytes(encoder.encode(fields)) for _ in range(2)]
    pieces = [bytes((octet,)) for octet in blocks[0][:8]] + [blocks[0][8:]]
    split = [grpc_frames.frame(Frame.CONTINUATION, 0, 21, piece) for piece in pieces[1:-1]]
    data = prefixed(request.SerializeToString())
    calls = [grpc_frames.frame(Frame.HEADERS, 4, number, grpc_headers("QueryRoute")) for number in range(101, 501, 2)]
    resets = [grpc_frames.reset(number, ErrorCode.CANCEL) for number in range(101, 501, 2)]
    return [
        grpc_frames.frame(Frame.HEADERS, 0, 21, pieces[0])
        + b"".join(split)
        + grpc_frames.frame(Frame.CONTINUATION, 4, 21, pieces[-1]),
        grpc_frames.frame(Frame.HEADERS, 4, 23, blocks[1])
        + b"".join(grpc_frames.frame(Frame.DATA, 0, 23, data[at : at + 1]) for at in range(len(data)))
        + grpc_frames.frame(Frame.HEADERS, 5, 23, b""),
        grpc_frames.frame(Frame.HEADERS, 4, 25, b"\x3f\xe1\x1f" + blocks[0]),
        *(
            grpc_frames.settings({Setting.INITIAL_WINDOW_SIZE: window, Setting.MAX_FRAME_SIZE: size})
            for window in (0, 1, grpc_frames.LARGEST_WINDOW)
            for size in (16_384, (1 << 24) - 1)
        ),
        grpc_frames.settings({Setting.HEADER_TABLE_SIZE: 0xFFFFFFFF, Setting.MAX_CONCURRENT_STREAMS: 0}),
        grpc_frames.window_update(0, grpc_frames.LARGEST_WINDOW - grpc_frames.WINDOW_BYTES),
        b"".join(one for pair in zip(calls, resets, strict=True) for one in pair),
        b"".join(calls) + b"".join(resets),
        grpc_frames.frame(Frame.PING, 0, 0, bytes(8)) * 500,
        grpc_frames.settings({}) * 500,
        grpc_frames.frame(Frame.DATA, 0, 3) * 500,
    ]


def grpc_headers(method: str, **more: str) -> bytes:
    """The header fields of a call."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{pb.SERVICE}/{method}",
        "content-type": "application/grpc",
        "x-mq-client-id": "attacker",
        **more,
    }
    return b"".join(grpc_frames.field(name.encode(), text.encode()) for name, text in fields.items())


def grpc_call(number: int, method: str, request: Any) -> list[bytes]:
    """The frames of a call with one request."""
    data = prefixed(request.SerializeToString())
    return [
        grpc_frames.frame(Frame.HEADERS, 4, number, grpc_headers(method)),
        grpc_frames.frame(Frame.DATA, 1, number, data),
    ]


# HTTP: the console's and monitors' listener, and the administration of Service Bus.


def _http_corpus(name: str, *requests: str) -> Corpus:
    """Requests of one listener. Whole answers have their length, so nothing of them is judged here."""
    frames = [request.replace("\n", "\r\n").encode() for request in requests]
    opening = b"GET /$namespaceinfo HTTP/1.1\r\nHost: localhost\r\n\r\n"
    return Corpus(name, name, opening, b"HTTP/1.1 ", frames, lambda frame: frame, lambda answers: b"", is_http=True)


_LOGIN = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q="


def http_corpus(port: int) -> Corpus:
    entity = '{"settings": {"kind": "queue"}, "delivery": {"lock_ms": 5000}}'
    return _http_corpus(
        "http",
        "GET /health HTTP/1.1\nHost: localhost\n\n",
        f"GET /api/streams?page=1 HTTP/1.1\nHost: localhost\n{_LOGIN}\n\n",
        f"GET /api/queues/%2F/{STREAM} HTTP/1.0\nConnection: keep-alive\n{_LOGIN}\n\n",
        f"PUT /api/entities/attacked%2Dhttp HTTP/1.1\nHost: localhost\n{_LOGIN}\nContent-Length: {len(entity)}\n\n"
        f"{entity}",
        f"PUT /api/rocketmq/topics/attacked-topic HTTP/1.1\nHost: localhost\n{_LOGIN}\nTransfer-Encoding: chunked\n\n"
        'd\n{"queues": 2,\n16\n "accepts": ["normal"]\n1\n}\n0\n\n',
        f"DELETE /api/entities/attacked-http HTTP/1.1\nHost: localhost\nExpect: 100-continue\n{_LOGIN}\n\n",
    )


def administration_corpus(port: int) -> Corpus:
    entry = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
        "<LockDuration>PT1M</LockDuration><MaxDeliveryCount>10</MaxDeliveryCount></QueueDescription></content></entry>"
    )
    head = "?api-version=2021-05 HTTP/1.1\nHost: localhost\n"
    xml = "Content-Type: application/atom+xml\n"
    return _http_corpus(
        "servicebus",
        f"PUT /attacked-http{head}{xml}Content-Length: {len(entry)}\n\n{entry}",
        f"PUT /attacked-http{head}{xml}If-Match: *\nTransfer-Encoding: chunked\n\n{len(entry):x}\n{entry}\n0\n\n",
        f"GET /attacked-http{head}\n",
        f"GET /$Resources/queues{head}\n",
        f"GET /orders/subscriptions/a/rules{head}\n",
        f"DELETE /attacked-http{head}\n",
        f"GET {PATH} HTTP/1.1\nHost: localhost\nUpgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Protocol: AMQPWSB10\n\n",
    )


CORPORA: dict[str, Callable[[int], Corpus]] = {
    "stream": stream_corpus,
    "amqp091": amqp091_corpus,
    "amqp10": amqp10_corpus,
    "stomp": stomp_corpus,
    "rocketmq_classic": remoting_corpus,
    "rocketmq": grpc_corpus,
    "http": http_corpus,
    "servicebus": administration_corpus,
}


# Ways to break it.


def changed(chance: random.Random, frame: bytes) -> bytes:
    """A frame with some bytes changed, gone, or there twice."""
    data = bytearray(frame)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                data[at : at + 4] = struct.pack(">I", chance.choice(HUGE))
            case 3:
                data[at : at + chance.choice((1, 2, 8))] = b""
            case 4:
                data[at:at] = data[at : at + chance.choice((1, 4, 20))]
            case _:
                data[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xC3, 0xFF))])
    return bytes(data)


def garbage(chance: random.Random, corpus: Corpus) -> bytes:
    """Something that a client might send that has gone mad."""

    def frames(count: int) -> list[bytes]:
        return [chance.choice(corpus.frames) for _ in range(count)]

    match chance.randrange(10):
        case 0:
            return chance.randbytes(chance.choice((1, 7, 8, 40, 3000, 70_000)))
        case 1:
            frame = chance.choice(corpus.frames)
            return corpus.reframed(frame[: chance.choice((4, 8, 10))] + chance.randbytes(chance.choice((8, 40, 3000))))
        case 2:
            whole = b"".join(frames(3))
            return whole[: chance.randrange(len(whole))]
        case 3:
            return changed(chance, b"".join(frames(3)))
        case _:
            return b"".join(
                corpus.reframed(changed(chance, frame)) if chance.random() < 0.7 else frame
                for frame in frames(chance.choice((1, 2, 5)))
            )


def opened(port: int, corpus: Corpus) -> tuple[socket.socket, bytes]:
    """A connection on which everything of the opening is there, and what the server said meanwhile."""
    client = socket.create_connection(("127.0.0.1", port), LIMIT_S)
    said = b""
    try:
        client.sendall(corpus.opening)
        while corpus.ready not in said:
            data = client.recv(1 << 16)
            assert data, f"the server closed during the opening, it said {said[-300:]!r}"
            said += data
    except BaseException:
        client.close()
        raise
    return client, said


def throw(port: int, corpus: Corpus, data: bytes, *, reset: bool) -> bytes:
    """Opens, sends, and reads what the server says until it closes; with a reset, goes away without reading."""
    client, said = opened(port, corpus)
    with client:
        if reset:
            with contextlib.suppress(ConnectionError):
                client.sendall(data)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            return b""
        if corpus.is_http:
            return said + _http_answer(client, data)
        return said + answer(client, data)


_LAST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_UNANSWERED_S = 0.05
"""After this time a client of HTTP has said its last: the server waits for more of its request."""


def _http_answer(client: socket.socket, data: bytes) -> bytes:
    """What the server says until it closes: after a last request, unless that is part of another one."""
    said = b""
    with contextlib.suppress(ConnectionError):
        client.sendall(data + _LAST)
        client.settimeout(_UNANSWERED_S)
        try:
            while piece := client.recv(1 << 16):
                said += piece
        except TimeoutError:
            client.settimeout(LIMIT_S)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(1 << 16):
                said += piece
    return said


def answer(client: socket.socket, data: bytes, *, says_more: bool = False) -> bytes:
    """What the server says until it closes; the client has said its last unless it `says_more`."""
    said = b""
    with contextlib.suppress(ConnectionError):
        client.sendall(data)
        if not says_more:
            client.shutdown(socket.SHUT_WR)
    while piece := client.recv(1 << 16):
        said += piece
    return said
