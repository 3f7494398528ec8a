"""Checks of client input: names, tags, keys, properties, message groups, bodies, times.

Each check raises RemoteProtocolError with the status of gRPC and the original's text. Names are measured in UTF-16
units, as in Java; sizes are bytes of UTF-8. Source: `GrpcValidator`, `SendMessageActivity`, `TopicValidator` and
`Validators` of RocketMQ 5.5; rocketmq_filters, section 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.message import SYSTEM_PROPERTIES
from headgate.protocols.rocketmq.bodies import body_too_large
from headgate.protocols.rocketmq.codes import Status, refused

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
AUTOMATIC_TOPIC = "TBW102"
"""The topic whose route classic producers ask for when their own topic does not exist yet."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_ALLOWED = "^[%|a-zA-Z0-9_-]+$"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TOPIC_CHARACTERS = 127
_LONG_TOPIC_CHARACTERS = 255
_GROUP_CHARACTERS = 120
_SYSTEM_TOPIC_PREFIX = "rmq_sys_"
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_SYSTEM_TOPICS = frozenset(
    {
        AUTOMATIC_TOPIC,
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    }
)


_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of messages and times, with the original's defaults; bytes, milliseconds, numbers of user properties."""

    body_bytes: int = 4 * 1024 * 1024
    properties: int = 128
    properties_bytes: int = 16 * 1024
    message_group_bytes: int = 64
    delay_ms: int = 24 * _HOUR_MS
    min_invisible_ms: int = 10_000
    max_invisible_ms: int = 12 * _HOUR_MS


def check_topic(name: str, *, allow_system: bool = False) -> None:
    """Refuse a name that no topic can have and, unless allowed, the names of RocketMQ's own system topics.

    Names of retry and dead-letter topics may be longer.
    """
    is_long = name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    reason = _name_reason("The specified topic", name, _LONG_TOPIC_CHARACTERS if is_long else _TOPIC_CHARACTERS)
    if reason is None and not allow_system and (name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_TOPIC_PREFIX)):
        reason = "cannot access system topic"
    if reason is not None:
        raise refused(Status.ILLEGAL_TOPIC, reason)


def check_group(name: str) -> None:
    """Refuse a name that no consumer group can have, and the names of RocketMQ's own system groups."""
    reason = _name_reason("the specified group", name, _GROUP_CHARACTERS)
    if reason is None and name.startswith(_SYSTEM_GROUP_PREFIX):
        reason = "cannot use system consumer group"
    if reason is not None:
        raise refused(Status.ILLEGAL_CONSUMER_GROUP, reason)


def _name_reason(kind: str, name: str, limit: int) -> str | None:
    if not name.strip():
        return f"{kind} is blank"
    if len(name) > limit:
        return f"{kind}[{name}] is longer than {kind.split()[-1]} max length: {limit}."
    if not _NAME.fullmatch(name):
        return f"{kind}[{name}] contains illegal characters, allowing only {_ALLOWED}"
    return None


def check_tag(tag: str) -> None:
    """Refuse a tag; the empty one is none."""
    if not tag:
        return
    reason = None
    if not tag.strip():
        reason = "tag cannot be the char sequence of whitespace"
    elif "|" in tag:
        reason = "tag cannot contain '|'"
    elif _CONTROL.search(tag):
        reason = "tag cannot contain control character"
    if reason is not None:
        raise refused(Status.ILLEGAL_MESSAGE_TAG, reason)


def check_keys(keys: Iterable[str]) -> None:
    """Refuse keys that are blank or have control characters."""
    for key in keys:
        if key and not key.strip():
            raise refused(Status.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace")
        if _CONTROL.search(key):
            raise refused(Status.ILLEGAL_MESSAGE_KEY, "key cannot contain control character")


def check_properties(user: Mapping[str, str], tag: str, keys: Sequence[str], limits: Limits) -> None:
    """Refuse user properties: too many, with reserved names or control characters, or too large with tag and keys."""
    if len(user) > limits.properties:
        raise refused(Status.MESSAGE_PROPERTIES_TOO_LARGE, f"too many user properties, max is {limits.properties}")
    if not SYSTEM_PROPERTIES.keys().isdisjoint(user):
        name = next(name for name in user if name in SYSTEM_PROPERTIES)
        raise refused(Status.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
    everything = "".join([*user, *user.values()])
    if _CONTROL.search(everything):
        part = "key" if any(map(_CONTROL.search, user)) else "value"
        raise refused(Status.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the {part} of property cannot contain control character")
    if len("".join([everything, tag, *keys]).encode("utf-8", "replace")) > limits.properties_bytes:
        raise refused(
            Status.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {limits.properties_bytes}",
        )


def check_message_group(name: str, limits: Limits) -> None:
    """Refuse a group that is blank, too long or has control characters; an empty one is no group."""
    if not name:
        return
    reason = None
    if not name.strip():
        reason = "message group cannot be the char sequence of whitespace"
    elif len(name.encode("utf-8", "replace")) >= limits.message_group_bytes:
        reason = f"message group exceed the max size {limits.message_group_bytes}"
    elif _CONTROL.search(name):
        reason = "message group cannot contain control character"
    if reason is not None:
        raise refused(Status.ILLEGAL_MESSAGE_GROUP, reason)


def check_message_id(text: str) -> None:
    """Refuse a message id that is blank."""
    if not text.strip():
        raise refused(Status.ILLEGAL_MESSAGE_ID, "message id cannot be empty")


def check_body(body: bytes, limits: Limits) -> None:
    """Refuse a body that is empty or too large."""
    if not body:
        raise refused(Status.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > limits.body_bytes:
        raise body_too_large(limits.body_bytes)


def check_delivery_time(due_ms: int, now_ms: int, limits: Limits) -> None:
    """Refuse a message that is to be delivered too late."""
    if due_ms - now_ms > limits.delay_ms:
        raise refused(
            Status.ILLEGAL_DELIVERY_TIME,
            f"the max delay time of message is too large, max is {limits.delay_ms}",
        )


def check_invisible_time(invisible_ms: int, limits: Limits, *, is_changed: bool) -> None:
    """Refuse an invisible time that is too long or too short; a changed time is too short only below 0."""
    minimum_ms = 0 if is_changed else limits.min_invisible_ms
    if invisible_ms < minimum_ms:
        raise refused(Status.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {minimum_ms}")
    if invisible_ms > limits.max_invisible_ms:
        raise refused(
            Status.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {limits.max_invisible_ms}"
        )
