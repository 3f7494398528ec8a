"""Performatives, termini and outcomes as records."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import MessageError, RemoteProtocolError
from headgate.message import AmqpArray, AmqpType, AmqpValue, amqp_value, encode_value
from headgate.protocols.amqp10 import composites
from headgate.protocols.amqp10.composites import Composite, decode_composite
from headgate.protocols.amqp10.performatives import (
    PERFORMATIVES,
    RECEIVER,
    SASL_FRAMES,
    SENDER,
    Attach,
    Begin,
    Close,
    Disposition,
    Flow,
    Open,
    SaslMechanisms,
    Transfer,
)
from headgate.protocols.amqp10.terminus import (
    Accepted,
    Coordinator,
    Error,
    Modified,
    RawEntry,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    address_text,
)

_names = st.text(string.ascii_letters + "-:é", max_size=12)
_maps = st.dictionaries(_names, st.one_of(st.integers(0, 9), _names, st.none()), max_size=3).map(amqp_value)
_entries = st.builds(RawEntry.of, _names, st.one_of(_names, st.integers(0, 400)), _names.map(amqp_value))
_errors = st.builds(Error, _names, st.none() | _names, st.none() | _maps)
_states = st.one_of(
    st.builds(Accepted),
    st.builds(Released),
    st.builds(Rejected, st.none() | _errors),
    st.builds(Modified, st.none() | st.booleans(), st.none() | st.booleans(), st.none() | _maps),
    st.builds(Received, st.integers(0, 9), st.integers(0, 2**64 - 1)),
)
_sources = st.builds(
    Source,
    st.none() | _names.map(amqp_value),
    filter=st.none() | st.lists(_entries, max_size=4).map(tuple),
    default_outcome=st.none() | _states,
    outcomes=st.none() | st.lists(_names, max_size=3).map(tuple),
)
_targets = st.builds(Target, st.none() | _names.map(amqp_value)) | st.builds(Coordinator)
_VALUES: dict[str, st.SearchStrategy[object]] = {
    composites.BOOLEAN.name: st.booleans(),
    composites.UBYTE.name: st.integers(0, 255),
    composites.USHORT.name: st.integers(0, 2**16 - 1),
    composites.UINT.name: st.integers(0, 2**32 - 1),
    composites.ULONG.name: st.integers(0, 2**64 - 1),
    composites.STRING.name: _names,
    composites.SYMBOL.name: _names,
    composites.BINARY.name: st.binary(max_size=300),
    composites.SYMBOLS.name: st.lists(_names, max_size=40).map(tuple),
    composites.MAP.name: _maps,
    "a source": _sources,
    "a target": _targets,
    "a delivery state": _states,
    "an error": _errors,
}


@st.composite
def _records(draw: st.DrawFn) -> Composite:
    kind = draw(st.sampled_from((*PERFORMATIVES, *SASL_FRAMES)))
    values = {}
    for field in kind.FIELDS:
        if field.mandatory or draw(st.booleans()):
            values[field.name] = draw(_VALUES[field.kind.name])
        else:
            values[field.name] = field.default
    return kind(**values)


@given(_records())
def test_a_record_comes_back_as_it_was_encoded(record: Composite) -> None:
    encoded = record.encode()
    assert decode_composite(encoded, 0, len(encoded)) == (record, len(encoded))


@given(_records(), st.binary(max_size=4))
def test_what_stands_behind_a_record_is_not_touched(record: Composite, behind: bytes) -> None:
    encoded = record.encode()
    assert decode_composite(encoded + behind, 0, len(encoded + behind)) == (record, len(encoded))


@given(_records(), st.data())
def test_a_record_with_a_changed_byte_is_read_or_refused(record: Composite, data: st.DataObject) -> None:
    encoded = bytearray(record.encode())
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    with contextlib.suppress(RemoteProtocolError):
        decode_composite(bytes(encoded[:cut]), 0, cut)


def test_the_smallest_encoding_leaves_out_trailing_nulls() -> None:
    assert Close().encode() == bytes.fromhex("005318 45")
    assert Disposition(RECEIVER, 3, 7, True, Accepted()).encode() == bytes.fromhex(
        "005315 c00b05 41 5203 5207 41 00532445"
    )


@pytest.mark.parametrize("descriptor", ["005316", "00800000000000000016", "00a31061 6d71703a6465746163683a6c697374"])
def test_a_descriptor_has_three_forms(descriptor: str) -> None:
    data = bytes.fromhex(descriptor) + bytes.fromhex("c0030243 41")
    record, _ = decode_composite(data, 0, len(data))
    assert (type(record).__name__, record.handle, record.closed) == ("Detach", 0, True)


def test_wide_lists_and_wide_numbers_are_read() -> None:
    data = bytes.fromhex("005313 d0 00000017 00000004 7000000001 7000000002 7000000003 70000000ff".replace(" ", ""))
    data = data[:4] + (len(data) - 8).to_bytes(4, "big") + data[8:]
    assert decode_composite(data, 0, len(data))[0] == Flow(1, 2, 3, 255)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "expected"),
        ("53", "begins with 0x00"),
        ("00531045", "without container_id"),
        ("0053ff45", "no described list"),
        ("00a10161c000", "no described list"),
        ("005310a10161", "is a list"),
        ("005310c0ff01a10161", "announces"),
        ("005310c00501a1016100", "behind the fields"),
        ("005310c003015201", "container_id of amqp:open:list is a string"),
        ("005317c00403404040", "has 1 fields"),
        ("005318c0050100532445", "error of amqp:close:list is an error"),
    ],
)
def test_a_record_that_is_wrong_is_refused_with_a_reason(data: str, reason: str) -> None:
    octets = bytes.fromhex(data)
    with pytest.raises(RemoteProtocolError, match=reason) as caught:
        decode_composite(octets, 0, len(octets))
    assert caught.value.code == "amqp:decode-error"


def test_nulls_in_the_middle_are_defaults() -> None:
    encoded = Transfer(1, settled=True).encode()
    assert decode_composite(encoded, 0, len(encoded))[0] == Transfer(1, None, None, None, True)
    begin = Begin(None, 0, 1, 2)
    assert decode_composite(begin.encode(), 0, len(begin.encode()))[0] == begin


def test_one_symbol_stands_for_an_array_of_one() -> None:
    data = bytes.fromhex("005340c00401a30141")
    assert decode_composite(data, 0, len(data))[0] == SaslMechanisms(("A",))


def test_symbols_of_another_type_are_refused() -> None:
    strings = encode_value(AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.STRING, (amqp_value("a"),))))
    data = bytes.fromhex("005340c0") + bytes([len(strings) + 1, 1]) + strings
    with pytest.raises(RemoteProtocolError, match="symbols"):
        decode_composite(data, 0, len(data))


def test_many_capabilities_make_a_wide_array() -> None:
    capabilities = tuple(f"capability-{number}" for number in range(100))
    encoded = Open("c", offered_capabilities=capabilities).encode()
    assert decode_composite(encoded, 0, len(encoded))[0].offered_capabilities == capabilities


def test_filters_keep_their_bytes() -> None:
    wide = RawEntry(bytes.fromhex("b300000001") + b"f", bytes.fromhex("00b3000000017870000000ff"))
    encoded = Attach("l", 0, SENDER, source=Source(filter=(wide,))).encode()
    attach = decode_composite(encoded, 0, len(encoded))[0]
    assert attach.source.filter == (wide,)
    entry = attach.source.filter[0].read()
    assert (entry.name.value, entry.descriptor.value, entry.value.value) == ("f", "x", 255)


def test_a_filter_map_may_be_large() -> None:
    entries = tuple(RawEntry.of(f"f{number}", "d", amqp_value("v" * 50)) for number in range(20))
    encoded = Attach("l", 0, SENDER, source=Source(filter=entries)).encode()
    assert decode_composite(encoded, 0, len(encoded))[0].source.filter == entries


def test_a_filter_whose_value_cannot_be_decoded_says_so_when_it_is_read() -> None:
    with pytest.raises(MessageError):
        RawEntry(bytes.fromhex("a30166"), bytes.fromhex("c1020141")).read()


def test_addresses_are_texts() -> None:
    assert address_text(Source(amqp_value("/queues/q"))) == "/queues/q"
    assert address_text(Target()) is None
