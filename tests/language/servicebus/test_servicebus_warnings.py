"""What a check of a Service Bus filter points at."""

from __future__ import annotations

import pytest

from headgate.language import bind, parse, warnings_of


def warned(text: str) -> list[tuple[str, str]]:
    tree = bind(parse(text, "servicebus"), "servicebus", text)
    return [(text[slice(*warning.span)], warning.reason) for warning in warnings_of(text, tree, "servicebus")]


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("color = 'red'", "properties.color = 'red'"),
        ("'red' = user.color", "properties.color = 'red'"),
        ("sys.Subject = 'x' AND [a b] = 5 AND c = TRUE", "label = 'x', properties.[a b] = 5, properties.c = TRUE"),
        ("sys.correlationid = 'x'", "correlation_id = 'x'"),
        ("property('a') = -1.5", "properties.a = -1.5"),
        ("(a = 'x' AND b = 2) AND c = TRUE", "properties.a = 'x', properties.b = 2, properties.c = TRUE"),
    ],
)
def test_a_filter_of_equalities_could_be_a_correlation_filter(text: str, conditions: str) -> None:
    assert warned(text) == [(text, f"these are only equalities: the correlation filter {conditions} is much cheaper")]


@pytest.mark.parametrize(
    "text",
    [
        "1=1",
        "color <> 'red'",
        "color = 'red' OR size = 5",
        "NOT color = 'red'",
        "color = size",
        "color = 'red' AND size > 5",
        "sys.PartitionKey = 'x'",
        "sys.Label = 5",
        "n = 9007199254740993",
        "color IN ('red')",
        "color IS NULL",
        "a = 1 AND a = 2",
        "(a = 1 AND b = 2) AND (c = 3 OR d = 4)",
    ],
)
def test_a_filter_of_anything_else_could_not(text: str) -> None:
    assert warned(text) == []


def test_a_text_in_double_quotes_is_pointed_at() -> None:
    assert warned('color = "it\'s ""red"""') == [
        ('"it\'s ""red"""', """"it's ""red\"\"" is the name of a property; the text is 'it''s "red"'""")
    ]
    assert warned('"the color" > 5 AND color IN ("red")') == [
        ('"red"', "\"red\" is the name of a property; the text is 'red'")
    ]


def test_an_operand_that_is_null_is_pointed_at() -> None:
    assert warned("color <> NULL") == [("NULL", "what is compared with NULL is unknown; IS NULL asks for it")]
    assert warned("NULL = color + 1") == [("NULL", "what is compared with NULL is unknown")]
