"""Topics and consumer groups on a running RocketMQ, made as its own command line tool makes them."""

from __future__ import annotations

import itertools
import json
import socket
import struct
from typing import Any

_UPDATE_TOPIC = 17
_UPDATE_GROUP = 200
_opaque = itertools.count(1)


def declare_topic(port: int, name: str, queues: int, kind: str) -> None:
    """A topic at the broker on this port."""
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": f"+message.type={kind}",
    }
    _call(port, _UPDATE_TOPIC, fields)


def declare_group(port: int, name: str, is_fifo: bool, retries: int) -> None:
    """A consumer group at the broker on this port."""
    settings = {
        "groupName": name,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": is_fifo,
        "retryQueueNums": 1,
        "retryMaxTimes": retries,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
    }
    _call(port, _UPDATE_GROUP, {}, json.dumps(settings).encode())


def _call(port: int, code: int, fields: dict[str, str], body: bytes = b"") -> dict[str, Any]:
    given = {"code": code, "language": "JAVA", "version": 513, "opaque": next(_opaque), "flag": 0, "extFields": fields}
    header = json.dumps(given).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        reader = connection.makefile("rb")
        _, header_size = struct.unpack(">ii", reader.read(8))
        answer: dict[str, Any] = json.loads(reader.read(header_size & 0xFFFFFF))
    assert answer["code"] == 0, answer
    return answer
