"""What clients may send, and with which status the rest is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.errors import RemoteProtocolError
from headgate.protocols import rocketmq
from headgate.protocols.rocketmq import Limits, Status

LIMITS = Limits()


def properties(user: dict[str, str], tag: str = "", keys: tuple[str, ...] = ()) -> None:
    rocketmq.check_properties(user, tag, keys, LIMITS)


@pytest.mark.parametrize(
    "allowed",
    [
        lambda: rocketmq.check_topic("%a|B-_9" + "x" * 120),
        lambda: rocketmq.check_topic("%RETRY%" + "x" * 248),
        lambda: rocketmq.check_topic("RMQ_SYS_TRACE_TOPIC", allow_system=True),
        lambda: rocketmq.check_group("x" * 120),
        lambda: rocketmq.check_tag(""),
        lambda: rocketmq.check_tag("a b"),
        lambda: rocketmq.check_keys(["", "a b"]),
        lambda: properties({f"name{number}": "" for number in range(128)}),
        lambda: properties({"n": "x" * (16 * 1024 - 4)}, "tag"),
        lambda: properties({"__SHARDINGKEY": "a", "tags": "b"}),
        lambda: rocketmq.check_message_group("x" * 63, LIMITS),
        lambda: rocketmq.check_message_group("", LIMITS),
        lambda: rocketmq.check_body(bytes(4 * 1024 * 1024), LIMITS),
        lambda: rocketmq.check_delivery_time(86_400_005, 5, LIMITS),
        lambda: rocketmq.check_invisible_time(10_000, LIMITS, is_changed=False),
        lambda: rocketmq.check_invisible_time(0, LIMITS, is_changed=True),
        lambda: rocketmq.check_message_id("7F"),
    ],
)
def test_what_is_allowed(allowed: Callable[[], None]) -> None:
    allowed()


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        (Status.ILLEGAL_TOPIC, lambda: rocketmq.check_topic(" ")),
        (Status.ILLEGAL_TOPIC, lambda: rocketmq.check_topic("a.b")),
        (Status.ILLEGAL_TOPIC, lambda: rocketmq.check_topic("ä")),
        (Status.ILLEGAL_TOPIC, lambda: rocketmq.check_topic("a\n")),
        (Status.ILLEGAL_TOPIC, lambda: rocketmq.check_topic("x" * 128)),
        (Status.ILLEGAL_TOPIC, lambda: rocketmq.check_topic("%DLQ%" + "x" * 251)),
        (Status.ILLEGAL_TOPIC, lambda: rocketmq.check_topic("TBW102")),
        (Status.ILLEGAL_TOPIC, lambda: rocketmq.check_topic("rmq_sys_x")),
        (Status.ILLEGAL_CONSUMER_GROUP, lambda: rocketmq.check_group("")),
        (Status.ILLEGAL_CONSUMER_GROUP, lambda: rocketmq.check_group("x" * 121)),
        (Status.ILLEGAL_CONSUMER_GROUP, lambda: rocketmq.check_group("a b")),
        (Status.ILLEGAL_CONSUMER_GROUP, lambda: rocketmq.check_group("CID_RMQ_SYS_x")),
        (Status.ILLEGAL_MESSAGE_TAG, lambda: rocketmq.check_tag(" ")),
        (Status.ILLEGAL_MESSAGE_TAG, lambda: rocketmq.check_tag("a|b")),
        (Status.ILLEGAL_MESSAGE_TAG, lambda: rocketmq.check_tag("a\x7f")),
        (Status.ILLEGAL_MESSAGE_KEY, lambda: rocketmq.check_keys(["a", " "])),
        (Status.ILLEGAL_MESSAGE_KEY, lambda: rocketmq.check_keys(["\x00"])),
        (Status.MESSAGE_PROPERTIES_TOO_LARGE, lambda: properties({f"name{number}": "" for number in range(129)})),
        (Status.MESSAGE_PROPERTIES_TOO_LARGE, lambda: properties({"n": "ä" * 8191}, "t", ("k", "l"))),
        (Status.ILLEGAL_MESSAGE_PROPERTY_KEY, lambda: properties({"a": "b", "TAGS": "c"})),
        (Status.ILLEGAL_MESSAGE_PROPERTY_KEY, lambda: properties({"a\x01": "b"})),
        (Status.ILLEGAL_MESSAGE_PROPERTY_KEY, lambda: properties({"a": "\x9f"})),
        (Status.ILLEGAL_MESSAGE_GROUP, lambda: rocketmq.check_message_group(" ", LIMITS)),
        (Status.ILLEGAL_MESSAGE_GROUP, lambda: rocketmq.check_message_group("x" * 64, LIMITS)),
        (Status.ILLEGAL_MESSAGE_GROUP, lambda: rocketmq.check_message_group("a\t", LIMITS)),
        (Status.ILLEGAL_MESSAGE_ID, lambda: rocketmq.check_message_id(" ")),
        (Status.MESSAGE_BODY_EMPTY, lambda: rocketmq.check_body(b"", LIMITS)),
        (Status.MESSAGE_BODY_TOO_LARGE, lambda: rocketmq.check_body(bytes(5), Limits(body_bytes=4))),
        (Status.ILLEGAL_DELIVERY_TIME, lambda: rocketmq.check_delivery_time(86_400_006, 5, LIMITS)),
        (Status.ILLEGAL_INVISIBLE_TIME, lambda: rocketmq.check_invisible_time(9_999, LIMITS, is_changed=False)),
        (Status.ILLEGAL_INVISIBLE_TIME, lambda: rocketmq.check_invisible_time(-1, LIMITS, is_changed=True)),
        (Status.ILLEGAL_INVISIBLE_TIME, lambda: rocketmq.check_invisible_time(43_200_001, LIMITS, is_changed=True)),
    ],
)
def test_what_is_refused(status: Status, refused: Callable[[], None]) -> None:
    with pytest.raises(RemoteProtocolError) as found:
        refused()
    assert found.value.code == status


def test_delay_levels_are_the_original_s() -> None:
    assert [rocketmq.delay_ms(level) for level in (-1, 0, 1, 3, 5, 14, 18, 19)] == [
        *(0, 0, 1_000, 10_000, 60_000, 600_000, 7_200_000, 7_200_000)
    ]


def test_the_reason_is_the_original_s() -> None:
    for check, reason in (
        (
            lambda: rocketmq.check_topic("bad!topic"),
            "The specified topic[bad!topic] contains illegal characters, allowing",
        ),
        (lambda: rocketmq.check_group(""), "the specified group is blank"),
        (lambda: properties({"TAGS": "c"}), "property is used by system: TAGS"),
        (lambda: properties({"a": "\x01"}), "the value of property cannot contain control character"),
    ):
        with pytest.raises(RemoteProtocolError) as found:
            check()
        assert str(found.value).startswith(reason)
