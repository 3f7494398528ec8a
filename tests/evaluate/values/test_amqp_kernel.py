"""The kernel against the oracle in the dialect `amqp`: generated messages and filters, and what stays open."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_strategies import amqp_expressions, amqp_messages
from examples import examples
from headgate.errors import FilterError
from headgate.evaluate import Filter
from headgate.evaluate.program import Program, compile_predicates, compile_program
from headgate.kernels import load
from headgate.message.batch import EncodedMessages
from oracles import assert_agrees
from strategies import compound, damaged_messages, encoded_messages, section, string, symbol

VECTORS = Path(__file__).parents[2] / "vectors" / "own"
NOW_MS = 1_767_225_600_000
BODY = b"\x00\x53\x75\xa0\x00"

pytestmark = pytest.mark.skipif(load("headgate.evaluate.kernel") is None, reason="kernels cannot be compiled here")


def lines(table: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (VECTORS / table).read_text().splitlines()]


MESSAGES = [bytes.fromhex(str(line["encoded_hex"])) for line in lines("amqp_messages.jsonl")]


def program_of(text: str) -> Program:
    program = compile_program(Filter.parse(text, "amqp").tree)
    assert program is not None, text
    return program


def assert_agrees_with_the_oracle(text: str, messages: list[bytes]) -> int:
    """Both modes say what the oracle says wherever they decide; gives the number of messages left open."""
    tree = Filter.parse(text, "amqp").tree
    program = compile_program(tree)
    if program is None:
        return len(messages)
    return assert_agrees(program, tree, text, messages, NOW_MS)


def is_accepted(text: str) -> bool:
    try:
        Filter.parse(text, "amqp")
    except FilterError:
        return False
    return True


accepted = amqp_expressions.filter(is_accepted)


@given(accepted, st.lists(amqp_messages(), min_size=1, max_size=3))
def test_kernel_and_oracle_agree_on_messages_with_containers_and_footers(text: str, messages: list[bytes]) -> None:
    assert_agrees_with_the_oracle(text, messages)


@given(accepted, st.lists(st.one_of(damaged_messages(), encoded_messages()), min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_any_messages(text: str, messages: list[bytes]) -> None:
    assert_agrees_with_the_oracle(text, messages)


@given(accepted, amqp_messages(), st.data())
def test_kernel_and_oracle_agree_on_damaged_containers(text: str, message: bytes, data: st.DataObject) -> None:
    changed = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    assert_agrees_with_the_oracle(text, [bytes(changed)])


@pytest.mark.long
@examples(10)
@given(accepted, st.lists(amqp_messages(), min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_very_many(text: str, messages: list[bytes]) -> None:
    assert_agrees_with_the_oracle(text, messages)


def test_of_the_cases_by_hand_the_kernel_leaves_few_rows_open() -> None:
    texts = [str(line["sql"]) for line in lines("amqp_extensions.jsonl") if line["accepted"]]
    left_open = sum(assert_agrees_with_the_oracle(text, MESSAGES) for text in texts)
    assert left_open < 0.06 * len(texts) * len(MESSAGES)


@pytest.mark.parametrize(
    "text",
    [
        "h.durable AND EXISTS(h.durable) AND h.ttl = 5",
        "EXISTS(h.priority) AND h.priority < INF",
        "f.crc = 42",
        "m.[x-opt-key] = 'a' AND d.trace = 'b'",
        "map['a'][0]['b'] = 5 AND EXISTS(map['a'])",
        "temp = INF OR temp > 5",
        "first || ' ' || last = 'Ada Lovelace'",
        "LOWER(LEFT(first, 3)) || RIGHT(last, n) = UPPER(SUBSTRING(p.subject, 2, n))",
        "DATE(when) + 1 > UTC()",
        "LOWER(first) LIKE 'a%_b' OR LOWER(last) IN (a, b)",
        "(EXISTS(x[0])) = (x[1] = NAN)",
    ],
)
def test_a_filter_with_extensions_has_a_program(text: str) -> None:
    program_of(text)


def decided(text: str, *values: bytes) -> list[int]:
    messages = [section(0x74, compound(0xC1, [string(b"s"), value], wide=True)) + BODY for value in values]
    assert_agrees_with_the_oracle(text, messages)
    return [int(found) for found in program_of(text).verdicts(EncodedMessages.of(messages), NOW_MS)]


def test_texts_of_ascii_are_decided_and_others_left_open() -> None:
    for length in (0, 1, 7, 8, 9, 15, 16, 17, 255, 568):
        text = bytes(0x20 + (7 * position) % 95 for position in range(length))
        for function, changed in (("LOWER", text.lower()), ("UPPER", text.upper())):
            wanted = f"0x{changed.hex().upper()}" if changed else "''"
            assert decided(f"{function}(s) = {wanted}", string(text)) == [1]
    assert decided("LOWER(s) = 'x'", string("É".encode()), string(b"abcdefghijk\xff"), string(b"a" * 569)) == [4, 4, 4]
    assert decided("LOWER(s) = 'x'", string(b"\x00\x1f@[`{\x7f")) == [0]


def test_characters_are_counted_in_the_kernel() -> None:
    text = string("aé日😎b".encode())
    for count in range(7):
        part = "aé日😎b"[:count]
        assert decided(f"LEFT(s, {count}) = '{part}'", text) == [1]
        assert decided(f"RIGHT(s, {count}) = '{'aé日😎b'[max(5 - count, 0) :]}'", text) == [1]
        assert decided(f"SUBSTRING(s, {count}, 2) = '{'aé日😎b'[max(count - 1, 0) : max(count + 1, 0)]}'", text) == [1]
    assert decided("SUBSTRING(s, -9223372036854775807, 5) = ''", text) == [1]
    assert decided("SUBSTRING(s, -2, 4) = 'a' AND SUBSTRING(s, 2) = 'é日😎b'", text) == [1]
    assert decided("SUBSTRING(s, -9223372036854775807 - 1, 9223372036854775807) = ''", text) == [1]
    assert decided("SUBSTRING(s, 9223372036854775807, 9223372036854775807) = ''", text) == [1]
    assert decided("LEFT(s, 1) = 'a'", symbol(b"a\xff"), string(b"\xed\xa0\x80")) == [2, 2]


def test_long_concatenations_are_left_open_and_too_long_ones_unknown() -> None:
    assert decided("s || s = 'x'", string(b"a" * 284), string(b"a" * 285), string(b"a" * 32_768)) == [0, 4, 2]


def test_every_day_of_four_centuries_and_their_edges_is_the_same_day() -> None:
    days = [f"{year:04}-{month:02}-{day:02}" for year in (1, 4, 100, 400, 1900, 1970, 2000, 2023, 2024, 9999)
            for month in range(14) for day in (0, 1, 28, 29, 30, 31, 32)]  # fmt: skip
    for start in range(0, len(days), 100):
        values = [string(day.encode()) for day in days[start : start + 100]]
        assert 4 not in decided("DATE(s) > 0", *values)
        for text in days[start : start + 100 : 9]:
            if is_accepted(f"DATE('{text}') = 0"):
                assert decided(f"DATE(s) = DATE('{text}')", string(text.encode())) == [1]


def test_elements_of_arrays_of_every_type_are_decided() -> None:
    doubles = b"\x82" + struct.pack(">dd", float("inf"), 2.5)
    array = b"\xe0" + bytes([len(doubles) + 1, 2]) + doubles
    assert decided("s[0] = INF AND s[1] = 2.5 AND NOT EXISTS(s[2])", array) == [1]
    uuids = b"\x98" + b"ABCDEFGHabcdefgh" + bytes(16)
    array = b"\xf0" + struct.pack(">II", len(uuids) + 4, 2) + uuids
    assert decided("LOWER(s[0]) = 'abcdefghabcdefgh' AND s[1] = 0x" + "00" * 16, array) == [1]


def test_predicates_that_ask_for_a_footer_are_left_to_the_reference() -> None:
    trees = [
        Filter.parse(text, "amqp").tree
        for text in ("f.x = 1", "m.x = 1", "EXISTS(h.ttl)", "h.durable", "EXISTS(h.durable)")
    ]
    predicates = compile_predicates(trees)
    assert predicates is not None
    assert [entry < 0 for entry in predicates.entries] == [True, False, False, False, False]
