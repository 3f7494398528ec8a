"""Compiling trees to programs: what is compiled, what is left to the reference, and that programs travel."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from headgate.evaluate import layout
from headgate.evaluate.kinds import FAMILIES
from headgate.evaluate.program import MOST_FIELDS, compile_program
from headgate.evaluate.reference import verdict_of_bytes
from headgate.evaluate.verdict import UNDECIDED, Verdict
from headgate.kernels import load
from headgate.language import bind, parse
from headgate.language.tree import (
    And,
    Compare,
    CompareOperator,
    Constant,
    Exists,
    Field,
    HasSimple,
    Node,
    Not,
    Or,
    Sign,
    ValueRules,
)
from headgate.message import AmqpType
from headgate.message.batch import EncodedMessages
from headgate.message.fields import FieldReference, Section

needs_kernels = pytest.mark.skipif(load("headgate.evaluate.kernel") is None, reason="kernels cannot be compiled here")


def bound(text: str) -> Node:
    return bind(parse(text), "rabbitmq", text)


def application_property(key: str) -> Field:
    return Field(FieldReference(Section.APPLICATION_PROPERTIES, key=key.encode()))


def map_message(code: int, key_constructor: int, **values: bytes) -> bytes:
    pairs = b"".join(bytes([key_constructor, len(key)]) + key.encode() + value for key, value in values.items())
    return b"\x00\x53" + bytes([code, 0xC1, len(pairs) + 1, 2 * len(values)]) + pairs


def exact(tree: Node, *messages: bytes) -> list[int]:
    """The kernel's verdicts, which must be the oracle's."""
    program = compile_program(tree)
    assert program is not None
    found = [int(verdict) for verdict in program.verdicts(EncodedMessages.of(messages), 0)]
    assert found == [verdict_of_bytes(tree, message, 0) for message in messages]
    return found


@needs_kernels
def test_a_pickled_program_gives_the_same_verdicts() -> None:
    program = compile_program(bound("s LIKE '%long enough to have a rest%' OR n IN (5, 'text', x) OR UTC() = 7"))
    assert program is not None
    travelled = pickle.loads(pickle.dumps(program))
    batch = EncodedMessages.of(
        [
            map_message(0x74, 0xA1, s=b"\xa1\x1e" + b"is long enough to have a rest."),
            map_message(0x74, 0xA1, n=b"\xa1\x04text"),
            map_message(0x74, 0xA1, n=b"\x54\x06"),
            b"no message",
        ]
    )
    for now_ms in (0, 7):
        assert travelled.verdicts(batch, now_ms).tolist() == program.verdicts(batch, now_ms).tolist()
    assert program.verdicts(batch, 0).tolist() == [Verdict.TRUE, Verdict.TRUE, Verdict.UNKNOWN, Verdict.ERROR]
    assert program.verdicts(batch, 7).tolist() == [Verdict.TRUE, Verdict.TRUE, Verdict.TRUE, Verdict.ERROR]


@needs_kernels
def test_a_run_changes_nothing_in_the_program() -> None:
    program = compile_program(bound("n + 1 = 2 AND s = 'abc' AND UTC() > 5"))
    assert program is not None
    before = [array.copy() for array in (program.words, program.pool, program.registers)]
    program.verdicts(EncodedMessages.of([map_message(0x74, 0xA1, n=b"\x54\x01")]), 99, exact=False)
    for kept, array in zip(before, (program.words, program.pool, program.registers), strict=True):
        np.testing.assert_array_equal(kept, array)


@needs_kernels
def test_no_messages_give_no_verdicts() -> None:
    program = compile_program(bound("n = 5"))
    assert program is not None
    assert program.verdicts(EncodedMessages.of([]), 0, exact=False).shape == (0,)


@pytest.mark.parametrize("family", [-1, layout.FAMILIES])
def test_a_family_that_the_kernel_does_not_know_is_refused_when_the_program_is_made(
    family: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, ValueRules.RABBITMQ, family)
    with pytest.raises(ValueError, match=f"found family {family} of operations, expected 0 to {layout.FAMILIES - 1}"):
        compile_program(bound("n = 5"))


def test_every_family_of_the_layout_is_one_that_the_kernel_knows() -> None:
    named = [number for name, number in vars(layout).items() if name.startswith("RULES_")]
    assert sorted(named) == list(range(layout.FAMILIES))


def test_time_outside_64_bits_leaves_all_rows_to_the_reference() -> None:
    program = compile_program(bound("UTC() > 5"))
    assert program is not None
    assert program.verdicts(EncodedMessages.of([b"", b""]), 2**63, exact=False).tolist() == [UNDECIDED, UNDECIDED]


def test_trees_with_too_many_fields_or_too_deep_are_not_compiled() -> None:
    fields = tuple(Compare(CompareOperator.EQUAL, application_property(f"k{n}"), Constant(n)) for n in range(300))
    assert compile_program(Or(fields)) is None
    assert compile_program(Or(fields[:200])) is not None
    positions = tuple(
        Compare(CompareOperator.EQUAL, Field(FieldReference(Section.PROPERTIES, position=n)), Constant(n))
        for n in range(MOST_FIELDS + 1)
    )
    assert compile_program(Or(positions)) is None
    deep: Node = Constant(True)
    for _ in range(5_000):
        deep = Sign(True, deep)
    assert compile_program(deep) is None


def test_unbound_trees_and_fields_that_no_language_names_are_not_compiled() -> None:
    assert compile_program(parse("n = 5")) is None
    assert compile_program(Field(FieldReference(Section.AMQP_VALUE, key=b"n"))) is None
    assert compile_program(Exists(Field(FieldReference(Section.HEADER, position=1, path=(0,))))) is None
    with_default = FieldReference(Section.APPLICATION_PROPERTIES, key=b"n", default=4)
    assert compile_program(Compare(CompareOperator.EQUAL, Field(with_default), Constant(4))) is None
    only_int = FieldReference(Section.HEADER, position=2, only=AmqpType.INT)
    assert compile_program(Compare(CompareOperator.EQUAL, Field(only_int), Constant(4))) is None


@needs_kernels
def test_existence_and_simple_values_are_told_apart() -> None:
    messages = (
        map_message(0x74, 0xA1, n=b"\x40"),
        map_message(0x74, 0xA1, n=b"\x54\x05"),
        map_message(0x74, 0xA1, n=b"\x45"),
        map_message(0x74, 0xA1, n=b"\x72\x7f\xc0\x00\x00"),
        map_message(0x74, 0xA1, m=b"\x54\x05"),
    )
    assert exact(Exists(application_property("n")), *messages) == [1, 1, 1, 1, 0]
    assert exact(HasSimple(application_property("n")), *messages) == [1, 1, 0, 0, 0]
    assert exact(Not(Exists(application_property("n"))), *messages) == [0, 0, 0, 0, 1]


@needs_kernels
@pytest.mark.parametrize(
    ("section", "code"), [(Section.DELIVERY_ANNOTATIONS, 0x71), (Section.MESSAGE_ANNOTATIONS, 0x72)]
)
def test_annotations_are_read_by_symbol_or_string_and_a_broken_map_ends_the_search(section: Section, code: int) -> None:
    field = Field(FieldReference(section, key=b"x-opt"))
    tree = Compare(CompareOperator.EQUAL, field, Constant(b"v"))
    value = b"\xa1\x01v"
    whole = map_message(code, 0xA3, **{"x-a": b"\x54\x01", "x-opt": value})
    by_string = map_message(code, 0xA1, **{"x-opt": value})
    broken_before = map_message(code, 0xA3, **{"x-a": b"\x3f", "x-opt": value})
    broken_behind = map_message(code, 0xA3, **{"x-opt": value, "x-z": b"\x3f"})
    assert exact(tree, whole, by_string, broken_before, broken_behind) == [1, 1, 2, 1]


@needs_kernels
def test_logic_inside_values_is_three_valued() -> None:
    for text in (
        "(n = 5 AND s = 'a') = TRUE",
        "(n = 5 OR NOT s = 'a') = FALSE",
        "(NOT n = 5) IN (TRUE, s)",
        "((n = 5) = (s = 'a')) = ((n <> 5) = (s NOT LIKE 'a'))",
        "(n NOT IN (4, 5)) = (s IS NOT NULL)",
    ):
        messages = [
            map_message(0x74, 0xA1, n=n, s=s)
            for n in (b"\x54\x05", b"\x54\x06", b"\x40")
            for s in (b"\xa1\x01a", b"\x40")
        ]
        assert len(exact(bound(text), *messages)) == 6


@needs_kernels
def test_the_order_of_conjuncts_does_not_change_what_is_selected() -> None:
    conjuncts = [bound("n = 5"), bound("p.subject = 'a'"), bound("h.priority > 2"), bound("s LIKE '_'")]
    messages = [
        header + properties + map_message(0x74, 0xA1, n=n, s=b"\xa1\x01b")
        for header in (b"", b"\x00\x53\x70\xc0\x04\x02\x40\x50\x01")
        for properties in (b"", b"\x00\x53\x73\xc0\x07\x04\x40\x40\x40\xa1\x01a")
        for n in (b"\x54\x05", b"\x40")
    ]
    batch = EncodedMessages.of(messages)
    selected = []
    for turn in range(4):
        program = compile_program(And(tuple(conjuncts[turn:] + conjuncts[:turn])))
        assert program is not None
        selected.append((program.verdicts(batch, 0, exact=False) == Verdict.TRUE).tolist())
    assert selected == [[False, False, True, False, False, False, False, False]] * 4


def test_the_words_of_the_layout_do_not_overlap() -> None:
    head = [
        layout.CODE_SELECT,
        layout.CODE_EXACT,
        layout.SLOT_TEMPLATE,
        layout.WANTED_SECTIONS,
        layout.APPLICATION_KEYS,
    ]
    assert sorted(set(head)) == head and max(head) < 8 * layout.HEAD_WORDS
    assert layout.WANTED_SECTIONS + 4 * 8 <= layout.APPLICATION_KEYS
    operations = [value for name, value in vars(layout).items() if name in OPERATION_NAMES and isinstance(value, int)]
    assert len(operations) == len(OPERATION_NAMES) == len(set(operations))


OPERATION_NAMES = {
    "EQUAL_BYTES", "AMONG_BYTES", "COMPARE_INTEGER", "COMPARE_FLOAT", "EQUAL_BOOLEAN", "TRUTH", "IS_UNKNOWN",
    "IS_PRESENT", "IS_SIMPLE", "COMPARE", "AMONG", "LIKE_AFFIXES", "LIKE_EXACT", "LIKE_GENERAL",
    "READ_APPLICATION_PROPERTIES", "CHECK", "ADD", "SUBTRACT", "MULTIPLY", "DIVIDE", "MODULO", "NEGATE", "KEEP_NUMBER",
    "BOTH", "EITHER", "OPPOSITE",
}  # fmt: skip


def test_programs_cannot_be_changed() -> None:
    program = compile_program(bound("n = 5"))
    assert program is not None
    with pytest.raises(dataclasses.FrozenInstanceError):
        program.now_register = 3  # type: ignore[misc]
