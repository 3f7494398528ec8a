"""Messages as they are stored for Service Bus, and as receivers get them; batches."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_strategies import amqp_messages
from examples import examples
from headgate import kernels
from headgate.errors import MessageError
from headgate.language.servicebus import Limits
from headgate.message import (
    AmqpType,
    AmqpValue,
    Body,
    EncodedMessages,
    FieldReference,
    Message,
    Section,
    amqp_value,
)
from headgate.protocols.amqp10 import StoredMessages
from headgate.protocols.servicebus import (
    Given,
    GivenMessages,
    Identifiers,
    beyond_limits,
    delivered,
    delivered_messages,
    stored,
    unbatched,
)
from strategies import damaged_messages

GIVEN = Given(sequence_number=11, enqueued_sequence_number=10, enqueued_ms=1_000, delivery_count=2)
OURS = ("x-inside",)
_NUMBER = FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-opt-sequence-number")


def _ids(count: int) -> bytes:
    return b"".join(b"%032d" % number for number in range(count))


def _stored_form(messages: EncodedMessages) -> StoredMessages:
    return stored(messages, Identifiers.of(messages), left_out=OURS, new_ids=_ids)


def _stored(*messages: Message) -> list[Message]:
    found = _stored_form(EncodedMessages.of([message.encode() for message in messages]))
    assert not found.refused and found.filter_values is None
    return [Message.decode(found.messages.message(row)) for row in range(len(messages))]


def test_a_message_without_an_id_gets_one() -> None:
    sent = [Message(b"a"), Message(b"b", subject="s"), Message(b"c", message_id="mine"), Message(b"d", message_id=7)]
    found = _stored(*sent)
    made = _ids(2).decode()
    assert [each.properties["message-id"].value for each in found] == [made[:32], made[32:], "mine", 7]
    assert found[1].properties["subject"].value == "s"
    assert [each.body for each in found] == [each.body for each in sent]


def test_a_message_without_a_body_is_stored_with_an_empty_one_and_delivered_without() -> None:
    bare = [
        Message(None, subject="go"),
        Message(None, application_properties={"a": 1}, footer={"f": "g"}),
        Message(None, durable=True),
        Message(None),
    ]
    others = [Message(b""), Message(Body.value(None)), Message(b"", message_annotations={"x-headgate-no-body": True})]
    found = _stored(*bare, *others)
    assert [each.body for each in found[: len(bare)]] == [Body.data(b"")] * len(bare)
    given = [Message.decode(delivered(each.encode(), GIVEN, left_out=())) for each in found]
    assert [each.body for each in given] == [None] * len(bare) + [each.body for each in others]
    assert [given[0].properties["subject"].value, given[1].footer] == ["go", bare[1].footer]
    assert not any("x-headgate-no-body" in each.message_annotations for each in given)


def test_what_only_the_broker_says_is_not_stored() -> None:
    annotations = {
        "x-opt-sequence-number": 5,
        "x-opt-enqueued-time": AmqpValue(AmqpType.TIMESTAMP, 5),
        "x-opt-partition-key": "p",
        "x-inside": 1,
        "x-exchange": "e",
    }
    (found,) = _stored(Message(b"a", message_id="m", message_annotations=annotations, user_id=b"somebody"))
    assert set(found.message_annotations) == {"x-opt-partition-key"}
    assert found.properties["user-id"].value == b"somebody"


def test_bytes_that_are_no_message_are_refused_alone() -> None:
    found = _stored_form(EncodedMessages.of([b"\x01", Message(b"a").encode()]))
    assert list(found.refused) == [0] and isinstance(found.refused[0], MessageError)


@given(st.lists(damaged_messages(), min_size=1, max_size=5))
def test_damaged_messages_are_stored_or_refused_and_delivered_whatever_they_are(damaged: list[bytes]) -> None:
    sent = EncodedMessages.of(damaged)
    found = _stored_form(sent)
    beyond_limits(sent, Identifiers.of(sent), Limits(identifier_characters=4, property_bytes=10, properties_bytes=15))
    for row, data in enumerate(damaged):
        given_out = [data] if row in found.refused else [data, found.messages.message(row)]
        for one in given_out:
            assert Message.decode(delivered(one, GIVEN, left_out=OURS)).value(_NUMBER) == amqp_value(11)
            delivered(one, replace(GIVEN, time_to_live_ms=5), left_out=OURS)


@given(damaged_messages(), st.lists(damaged_messages(), min_size=1, max_size=3))
def test_what_is_no_batch_is_refused(damaged: bytes, messages: list[bytes]) -> None:
    for data in (damaged, Message(Body.data(*messages)).encode() + damaged, damaged + Message(b"x").encode()):
        with contextlib.suppress(MessageError):
            unbatched(data)


def test_a_message_whose_properties_are_not_what_they_announce_is_refused_and_delivered_as_it_is() -> None:
    wrong = b"\x00\x53\x73\xc0\x03\x02\x40\xa0" + Message(b"x").encode()
    found = _stored_form(EncodedMessages.of([wrong, Message(b"y").encode()]))
    assert list(found.refused) == [0] and isinstance(found.refused[0], MessageError)
    assert delivered(wrong, GIVEN, left_out=OURS).endswith(wrong)


def test_what_is_larger_than_allowed_is_named() -> None:
    limits = Limits(identifier_characters=4, property_bytes=100, properties_bytes=150)
    given = [
        Message(b"x" * 1000, message_id="1234", group_id="äöüß", application_properties={"a": "x" * 60, "b": "x" * 60}),
        Message(b"x", message_id="12345"),
        Message(b"x", group_id="12345"),
        Message(b"x", message_annotations={"x-opt-partition-key": "12345"}),
        Message(b"x", application_properties={"a": 1, "b": "x" * 100}),
        Message(b"x", application_properties={"a": "x" * 70, "b": "x" * 80}),
        Message(b"x", message_id=12345),
    ]
    sent = EncodedMessages.of([message.encode() for message in given])
    found = beyond_limits(sent, Identifiers.of(sent), limits)
    assert {row: error.reason.partition(" of ")[0] for row, error in found.items()} == {
        1: "a message id", 2: "a session id", 3: "a partition key", 4: "an application property",
        5: "application properties",
    }  # fmt: skip


def test_a_receiver_is_told_of_its_delivery() -> None:
    annotations = {"x-exchange": "e", "x-routing-key": "k", "x-opt-partition-key": "p", "x-inside": 1}
    message = Message(Body.value(5), message_id="m", message_annotations=annotations, application_properties={"n": 1})
    found = Message.decode(delivered(message.encode(), GIVEN, left_out=OURS))
    assert found.message_annotations == {
        "x-opt-partition-key": amqp_value("p"),
        "x-opt-sequence-number": amqp_value(11),
        "x-opt-enqueue-sequence-number": amqp_value(10),
        "x-opt-enqueued-time": AmqpValue(AmqpType.TIMESTAMP, 1_000),
        "x-opt-message-state": AmqpValue(AmqpType.INT, 0),
    }
    assert found.header["delivery-count"] == AmqpValue(AmqpType.UINT, 2)
    assert found.body == message.body and found.application_properties == message.application_properties
    assert set(found.properties) == {"message-id"}


def test_a_lock_and_a_lifetime_are_told() -> None:
    given = Given(1, 1, 1_000, 0, locked_until_ms=9_000, time_to_live_ms=700)
    found = Message.decode(
        delivered(Message(b"a", message_id="m", ttl=AmqpValue(AmqpType.UINT, 500)).encode(), given, left_out=())
    )
    assert found.message_annotations["x-opt-locked-until"] == AmqpValue(AmqpType.TIMESTAMP, 9_000)
    times = [found.properties[name].value for name in ("creation-time", "absolute-expiry-time")]
    assert times == [1_000, 1_500]
    shorter = Message.decode(delivered(Message(b"a").encode(), Given(1, 1, 1_000, 0, None, 200), left_out=()))
    assert shorter.properties["absolute-expiry-time"].value == 1_200
    assert shorter.header["ttl"].value == 200
    forever = Given(1, 1, 1_000, 0, time_to_live_ms=922_337_203_685_477)
    assert Message.decode(delivered(b"", forever, left_out=())).properties["absolute-expiry-time"].value < 2**48


def test_what_others_stored_without_an_id_has_one_that_stays() -> None:
    ids = {
        Message.decode(delivered(data, GIVEN, left_out=())).properties["message-id"].value for data in (b"\x01", b"x")
    }
    assert ids == {f"{10:032x}"}


def test_a_batch_is_its_messages() -> None:
    parts = [Message(b"%d" % number).encode() for number in range(3)]
    assert unbatched(Message(Body.data(*parts), message_id="envelope").encode()).all_bytes() == parts


@pytest.mark.parametrize("data", [b"", Message(Body.value("x")).encode(), Message(None, subject="s").encode()])
def test_other_bytes_are_no_batch(data: bytes) -> None:
    with pytest.raises(MessageError):
        unbatched(data)


_ANNOTATIONS = st.sampled_from(
    ("x-opt-partition-key", "x-exchange", "x-inside", "x-opt-locked-until", "x-moved", "x-a", "x-headgate-no-body")
)
_MESSAGES = st.one_of(
    amqp_messages(),
    st.binary(max_size=40),
    st.builds(
        lambda body, ttl, identity, annotations: Message(
            body,
            header=None if ttl is None else {"ttl": ttl},
            properties=None if identity is None else {"message-id": identity, "subject": "s"},
            message_annotations=annotations,
            application_properties={"a": 1},
        ).encode(),
        st.sampled_from((b"a", b"", None)),
        st.sampled_from((None, 0, 5, 600, 70_000)),
        st.sampled_from((None, "m", 7)),
        st.dictionaries(_ANNOTATIONS, st.text(max_size=3) | st.just(True), max_size=4),
    ),
)


@given(st.lists(_MESSAGES, max_size=6), st.none() | st.integers(1, 2**42), st.sampled_from((None, 100, 2**49)))
def test_many_are_told_what_one_is(messages: list[bytes], locked_until_ms: int | None, lifetime_ms: int | None) -> None:
    numbers = np.arange(len(messages)) * 2**40 + 1
    times, counts = np.full(len(messages), 1_700_000_000_000), np.array([0, 1, 255, 256, 0, 3])[: len(messages)]
    columns = numbers.tolist(), times.tolist(), counts.tolist()
    expected = [
        delivered(
            message,
            Given(number, number, time, count, locked_until_ms, lifetime_ms),
            left_out=("x-inside", "x-moved"),
        )
        for message, number, time, count in zip(messages, *columns, strict=True)
    ]
    left_open: list[int] = []

    def alone(row: int) -> bytes:
        left_open.append(row)
        return expected[row]

    found = delivered_messages(
        EncodedMessages.of(messages),
        GivenMessages(numbers, times, counts, locked_until_ms, lifetime_ms),
        left_out=("x-inside", "x-moved"),
        moved_by="x-moved",
        alone=alone,
    )
    assert list(map(_content, found.all_bytes())) == list(map(_content, expected))
    for row, message in enumerate(messages):
        if b"x-moved" in message:
            assert row in left_open


@pytest.mark.parametrize(
    ("said", "default", "lives"), [(None, 700, 700), (500, None, 500), (500, 700, 500), (500, 300, 300)]
)
def test_the_common_forms_of_messages_are_told_at_once(said: int | None, default: int | None, lives: int) -> None:
    ttl = {} if said is None else {"ttl": AmqpValue(AmqpType.UINT, said)}
    messages = [
        Message(b"a", header=ttl).encode(),
        Message(b"a", header=ttl, properties={"message-id": "m"}).encode(),
        Message(b"a", header=ttl, message_annotations={"x-exchange": "e", "x-routing-key": "k"}).encode(),
    ]

    def refused(row: int) -> bytes:
        raise AssertionError(row)

    numbers, times = np.array([1, 2, 3]), np.array([1_000, 2_000, 3_000])
    given = GivenMessages(numbers, times, numbers, None, default)
    found = delivered_messages(EncodedMessages.of(messages), given, left_out=OURS, moved_by="x-moved", alone=refused)
    told = [Message.decode(each) for each in found.all_bytes()]
    assert [each.properties["absolute-expiry-time"].value for each in told] == (times + lives).tolist()
    assert {each.header["ttl"].value for each in told} == {lives}
    assert [each.properties["message-id"].value for each in told] == [f"{1:032x}", "m", f"{3:032x}"]


@given(st.lists(_MESSAGES, min_size=1, max_size=6))
@examples(0.5)
def test_many_get_the_ids_that_one_does(messages: list[bytes]) -> None:
    batch = EncodedMessages.of(messages)
    found = _stored_form(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "load", lambda module: None)
        slow = _stored_form(batch)
    assert found.refused.keys() == slow.refused.keys()
    assert list(map(_content, found.messages.all_bytes())) == list(map(_content, slow.messages.all_bytes()))


def _content(data: bytes) -> object:
    """A message without the form of its encoding; None for a damaged one."""
    try:
        return Message.decode(data).describe(typed=True)
    except MessageError:
        return None


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(0, 60), st.integers(0, 255))
def test_damaged_batches_are_batches_for_both_or_for_none(parts: list[bytes], place: int, octet: int) -> None:
    whole = bytearray(Message(Body.data(*parts), message_id="envelope").encode())
    whole[place % len(whole)] = octet
    results = []
    for is_fast in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_fast:
                patch.setattr(kernels, "load", lambda module: None)
            try:
                results.append(unbatched(bytes(whole)).all_bytes())
            except MessageError:
                results.append(None)
    assert results[0] == results[1]
