"""Tag expressions: two checks, by hash and by the tag itself (rocketmq_filters, section 7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import FilterSyntaxError
from headgate.evaluate import Filter, Verdict
from headgate.language.rocketmq.tags import TAGS, parse_tags, tag_hash
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.rocketmq import TAG_ANNOTATION, stored_message


@pytest.mark.parametrize("text", [None, "", "*"])
def test_nothing_and_the_star_take_everything(text: str | None) -> None:
    expression = parse_tags(text)
    assert (expression.text, expression.tags, expression.codes) == ("*", (), ())
    assert expression.matches(None)


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("TagA", ("TagA",)),
        ("TagB||TagA", ("TagB", "TagA")),
        (" TagA\t|| a b ||", ("TagA", "a b")),
        ("TagA||TagA", ("TagA",)),
        ("TagA|||TagB", ("TagA", "|TagB")),
        ("TagA|TagB && c, d", ("TagA|TagB && c, d",)),
        ("* || TagA", ("*", "TagA")),
        (" * ", ("*",)),
        ("|| ||", ()),
        ("  ", ()),
        ("|||", ("|",)),
    ],
)
def test_a_list_is_split_at_double_bars_and_trimmed(text: str, tags: tuple[str, ...]) -> None:
    expression = parse_tags(text)
    assert (expression.text, expression.tags, expression.takes_everything) == (text, tags, False)


@pytest.mark.parametrize("text", ["||", "||||", "||||||"])
def test_separators_alone_are_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        Filter.from_tags(text)
    assert (refused.value.reason, refused.value.span) == ("subString split error", (0, len(text)))


def test_half_a_surrogate_pair_is_refused_at_its_place() -> None:
    with pytest.raises(FilterSyntaxError, match="half of a surrogate pair") as refused:
        Filter.from_tags("a || \ud800")
    assert refused.value.span == (5, 6)


def test_tags_of_one_hash_have_one_code_and_do_not_match() -> None:
    expression = parse_tags("Aa || c")
    assert tag_hash("BB") in expression.codes
    assert not expression.matches("BB")
    assert expression.codes == (99, 2112)


def test_a_code_has_32_bits_and_a_sign() -> None:
    assert parse_tags("polygenelubricants").codes == (-(2**31),)


def verdict(text: str, message: Message) -> Verdict:
    return Filter.from_tags(text).verdict(message, now_ms=0)


def test_the_filter_reads_the_annotation_of_the_tag() -> None:
    tagged = stored_message({"TAGS": "TagA"})
    assert verdict("TagA || TagB", tagged) is Verdict.TRUE
    assert verdict("taga", tagged) is Verdict.FALSE
    assert verdict("*", tagged) is Verdict.TRUE
    assert verdict("|| ||", tagged) is Verdict.FALSE
    untagged = stored_message({"color": "TagA"})
    assert verdict("TagA", untagged) is Verdict.UNKNOWN
    assert verdict("*", untagged) is Verdict.TRUE


def test_an_empty_tag_and_one_that_is_no_string_are_no_tags() -> None:
    for value in ("", AmqpValue(AmqpType.SYMBOL, "TagA"), 5):
        assert verdict("TagA || 5", Message(message_annotations={TAG_ANNOTATION: value})) is Verdict.UNKNOWN


tags = st.text(alphabet="ab |*", max_size=3)


@given(st.text(alphabet="ab |*", max_size=12), st.one_of(st.none(), tags))
def test_the_first_check_loses_nothing_and_the_filter_is_the_second(text: str, tag: str | None) -> None:
    try:
        expression = parse_tags(text)
    except FilterSyntaxError:
        assert set(text) == {"|"}
        return
    matches = expression.matches(tag)
    message = stored_message({} if tag is None else {"TAGS": tag})
    assert Filter.from_tags(text).matches(message, now_ms=0) is matches


def test_who_subscribes_to_everything_needs_no_filter() -> None:
    assert [Filter.subscribed(text, TAGS) for text in (None, "", "*")] == [None] * 3
    assert Filter.subscribed("a || *", TAGS) == Filter.from_tags("a || *")
    assert Filter.subscribed("a = 1", "rocketmq") == Filter.stated("a = 1", "rocketmq")
    with pytest.raises(FilterSyntaxError):
        Filter.subscribed("||", TAGS)
