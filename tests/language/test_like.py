"""Patterns: their regimes, their escapes, and the way back to text (rabbitmq_filters, section 2.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.language.like import LikeRefused, compile_like, like_text
from headgate.language.tree import LikePattern, LikeShape, LikeWildcard

ANY, ONE = LikeWildcard.ANY, LikeWildcard.ONE


@pytest.mark.parametrize(
    ("pattern", "escape", "compiled"),
    [
        ("abc", None, LikePattern(LikeShape.EXACT, prefix=b"abc")),
        ("", None, LikePattern(LikeShape.EXACT)),
        ("a%", None, LikePattern(LikeShape.PREFIX, prefix=b"a")),
        ("%", None, LikePattern(LikeShape.SUFFIX)),
        ("%é", None, LikePattern(LikeShape.SUFFIX, suffix="é".encode())),
        ("a%c", None, LikePattern(LikeShape.PREFIX_SUFFIX, prefix=b"a", suffix=b"c")),
        ("a_c", None, LikePattern(LikeShape.GENERAL, elements=(b"a", ONE, b"c"))),
        ("%b%", None, LikePattern(LikeShape.GENERAL, elements=(ANY, b"b", ANY))),
        ("%%", None, LikePattern(LikeShape.GENERAL, elements=(ANY, ANY))),
        ("a!_c", "!", LikePattern(LikeShape.EXACT, prefix=b"a_c")),
        ("a!%%", "!", LikePattern(LikeShape.PREFIX, prefix=b"a%")),
        ("%%", "%", LikePattern(LikeShape.EXACT, prefix=b"%")),
        ("a!b", "!", LikePattern(LikeShape.EXACT, prefix=b"ab")),
        ("a\\_c", None, LikePattern(LikeShape.GENERAL, elements=(b"a\\", ONE, b"c"))),
    ],
)
def test_a_pattern_compiles_to_its_regime(pattern: str, escape: str | None, compiled: LikePattern) -> None:
    assert compile_like(pattern, escape) == compiled


@pytest.mark.parametrize(
    ("pattern", "escape", "where", "in_escape"),
    [
        ("a!", "!", (1, 2), False),
        ("%%%", "%", (2, 3), False),
        ("a\nb", None, (1, 2), False),
        ("ab\x7f", None, (2, 3), False),
        ("a!\x01", "!", (2, 3), False),
        ("a", "", (0, 0), True),
        ("a", "!!", (0, 2), True),
    ],
)
def test_a_pattern_that_the_language_does_not_take_is_refused_at_its_place(
    pattern: str, escape: str | None, where: tuple[int, int], in_escape: bool
) -> None:
    with pytest.raises(LikeRefused) as refused:
        compile_like(pattern, escape)
    assert (refused.value.where, refused.value.in_escape) == (where, in_escape)


@given(st.text(alphabet="ab%_!\\é'\"日", max_size=12), st.sampled_from((None, "!", "é", "a")))
def test_the_text_of_a_compiled_pattern_compiles_to_it_again(pattern: str, escape: str | None) -> None:
    try:
        compiled = compile_like(pattern, escape)
    except LikeRefused:
        return
    again = compile_like(*like_text(compiled))
    assert again.shape is compiled.shape
    assert again.parts == compiled.parts
