"""References into maps, lists and arrays over encoded bytes: what decoding the whole value would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqp_strategies import KEYS, amqp_messages, containers
from headgate.errors import MessageError
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.codec import decode_value
from headgate.message.fields import FieldReference, Section
from headgate.message.types import AmqpArray
from strategies import compound, damaged_messages, section, string

_INTEGERS = {"ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long"}
_OPAQUE = {AmqpType.LIST, AmqpType.MAP, AmqpType.ARRAY, AmqpType.DESCRIBED}
_steps = st.one_of(st.integers(0, 4), st.sampled_from(KEYS).map(str.encode))
_paths = st.lists(_steps, max_size=4).map(tuple)


def _member(value: AmqpValue, step: bytes | int) -> AmqpValue | None:
    if value.type is AmqpType.MAP:
        for key, member in value.value:
            is_text = key.type in (AmqpType.STRING, AmqpType.SYMBOL)
            if (is_text and key.octets() == step) or (key.type.value in _INTEGERS and key.value == step):
                return AmqpValue(member.type, member.value)
        return None
    if isinstance(step, bytes) or value.type not in (AmqpType.LIST, AmqpType.ARRAY):
        return None
    members = value.value
    if isinstance(members, AmqpArray):
        described = members.descriptor is not None and step < len(members.elements)
        if described:
            return AmqpValue(AmqpType.DESCRIBED, None)
        members = members.elements
    return members[step] if step < len(members) else None


def _reached(value: AmqpValue | None, path: tuple[bytes | int, ...]) -> AmqpValue | None:
    for step in path:
        if value is None or value.type is AmqpType.DESCRIBED:
            return None
        value = _member(value, step)
    return value


@given(containers, _paths)
def test_a_path_leads_to_what_the_decoded_value_holds_there(encoded: bytes, path: tuple[bytes | int, ...]) -> None:
    message = Message.decode(section(0x74, compound(0xC1, [string(b"k"), encoded], wide=True)))
    expected = _reached(decode_value(encoded), path)
    found = message.value(FieldReference(Section.APPLICATION_PROPERTIES, key=b"k", path=path))
    if expected is not None and expected.type in _OPAQUE:
        assert found == AmqpValue(expected.type, None)
    else:
        assert found == expected


@given(st.one_of(damaged_messages(), amqp_messages()), _paths)
def test_no_reference_and_no_footer_ever_raises(data: bytes, path: tuple[bytes | int, ...]) -> None:
    try:
        message = Message.decode(data)
    except MessageError:
        return
    for code in Section:
        message.value(FieldReference(code, key=b"s", path=path))
        message.value(FieldReference(code, position=0, path=path))


def test_what_stands_before_a_break_in_the_framing_counts() -> None:
    broken_list = b"\xc0\x06\x03\x54\x07\xa1\x09x"
    broken_map = b"\xc1\x08\x04" + string(b"a") + b"\x41" + b"\xa1\x07x"
    broken_array = b"\xe0\x06\x03\xa1\x01a\x09b"
    for encoded, first, second in (
        (broken_list, (0,), (1,)),
        (broken_map, (b"a",), (b"x",)),
        (broken_array, (0,), (1,)),
    ):
        message = Message.decode(section(0x74, compound(0xC1, [string(b"k"), encoded])))
        assert message.value(FieldReference(Section.APPLICATION_PROPERTIES, key=b"k", path=first)) is not None
        assert message.value(FieldReference(Section.APPLICATION_PROPERTIES, key=b"k", path=second)) is None


def test_a_container_whose_size_has_no_room_for_its_count_holds_nothing() -> None:
    for encoded in (b"\xc0\x00", b"\xd0\x00\x00\x00\x03abc", b"\xe0\x01\x01", b"\xc1\x00"):
        message = Message.decode(section(0x74, compound(0xC1, [string(b"k"), encoded])))
        assert message.value(FieldReference(Section.APPLICATION_PROPERTIES, key=b"k", path=(0,))) is None


def test_the_footer_is_found_behind_any_body_and_lost_where_the_body_breaks() -> None:
    footer = section(0x78, compound(0xC1, [string(b"crc"), b"\x54\x05"]))
    crc = FieldReference(Section.FOOTER, key=b"crc")
    data = section(0x75, b"\xa0\x01x")
    for body in (b"", data, data + data, section(0x77, b"\x00\x41\x41"), b"\x00\xa3\x10amqp:data:binary\xa0\x00"):
        assert Message.decode(body + footer).value(crc) == AmqpValue(AmqpType.INT, 5)
    for body in (b"\xff", data + b"\xff", section(0x75, b"\xa0\x99"), data + section(0x74, compound(0xC1, []))):
        if body[0] == 0:
            assert Message.decode(body + footer).value(crc) is None
    assert Message.decode(data + section(0x78, b"\x45")).value(crc) is None
