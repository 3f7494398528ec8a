"""Changes of single fields: what is changed is seen, everything else keeps its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import MessageError
from headgate.message import AmqpType, AmqpValue, Body, Message, Section
from headgate.message.fields import HEADER_FIELDS, PROPERTIES_FIELDS, FieldReference, without_case
from strategies import compound, encoded_messages, section, string, symbol


def user(name: str, *, ignore_case: bool = False) -> FieldReference:
    return FieldReference(Section.APPLICATION_PROPERTIES, key=name.encode(), ignore_case=ignore_case)


def annotation(name: str) -> FieldReference:
    return FieldReference(Section.MESSAGE_ANNOTATIONS, key=name.encode())


SUBJECT = FieldReference(Section.PROPERTIES, position=PROPERTIES_FIELDS.index("subject"))
TTL = FieldReference(Section.HEADER, position=HEADER_FIELDS.index("ttl"))
X = AmqpValue(AmqpType.STRING, "x")


def test_a_message_without_sections_gets_those_that_are_set_in_their_order() -> None:
    changed = Message(b"body").with_changes(
        [(user("a"), X), (SUBJECT, X), (annotation("x-opt-a"), X), (TTL, AmqpValue(AmqpType.UINT, 5))]
    )
    assert changed == Message(
        b"body", ttl=5, subject="x", application_properties={"a": "x"}, message_annotations={"x-opt-a": "x"}
    )


def test_what_is_taken_out_of_a_message_that_lacks_it_changes_nothing() -> None:
    message = Message(b"body", application_properties={"b": 1})
    assert message.with_changes([(user("a"), None), (SUBJECT, None), (TTL, None), (annotation("a"), None)]) == message


def test_a_field_that_is_taken_out_leaves_no_nulls_at_the_end() -> None:
    message = Message(b"", to="there", subject="x")
    assert message.with_changes([(SUBJECT, None)]) == Message(b"", to="there")
    assert Message(b"", subject="x").with_changes([(SUBJECT, None)]).properties == {}


def test_a_key_keeps_its_spelling_and_place_when_its_value_changes() -> None:
    message = Message(b"", application_properties={"a": 1, "Color": "red", "b": 2})
    changed = message.with_changes([(user("COLOR", ignore_case=True), X)])
    assert changed == Message(b"", application_properties={"a": 1, "Color": "x", "b": 2})
    assert message.with_changes([(user("COLOR"), X)]).application_properties is not None
    assert "COLOR" in (message.with_changes([(user("COLOR"), X)]).application_properties or {})


def test_of_keys_that_differ_in_case_the_exact_one_is_changed_else_the_first() -> None:
    message = Message(b"", application_properties={"Color": 1, "COLOR": 2})
    assert message.with_changes([(user("COLOR", ignore_case=True), None)]) == Message(
        b"", application_properties={"Color": 1}
    )
    assert message.with_changes([(user("color", ignore_case=True), None)]) == Message(
        b"", application_properties={"COLOR": 2}
    )


def test_of_equal_keys_a_change_leaves_one_and_taking_out_leaves_none() -> None:
    twice = Message(b"", application_properties=[("a", 1), ("b", 2), ("a", 3)])
    assert twice.with_changes([(user("a"), X)]) == Message(b"", application_properties=[("a", "x"), ("b", 2)])
    assert twice.with_changes([(user("a"), None)]) == Message(b"", application_properties={"b": 2})


def test_later_changes_see_earlier_ones() -> None:
    changed = Message(b"").with_changes([(user("a"), X), (user("A", ignore_case=True), None), (user("b"), X)])
    assert changed == Message(b"", application_properties={"b": "x"})


def test_more_than_255_bytes_or_elements_take_the_wide_form() -> None:
    message = Message(b"", application_properties={"a": 1})
    long = AmqpValue(AmqpType.STRING, "y" * 300)
    assert message.with_changes([(user("b"), long)]) == Message(b"", application_properties={"a": 1, "b": "y" * 300})
    names = [f"k{number}" for number in range(200)]
    changed = message.with_changes([(user(name), AmqpValue(AmqpType.BOOLEAN, True)) for name in names])
    assert (
        changed.application_properties
        == Message(b"", application_properties={"a": 1, **dict.fromkeys(names, True)}).application_properties
    )


def test_other_encodings_of_what_is_not_changed_survive() -> None:
    odd = [string(b"k", wide=True), b"\x80" + (7).to_bytes(8, "big")]
    body = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xb0\x00\x00\x00\x01z"
    footer = section(0x78, compound(0xC1, [symbol(b"f"), b"\x41"], wide=True))
    header = section(0x70, compound(0xC0, [b"\x41"], wide=True), wide_descriptor=True)
    data = header + section(0x74, compound(0xC1, [*odd, string(b"a"), b"\x41"]), wide_descriptor=True) + body + footer
    changed = Message.decode(data).with_changes([(user("a"), AmqpValue(AmqpType.BOOLEAN, False))]).encode()
    assert changed == header + section(0x74, compound(0xC1, [*odd, string(b"a"), b"\x42"]), wide_descriptor=True) + (
        body + footer
    )


@pytest.mark.parametrize(
    "elements",
    [
        compound(0xC1, [string(b"a")]),
        b"\xc1\x04\x02\xa1\x01a",
        b"\xc1\x07\x02\xa1\x01a\x41\x41\x41",
    ],
    ids=["a key without value", "fewer elements than announced", "more elements than announced"],
)
def test_a_section_that_is_not_framed_as_it_says_cannot_be_changed(elements: bytes) -> None:
    message = Message.decode(section(0x74, elements))
    with pytest.raises(MessageError):
        message.with_changes([(user("a"), X)])
    assert message.with_changes([(SUBJECT, X)]).value(SUBJECT) == X


@given(encoded_messages(), st.sampled_from(["n", "N", "region", "new"]), st.booleans(), st.booleans())
def test_a_change_is_seen_and_everything_else_is_as_before(
    data: bytes, name: str, ignore_case: bool, is_set: bool
) -> None:
    try:
        message = Message.decode(data)
    except MessageError:
        return
    reference = user(name, ignore_case=ignore_case)
    try:
        changed = message.with_changes([(reference, X if is_set else None)])
    except MessageError:
        return
    if is_set:
        assert changed.value(reference) == X
    elif not ignore_case:
        assert changed.value(reference) is None
    for other in ("s", "t", "m", "price"):
        assert changed.value(user(other)) == message.value(user(other))
    assert [changed.value(SUBJECT), changed.value(TTL)] == [message.value(SUBJECT), message.value(TTL)]
    assert changed.encode().endswith(data[message._body_position :])
    assert changed.with_changes([]) == changed


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Color", "cOLOR", True),
        ("größe", "GRÖßE", True),
        ("straße", "STRASSE", False),
        ("ı", "I", False),
        ("\u212a", "k", False),
        ("ſ", "s", False),
        ("ПРИВЕТ", "привет", True),
        ("a", "b", False),
    ],
)
def test_keys_are_equal_without_case(one: str, other: str, equal: bool) -> None:
    assert (without_case(one.encode()) == without_case(other.encode())) is equal


def test_of_bytes_that_are_no_text_only_ascii_letters_lose_their_case() -> None:
    assert without_case(b"a\xff\xe4") == b"A\xff\xe4"


def test_a_described_value_is_seen_whole_if_it_decodes() -> None:
    held = Message(b"", application_properties={"a": 1}, footer={"f": 1})
    assert held.whole_value(user("a")) == AmqpValue(AmqpType.LONG, 1)
    assert held.whole_value(user("b")) is None
    described = section(0x74, compound(0xC1, [string(b"a"), b"\x00\xa3\x01d\x55\x05"]))
    whole = Message.decode(described).whole_value(user("A", ignore_case=True))
    assert whole is not None and whole.type is AmqpType.DESCRIBED
    assert whole.value.value == AmqpValue(AmqpType.LONG, 5)
    broken = section(0x74, compound(0xC1, [string(b"a"), b"\x00\xa3\x01d\xc1\x02\x01\x41"]))
    assert Message.decode(broken).whole_value(user("a")) == AmqpValue(AmqpType.DESCRIBED, None)


def test_the_bytes_of_a_section_are_those_of_its_value() -> None:
    message = Message(Body.data(b""), application_properties={"a": True})
    assert message.section_bytes(Section.APPLICATION_PROPERTIES) == len(b"\xc1\x05\x02\xa1\x01a\x41")
    assert message.section_bytes(Section.HEADER) == 0
