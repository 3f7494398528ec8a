"""rocketmq-python-client, driven by lines of JSON."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import threading
from typing import Any

from lines import Inbox, serve
from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from rocketmq.grpc_protocol import FilterType

LONG_BYTES = 1000
"""Longer bodies are told as their length and MD5."""

_numbers = itertools.count(1)
_held: dict[int, Message] = {}
_consumers: dict[str, Any] = {}
_inboxes: dict[str, Inbox] = {}
_place: dict[str, Any] = {}


def _configuration() -> ClientConfiguration:
    keys = Credentials(*_place["keys"]) if _place["keys"] else Credentials()
    return ClientConfiguration(_place["endpoint"], keys, request_timeout=10)


def connect(host: str, port: int, tls: bool = False, keys: list[str] | None = None) -> None:
    _place.update(endpoint=f"{host}:{port}", tls=tls, keys=keys)


def _producer() -> Producer:
    if "producer" not in _consumers:
        _consumers["producer"] = Producer(_configuration(), tls_enable=_place["tls"])
        _consumers["producer"].startup()
    return _consumers["producer"]


def _made(topic: str, fields: dict[str, Any]) -> Message:
    message = Message()
    message.topic = topic
    message.body = b"x" * fields["size"] if "size" in fields else fields["body"].encode()
    if "tag" in fields:
        message.tag = fields["tag"]
    for key in fields.get("keys", ()):
        message.keys = key
    if "group" in fields:
        message.message_group = fields["group"]
    if "due_ms" in fields:
        # This library takes whole seconds.
        message.delivery_timestamp = math.ceil(fields["due_ms"] / 1000)
    for name, value in fields.get("properties", {}).items():
        message.add_property(name, value)
    return message


def send(topic: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    receipts = [_producer().send(_made(topic, fields)) for fields in messages]
    return [{"message_id": receipt.message_id, "recall": receipt.recall_handle or None} for receipt in receipts]


def recall(topic: str, handle: str) -> str:
    return str(_producer().recall_message(topic, handle))


def _told(message: Message) -> dict[str, Any]:
    number = next(_numbers)
    _held[number] = message
    body = message.body
    return {
        "number": number,
        "body": f"{len(body)} {hashlib.md5(body).hexdigest()}" if len(body) > LONG_BYTES else body.decode(),
        "topic": message.topic,
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "group": message.message_group,
        "attempt": message.delivery_attempt,
        "is_corrupted": message.corrupted,
    }


def _expressions(topics: dict[str, dict[str, str]]) -> dict[str, FilterExpression]:
    return {
        topic: FilterExpression(how["sql"], FilterType.SQL) if "sql" in how else FilterExpression(how.get("tag", "*"))
        for topic, how in topics.items()
    }


def open_(id: str, group: str, topics: dict[str, dict[str, str]], wait_seconds: int = 10) -> None:
    expressions = _expressions(topics)
    consumer = SimpleConsumer(_configuration(), group, expressions, wait_seconds, tls_enable=_place["tls"])
    consumer.startup()
    _consumers[id] = consumer


def receive(id: str, count: int = 32, invisible_seconds: int = 30) -> list[dict[str, Any]]:
    return [_told(message) for message in _consumers[id].receive(count, invisible_seconds)]


def ack(id: str, numbers: list[int]) -> None:
    for number in numbers:
        _consumers[id].ack(_held[number])


def change_invisible(id: str, number: int, seconds: int) -> None:
    _consumers[id].change_invisible_duration(_held[number], seconds)


class _Listener(MessageListener):
    def __init__(self, inbox: Inbox, fails: dict[str, int]) -> None:
        self._inbox = inbox
        self._fails = dict(fails)
        self._lock = threading.Lock()

    def consume(self, message: Message) -> ConsumeResult:
        told = _told(message)
        with self._lock:
            left = self._fails.get(told["body"], 0)
            self._fails[told["body"]] = left - 1
            self._inbox.put(told)
        return ConsumeResult.FAILURE if left > 0 else ConsumeResult.SUCCESS


def push(id: str, group: str, topics: dict[str, dict[str, str]], fails: dict[str, int] | None = None) -> None:
    inbox = _inboxes[id] = Inbox()
    listener = _Listener(inbox, fails or {})
    consumer = PushConsumer(_configuration(), group, listener, _expressions(topics), tls_enable=_place["tls"])
    consumer.startup()
    _consumers[id] = consumer


def take(id: str, until: list[str], seconds: float = 20) -> list[dict[str, Any]]:
    return _inboxes[id].take(until, seconds)


def shut(id: str) -> None:
    _consumers.pop(id).shutdown()


def close() -> None:
    for consumer in _consumers.values():
        with contextlib.suppress(Exception):
            consumer.shutdown()
    _consumers.clear()


serve(
    {
        "connect": connect,
        "send": send,
        "recall": recall,
        "open": open_,
        "receive": receive,
        "ack": ack,
        "change_invisible": change_invisible,
        "push": push,
        "take": take,
        "shut": shut,
        "close": close,
    }
)
