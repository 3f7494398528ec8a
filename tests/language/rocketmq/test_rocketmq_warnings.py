"""What a check of a `rocketmq` filter points at: the traps that deployed filters step into."""

from __future__ import annotations

import pytest

from headgate.language import bind, parse, warnings_of


def warned(text: str, dialect: str = "rocketmq") -> list[tuple[str, str]]:
    """The places, as text, and the reasons."""
    warnings = warnings_of(text, bind(parse(text, dialect), dialect, text), dialect)
    return [(text[slice(*warning.span)], warning.reason) for warning in warnings]


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("a = '1' b = '2'", "b = '2'"),
        ("a = '1')", ")"),
        ("a = '05' /* c */ 5 ; ' ", "5 ; '"),
        ("a = '1' - -1", "- -1"),
        ("a = '1' -- no line end", "-- no line end"),
        ("(a = '1') 0.0", "0.0"),
    ],
)
def test_text_behind_the_expression_is_pointed_at(text: str, ignored: str) -> None:
    assert warned(text) == [(ignored, "the expression is complete before this, which is ignored")]


@pytest.mark.parametrize("text", ["a = '1'", "a = '1' ", "a = '1' /* c */ -- d\n", "(a = '1') "])
def test_blanks_and_comments_behind_the_expression_are_nothing_to_warn_of(text: str) -> None:
    assert warned(text) == []


@pytest.mark.parametrize(
    ("text", "place", "is_", "meant"),
    [
        ("NOT a = 'x'", "NOT a = 'x'", "(NOT a) = 'x'", "NOT (a = 'x')"),
        ("b = 'y' AND NOT a <> 'x'", "NOT a <> 'x'", "(NOT a) <> 'x'", "NOT (a <> 'x')"),
        ("NOT a IS NULL", "NOT a IS NULL", "(NOT a) IS NULL", "NOT (a IS NULL)"),
        ("b = 1.0 AND (NOT a = 'x')", "NOT a = 'x'", "(NOT a) = 'x'", "NOT (a = 'x')"),
        ("((NOT a = ')'))", "NOT a = ')'", "(NOT a) = ')'", "NOT (a = ')')"),
        ("NOT a CONTAINS 'x'", "NOT a CONTAINS 'x'", "(NOT a) CONTAINS 'x'", "NOT (a CONTAINS 'x')"),
    ],
)
def test_a_not_that_takes_less_than_it_seems_to_is_pointed_at(text: str, place: str, is_: str, meant: str) -> None:
    assert warned(text) == [
        (place, f"NOT binds tighter than what follows: this is {is_}; to negate all of it write {meant}")
    ]


@pytest.mark.parametrize(
    "text", ["NOT (a = 'x')", "(NOT (a = 'x')) = TRUE", "(NOT (b IS NULL)) IS NULL", "a NOT IN ('x')"]
)
def test_a_not_whose_reach_is_plain_is_nothing_to_warn_of(text: str) -> None:
    assert warned(text) == []


@pytest.mark.parametrize("text", ["flag", "a = 'x' AND flag", "(flag) OR a = 'x'", "+flag"])
def test_a_bare_property_is_never_true(text: str) -> None:
    ((place, reason),) = warned(text)
    assert place.strip("+()") == "flag"
    assert "alone is never true" in reason
    assert reason.endswith("write flag = TRUE")


def test_a_negated_bare_property_is_true_for_every_message_that_has_it() -> None:
    ((place, reason),) = warned("a = 'x' OR NOT flag")
    assert place == "NOT flag"
    assert reason == "NOT flag is true for every message that has flag, whatever its text; write flag = FALSE"


def test_integers_meet_no_decimals() -> None:
    reason = "where price is a decimal such as '19.99', the comparison is an error"
    for text, literal, remedy in [
        ("price > 10", "10", "write 10.0 to take both"),
        ("-5 <= price", "-5", "write -5.0 to take both"),
        ("price = 3000000000L", "3000000000L", "write 3000000000.0 to take both"),
        ("price <> 0", "0", "4.9E-324 takes both, there is no literal 0.0"),
    ]:
        ((place, said),) = warned(text)
        assert place == literal
        assert reason in said
        assert said.endswith(remedy)
    assert [place for place, _ in warned("price BETWEEN 10 AND 20")] == ["10", "20"]


@pytest.mark.parametrize("text", ["price > 10.0", "RECONSUME_TIME > 3", "price > size", "price = '10'", "5 = 5"])
def test_other_comparisons_are_nothing_to_warn_of(text: str) -> None:
    assert warned(text) == []


def test_warnings_come_in_the_order_of_the_text() -> None:
    assert [place for place, _ in warned("flag AND price > 10 AND NOT a = 'x' junk")] == [
        "flag", "10", "NOT a = 'x'", "junk",
    ]  # fmt: skip


def test_languages_without_traps_warn_of_nothing() -> None:
    assert warned("price > 10 AND flag", "rabbitmq") == []


def test_a_warning_shows_the_place() -> None:
    text = "a = 'x' junk"
    (warning,) = warnings_of(text, bind(parse(text, "rocketmq"), "rocketmq", text), "rocketmq")
    assert warning.display(text).splitlines()[1:] == ["  a = 'x' junk", "          ^^^^"]
