"""The stored and the delivered form of messages: kernel and Python agree, and what filters see stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqp_strategies import amqp_messages
from headgate import kernels
from headgate.errors import AccessRefusedError, HeadgateError, MessageError, PreconditionFailedError
from headgate.message import AmqpType, AmqpValue, Body, EncodedMessages, Message, encode_value
from headgate.protocols.amqp10.messages import annotated_message, delivered_message, store_messages, stored_message
from strategies import damaged_messages

SYMBOL = AmqpType.SYMBOL


def _stored(message: Message | bytes, user: str = "guest") -> tuple[Message, bytes | None]:
    data = message if isinstance(message, bytes) else message.encode()
    stored, value = stored_message(data, routing=("", "q"), user=user)
    return Message.decode(stored), value


def test_a_stored_message_says_how_it_came_and_is_durable() -> None:
    stored, value = _stored(Message(b"body", message_annotations={"x-opt": 1}, properties={"subject": "s"}))
    assert value is None
    assert stored.describe() == {
        "header": {"durable": True, "first-acquirer": True, "delivery-count": 0},
        "message_annotations": {"x-opt": 1, "x-exchange": "", "x-routing-key": "q"},
        "properties": {"subject": "s"},
        "body": {"data": "body"},
    }


def test_what_the_header_says_is_kept() -> None:
    stored, _ = _stored(Message(b"", header={"durable": False, "priority": 7, "ttl": 1000, "delivery-count": 3}))
    assert {name: value.value for name, value in stored.header.items()} == {
        "durable": False,
        "priority": 7,
        "ttl": 1000,
        "first-acquirer": True,
        "delivery-count": 0,
    }


def test_everything_from_properties_on_keeps_its_bytes() -> None:
    bare = Message(
        Body.data(b"a", b"b"), properties={"subject": "s"}, application_properties={"a": 1}, footer={"crc": 1}
    ).encode()
    data = Message(None, delivery_annotations={"d": 1}, message_annotations={"m": 1}).encode() + bare
    stored, _ = stored_message(data, routing=("e", "k"), user="guest")
    assert stored.endswith(bare)
    assert b"d" not in stored[: -len(bare)].replace(b"guest", b"").split(b"x-exchange")[0][-4:]


def test_the_filter_value_is_a_string_and_stays_an_annotation() -> None:
    stored, value = _stored(Message(b"", message_annotations={"x-stream-filter-value": "AMER"}))
    assert value == b"AMER"
    assert stored.message_annotations["x-stream-filter-value"].value == "AMER"


@pytest.mark.parametrize(
    "value", [AmqpValue(SYMBOL, "AMER"), 5, b"AMER", None, True], ids=["symbol", "int", "binary", "null", "boolean"]
)
def test_a_filter_value_of_another_type_refuses_the_message(value: object) -> None:
    data = Message(b"", message_annotations={"x-stream-filter-value": value}).encode()
    with pytest.raises(PreconditionFailedError, match="x-stream-filter-value is a string"):
        _stored(data)
    refused = _bulk([data]).refused
    assert isinstance(refused[0], PreconditionFailedError)


def test_a_user_id_is_the_authenticated_user() -> None:
    message = Message(b"", properties={"user-id": b"guest"})
    _stored(message)
    with pytest.raises(AccessRefusedError, match="user-id"):
        _stored(message, user="other")
    assert isinstance(_bulk([message.encode()], user="gues").refused[0], AccessRefusedError)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        Message(None, properties={"subject": "no body"}).encode(),
        Message(b"x").encode()[:-1],
        Message(b"x").encode() + b"\x00",
        Message(Body.value(1)).encode() + Message(Body.value(2)).encode(),
        Message(b"x").encode() + Message(Body.value(2)).encode(),
        Message(None, footer={"a": 1}).encode(),
        bytes.fromhex("005375a10161"),
        bytes.fromhex("005376a10161"),
    ],
    ids=str,
)
def test_bytes_that_are_no_message_with_a_body_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        _stored(data)
    assert isinstance(_bulk([data]).refused[0], MessageError)


def test_a_message_that_was_consumed_can_be_published_again() -> None:
    first, _ = stored_message(Message(b"x").encode(), routing=("", "a"), user="guest")
    delivered = delivered_message(first, 77)
    stored, _ = stored_message(delivered, routing=("", "b"), user="guest")
    again = delivered_message(stored, 99)
    annotations = Message.decode(again).message_annotations
    assert {key: value.value for key, value in annotations.items()} == {
        "x-exchange": "",
        "x-routing-key": "b",
        "x-stream-offset": 99,
    }
    assert _bulk([delivered], key="b").messages.message(0) == stored


def test_a_delivered_message_has_its_offset_as_a_long() -> None:
    delivered = Message.decode(delivered_message(Message(b"x", application_properties={"a": 1}).encode(), 2**40))
    assert delivered.message_annotations["x-stream-offset"] == AmqpValue(AmqpType.LONG, 2**40)
    assert delivered.application_properties["a"].value == 1
    assert delivered.header["durable"].value is True


@pytest.mark.parametrize("data", [b"", b"hello", b"\x00\x53\x72\xc1\xff\x00", b"\x00\x53\x70\xc0\x02\x01\x00"])
def test_bytes_that_are_no_message_are_delivered_as_data(data: bytes) -> None:
    delivered = Message.decode(delivered_message(data, 3))
    assert delivered.body.octets() == data
    assert delivered.message_annotations["x-stream-offset"].value == 3


def test_a_delivery_has_its_own_count_and_annotations() -> None:
    message = Message(
        b"x",
        header={"priority": 3, "ttl": 70, "delivery-count": 9},
        message_annotations={"x-opt-own": "old", "x-kept": 1},
        properties={"subject": "s"},
    )
    own = {"x-opt-own": AmqpValue(AmqpType.TIMESTAMP, 5), "x-opt-wide": AmqpValue(AmqpType.STRING, "w" * 300)}
    first, again = (
        Message.decode(annotated_message(message.encode(), own, delivery_count=count)) for count in (0, 300)
    )
    assert again.message_annotations == {"x-kept": AmqpValue(AmqpType.LONG, 1), **own} == first.message_annotations
    assert {name: (value.type, value.value) for name, value in again.header.items()} == {
        "priority": (AmqpType.UBYTE, 3),
        "ttl": (AmqpType.UINT, 70),
        "first-acquirer": (AmqpType.BOOLEAN, False),
        "delivery-count": (AmqpType.UINT, 300),
    }
    assert (first.header["first-acquirer"].value, first.header["delivery-count"].value) == (True, 0)
    assert again.properties["subject"].value == "s" and again.body.octets() == b"x"


@pytest.mark.parametrize("header", [{}, {"durable": False, "priority": 3, "ttl": 70}, {"delivery-count": 5}])
def test_a_stored_message_is_its_own_first_delivery(header: dict[str, object]) -> None:
    message = Message(b"x", header=header, message_annotations={"x-own": 1}).encode()
    stored, _ = stored_message(message, routing=("", "q"), user="guest")
    assert annotated_message(stored, {}, delivery_count=0) == stored
    again = annotated_message(stored, {}, delivery_count=2)
    assert Message.decode(again).header["delivery-count"].value == 2
    assert annotated_message(again, {}, delivery_count=0) == stored


def test_a_count_whose_bytes_look_like_a_first_delivery_is_not_delivered() -> None:
    counted = annotated_message(Message(b"x").encode(), {}, delivery_count=0x4143)
    assert Message.decode(annotated_message(counted, {}, delivery_count=0)).header["delivery-count"].value == 0


@pytest.mark.parametrize("data", [b"", b"hello"])
def test_a_delivery_of_no_message_has_its_own_count_and_annotations(data: bytes) -> None:
    delivered = Message.decode(annotated_message(data, {"x": AmqpValue(AmqpType.LONG, 7)}, delivery_count=2))
    assert delivered.body.octets() == data
    assert delivered.message_annotations["x"].value == 7 and delivered.header["delivery-count"].value == 2


@given(st.one_of(amqp_messages(), st.binary(max_size=30)), st.integers(128, 2**63 - 1))
def test_annotated_messages_are_delivered_ones_where_they_say_the_same(data: bytes, offset: int) -> None:
    own = {"x-stream-offset": AmqpValue(AmqpType.LONG, offset)}
    assert annotated_message(data, own, delivery_count=0) == delivered_message(data, offset)


def _bulk(messages: list[bytes], *, user: str = "guest", key: str = "q"):
    return store_messages(EncodedMessages.of(messages), routing=("", key), user=user)


_annotations = st.dictionaries(
    st.sampled_from(("x-stream-filter-value", "x-exchange", "x-opt-a", "k", "x-stream-offset", "y" * 30)),
    st.one_of(st.text(max_size=5), st.integers(-5, 300), st.just("v" * 300)),
    max_size=4,
)
_built = st.builds(
    lambda body, annotations, properties, header, wide: Message(
        body,
        header=header,
        message_annotations=annotations if not wide else {**annotations, "w": "w" * 300},
        properties=properties,
    ).encode(),
    st.one_of(st.binary(max_size=20), st.just(Body.value("text")), st.just(Body.sequence([1, 2]))),
    _annotations,
    st.none() | st.fixed_dictionaries({}, optional={"subject": st.text(max_size=4), "user-id": st.just(b"guest")}),
    st.none() | st.fixed_dictionaries({}, optional={"priority": st.integers(0, 9), "durable": st.booleans()}),
    st.booleans(),
)


@given(st.lists(st.one_of(_built, amqp_messages(), st.binary(max_size=30)), max_size=6))
def test_storing_in_bulk_gives_what_storing_one_by_one_gives(messages: list[bytes]) -> None:
    assert kernels.load("headgate.protocols.amqp10.kernel") is not None
    stored = _bulk(messages)
    for row, data in enumerate(messages):
        if row in stored.refused:
            with pytest.raises(type(stored.refused[row])):
                stored_message(data, routing=("", "q"), user="guest")
            continue
        expected, value = stored_message(data, routing=("", "q"), user="guest")
        assert stored.messages.message(row) == expected
        assert (None if stored.filter_values is None else stored.filter_values.value(row)) == value


def _store_one(data: bytes, **options: Any) -> tuple[bytes, bytes | None]:
    stored = store_messages(EncodedMessages.of([data]), **options)
    for error in stored.refused.values():
        raise error
    return stored.messages.message(0), None if stored.filter_values is None else stored.filter_values.value(0)


def _outcome(store: Callable[..., tuple[bytes, bytes | None]], data: bytes, **options: Any) -> object:
    try:
        return store(data, **options)
    except HeadgateError as error:
        return type(error), str(error)


@given(
    st.lists(st.one_of(_built, amqp_messages(), st.binary(max_size=30)), max_size=4),
    st.sampled_from(("q", "k" * 200, "k" * 2000)),
    st.sampled_from(("guest", "other")),
)
@example([Message(bytes(9000)).encode(), Message(b"").encode()], "q", "guest")
def test_storing_one_message_gives_the_same_for_every_destination(messages: list[bytes], key: str, user: str) -> None:
    assert kernels.load("headgate.protocols.amqp10.kernel") is not None
    for data in messages:
        options = {"routing": ("", key), "user": user}
        assert _outcome(_store_one, data, **options) == _outcome(stored_message, data, **options)


@given(damaged_messages())
@example(b"\x00\x53\x73\xc0\x30\x06\x55")
def test_damaged_messages_of_anybody_are_stored_or_refused_alike(data: bytes) -> None:
    assert kernels.load("headgate.protocols.amqp10.kernel") is not None
    for left_out in ((), ("x-inside",)):
        options = {"routing": None, "user": None, "left_out": left_out}
        assert _outcome(_store_one, data, **options) == _outcome(stored_message, data, **options)


def test_without_kernels_storing_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [
        Message(b"x", message_annotations={"x-stream-filter-value": "ä"}).encode(),
        b"bad",
        Message(b"").encode(),
    ]
    fast = _bulk(messages)
    monkeypatch.setattr(kernels, "load", lambda module: None)
    slow = _bulk(messages)
    for row in (0, 2):
        assert fast.messages.message(row) == slow.messages.message(row)
        assert fast.filter_values.value(row) == slow.filter_values.value(row)
    assert fast.refused.keys() == slow.refused.keys() == {1}
    assert np.array_equal(fast.messages.lengths, slow.messages.lengths)


def test_an_encoded_symbol_in_its_wide_form_is_still_the_filter_value() -> None:
    key = bytes.fromhex("b300000015") + b"x-stream-filter-value"
    content = key + encode_value(AmqpValue(AmqpType.STRING, "v"))
    data = bytes.fromhex("005372c1") + bytes([len(content) + 1, 2]) + content + Message(b"").encode()
    assert _bulk([data]).filter_values.value(0) == b"v"
