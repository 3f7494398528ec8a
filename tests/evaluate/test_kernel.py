"""The kernel against the oracle: generated messages and filters, recorded vectors, and every operator by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.evaluate.filter import Filter
from headgate.evaluate.program import Program, compile_program
from headgate.evaluate.reference import verdict_of_bytes
from headgate.evaluate.verdict import UNDECIDED, Verdict
from headgate.kernels import load
from headgate.language import bind, parse
from headgate.language.tree import Node
from headgate.message.batch import EncodedMessages
from oracles import assert_agrees
from strategies import (
    damaged_messages,
    encoded_messages,
    expressions,
    float_encodings,
    integer_encodings,
    section,
    string,
)

VECTORS = Path(__file__).parent.parent / "vectors"
NOW_MS = 1_767_225_600_000

pytestmark = pytest.mark.skipif(load("headgate.evaluate.kernel") is None, reason="kernels cannot be compiled here")


def bound(text: str) -> Node:
    return bind(parse(text), "rabbitmq", text)


def compiled(text: str) -> Program:
    program = compile_program(bound(text))
    assert program is not None
    return program


BODY = b"\x00\x53\x75\xa0\x00"


def application_message(**values: bytes) -> bytes:
    pairs = b"".join(string(name.encode()) + value for name, value in values.items())
    content = struct.pack(">II", len(pairs) + 4, 2 * len(values)) + pairs
    return section(0x74, b"\xd1" + content) + BODY


def verdicts(text: str, *messages: bytes) -> list[int]:
    return [int(found) for found in compiled(text).verdicts(EncodedMessages.of(messages), NOW_MS)]


def assert_agrees_with_the_oracle(text: str, messages: list[bytes]) -> int:
    """Both modes say what the oracle says wherever they decide; gives the number of messages left open."""
    return assert_agrees(compiled(text), bound(text), text, messages, NOW_MS)


@given(expressions, st.lists(encoded_messages(), min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_well_formed_messages(text: str, messages: list[bytes]) -> None:
    assert_agrees_with_the_oracle(text, messages)


@given(expressions, st.lists(damaged_messages(), min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_damaged_messages(text: str, messages: list[bytes]) -> None:
    assert_agrees_with_the_oracle(text, messages)


@given(expressions, st.lists(st.binary(max_size=40), min_size=1, max_size=8))
def test_kernel_and_oracle_agree_on_arbitrary_bytes(text: str, messages: list[bytes]) -> None:
    assert_agrees_with_the_oracle(text, messages)


@pytest.mark.long
@examples(10)
@given(expressions, st.lists(st.one_of(encoded_messages(), damaged_messages()), min_size=1, max_size=4))
def test_kernel_and_oracle_agree_on_many_more_messages(text: str, messages: list[bytes]) -> None:
    assert_agrees_with_the_oracle(text, messages)


def recorded_messages() -> list[bytes]:
    with (VECTORS / "rabbitmq_messages.jsonl").open() as lines:
        return [bytes.fromhex(json.loads(line)["encoded_hex"]) for line in lines]


def recorded_filters() -> list[dict[str, object]]:
    with (VECTORS / "rabbitmq_sql.jsonl").open() as lines:
        return [row for row in map(json.loads, lines) if row["accepted"] is True]


@pytest.mark.slow
def test_the_kernel_gives_the_recorded_deliveries_of_every_accepted_filter() -> None:
    messages = recorded_messages()
    batch = EncodedMessages.of(messages)
    undecided = 0
    for row in recorded_filters():
        text = str(row["sql"])
        undecided += assert_agrees_with_the_oracle(text, messages)
        selected = compiled(text).verdicts(batch, NOW_MS, exact=False)
        open_rows = np.flatnonzero(selected == UNDECIDED)
        delivered = {int(index) for index in np.flatnonzero(selected == Verdict.TRUE)}
        delivered |= {
            int(index) for index in open_rows if verdict_of_bytes(bound(text), messages[index], NOW_MS) is Verdict.TRUE
        }
        assert sorted(delivered) == row["matches"], row["id"]
    # Only results that no 64 bits hold are left to the oracle: few of the hundred thousand rows.
    assert undecided < 0.005 * len(messages) * len(recorded_filters())


@pytest.mark.parametrize(
    "text",
    [
        "n = 5",
        "n <> 5 OR s LIKE '%b%'",
        "p.subject = 'order.created' AND region IN ('AMER', 'EMEA') AND (h.priority > 4 OR price >= 99.99)",
    ],
)
def test_every_truncation_of_recorded_messages_is_decided_as_the_oracle_decides_it(text: str) -> None:
    for message in recorded_messages()[::5]:
        assert_agrees_with_the_oracle(text, [message[:size] for size in range(len(message) + 1)])


STEMS = st.sampled_from(("", "a", "customer", "customer-", "customer-0000000-", "é", "kunde"))
KEYS = st.builds(lambda stem, number: f"{stem}{number}"[: 3 + 7 * (number % 4)], STEMS, st.integers(0, 5000))


@given(st.lists(KEYS, min_size=33, max_size=90), st.lists(KEYS, max_size=6))
def test_a_set_of_many_texts_has_its_members_and_no_others(members: list[str], others: list[str]) -> None:
    text = f"s IN ({', '.join(map(repr, members))})"
    messages = [application_message(s=string(value.encode())) for value in (*members, *others, "")]
    assert_agrees_with_the_oracle(text, [*messages, application_message(s=b"\x54\x05"), BODY])
    batch = EncodedMessages.of(messages)
    expected = [value in members for value in (*members, *others, "")]
    assert Filter.parse(text, "rabbitmq").mask(batch, now_ms=NOW_MS).tolist() == expected
    assert Filter.parse(text, "rocketmq").mask(batch, now_ms=NOW_MS).tolist() == expected


def test_integers_compare_across_all_encodings() -> None:
    for value in (0, 1, -1, 127, -128, 255, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1):
        for encoding in integer_encodings(value):
            message = application_message(n=encoding, m=encoding)
            assert verdicts(f"n = {value}" if value >= 0 else f"n = -{-value}", message) == [Verdict.TRUE], encoding
            assert verdicts("n = m AND n >= m AND NOT n < m", message) == [Verdict.TRUE], encoding


@given(
    st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False)),
    st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False)),
)
def test_numbers_order_exactly_also_where_doubles_cannot_hold_them(left: int | float, right: int | float) -> None:
    def encodings(number: int | float) -> list[bytes]:
        return float_encodings(number)[:1] if isinstance(number, float) else integer_encodings(number)[-1:]

    message = application_message(n=encodings(left)[0], m=encodings(right)[0])
    for operator, expected in (("<", left < right), ("=", left == right), (">", left > right), (">=", left >= right)):
        assert verdicts(f"n {operator} m", message) == [Verdict.TRUE if expected else Verdict.FALSE]


EDGES: tuple[int | float, ...] = (
    0, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), -(2**63) + 1, 2**63, 2**63 + 1, 2**64 - 1,
    0.0, -0.0, 0.5, 2.0**53, 2.0**63, -(2.0**63), -(2.0**63) - 2048, 2.0**63 - 1024, 2.0**63 + 2048, 2.0**64,
    1e300, -1e300,
)  # fmt: skip


def test_numbers_at_the_edges_of_64_bits_order_exactly() -> None:
    for left in EDGES:
        for right in EDGES:
            one, other = (
                struct.pack(">Bd", 0x82, edge) if isinstance(edge, float) else integer_encodings(edge)[-1]
                for edge in (left, right)
            )
            order = [left < right, left == right, left > right]
            message = application_message(n=one, m=other)
            found = [verdicts(f"n {operator} m", message)[0] == Verdict.TRUE for operator in ("<", "=", ">")]
            assert found == order, (left, right)


def test_constants_of_any_size_order_exactly_without_the_oracle() -> None:
    whole = [2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, 2**64 + 2**13, 10**30, 10**400]
    for number in EDGES:
        encoding = struct.pack(">Bd", 0x82, number) if isinstance(number, float) else integer_encodings(number)[-1]
        message = application_message(n=encoding)
        for size in whole:
            for constant, text in ((size, f"{size}"), (-size, f"-{size}")):
                order = [number < constant, number == constant, number > constant]
                found = [verdicts(f"n {operator} {text}", message)[0] for operator in ("<", "=", ">")]
                assert found == order, (number, constant)


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%"])
@given(
    st.one_of(st.sampled_from([0, 1, -1, 7, -7, -(2**63), 2**63 - 1, 2**62]), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.sampled_from([0, 1, -1, 2, -2, 3, -(2**63), 2**63 - 1]), st.integers(-(2**63), 2**63 - 1)),
)
def test_arithmetic_of_integers_is_exact_or_left_to_the_oracle(operator: str, left: int, right: int) -> None:
    message = application_message(n=integer_encodings(left)[-1], m=integer_encodings(right)[-1])
    assert_agrees_with_the_oracle(f"n {operator} m < 5 OR (n {operator} m) % 7 = 3", [message])


@given(
    st.text(alphabet="ab%_", max_size=10),
    st.lists(st.one_of(st.text(alphabet="abé😎\n", max_size=12).map(str.encode), st.binary(max_size=12)), max_size=6),
)
def test_like_agrees_with_the_oracle_on_any_pattern_and_subject(pattern: str, subjects: list[bytes]) -> None:
    assert_agrees_with_the_oracle(
        f"s LIKE '{pattern}'", [application_message(s=string(subject)) for subject in subjects]
    )


def test_like_with_many_wildcards_takes_no_more_than_pattern_times_subject_steps() -> None:
    pattern = "%x" * 20 + "%z"
    hostile = application_message(s=string(b"x" * 20_000, wide=True))
    assert verdicts(f"s LIKE '{pattern}'", hostile) == [Verdict.FALSE]


def test_of_equal_keys_the_first_counts_even_if_it_is_null() -> None:
    def message(*values: bytes) -> bytes:
        pairs = b"".join(string(b"n") + value for value in values)
        return section(0x74, bytes([0xC1, len(pairs) + 1, 2 * len(values)]) + pairs)

    assert verdicts("n = 5", message(b"\x54\x05", b"\x54\x06")) == [Verdict.TRUE]
    assert verdicts("n = 5", message(b"\x54\x06", b"\x54\x05")) == [Verdict.FALSE]
    assert verdicts("n = 5", message(b"\x40", b"\x54\x05")) == [Verdict.UNKNOWN]


def test_a_header_priority_counts_only_as_a_ubyte() -> None:
    def message(priority: bytes) -> bytes:
        return section(0x70, b"\xc0" + bytes([len(priority) + 2, 2]) + b"\x41" + priority)

    for odd in (
        b"\x60\x00\x09",
        b"\x70\x00\x00\x00\x09",
        b"\x52\x09",
        b"\x43",
        b"\x51\x09",
        b"\x41",
        string(b"9"),
        b"\x45",
    ):
        assert verdicts("h.priority = 4 AND h.priority IS NOT NULL", message(odd)) == [Verdict.TRUE]
    assert verdicts("h.priority = 9", message(b"\x50\x09")) == [Verdict.TRUE]


def test_of_equal_keys_one_without_a_value_gives_way_to_the_next() -> None:
    def message(*values: bytes) -> bytes:
        pairs = b"".join(string(b"n") + value for value in values) + string(b"t") + b"\x41"
        return section(0x74, bytes([0xC1, len(pairs) + 1, 2 * len(values) + 2]) + pairs)

    for useless in (b"\x45", b"\xc0\x01\x00", b"\x74abcd", b"\x72\x7f\x80\x00\x00", b"\x00\xa1\x01x\x41"):
        assert verdicts("n = 5 AND t", message(useless, useless, b"\x54\x05", b"\x54\x06")) == [Verdict.TRUE]
        assert verdicts("n = 5 AND t", message(useless, b"\x40", b"\x54\x05")) == [Verdict.UNKNOWN]
        assert verdicts("n IS NULL AND t", message(useless, useless)) == [Verdict.TRUE]


def test_priority_is_four_without_header_without_element_and_with_null() -> None:
    for header in (b"", b"\x00\x53\x70\x45", b"\x00\x53\x70\xc0\x03\x02\x40\x40", b"\x00\x53\x70\xc0\x02\x01\x41"):
        assert verdicts("h.priority = 4 AND h.priority IS NOT NULL", header) == [Verdict.TRUE]
    assert verdicts("h.priority = 4", b"\x00\x53\x70\xc0\x04\x02\x41\x50\x09") == [Verdict.FALSE]


def test_time_is_an_input_of_the_run() -> None:
    program = compiled("UTC() - p.creation_time < 1000")
    created = section(0x73, b"\xc0\x13\x0a" + b"\x40" * 9 + b"\x83" + struct.pack(">q", NOW_MS))
    batch = EncodedMessages.of([created])
    assert program.verdicts(batch, NOW_MS + 999).tolist() == [Verdict.TRUE]
    assert program.verdicts(batch, NOW_MS + 1000).tolist() == [Verdict.FALSE]


def test_symbolic_descriptors_are_left_to_the_oracle() -> None:
    symbolic = b"\x00\xa3\x10amqp:header:list\x45"
    batch = EncodedMessages.of([symbolic])
    assert compiled("h.priority = 4").verdicts(batch, 0).tolist() == [UNDECIDED]
    assert compiled("h.priority = 4").verdicts(batch, 0, exact=False).tolist() == [UNDECIDED]


@pytest.mark.parametrize("text", ["n = 5", "TRUE", "h.priority = 4"])
@pytest.mark.parametrize(
    "damage",
    [lambda whole: whole[:-1], lambda whole: whole + b"\xff", lambda whole: whole + whole, lambda whole: whole + b"\0"],
)
def test_a_matching_message_that_is_malformed_behind_what_is_wanted_is_not_selected(
    text: str, damage: Callable[[bytes], bytes]
) -> None:
    whole = application_message(n=b"\x54\x05", s=string(b"abc"))[: -len(BODY)]
    batch = EncodedMessages.of([whole, damage(whole)])
    assert compiled(text).verdicts(batch, 0, exact=False).tolist() == [Verdict.TRUE, Verdict.ERROR]
    assert compiled(text).verdicts(batch, 0).tolist() == [Verdict.TRUE, Verdict.ERROR]


def test_keys_behind_a_break_of_the_framing_are_absent() -> None:
    whole = application_message(n=b"\x54\x05", s=string(b"abc"), t=b"\x41")
    broken = whole.replace(b"\xa1\x03abc", b"\x3f\x03abc")
    for text, expected in (("n = 5", Verdict.TRUE), ("s = 'abc'", Verdict.UNKNOWN), ("t", Verdict.UNKNOWN)):
        assert verdicts(text, whole, broken) == [Verdict.TRUE, expected]


def test_rows_outside_the_buffer_are_refused_by_name() -> None:
    batch = EncodedMessages.of([b"abc", b"def"])
    for starts, lengths in (([0, 4], [3, 3]), ([0, -1], [3, 3]), ([0, 3], [3, -1]), ([0, 2**62], [3, 2**62])):
        bad = EncodedMessages(batch.data, np.array(starts), np.array(lengths))
        with pytest.raises(ValueError, match="message 1 "):
            compiled("n = 5").verdicts(bad, 0, exact=False)


def test_more_keys_and_members_than_a_message_has() -> None:
    keys = " OR ".join(f"key{index} = {index}" for index in range(40))
    message = application_message(key7=b"\x54\x07", key39=b"\x54\x00")
    assert verdicts(keys, message, application_message(key39=b"\x54\x00")) == [Verdict.TRUE, Verdict.UNKNOWN]
    members = ", ".join(f"'a rather long member {index}'" for index in range(60))
    hit = application_message(s=string(b"a rather long member 59"))
    miss = application_message(s=string(b"a rather long member 60"))
    assert verdicts(f"s IN ({members})", hit, miss) == [Verdict.TRUE, Verdict.FALSE]
