"""The order of topics that forward to each other, and loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import RuleError, RuleNotFoundError
from headgate.topic import Subscription, Topic, forward_order


def topics(**targets: str) -> list[Topic]:
    """Topics by name, each with one subscription per letter of what it forwards to."""
    return [
        Topic(name, tuple(Subscription(f"to-{target}", (), forward_to=target) for target in each))
        for name, each in targets.items()
    ]


def test_a_topic_comes_before_those_that_it_forwards_to() -> None:
    assert [topic.name for topic in forward_order(topics(c="", b="c", a="bc", d=""))] == ["a", "b", "c", "d"]


def test_topics_that_forward_to_nobody_keep_their_order() -> None:
    assert [topic.name for topic in forward_order(topics(b="", a="", c=""))] == ["b", "a", "c"]


def test_a_loop_over_several_topics_is_refused_with_its_path() -> None:
    with pytest.raises(RuleError, match=r"loop: c/to-a → a/to-b → b/to-c → c$") as caught:
        forward_order(topics(a="b", b="c", c="a"))
    assert (caught.value.topic, caught.value.subscription) == ("c", "to-a")


def test_a_topic_that_leads_into_a_loop_is_refused_with_the_path_of_the_loop() -> None:
    for order in (topics(a="b", b="c", c="b"), topics(b="c", c="b", a="b")):
        with pytest.raises(RuleError, match=r"loop: (b/to-c → c/to-b → b|c/to-b → b/to-c → c)$"):
            forward_order(order)


def test_a_target_that_is_no_topic_is_named() -> None:
    with pytest.raises(RuleNotFoundError, match="'z'") as caught:
        forward_order(topics(a="z"))
    assert caught.value.subscription == "to-z"


def test_a_long_chain_of_topics_needs_no_recursion() -> None:
    chain = [
        Topic(str(number), (Subscription("next", (), forward_to=str(number + 1)),) if number < 3000 else ())
        for number in range(3001)
    ]
    assert forward_order(reversed(chain)) == chain
    last = Topic("3000", (Subscription("back", (), forward_to="0"),))
    with pytest.raises(RuleError, match="0/next → 1/next"):
        forward_order([*chain[:-1], last])


@given(st.dictionaries(st.sampled_from("abcdef"), st.text("abcdef", max_size=3), max_size=6))
def test_an_order_exists_exactly_when_there_is_no_loop(targets: dict[str, str]) -> None:
    known = {
        name: "".join(target for target in each if target in targets and target != name)
        for name, each in targets.items()
    }
    reachable = {name: set(each) for name, each in known.items()}
    for _ in known:
        for name in known:
            reachable[name] |= {far for near in reachable[name] for far in known[near]}
    loops = any(name in reachable[name] for name in known)
    try:
        ordered = [topic.name for topic in forward_order(topics(**known))]
    except RuleError:
        assert loops
        return
    assert not loops
    assert sorted(ordered) == sorted(known)
    assert all(ordered.index(name) < ordered.index(target) for name, each in known.items() for target in each)
