"""Lean clients of RocketMQ: gRPC without a client library, and many groups that only say that they are there.

They run in the benchmark's process; what the server uses is measured in the server's.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.protocols.rocketmq.remoting import Command, RemotingConnection, RequestCode, encode_body
from headgate.protocols.rocketmq.remoting.bodies import ConsumerData, Heartbeat, SubscriptionData

BODY = bytes(1024)
FILLERS = {f"filler{number}": "x" * 120 for number in range(8)}
HEARTBEAT_S = 30.0
"""How often a classic client says that it is there."""


class GrpcClient:
    """A producer and simple consumer on one channel."""

    def __init__(self, address: str, name: str) -> None:
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
        self._channel = grpc.insecure_channel(address, options=options)
        self._metadata = [("x-mq-client-id", name), ("x-mq-language", "PYTHON"), ("x-mq-protocol", "GRPC_V2")]
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._send = self._channel.unary_unary(f"/{pb.SERVICE}/SendMessage")
        self._ack = self._channel.unary_unary(f"/{pb.SERVICE}/AckMessage")
        self._receive = self._channel.unary_stream(f"/{pb.SERVICE}/ReceiveMessage")
        telemetry = self._channel.stream_stream(f"/{pb.SERVICE}/Telemetry")
        self._answers = telemetry(iter(self._commands.get, None), metadata=self._metadata)

    def settle(self, settings: Any) -> None:
        """Tell what this client is, and wait for the answer."""
        self._commands.put(pb.TelemetryCommand(settings=settings).SerializeToString())
        next(self._answers)

    def route(self, topic: str) -> None:
        """Ask for a topic, which is needed before settings."""
        ask = self._channel.unary_unary(f"/{pb.SERVICE}/QueryRoute")
        request = pb.QueryRouteRequest(
            topic=pb.Resource(name=topic),
            endpoints=pb.Endpoints(scheme=1, addresses=[pb.Address(host="127.0.0.1", port=1)]),
        )
        ask(request.SerializeToString(), metadata=self._metadata, timeout=20)

    def send(self, topic: str, number: int) -> None:
        """Send message `number` of the case."""
        message = pb.Message(
            topic=pb.Resource(name=topic),
            user_properties={"kind": "order", "bucket": str(number % 100), **FILLERS},
            system_properties=pb.SystemProperties(message_id=f"01{number:032X}", body_encoding=1, message_type=1),
            body=BODY,
        )
        answer = self._send(
            pb.SendMessageRequest(messages=[message]).SerializeToString(), metadata=self._metadata, timeout=20
        )
        if pb.SendMessageResponse.FromString(answer).status.code != 20_000:
            raise SystemExit(pb.SendMessageResponse.FromString(answer).status.message)

    def receive(self, topic: str, group: str, expression: str) -> int:
        """Receive up to 32 messages that match, and acknowledge them; gives their number."""
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=group),
            message_queue=pb.MessageQueue(topic=pb.Resource(name=topic), id=-1, broker=pb.Broker(name="broker-a")),
            filter_expression=pb.FilterExpression(type=2, expression=expression),
            batch_size=32,
            invisible_duration=pb.Duration(seconds=60),
            long_polling_timeout=pb.Duration(seconds=5),
        )
        entries = []
        for octets in self._receive(request.SerializeToString(), metadata=self._metadata, timeout=30):
            answer = pb.ReceiveMessageResponse.FromString(octets)
            if answer.WhichOneof("content") == "message":
                system = answer.message.system_properties
                entries.append(pb.AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle))
        if entries:
            acknowledged = pb.AckMessageRequest(
                group=pb.Resource(name=group), topic=pb.Resource(name=topic), entries=entries
            )
            self._ack(acknowledged.SerializeToString(), metadata=self._metadata, timeout=20)
        return len(entries)

    def close(self) -> None:
        """End the stream of settings and the channel."""
        self._commands.put(None)
        self._channel.close()


def in_threads(count: int, work: Callable[[int], None]) -> float:
    """Seconds until `work` is over in all of so many threads."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def grpc_rates(address: str, topic: str, group: str, total: int, threads: int) -> tuple[float, float]:
    """Messages a second that are sent one by one, and received by a group of all, 32 at a time, acknowledged."""
    client = GrpcClient(address, f"load-{topic}")
    try:
        client.route(topic)
        client.settle(
            pb.Settings(client_type=1, publishing=pb.Publishing(topics=[pb.Resource(name=topic)]), request_timeout=None)
        )

        def send(thread: int) -> None:
            for number in range(thread, total, threads):
                client.send(topic, number)

        sent_s = in_threads(threads, send)
        expression = "bucket BETWEEN 0 AND 99 AND kind = 'order'"
        consumer = GrpcClient(address, f"load-{group}")
        consumer.route(topic)
        entry = pb.SubscriptionEntry(
            topic=pb.Resource(name=topic), expression=pb.FilterExpression(type=2, expression=expression)
        )
        subscription = pb.Subscription(group=pb.Resource(name=group), subscriptions=[entry])
        consumer.settle(pb.Settings(client_type=3, subscription=subscription))
        left = [total]
        lock = threading.Lock()

        def receive(_: int) -> None:
            until = time.monotonic() + 60
            while left[0] > 0 and time.monotonic() < until:
                count = consumer.receive(topic, group, expression)
                with lock:
                    left[0] -= count

        received_s = in_threads(threads, receive)
        consumer.close()
        if left[0] > 0:
            raise SystemExit(f"{left[0]} of {total} messages did not come")
        return total / sent_s, total / received_s
    finally:
        client.close()


class Heartbeats:
    """So many groups, each on a topic of its own, on one connection each, that say that they are there."""

    def __init__(self, port: int, groups: int) -> None:
        self._peers = []
        for number in range(groups):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.settimeout(20)
            self._peers.append((connection, self._frame(number)))

    @staticmethod
    def _frame(number: int) -> bytes:
        subscription = SubscriptionData(
            topic=f"topic{number}",
            sub_string=f"bucket BETWEEN {number} AND {number + 19} AND kind = 'order'",
            expression_type="SQL92",
            sub_version=1,
        )
        consumer = ConsumerData(
            group_name=f"group{number}",
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=[subscription],
        )
        body = encode_body(Heartbeat(client_id=f"127.0.0.1@{number}", consumer_data_set=[consumer]))
        connection = RemotingConnection()
        connection.send(Command(code=RequestCode.HEART_BEAT, opaque=number, body=body))
        return b"".join(map(bytes, connection.take_output()))

    def beat(self) -> None:
        """Each says it once, and is answered."""
        for connection, frame in self._peers:
            connection.sendall(frame)
            size = int.from_bytes(self._exactly(connection, 4), "big")
            self._exactly(connection, size)

    @staticmethod
    def _exactly(connection: socket.socket, count: int) -> bytes:
        octets = b""
        while len(octets) < count:
            octets += connection.recv(count - len(octets))
        return octets

    def close(self) -> None:
        """End the connections."""
        for connection, _ in self._peers:
            connection.close()
