"""When bytes are a message: the rule of docs/design/message-validity.md, against a second reading of that document."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.errors import MessageError
from headgate.message import CONSTRUCTOR_WIDTHS, AmqpType, AmqpValue, Message, check
from headgate.message.constructors import WIDTH_DESCRIBED, WIDTH_INVALID, WIDTH_SIZE8, WIDTH_SIZE32
from headgate.message.fields import FieldReference, Section
from strategies import damaged_messages, encoded_messages, values

BODY = "005375a000"


def section(code: int, value: str) -> str:
    return f"0053{code:02x}{value}"


VALID = {
    "no bytes": "",
    "a body only": BODY,
    "a footer only": "005378c10100",
    "list0": section(0x70, "45"),
    "list8": section(0x70, "c003015005"),
    "list32": section(0x70, "d000000006000000015005"),
    "empty map8": section(0x74, "c10100"),
    "empty map32": section(0x74, "d10000000400000000"),
    "every section in order": section(0x70, "45")
    + section(0x71, "c10100")
    + section(0x72, "c10100")
    + section(0x73, "45")
    + section(0x74, "c10100")
    + BODY,
    "a ulong descriptor of eight bytes": "0080000000000000007045",
    "a symbolic descriptor": "00a310" + b"amqp:header:list".hex() + "45",
    "a wide symbolic descriptor": "00b300000010" + b"amqp:header:list".hex() + "45",
    "a symbolic body": "00a310" + b"amqp:data:binary".hex(),
    "more fields than the standard has": section(0x70, "c00706404040404040"),
    "a described value whose descriptor is described": section(0x70, "c00601" + "0000404041"),
    "garbage inside a compound element": section(0x70, "c00501" + "c002ffff"),
    "garbage in annotations": section(0x72, "c103ffffff"),
    "garbage in properties": section(0x73, "c003ffffff"),
    "more bytes than elements": section(0x70, "c003014040"),
    "an odd count of application properties": section(0x74, "c1020140"),
    "garbage behind the body's descriptor": "005377ffff",
    "a body without a value": "005375",
}

INVALID = {
    "no 0x00": ("45", 0, "begins with 0x00"),
    "nothing behind 0x00": ("00", 1, "1 bytes expected"),
    "nothing behind the descriptor's constructor": ("0053", 2, "1 bytes expected"),
    "a cut descriptor": ("00800000000000", 2, "8 bytes expected, 5 left"),
    "a descriptor of another type": ("00a10070", 0, "found constructor 0xa1"),
    "a ulong0 descriptor": ("004445", 0, "found constructor 0x44"),
    "code 0x6f": (section(0x6F, "45"), 0, "descriptor 0x6f"),
    "code 0x79": (section(0x79, "45"), 0, "descriptor 0x79"),
    "a great code": ("00800100000000000070" + "45", 0, "descriptor 0x100000000000070"),
    "an unknown symbol": ("00a30161", 0, "b'a'"),
    "a cut symbol": ("00a3ff616d", 3, "255 bytes expected, 2 left"),
    "no value": ("005370", 3, "1 bytes expected"),
    "a header that is a map": (section(0x70, "c10100"), 3, "is a list"),
    "properties that are null": (section(0x73, "40"), 3, "is a list"),
    "annotations that are a list": (section(0x72, "45"), 3, "is a map"),
    "application properties that are null": (section(0x74, "40"), 3, "is a map"),
    "a size beyond the end": (section(0x70, "c00200"), 5, "2 bytes expected, 1 left"),
    "a size without room for the count": (section(0x70, "c000"), 5, "1 bytes expected, 0 left"),
    "a size without room for a wide count": (section(0x72, "d100000003000000"), 8, "4 bytes expected, 3 left"),
    "a count behind its section": (section(0x72, "c100") + BODY, 5, "1 bytes expected, 0 left"),
    "a wide count behind its section": (section(0x70, "d000000000") + BODY, 8, "4 bytes expected, 0 left"),
    "two headers": (section(0x70, "45") + section(0x70, "45"), 4, "wrong order"),
    "properties before the header": (section(0x73, "45") + section(0x70, "45"), 4, "wrong order"),
    "bytes behind the last section": (section(0x70, "45") + "ff", 4, "begins with 0x00"),
}


@pytest.mark.parametrize("case", VALID)
def test_bytes_that_are_a_message_pass(case: str) -> None:
    check(bytes.fromhex(VALID[case]))


@pytest.mark.parametrize("case", INVALID)
def test_bytes_that_are_no_message_are_refused_where_they_break(case: str) -> None:
    encoded, position, reason = INVALID[case]
    with pytest.raises(MessageError) as refusal:
        check(bytes.fromhex(encoded))
    assert reason in refusal.value.reason
    assert refusal.value.position == position


def passes(data: bytes) -> bool:
    try:
        check(data)
    except MessageError as refusal:
        return not 0 <= refusal.position <= len(data)
    return True


@given(encoded_messages())
def test_well_formed_messages_pass(data: bytes) -> None:
    check(data)
    check(memoryview(data))


@given(damaged_messages() | st.binary(max_size=30))
def test_check_draws_the_line_where_the_document_draws_it(data: bytes) -> None:
    assert passes(data) == is_message(data)


@examples(0.5)
@given(encoded_messages())
def test_every_truncation_of_a_message_is_judged_as_the_document_says(data: bytes) -> None:
    for stop in range(len(data)):
        assert passes(data[:stop]) == is_message(data[:stop])


@given(damaged_messages() | st.binary(max_size=30))
def test_decode_refuses_exactly_what_check_refuses(data: bytes) -> None:
    if passes(data):
        assert Message.decode(data).encode() == data
    else:
        with pytest.raises(MessageError):
            Message.decode(data)


BREAKS = {
    "fewer elements than counted": "54",
    "no element where one is counted": "",
    "an unknown constructor": "46",
    "an element beyond its section": "a102ff",
    "a described element without a value": "0040",
}


@pytest.mark.parametrize("case", BREAKS)
@pytest.mark.parametrize("count", [3, 255])
def test_fields_behind_a_break_of_the_framing_are_absent(case: str, count: int) -> None:
    elements = bytes.fromhex("5007" + BREAKS[case])
    size = (len(elements) + 1).to_bytes(1, "big")
    message = Message.decode(b"\0\x53\x73\xc0" + size + count.to_bytes(1, "big") + elements + bytes.fromhex(BODY))
    assert [message.value(FieldReference(Section.PROPERTIES, position=number)) for number in (0, 1, 2)] == [
        AmqpValue(AmqpType.UBYTE, 7),
        None,
        None,
    ]
    with pytest.raises(MessageError):
        message.decode_all()


@pytest.mark.parametrize("case", BREAKS)
def test_a_pair_whose_framing_breaks_is_absent_with_all_behind_it(case: str) -> None:
    pairs = bytes.fromhex("a1016e5007" + "a10173" + BREAKS[case])
    message = Message.decode(b"\0\x53\x74\xc1" + (len(pairs) + 1).to_bytes(1, "big") + b"\x08" + pairs)
    assert message.value(key("n")) == AmqpValue(AmqpType.UBYTE, 7)
    assert message.value(key("s")) is None


def test_a_count_of_billions_costs_nothing() -> None:
    message = Message.decode(bytes.fromhex(section(0x74, "d100000009fffffffe" + "a1016e5007")))
    assert message.value(key("n")) == AmqpValue(AmqpType.UBYTE, 7)
    assert message.value(key("m")) is None


def test_the_last_key_of_an_odd_count_has_no_value() -> None:
    message = Message.decode(bytes.fromhex(section(0x74, "c10903" + "a1016e5007" + "a1016d")))
    assert message.value(key("n")) == AmqpValue(AmqpType.UBYTE, 7)
    assert message.value(key("m")) is None


def key(name: str) -> FieldReference:
    return FieldReference(Section.APPLICATION_PROPERTIES, key=name.encode())


@given(values)
def test_a_value_moved_behind_its_section_is_no_field(value: bytes) -> None:
    head = b"\0\x53\x70\xd0" + (len(value) + 4).to_bytes(4, "big")
    first = FieldReference(Section.HEADER, position=0)
    assert Message.decode(head + b"\0\0\0\0" + value).value(first) is None
    assert Message.decode(head + b"\0\0\0\x01" + value).value(first) is not None


def test_the_table_of_widths_is_that_of_the_standard() -> None:
    fixed = {0x4: (6, 0), 0x5: (7, 1), 0x6: (2, 2), 0x7: (5, 4), 0x8: (5, 8)}
    expected = {high * 16 + low: width for high, (count, width) in fixed.items() for low in range(count)}
    expected |= {0x94: 16, 0x98: 16, 0x00: WIDTH_DESCRIBED}
    expected |= dict.fromkeys((0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0), WIDTH_SIZE8)
    expected |= dict.fromkeys((0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0), WIDTH_SIZE32)
    assert tuple(expected.get(constructor, WIDTH_INVALID) for constructor in range(256)) == CONSTRUCTOR_WIDTHS


class NoMessageError(Exception):
    """The second reader found no message."""


def is_message(data: bytes) -> bool:
    """The document read a second time, in another style: consume the bytes from the front."""
    try:
        rest, last = data, 0
        while rest:
            code, rest = _descriptor(rest)
            if code >= 0x75:
                return True
            if code <= last:
                return False
            rest = _section(code, rest)
            last = code
    except NoMessageError:
        return False
    return True


SYMBOLS = {
    b"amqp:header:list": 0x70,
    b"amqp:delivery-annotations:map": 0x71,
    b"amqp:message-annotations:map": 0x72,
    b"amqp:properties:list": 0x73,
    b"amqp:application-properties:map": 0x74,
    b"amqp:data:binary": 0x75,
    b"amqp:amqp-sequence:list": 0x76,
    b"amqp:amqp-value:*": 0x77,
    b"amqp:footer:map": 0x78,
}


def _take(data: bytes, count: int) -> tuple[bytes, bytes]:
    if count > len(data):
        raise NoMessageError
    return data[:count], data[count:]


def _number(data: bytes, width: int) -> tuple[int, bytes]:
    digits, rest = _take(data, width)
    return int.from_bytes(digits, "big"), rest


def _descriptor(data: bytes) -> tuple[int, bytes]:
    head, rest = _take(data, 2)
    if head[0] != 0:
        raise NoMessageError
    if head[1] in (0x53, 0x80):
        code, rest = _number(rest, {0x53: 1, 0x80: 8}[head[1]])
        if code in SYMBOLS.values():
            return code, rest
    elif head[1] in (0xA3, 0xB3):
        length, rest = _number(rest, {0xA3: 1, 0xB3: 4}[head[1]])
        symbol, rest = _take(rest, length)
        if symbol in SYMBOLS:
            return SYMBOLS[symbol], rest
    raise NoMessageError


def _section(code: int, data: bytes) -> bytes:
    constructor, rest = _number(data, 1)
    widths = {0x45: 0, 0xC0: 1, 0xD0: 4} if code in (0x70, 0x73) else {0xC1: 1, 0xD1: 4}
    if constructor not in widths:
        raise NoMessageError
    width = widths[constructor]
    if width == 0:
        return rest
    size, rest = _number(rest, width)
    inside, rest = _take(rest, size)
    _take(inside, width)
    return rest
