"""The canonical text of a tree, and that it says the same as the tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given

from headgate.language import bind, parse
from headgate.language.printer import print_tree
from headgate.language.tree import Exists, Field
from headgate.message.fields import FieldReference, Section
from spans import without_spans
from strategies import expressions

VECTORS = Path(__file__).parent.parent / "vectors"

CANONICAL = [
    ("x=5", "x = 5"),
    ("x!=5", "x <> 5"),
    ("NOT (x = 5)", "NOT x = 5"),
    ("(x AND y) AND z", "(x AND y) AND z"),
    ("x AND (y AND z)", "x AND (y AND z)"),
    ("(x AND y) OR z", "x AND y OR z"),
    ("x AND (y OR z)", "x AND (y OR z)"),
    ("NOT (x AND y)", "NOT (x AND y)"),
    ("((x)) IN ( 1,2 )", "x IN (1, 2)"),
    ("x NOT LIKE 'a!%' ESCAPE '!'", "x NOT LIKE 'a!%' ESCAPE '!'"),
    ("x - (y - z) * -1", "x - (y - z) * -1"),
    ("-(-1)", "-(-1)"),
    ("(x = y) = TRUE", "(x = y) = TRUE"),
    ('"it\'s"', "'it''s'"),
    ("0xFF61", "0xFF61"),
    ("0x61", "'a'"),
    ("[a]]b] IS NOT NULL", "[a]]b] IS NOT NULL"),
    ("[region]", "region"),
    ("[date]", "[date]"),
    ("a.date", "a.date"),
    ("1.5E300 > UTC()", "1.5E+300 > UTC()"),
    ("0.0000001", "1.0E-07"),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL, ids=[text for text, _ in CANONICAL])
def test_a_tree_prints_in_canonical_form(text: str, canonical: str) -> None:
    assert print_tree(parse(text)) == canonical


def _accepted_texts() -> list[str]:
    lines = map(json.loads, (VECTORS / "rabbitmq_sql.jsonl").read_text().splitlines())
    return [line["sql"] for line in lines if line["accepted"]]


def test_every_recorded_filter_survives_parse_print_parse() -> None:
    texts = _accepted_texts()
    assert len(texts) > 500
    for text in texts:
        assert_round_trip(text)


@given(expressions)
def test_any_expression_survives_parse_print_parse(text: str) -> None:
    assert_round_trip(text)


def assert_round_trip(text: str) -> None:
    tree = parse(text)
    printed = print_tree(tree)
    assert without_spans(parse(printed)) == without_spans(tree)
    bound = bind(tree, "rabbitmq", text)
    printed_bound = print_tree(bound)
    assert without_spans(bind(parse(printed_bound), "rabbitmq", printed_bound)) == without_spans(bound)


def test_a_test_of_existence_prints_as_the_extended_dialect_spells_it() -> None:
    key = FieldReference(Section.APPLICATION_PROPERTIES, key=b"in")
    assert print_tree(Exists(Field(key))) == "EXISTS([in])"


def test_an_annotation_prints_with_its_section() -> None:
    assert print_tree(Field(FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-opt-k"))) == "m.[x-opt-k]"
