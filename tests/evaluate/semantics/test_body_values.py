"""Paths into JSON bodies: what the reference evaluator says, by the tables of docs/design/body-paths.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate.evaluate import Filter, Verdict
from headgate.evaluate.filter import Engine
from headgate.evaluate.rules import RuleSet
from headgate.message import Body, EncodedMessages, JsonScalar, JsonValue, Message, Section

FALSE, TRUE, UNKNOWN = Verdict.FALSE, Verdict.TRUE, Verdict.UNKNOWN


def verdict(text: str, body: str | bytes, **properties: object) -> Verdict:
    octets = body.encode() if isinstance(body, str) else body
    return Filter.parse(text).verdict(Message(octets, application_properties=properties))


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        ("body.flags[*] = 'urgent'", (TRUE, FALSE, UNKNOWN, FALSE, UNKNOWN)),
        ("NOT body.flags[*] = 'urgent'", (FALSE, TRUE, UNKNOWN, TRUE, UNKNOWN)),
        ("body.flags[*] <> 'urgent'", (TRUE, TRUE, TRUE, FALSE, UNKNOWN)),
        ("body.flags[*] IS NULL", (FALSE, FALSE, TRUE, FALSE, UNKNOWN)),
        ("EXISTS(body.flags[*])", (TRUE, TRUE, TRUE, FALSE, UNKNOWN)),
    ],
)
def test_any_element_by_its_table(text: str, verdicts: tuple[Verdict, ...]) -> None:
    arrays = ('["urgent", "x"]', '["x"]', '["x", null]', "[]", '"urgent"')
    assert tuple(verdict(text, f'{{"flags": {array}}}') for array in arrays) == verdicts


def test_any_element_of_any_element() -> None:
    text = "body.[*].lines[*].sku = 'A'"
    assert verdict(text, '[{"lines": [{"sku": "B"}]}, {"lines": [{}, {"sku": "A"}]}]') is TRUE
    assert verdict(text, '[{"lines": [{"sku": "B"}]}, {"lines": []}]') is FALSE
    assert verdict(text, '[{"lines": [{"sku": "B"}]}, {"lines": 5}]') is UNKNOWN
    assert verdict(text, '[{"lines": 5}, {"lines": [{"sku": "A"}]}]') is TRUE
    assert verdict(text, "[]") is FALSE


def test_a_double_counts_as_its_shortest_decimal_beside_a_decimal() -> None:
    assert verdict("body.x = 19.99 AND body.x = price", '{"x": 19.99}', price=19.99) is TRUE
    assert verdict("body.x > 19.99", '{"x": 19.990000000000000001}') is TRUE
    assert verdict("body.x = 0.1 + 0.2", '{"x": 0.3}') is FALSE
    assert verdict("body.x IN (1, 0.1)", '{"x": 1e-1}') is TRUE


@contextmanager
def fewest_digits() -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


def test_numbers_of_a_thousand_digits_are_unknown_and_harm_nobody() -> None:
    with fewest_digits():
        for number in ("9" * 1000, "-" + "9" * 1000, "0." + "9" * 1000, "1e999999999", "-1e-999999999"):
            body = f'{{"x": {number}, "y": 1}}'
            assert verdict("body.x > 1 OR body.x <= 1", body) is UNKNOWN
            assert verdict("EXISTS(body.x) AND body.x IS NULL AND body.y = 1", body) is TRUE
        assert verdict("body.x * body.x + body.x > 1", f'{{"x": {"9" * 500}}}') is TRUE
        assert verdict("body.x / 2 > 1", f'{{"x": {"9" * 500}}}') is UNKNOWN
        assert verdict("body.x + 0 > 1 OR 1 / body.x = 0", '{"x": 1e400}') is UNKNOWN


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"x":1},'])
def test_deep_bodies_are_no_json_and_end_nothing(opening: str) -> None:
    assert verdict("body.x IS NULL AND NOT EXISTS(body.[0])", opening * 10_000) is TRUE
    closed = opening * 10_000 + "1" + ("}" if opening.startswith("{") else "]") * 10_000
    assert verdict("EXISTS(body.[0]) OR EXISTS(body.a)", closed) is FALSE


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One for each walk over an object, and for each value that is decoded."""
    made: list[str] = []
    member, scalar = JsonValue._member, JsonValue.scalar

    def counted_member(value: JsonValue, name: bytes) -> JsonValue | None:
        made.append(f"member {name.decode()}")
        return member(value, name)

    def counted_scalar(value: JsonValue) -> JsonScalar:
        made.append(f"scalar {value.shown()}")
        return scalar(value)

    monkeypatch.setattr(JsonValue, "_member", counted_member)
    monkeypatch.setattr(JsonValue, "scalar", counted_scalar)
    return made


@pytest.mark.parametrize(
    "condition",
    ["body.l[*] = body.y", "body.l[*] IN (body.y, -7)", "body.l[*] < body.y + body.y", "body.n[*][*] = body.y"],
)
def test_what_stands_beside_an_element_is_found_once_for_all_elements(condition: str, visits: list[str]) -> None:
    numbers = list(range(1, 200))
    assert verdict(condition, f'{{"y": 0, "l": {numbers}, "n": [{numbers}, {numbers}]}}') is FALSE
    assert visits.count("member y") == visits.count("scalar 0") == 1


def test_many_filters_walk_once_to_the_same_place_in_a_body_that_the_kernel_leaves_open(visits: list[str]) -> None:
    in_pieces = Body(Section.DATA, (b'{"a": {"b": "x", ', b'"c": "y"}}'))
    batch = EncodedMessages.of([Message(in_pieces).encode()])
    paths = ("body.a.b", "body.a.c")
    filters = [Filter.parse(f"{path} = '{number}'") for path in paths for number in range(50)]
    assert len(RuleSet(filters).match(batch, now_ms=0)) == 0
    assert [visits.count(f"member {name}") for name in "abc"] == [1, 1, 1]
    assert filters[0].verdicts(batch, engine=Engine.REFERENCE).tolist() == [FALSE]


def test_explain_shows_what_stands_in_the_body() -> None:
    text = "body.a = 1 AND body.b[0] = 'x' AND body.c > 1 AND body.d[*] = 1 AND body.e.f = 1"
    message = Message('{"a": 1.50, "b": ["é"], "c": {"x": [1, 2]}, "d": [0, null]}'.encode())
    assert Filter.parse(text).explain(message).reasons == (
        "`body.a = 1` is false (body.a is the number 1.50)",
        "`body.b[0] = 'x'` is false (body.b[0] is the string \"é\")",
        '`body.c > 1` is unknown (body.c is the object {"x": [1, 2]}, which is unknown)',
        "`body.d[*] = 1` is unknown (body.d is the array [0, null])",
        "`body.e.f = 1` is unknown (body.e.f is absent)",
    )
    assert Filter.parse("body.a = 1").explain(Message(b"{")).reasons == (
        "`body.a = 1` is unknown (the body is not JSON)",
    )
