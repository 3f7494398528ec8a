"""Patterns of names decide as `re` does, in a number of steps that `re` does not keep to."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.broker import patterns
from headgate.broker.patterns import check_pattern, compiled, matches
from headgate.errors import PreconditionFailedError

ITEMS = ("a", "b", ".", "[ab]", "[^a]", r"\.", r"\w", r"\d", "(?i:A)", "^", "$", r"\A", r"\Z", r"\b", r"\B", "(?!)", "")


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, repeats),
        st.builds("(?{}{})".format, st.sampled_from("=!"), inner),
    )


expressions = st.recursive(st.sampled_from(ITEMS), _joined, max_leaves=8)


@examples(2)
@given(expressions, st.lists(st.text("abA.-1\nc", max_size=8), min_size=1, max_size=5))
def test_a_pattern_matches_where_re_finds_it(pattern: str, names: list[str]) -> None:
    for name in names:
        expected = re.search(pattern, name) is not None
        assert compiled(pattern).search(name) is expected
        assert matches(pattern, name) is (expected and pattern != "")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(?!(a+)+b)^(a*)*c", "^(a?){20}a{20}b"])
def test_a_pattern_takes_at_most_a_step_for_each_state_and_character(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def counting(function):  # type: ignore[no-untyped-def]
        def counted(*arguments):  # type: ignore[no-untyped-def]
            nonlocal steps
            steps += 1
            return function(*arguments)

        return counted

    for name in ("_begins", "_holds"):
        monkeypatch.setattr(patterns, name, counting(getattr(patterns, name)))
    name = "a" * 254 + "!"
    made = compiled(pattern)
    assert not made.search(name)
    ways = sum(max(1, len(state.following)) for state in made._states)
    assert steps <= 2 * (len(name) + 1) * ways


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"(a)\1", "a reference to a group"),
        ("(?<=a)b", "look-behind"),
        ("(?<!a)b", "look-behind"),
        ("(?>a+)", "atomic group"),
        ("a++", "possessive repeat"),
        ("(", "no regular expression"),
        ("(a{99}){99}", "too large"),
    ],
)
def test_what_is_not_served_is_refused_by_name(pattern: str, what: str) -> None:
    with pytest.raises(PreconditionFailedError, match=what):
        check_pattern(pattern)
