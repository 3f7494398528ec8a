"""Filters that look into the body: the kernel, alone and for many filters at once, says what the reference says."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headgate.evaluate import Filter, Verdict
from headgate.evaluate.body.needles import searches
from headgate.evaluate.filter import Engine
from headgate.evaluate.rules import RuleSet, engine, parts
from headgate.kernels import load
from headgate.language.tree import conjuncts
from headgate.message import EMPTY_BODY, EncodedMessages, Message, Section
from json_texts import changed

pytestmark = pytest.mark.skipif(load("headgate.evaluate.kernel") is None, reason="kernels cannot be compiled here")

CONDITIONS = (
    "body.a = 'x'", "body.a = 'a b'", "body.a <> 'x'", "body.a = 1", "body.a > 1", "body.a <= 1.5", "body.a <> 1",
    "body.a = 19.99", "body.a IN ('x', 'é')", "body.a NOT IN ('x', 'y')", "body.a IN (1, 'x', 1.5)",
    "body.a IN ('a', 'b', 'c', 'd', 'e', 'x')", "body.a LIKE 'x%'", "body.a LIKE '%x'", "body.a LIKE '_x%y'",
    "body.a NOT LIKE 'x%'", "body.a LIKE 'x'", "body.a LIKE 'a%b'", "body.a IS NULL", "body.a IS NOT NULL",
    "EXISTS(body.a)", "NOT EXISTS(body.a)", "body.a", "NOT body.a", "body.a = TRUE", "body.a + 1 > body.b",
    "body.a % 2 = 0", "-body.a < 0", "body.a || 'x' = 'xx'", "body.a = body.b", "body.a > body.b", "body.a = region",
    "LOWER(body.a) = 'x'", "body.a = INF", "body.a < INF", "body.a <> NAN", "body.a > 9223372036854775808",
    "body.a = 18446744073709551615", "body.b.c = 'x'", "body.b[1] = 2", "body.b.c[0].d IS NULL", "body.b['no'] = 1",
    "body.c[*] = 'x'", "NOT body.c[*] = 'x'", "body.c[*] <> 'x'", "body.c[*] > 1", "body.c[*] IS NULL",
    "body.c[*] IS NOT NULL", "EXISTS(body.c[*])", "EXISTS(body.c[*].d)", "body.c[*] IN ('x', 1)",
    "body.c[*] LIKE '%x%'", "body.c[*].d = 'x'", "body.c[*] = region", "body.c[*].d NOT IN ('x', 'y')",
    "body.c[*][0] = 1", "body.c[*][*] = 'x'", "body.c[*].d[*].e = 'x'", "NOT body.c[*].d[*] > 1", "body.c[*] = INF",
    "body.c[*] < INF", "body.c[1] = 'x'", "body.[*] = 'x'", "NOT body.[*].a = 1", "body.[0] = 1",
    "region = 'EMEA'", "p.subject = 'x'",
)  # fmt: skip

SCALARS = (
    '"x"', '"x"', '"a b"', '"\\u0078"', '"\\u00e9"', '"xé\\n"', '"axy"', '""', '"EMEA"', "1", "2", "-1", "1.5",
    "19.99", "1e0", "0.1234567890123456789", "18446744073709551615", "9223372036854775808", "12345678901234567.5",
    "true", "false", "null", '"\\ud800"', "1e30",
)  # fmt: skip
KEYS = ("a", "a", "b", "c", "d", "e", "no", "\\u0061", "\\u0063")


def some_value(chance: random.Random, depth: int) -> str:
    kind = chance.randrange(6)
    if depth > 3 or kind < 3:
        return chance.choice(SCALARS)
    if kind == 3:
        return some_object(chance, depth)
    return "[" + ", ".join(some_value(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"


def some_object(chance: random.Random, depth: int = 0) -> str:
    members = (f'"{chance.choice(KEYS)}": {some_value(chance, depth + 1)}' for _ in range(chance.randrange(6)))
    return "{" + ", ".join(members) + "}"


def binary(section: Section, content: bytes, constructor: int = 0xB0) -> bytes:
    return bytes([0x00, 0x53, section, constructor]) + len(content).to_bytes(4) + content


def bodies(text: bytes) -> Iterator[bytes]:
    """The text as a body of any form, and forms that are none."""
    footer = bytes([0x00, 0x53, Section.FOOTER, 0xC1, 1, 0])
    yield binary(Section.DATA, text)
    yield binary(Section.DATA, text) + footer
    yield binary(Section.DATA, text[:7]) + binary(Section.DATA, text[7:])
    yield binary(Section.AMQP_VALUE, text)
    yield binary(Section.AMQP_VALUE, text, 0xB1) + footer
    yield binary(Section.AMQP_VALUE, text, 0xB3)
    yield binary(Section.DATA, text, 0xB1)
    yield binary(Section.AMQP_VALUE, text) + binary(Section.AMQP_VALUE, text)
    yield binary(Section.DATA, text) + binary(Section.AMQP_VALUE, text)
    yield binary(Section.DATA, text)[:-1]
    yield binary(Section.DATA, text) + b"\x00"
    yield b"\x00\xa3\x10amqp:data:binary" + binary(Section.DATA, text)[3:]
    yield bytes([0x00, 0x53, Section.AMQP_SEQUENCE, 0x45])
    yield bytes([0x00, 0x53, Section.AMQP_VALUE, 0x40])
    yield footer
    yield EMPTY_BODY
    yield b""


def some_batch(seed: int, count: int) -> EncodedMessages:
    chance = random.Random(seed)
    heads = [
        Message(application_properties=properties, subject=subject).encode()
        for properties in (None, {"region": "EMEA"}, {"region": "x", "a": "x"})
        for subject in (None, "x")
    ]
    heads = [head.removesuffix(EMPTY_BODY) for head in heads]
    messages: list[bytes] = []
    for number in range(count):
        text = (some_value(chance, 0) if number % 10 == 0 else some_object(chance)).encode()
        if number % 5 == 0:
            text = changed(chance, text)
        forms = list(bodies(text))
        form = forms[number // 8 % len(forms)] if number % 8 == 0 else forms[0]
        messages.append(chance.choice(heads) + form)
    return EncodedMessages.of(messages)


def some_filters(seed: int, count: int) -> list[Filter]:
    chance = random.Random(seed)
    texts = list(CONDITIONS)
    for _ in range(count):
        parts = [f"{chance.choice(('', '', 'NOT '))}({chance.choice(CONDITIONS)})" for _ in range(chance.randint(2, 4))]
        texts.append(f" {chance.choice(('AND', 'AND', 'OR'))} ".join(parts))
    return [Filter.parse(text) for text in texts]


def assert_the_kernel_agrees(filters: list[Filter], batch: EncodedMessages) -> None:
    for each in filters:
        assert each.program is not None, each
        expected = each.verdicts(batch, engine=Engine.REFERENCE)
        wrong = np.flatnonzero(each.verdicts(batch) != expected)
        assert not len(wrong), (each, batch.message(int(wrong[0])), expected[wrong[0]])
        wrong = np.flatnonzero(each.mask(batch) != (expected == Verdict.TRUE))
        assert not len(wrong), (each, batch.message(int(wrong[0])), expected[wrong[0]])


def test_the_kernel_decides_filters_of_bodies_as_the_reference_does() -> None:
    assert_the_kernel_agrees(some_filters(1, 40), some_batch(2, 300))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 9))
def test_the_kernel_decides_very_many_filters_of_bodies_as_the_reference_does(seed: int) -> None:
    assert_the_kernel_agrees(some_filters(seed, 300), some_batch(seed, 2000))


@pytest.mark.parametrize("text", ["body.[*] = 'x'", "NOT body.[*] = 'x'", "EXISTS(body.[*])", "body.[*][*] IS NULL"])
def test_a_text_that_is_an_array_but_for_its_end_has_no_elements(text: str) -> None:
    whole = ('["x"]', "[]", "[[null]]", '["y", ["x"]]')
    broken = [array + rest for array in whole for rest in ("", "]", "\x17", ",", "[]", "\N{NO-BREAK SPACE}")]
    texts = [*broken, *(array[:-1] for array in whole)]
    batch = EncodedMessages.of([binary(Section.DATA, text.encode()) for text in texts])
    assert_the_kernel_agrees([Filter.parse(text)], batch)
    expected = RuleSet([Filter.parse(text)]).match(batch, now_ms=0).rows.tolist()
    assert expected == np.flatnonzero(Filter.parse(text).mask(batch, engine=Engine.REFERENCE)).tolist()


def test_many_filters_of_bodies_at_once_give_what_each_gives_alone() -> None:
    filters = some_filters(11, 100)
    # So many constants are found by the hash index.
    filters += [Filter.parse(f"body.a = '{text}'") for text in ("x", "é", "a b", "axy", *map(str, range(300)))]
    filters += [Filter.parse(f"body.b.c = {number} AND region = 'EMEA'") for number in range(-1, 300)]
    batch = some_batch(12, 400)
    matches = RuleSet(filters).match(batch, now_ms=0)
    expected = [
        (row, number) for number, each in enumerate(filters) for row in np.flatnonzero(each.mask(batch)).tolist()
    ]
    assert sorted(zip(matches.rows.tolist(), matches.rules.tolist(), strict=True)) == sorted(expected)


def test_rows_of_the_hash_index_keep_their_texts_without_escapes() -> None:
    names = [f"ä{number}" for number in range(300)]
    filters = [Filter.parse(f"body.name = '{name}'") for name in names]
    escaped = [f'{{"name": "\\u00e4{number}"}}' for number in range(300)]
    batch = EncodedMessages.of([Message(text.encode()).encode() for text in escaped])
    matches = RuleSet(filters).match(batch, now_ms=0)
    assert matches.rows.tolist() == matches.rules.tolist() == list(range(300))


# -- what a body must hold ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("body.status = 'urgent'", [('"urgent"',)]),
        ("'urgent' = body.a.status AND body.total > 100", [('"urgent"',)]),
        ("body.a.total > 100 AND body.b IS NOT NULL", [('"total"',)]),
        ("body.a IN ('x', 'y')", [('"x"', '"y"')]),
        ("body.number IN (1, 'y')", [('"number"',)]),
        ("body.number IN ('a', 'b', 'c', 'd', 'e')", [('"number"',)]),
        ("body.sku LIKE 'A-%' AND body.b = 'z'", [('"A-',), ('"z"',)]),
        ("body.sku LIKE '%-end'", [('-end"',)]),
        ("body.sku LIKE '%a%'", [('"sku"',)]),
        ("body.a = 'x' OR body.b = 'y'", [('"x"', '"y"')]),
        ("body.a = 'x' OR body.size > 1", [('"x"', '"size"')]),
        ("body.a = 'x' OR region = 'y'", []),
        ("body.flags[*] = 'urgent'", [('"urgent"',)]),
        ("body.flags[*].name IS NULL", [('"flags"',)]),
        ("EXISTS(body.flags[*].d)", [('"flags"',)]),
        ("NOT body.a = 'x'", []),
        ("body.a IS NULL", []),
        ("body.[0] = 1", []),
        ("body.a = region", [('"a"',)]),
        ("body.price * body.n > 5", [('"price"',)]),
    ],
)
def test_needles_stand_in_every_body_for_which_the_conditions_are_true(
    text: str, expected: list[tuple[str, ...]]
) -> None:
    found = searches(conjuncts(Filter.parse(text).tree))
    assert [tuple(needle.decode() for needle in needles) for needles in found] == expected


def test_a_needle_is_found_wherever_it_stands_and_nowhere_else() -> None:
    needles = ("ab", "needle", "needle and thread of more than thirty-two bytes")
    filters = {needle: Filter.parse(f"body.a = '{needle}'") for needle in needles}
    for needle, size in itertools.product(needles, (0, 1, 7, 8, 50, 55, 56, 57, 63, 64, 65, 70, 130, 200)):
        places = range(0, size + 1, 3)
        texts = [f'{{"{"x" * place}":1,"a":"{needle}","{"y" * (size - place)}":"need"}}' for place in places]
        texts += [text.replace(needle, f"{needle[:-1]}_") for text in texts]
        texts += [text.replace('"a":', '"\\u0061":') for text in texts]
        batch = EncodedMessages.of([Message(text.encode()).encode() for text in texts])
        expected = [f'"{needle}"' in text for text in texts]
        assert filters[needle].mask(batch).tolist() == expected
        assert filters[needle].mask(batch, engine=Engine.REFERENCE).tolist() == expected


def test_a_body_that_the_kernel_leaves_open_costs_the_rules_that_do_not_look_at_it_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def record(rows: Any, batch: EncodedMessages, now_ms: int) -> parts.Found:
        pairs = [(row, list(members)) for row, members in rows]
        asked.extend(member.number for _, members in pairs for member in members)
        return parts.by_reference(pairs, batch, now_ms)

    monkeypatch.setattr(engine, "by_reference", record)
    rules = RuleSet([Filter.parse(f"region = 'x{n}' AND body.a = {n % 2}" if n < 8 else f"region = 'x{n % 50}'")
                     for n in range(200)])  # fmt: skip
    head = Message(application_properties={"region": "x5"}).encode().removesuffix(EMPTY_BODY)
    two_sections = head + binary(Section.DATA, b'{"a"') + binary(Section.DATA, b":1}")
    found = rules.match(EncodedMessages.of([two_sections]), now_ms=0)
    assert found.rules.tolist() == [5, 55, 105, 155]
    assert asked == list(range(8))
