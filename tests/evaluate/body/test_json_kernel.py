"""The walk over JSON in the kernel finds what `headgate.message.json_body` finds, and nothing in what is not JSON."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pytest

from headgate.evaluate import Filter, layout
from headgate.evaluate.body.json.kernel import MOST_DIGITS
from headgate.evaluate.compiler import Compiler
from headgate.evaluate.filter import Engine
from headgate.evaluate.program import program_of
from headgate.kernels import address_of, load
from headgate.language import tree as t
from headgate.message import FieldReference, JsonKind, Message, Section, json_document
from headgate.message.batch import SLACK_BYTES, EncodedMessages
from headgate.message.json_body import MAX_DIGITS, MAX_JSON_BYTES, MAX_NESTING
from json_texts import changed

pytestmark = pytest.mark.skipif(load("headgate.evaluate.kernel") is None, reason="kernels cannot be compiled here")

PATHS: tuple[tuple[bytes | int, ...], ...] = (
    (b"a",), (b"b",), (b"a", b"b"), (b"a", 0), (b"a", 2, b"b"), (0,), (1, b"a"), (b"",), (b"c", b"a"), (b"a", b"b",
    b"a", 1), (b"a key of more than eight bytes",), ("größe".encode(),),
)  # fmt: skip
AROUND = b'"\\]}1,0e'
"""Bytes behind a text that would lead on."""

KEYS = (
    "a", "a", "b", "c", "", "a key of more than eight bytes", "a key of more than eight byteS", "größe", "x", "ab",
    "\\u0061", "\\u0062", "gr\\u00f6\\u00dfe", "a key\\u0020of more than eight bytes", "\\ud800",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "1", "-17", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "1" + "0" * 30, "1.5",
    "-0.0", "19.99", "1e5", "1E+2", "123456789012345.67", "-0.1234567890123456789", "1e-7", "1.0000000000000000000000",
    "1e22", "-1e23", "1e400", "0.30000000000000004", "9007199254740993.0", "900719925474099.1e1", "0.000123e3",
)  # fmt: skip
STRINGS = (
    '""', '"x"', '"a text that does not fit into thirty-two bytes, by far"', '"\\n\\"\\\\\\/\\b\\f\\r\\t"',
    '"\\u00e9\\ud83d\\ude00"', '"é😀"', '"\\u0000"', '"a text with an escape behind thirty-two bytes: \\u00df"',
    '"\\ud800"', '"\\udc00\\ud800"',
)  # fmt: skip


class Walk:
    """A program for `PATHS`, run over one body at a time; gives what its slots hold."""

    def __init__(self) -> None:
        fields = [t.Field(FieldReference(Section.DATA, path=path)) for path in PATHS]
        compiler = Compiler(t.And(tuple(t.Exists(field) for field in fields)))
        self.program = program_of(compiler.program())
        self.slots = {reference.path: slot for reference, slot in compiler.slots.items()}

    def values(self, text: bytes) -> dict[tuple[bytes | int, ...], object] | None:
        """The value at each path; None if the kernel leaves the message open."""
        message = Message(body=text).encode()
        data = np.frombuffer(message + AROUND, dtype=np.uint8)
        span, verdict = np.array([0, len(message)]), np.zeros(1, dtype=np.uint8)
        registers = self.program.registers_at(0)
        kernel = load("headgate.evaluate.kernel")
        assert kernel is not None and len(AROUND) == SLACK_BYTES
        kernel.evaluate(
            address_of(data), len(message), address_of(span[:1]), address_of(span[1:]), 1, self.program.words_address,
            layout.CODE_EXACT, self.program.pool_address, address_of(registers), address_of(verdict),
        )  # fmt: skip
        if verdict[0] == layout.UNDECIDED:
            return None
        return {path: _value(*map(int, registers[slot // layout.REGISTER_BYTES])) for path, slot in self.slots.items()}


def _value(kind: int, payload: int, length: int) -> object:
    match kind:
        case layout.BYTES:
            return ctypes.string_at(payload, length)
        case layout.INTEGER:
            return payload
        case layout.FLOAT:
            return _double(payload)
        case layout.BETWEEN:
            return _double(payload), _double(length)
        case layout.BOOLEAN:
            return payload == 1
        case layout.NULL | layout.ABSENT | layout.VALUELESS:
            return {layout.NULL: "null", layout.ABSENT: "nothing", layout.VALUELESS: "no value"}[kind]
    raise AssertionError(kind)


def _double(bits: int) -> float:
    found: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return found


def is_right(found: object, text: bytes, path: tuple[bytes | int, ...]) -> bool:
    """Whether a slot holds what the reference finds."""
    document = json_document(text)
    at_path = None if document is None else document.at(path)
    if at_path is None:
        return found == "nothing"
    value = at_path.scalar()
    if value is None:
        return found == ("null" if at_path.kind is JsonKind.NULL else "no value")
    if isinstance(found, tuple):
        # So near that 15 digits are the same.
        exact = Decimal(str(value)) if isinstance(value, int) else value
        assert isinstance(exact, Decimal)
        return Decimal(found[0]) <= exact + abs(exact) / 10**15 and exact - abs(exact) / 10**15 <= Decimal(found[1])
    if isinstance(value, Decimal):
        return isinstance(found, float) and found == float(value) and Decimal(repr(found)) == value
    return type(found) is type(value) and found == value


def some_text(chance: random.Random, depth: int = 0) -> str:
    """A JSON text, with blanks anywhere."""

    def blanks() -> str:
        return chance.choice(("", "", "", " ", "\n  ", "\t", "\r\n"))

    kind = chance.randrange(10)
    if depth > 5 or kind < 3:
        long = f'"{"z" * chance.randrange(70)}{"é" * chance.randrange(20)}"'
        number = chance.choice((f"{chance.random() * 10.0 ** chance.randrange(-5, 15)}", f"{chance.randrange(2**64)}"))
        return chance.choice((*NUMBERS, number, number, *STRINGS, long, long, "true", "false", "null"))
    parts = [blanks() + some_text(chance, depth + 1) + blanks() for _ in range(chance.randrange(5))]
    if kind < 7:
        return "{" + ",".join(f'{blanks()}"{chance.choice(KEYS)}"{blanks()}:{part}' for part in parts) + blanks() + "}"
    return "[" + (",".join(parts) or blanks()) + "]"


def some_bodies(seed: int, count: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    for number in range(count):
        text = (some_text(chance)).encode()
        yield text
        for _ in range(4):
            yield changed(chance, text)
        if number % 4 == 0 and len(text) < 250:
            yield from (text[:length] for length in range(len(text)))


def look_at(bodies: Iterator[bytes]) -> tuple[int, int]:
    """Checks each text; gives how many had a value, and how many were left open."""
    walk = Walk()
    with_values = left_open = 0
    for text in bodies:
        found = walk.values(text)
        if found is None:
            left_open += 1
            continue
        wrong = {path: value for path, value in found.items() if not is_right(value, text, path)}
        assert not wrong, (text, wrong)
        with_values += any(value != "nothing" for value in found.values())
    return with_values, left_open


def test_the_walk_finds_what_the_reference_finds_in_generated_changed_and_truncated_texts() -> None:
    with_values, left_open = look_at(some_bodies(1, 800))
    assert with_values > 500
    assert left_open < with_values / 4


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 5))
def test_the_walk_finds_what_the_reference_finds_in_very_many_texts(seed: int) -> None:
    with_values, _ = look_at(some_bodies(seed, 20_000))
    assert with_values > 10_000


VALUES = {
    # RFC 8259: sections 2 (structure), 3 (literals), 6 (numbers), 7 (strings), 8.1 (UTF-8).
    "accepted": (
        "{}", "[]", "[ ]", "{ }", '""', "0", "-0", "10", "1.0", "0.5", "1e1", "1E+1", "1e-01", "-0.0e0", "true",
        "false", "null", '"\\u0000"', '"\\/"', '"\x7f"', '"\u2028"', '"\uffff"', '"\U0010ffff"', "[[],[]]", "[[[]]]",
        '{"":""}', '{"a":{"a":[{}]}}', "[\t1\r,\n2 ]", '"\\uD834\\uDD1E"', '"\\uDEAD"', "[null,false]",
    ),
    "refused": (
        "", "tru", "True", "nul", "nulll", "fals", "truefalse", "NaN", "Infinity", "-", "+1", "01", "-01", "1.", ".5",
        "1.e1", "1e", "1e+", "1eE1", "0x1", "1_0", "1 2", '"', '"a', "'a'", '"\t"', '"\n"', '"\x00"', '"\\"', '"\\a"',
        '"\\u12"', '"\\u12g4"', '"\\U0041"', '"\\x41"', "[", "]", "[1", "[1,", "[1,]", "[,1]", "[,]", "[1 2]", "[1}",
        "{", "}", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', "{,}", "{a:1}", "{1:1}", '{"a" 1}', '{"a"::1}',
        '{"a":1 "b":2}', '{"a":1]', '{"a","b"}', '["a":1]', "[[]", "[]]", "{}}", "\v1", "\u00a01", "\ufeff1", "1//",
        "/**/1", "[1]#", '"a"b',
    ),
    "no UTF-8": (
        b'"\x80"', b'"\xbf"', b'"\xc0\x80"', b'"\xc1\xbf"', b'"\xc3"', b'"\xc3("', b'"\xe0\x80\x80"', b'"\xe0\x9f\xbf"',
        b'"\xed\xa0\x80"', b'"\xed\xbf\xbf"', b'"\xe2\x82"', b'"\xf0\x80\x80\x80"', b'"\xf0\x9f\x98"',
        b'"\xf4\x90\x80\x80"', b'"\xf5\x80\x80\x80"', b'"\xfe"', b'"\xff"', b"\xc3\xa9", b'"\xf0\x9f\x98\x80\x80"',
    ),
}  # fmt: skip
"""Texts by whether they are JSON."""


@pytest.mark.parametrize("kind", VALUES)
def test_the_kernel_takes_a_text_for_json_as_the_grammar_says(kind: str) -> None:
    texts = [value if isinstance(value, bytes) else value.encode() for value in VALUES[kind]]
    bodies = [b'{"a":1,"x":' + value + end for value in texts for end in (b"}", b',"y":[]}')]
    bodies += [b'[{"a":1},' + value + b"]" for value in texts]
    walk = Walk()
    for body in bodies:
        found = walk.values(body)
        assert found is not None
        expected = (
            ("nothing", "nothing")
            if kind != "accepted"
            else (1, "nothing")
            if body[0] == 0x7B
            else ("nothing", "no value")
        )
        assert (found[(b"a",)], found[(0,)]) == expected, body


def verdicts(text: str, bodies: list[bytes], engine: Engine) -> list[int]:
    batch = EncodedMessages.of([Message(body=body).encode() for body in bodies])
    return Filter.parse(text).verdicts(batch, engine=engine).tolist()


def test_limits_of_the_kernel_are_those_of_the_reference_or_left_to_it() -> None:
    assert layout.MOST_JSON_BYTES == MAX_JSON_BYTES
    assert layout.MOST_LEVELS == MAX_NESTING
    assert MOST_DIGITS <= MAX_DIGITS
    levels = (1, 64, MAX_NESTING - 1, MAX_NESTING, MAX_NESTING + 1, 10_000)
    bodies = [b'{"a":1,"x":' + b"[" * (level - 1) + b"1" + b"]" * (level - 1) + b"}" for level in levels]
    bodies += [b'{"x":' * level + b"1" + b"}" * level for level in levels]
    bodies += [b"[" * level for level in levels]
    bodies += [
        b'{"a":1,"x":' + b"[" * (level - 2) + empty + b"]" * (level - 2) + b"}"
        for level in levels[1:]
        for empty in (b"[]", b"{}")
    ]
    assert verdicts("EXISTS(body.a)", bodies, Engine.KERNEL) == verdicts("EXISTS(body.a)", bodies, Engine.REFERENCE)


def test_long_texts_are_walked_whole() -> None:
    many = ",".join(f'"key{number}":{number}' for number in range(300_000)).encode()
    bodies = [
        b'{"a":1,' + many + b',"b":2}',
        b'{"a":1,' + many + b',"b":2',
        b'{"a":"' + b"x" * (MAX_JSON_BYTES - 16) + b'","b":2}',
        b'{"a":"' + b"x" * (MAX_JSON_BYTES - 13) + b'","b":2}',
        b'{"b":2,"a":' + b"1" * 1000 + b"}",
        b'{"a":"' + b"\\u0061" * 1000 + b'","b":2}',
        b'{"a":"' + b"\\u0061" * 5000 + b'","b":2}',
    ]
    for text in ("body.b = 2", "EXISTS(body.a)", "body.a = 1", "body.a LIKE 'aaa%'"):
        assert verdicts(text, bodies, Engine.KERNEL) == verdicts(text, bodies, Engine.REFERENCE), text
