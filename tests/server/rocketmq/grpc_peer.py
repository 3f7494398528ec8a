"""A client of RocketMQ's gRPC service without a client library: one request at a time, as a test wants it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from headgate.protocols.rocketmq import Status
from headgate.protocols.rocketmq.grpc import messages as pb
from waiting import LIMIT_S

METHODS = {method.name: method for method in pb.METHODS}
_IDS = itertools.count()
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))


class GrpcPeer:
    """One client; `headers` stand beside its id. With `is_slow` it takes at most 64 KiB that nobody has read."""

    def __init__(self, address: str, *, client_id: str | None = None, is_slow: bool = False, **headers: str) -> None:
        options = (*_OPTIONS, ("grpc.http2.bdp_probe", 0)) if is_slow else _OPTIONS
        self.channel = grpc.insecure_channel(address, options=options)
        self.client_id = f"client-{next(_IDS)}" if client_id is None else client_id
        self.headers = {"x-mq-language": "TEST", **headers}

    def metadata(self) -> list[tuple[str, str]]:
        named = {name.replace("_", "-"): text for name, text in self.headers.items()}
        return list(({"x-mq-client-id": self.client_id} if self.client_id else {}).items()) + list(named.items())

    def raw(self, name: str, data: bytes, *, timeout_s: float = LIMIT_S) -> bytes:
        """The answer to a call with one request and one answer, both as bytes."""
        call = self.channel.unary_unary(f"/{pb.SERVICE}/{name}")
        answer: bytes = call(data, metadata=self.metadata(), timeout=timeout_s)
        return answer

    def call(self, request: Any, *, name: str | None = None, timeout_s: float = LIMIT_S) -> Any:
        method = METHODS[name or type(request).__name__.removesuffix("Request")]
        return method.response.FromString(self.raw(method.name, request.SerializeToString(), timeout_s=timeout_s))

    def stream(self, name: str, data: bytes, *, timeout_s: float | None = LIMIT_S) -> Any:
        """A call with many answers, as grpc has it."""
        call = self.channel.unary_stream(f"/{pb.SERVICE}/{name}")
        return call(data, metadata=self.metadata(), timeout=timeout_s)

    def begin_receive(self, group: str, topic: str, *, timeout_s: float | None = LIMIT_S, **fields: Any) -> Any:
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=group),
            message_queue=pb.MessageQueue(topic=pb.Resource(name=topic), id=fields.pop("queue", -1)),
            **({"batch_size": 32, "invisible_duration": seconds(30), "long_polling_timeout": seconds(0)} | fields),
        )
        return self.stream("ReceiveMessage", request.SerializeToString(), timeout_s=timeout_s)

    def receive(self, group: str, topic: str, **fields: Any) -> tuple[Any, list[Any]]:
        """The status of a receive, and its messages."""
        return finished(self.begin_receive(group, topic, **fields))

    def send(self, topic: str, *messages: Any) -> Any:
        """The answer to one call with these messages; a body stands for one that has nothing else."""
        given = [message(topic, each) if isinstance(each, bytes) else each for each in messages]
        return self.call(pb.SendMessageRequest(messages=given))

    def ack(self, group: str, topic: str, *handles: str) -> Any:
        entries = [pb.AckMessageEntry(message_id="id", receipt_handle=handle) for handle in handles]
        return self.call(
            pb.AckMessageRequest(group=pb.Resource(name=group), topic=pb.Resource(name=topic), entries=entries)
        )

    @contextlib.contextmanager
    def telemetry(self, *commands: Any) -> Iterator[Any]:
        """The answers to these commands; the stream is open until the end."""
        call = self.channel.stream_stream(f"/{pb.SERVICE}/Telemetry")
        sent: list[bytes] = [command.SerializeToString() for command in commands]
        ends = _Ends()
        answers = call(itertools.chain(sent, ends), metadata=self.metadata(), timeout=LIMIT_S)
        try:
            yield (pb.TelemetryCommand.FromString(each) for each in answers)
        finally:
            ends.set()
            answers.cancel()

    def close(self) -> None:
        self.channel.close()


class _Ends:
    """Sends nothing until it is set; then the stream of requests ends."""

    def __init__(self) -> None:
        import threading

        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        self._event.wait(LIMIT_S)
        raise StopIteration


def finished(call: Any) -> tuple[Any, list[Any]]:
    """Status and messages of a receive; its last answer is the time."""
    answers = [pb.ReceiveMessageResponse.FromString(each) for each in call]
    kinds = [answer.WhichOneof("content") for answer in answers]
    assert kinds == ["status", *["message"] * (len(kinds) - 2), "delivery_timestamp"], kinds
    return answers[0].status, [answer.message for answer in answers[1:-1]]


def seconds(count: float) -> Any:
    return pb.Duration(seconds=int(count), nanos=int(count % 1 * 1e9))


def message(
    topic: str,
    body: bytes,
    *,
    message_id: str | None = None,
    properties: dict[str, str] | None = None,
    **system: Any,
) -> Any:
    """A message as clients send it; `system` are fields of its system properties."""
    told = {"message_id": f"id-{next(_IDS)}" if message_id is None else message_id, "body_encoding": 1} | system
    return pb.Message(
        topic=pb.Resource(name=topic),
        user_properties=properties or {},
        system_properties=pb.SystemProperties(**told),
        body=body,
    )


def consumer_settings(
    group: str, filters: dict[str, tuple[int, str]], kind: int = pb.ClientType.SIMPLE_CONSUMER
) -> Any:
    """The settings of a consumer as a command; filters by topic: type and text."""
    entries = [
        pb.SubscriptionEntry(
            topic=pb.Resource(name=topic), expression=pb.FilterExpression(type=each[0], expression=each[1])
        )
        for topic, each in filters.items()
    ]
    subscription = pb.Subscription(group=pb.Resource(name=group), subscriptions=entries)
    return pb.TelemetryCommand(settings=pb.Settings(client_type=kind, subscription=subscription))


def producer_settings(*topics: str) -> Any:
    publishing = pb.Publishing(topics=[pb.Resource(name=topic) for topic in topics])
    return pb.TelemetryCommand(settings=pb.Settings(client_type=pb.ClientType.PRODUCER, publishing=publishing))


def codes(statuses: Sequence[Any]) -> list[Status]:
    return [Status(each.status.code) for each in statuses]
