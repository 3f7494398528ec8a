"""Finding a field's bytes in many encoded messages: compiled and by hand agree, on anything."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.message import lookup
from headgate.message.batch import EncodedMessages
from headgate.message.fields import FieldReference, Section
from headgate.message.lookup import MessageCollector, locate_bytes

REGION = FieldReference(Section.APPLICATION_PROPERTIES, key=b"region")
SUBJECT = FieldReference(Section.PROPERTIES, position=3)
FILTER_VALUE = FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-stream-filter-value")
FIELDS = [REGION, SUBJECT, FILTER_VALUE, FieldReference(Section.HEADER, position=0)]


def values(messages: list[bytes], field: FieldReference) -> list[bytes | None]:
    batch = EncodedMessages.of(messages)
    starts, lengths = locate_bytes(batch, field)
    return [
        None if length < 0 else batch.data[start : start + length].tobytes()
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]


def string(text: bytes, wide: bool = False) -> bytes:
    return b"\xb1" + len(text).to_bytes(4, "big") + text if wide else b"\xa1" + bytes([len(text)]) + text


def symbol(text: bytes) -> bytes:
    return b"\xa3" + bytes([len(text)]) + text


def compound(kind: int, elements: list[bytes], wide: bool) -> bytes:
    inside = b"".join(elements)
    if wide:
        return bytes([kind | 0x10]) + (len(inside) + 4).to_bytes(4, "big") + len(elements).to_bytes(4, "big") + inside
    return bytes([kind]) + bytes([len(inside) + 1, len(elements)]) + inside


def section(code: int, elements: list[bytes], *, wide: bool = False, form: int = 0) -> bytes:
    descriptor = [b"\x00\x53" + bytes([code]), b"\x00\x80" + code.to_bytes(8, "big")][form]
    return descriptor + compound(0xC0 if code in (0x70, 0x73) else 0xC1, elements, wide)


BODY = b"\x00\x53\x75\xa0\x02hi"


def test_strings_symbols_binaries_and_uuids_have_bytes_and_other_types_have_none() -> None:
    identity = uuid.UUID(int=5)
    forms = [
        string(b"AMER"),
        string(b"AMER", wide=True),
        symbol(b"AMER"),
        b"\xa0\x02\x00\xff",
        b"\x98" + identity.bytes,
    ]
    other = [b"\x40", b"\x41", b"\x54\x05", b"\x00\xa1\x01x\xa1\x01y", b"\xc0\x01\x00"]
    messages = [section(0x74, [string(b"region"), form]) + BODY for form in forms + other]
    assert values(messages, REGION) == [b"AMER", b"AMER", b"AMER", b"\x00\xff", identity.bytes, *[None] * 5]


def test_the_first_of_equal_keys_counts_and_keys_of_application_properties_are_strings() -> None:
    twice = section(0x74, [string(b"region"), string(b"1"), string(b"region"), string(b"2")])
    as_symbol = section(0x74, [symbol(b"region"), string(b"1")])
    annotation = section(0x72, [symbol(b"x-stream-filter-value"), string(b"v")])
    as_string = section(0x72, [string(b"x-stream-filter-value"), string(b"v")])
    assert values([twice, as_symbol, b""], REGION) == [b"1", None, None]
    assert values([annotation, annotation + twice, as_string], FILTER_VALUE) == [b"v", b"v", b"v"]


def test_of_equal_keys_one_without_a_value_gives_way_to_the_next() -> None:
    useless = [
        b"\x45",
        b"\xc0\x01\x00",
        b"\x00\xa1\x01x\x41",
        b"\x74abcd",
        b"\x82\x7f\xf0" + bytes(6),
        b"\x72\xff\xc0\x00\x00",
    ]
    messages = [section(0x74, [string(b"region"), value, string(b"region"), string(b"2")]) for value in useless]
    largest = [b"\x72\x7f\x7f\xff\xff", b"\x82\x7f\xef" + bytes(6)]
    finite = [section(0x74, [string(b"region"), value, string(b"region"), string(b"2")]) for value in largest]
    null = section(0x74, [string(b"region"), b"\x40", string(b"region"), string(b"2")])
    assert values([*messages, *finite, null], REGION) == [b"2"] * len(useless) + [None] * 3


def test_of_equal_keys_of_annotations_the_first_counts_whatever_it_holds() -> None:
    key = b"x-stream-filter-value"
    messages = [
        section(0x72, [string(key), value, symbol(key), string(b"2")]) for value in (string(b"1"), b"\x45", b"\x40")
    ]
    assert values(messages, FILTER_VALUE) == [b"1", None, None]


def test_a_property_is_found_by_its_position_in_every_form_of_list() -> None:
    elements = [b"\x40", b"\x40", b"\x40", string(b"order.created")]
    messages = [section(0x73, elements, wide=wide, form=form) for wide in (False, True) for form in (0, 1)]
    short = section(0x73, elements[:3])
    empty = b"\x00\x53\x73\x45"
    symbolic = b"\x00\xa3\x14amqp:properties:list" + compound(0xC0, elements, False)
    assert values([*messages, short, empty, symbolic], SUBJECT) == [b"order.created"] * 4 + [
        None,
        None,
        b"order.created",
    ]


def test_a_message_that_is_not_valid_has_no_field_but_annotations_end_where_their_framing_breaks() -> None:
    good = section(0x74, [string(b"region"), string(b"AMER")])
    odd = b"\x00\x53\x74" + b"\xc1" + bytes([len(string(b"region")) + 1, 1]) + string(b"region")
    assert values([good[:-1], odd, good + good, b"\x00\x53\x79\x40", good + b"\xff"], REGION) == [None] * 5
    broken = b"\x00\x53\x72" + compound(0xC1, [symbol(b"x-stream-filter-value"), string(b"v"), b"\xff", b"\x40"], False)
    assert values([broken + good], FILTER_VALUE) == [b"v"]
    assert values([broken + good], REGION) == [b"AMER"]


elements = st.one_of(
    st.sampled_from(
        [
            string(b"region"),
            symbol(b"x-stream-filter-value"),
            string(b"x-stream-filter-value"),
            b"\x40",
            b"\x41",
            b"\x00\x40\x40",
            b"\xc0\x01\x00",
        ]
    ),
    st.sampled_from(
        [b"\x45", b"\x74abcd", b"\x82\x7f\xf8" + bytes(6), b"\x82\x7f\xe8" + bytes(6), b"\x72\xff\x80\x00\x00"]
    ),
    st.binary(max_size=6).map(string),
    st.binary(max_size=3).map(lambda text: string(text, wide=True)),
    st.just(b"\x98" + bytes(range(16))),
    st.binary(max_size=4),
)
sections = st.builds(
    section,
    st.sampled_from([0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x78]),
    st.lists(elements, max_size=5),
    wide=st.booleans(),
    form=st.integers(0, 1),
)
messages_of_any_kind = st.one_of(
    st.lists(sections, max_size=4).map(b"".join),
    st.lists(sections, max_size=4).flatmap(
        lambda parts: st.integers(0, len(b"".join(parts))).map(lambda cut: b"".join(parts)[:cut])
    ),
    st.binary(max_size=40),
)


@given(st.lists(messages_of_any_kind, min_size=1, max_size=8), st.sampled_from(FIELDS))
def test_the_kernel_finds_what_the_walk_by_hand_finds(messages: list[bytes], field: FieldReference) -> None:
    batch = EncodedMessages.of(messages)
    starts, lengths = locate_bytes(batch, field)
    for row, message in enumerate(messages):
        start, length = lookup._locate(message, field)
        assert lengths[row] == length
        if length >= 0:
            assert starts[row] == batch.starts[row] + start


def test_without_kernels_the_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [section(0x74, [string(b"region"), string(b"AMER")]), b"\x00\x53", b""]
    expected = values(messages, REGION)
    monkeypatch.setattr(lookup.kernels, "load", lambda name: None)
    assert values(messages, REGION) == expected == [b"AMER", None, None]


def test_no_messages_give_empty_arrays() -> None:
    starts, lengths = locate_bytes(EncodedMessages.of([]), REGION)
    assert (starts.shape, lengths.dtype) == ((0,), np.dtype(np.int64))


def test_a_collector_that_gets_its_buffer_back_fills_it_again() -> None:
    collector = MessageCollector(room_bytes=1 << 12)
    for messages in ([b"first", b"second"], [b"third"], [bytes(1 << 13)], [b"fourth"]):
        collector.add(EncodedMessages.of(messages))
        taken = collector.take()
        assert [taken.message(row) for row in range(len(taken))] == messages
        buffer = taken.data
        collector.reuse(taken)
        collector.add(EncodedMessages.of([b"again"]))
        again = collector.take()
        assert again.data is buffer and again.message(0) == b"again"
        collector.reuse(again)


@given(st.lists(st.lists(st.binary(max_size=300), max_size=6), max_size=6), st.booleans())
def test_collected_messages_are_those_added_also_when_their_buffer_is_overwritten(
    batches: list[list[bytes]], compiled: bool
) -> None:
    collector = MessageCollector()
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(lookup.kernels, "load", lambda name: None)
        for messages in batches:
            batch = EncodedMessages.of(messages)
            collector.add(batch)
            batch.data[:] = 0xAA
    taken = collector.take()
    assert [taken.message(row) for row in range(len(taken))] == [message for part in batches for message in part]
    assert len(taken.data) >= int(taken.lengths.sum()) + 8
    assert len(collector.take()) == 0
