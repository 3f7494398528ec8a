"""Routes: keys with wildcards, headers, exchanges bound to exchanges, alternate exchanges, and when routes are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import exchange_cases
from headgate.broker.routing import Binding, Exchange, Router, check_binding
from headgate.errors import PreconditionFailedError
from headgate.protocols.amqp091 import plain_table
from headgate.protocols.amqp091.fields import Table
from headgate.protocols.amqp091.properties import BasicProperties
from headgate.protocols.amqp091.publication import publication

NO_HEADERS = dict


def routed(kind: str, *bindings: tuple[str, dict[str, object]], key: str = "", headers: object = None) -> list[int]:
    """The bindings, of those to an exchange of that kind, that a message matches."""
    made = [Binding("x", str(number), key, arguments) for number, (key, arguments) in enumerate(bindings)]
    return sorted(map(int, Router({"x": Exchange("x", kind)}, made).route("x", key, lambda: headers or {})))


def is_matched(pattern: list[str], words: list[str]) -> bool:
    """What topic exchanges do, as the standard says it."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return is_matched(pattern[1:], words) or (bool(words) and is_matched(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and is_matched(pattern[1:], words[1:])


def split(key: str) -> list[str]:
    return key.split(".") if key else []


WORDS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)


@given(st.lists(PATTERNS, min_size=1, max_size=8), WORDS)
def test_a_topic_exchange_routes_as_the_model_says(patterns: list[str], key: str) -> None:
    expected = [number for number, pattern in enumerate(patterns) if is_matched(split(pattern), split(key))]
    assert routed("topic", *((pattern, {}) for pattern in patterns), key=key) == expected


@pytest.mark.parametrize(("pattern", "key", "is_routed"), exchange_cases.TOPIC)
def test_a_topic_exchange_routes_as_the_original(pattern: str, key: str, is_routed: bool) -> None:
    assert routed("topic", (pattern, {}), key=key) == [0] * is_routed


@pytest.mark.parametrize(("arguments", "headers", "is_routed"), exchange_cases.HEADERS)
def test_a_headers_exchange_routes_as_the_original(arguments: Table, headers: Table, is_routed: bool) -> None:
    seen = publication("x", "", BasicProperties(headers=headers)).routing_headers()
    assert routed("headers", ("", plain_table(arguments)), headers=seen) == [0] * is_routed


def test_direct_exchanges_compare_keys_and_fanout_exchanges_do_not() -> None:
    bindings = (("a", {}), ("b", {}), ("#", {}))
    assert routed("direct", *bindings, key="a") == [0]
    assert routed("direct", *bindings, key="c") == []
    assert routed("fanout", *bindings, key="c") == [0, 1, 2]


def test_a_stream_gets_a_message_once() -> None:
    bindings = [Binding("x", "s", key) for key in ("a.*", "a.#", "#", "*.b")]
    assert Router({"x": Exchange("x", "topic")}, bindings).route("x", "a.b", NO_HEADERS) == ("s",)


def exchanges(**kinds: str) -> dict[str, Exchange]:
    return {name: Exchange(name, kind) for name, kind in kinds.items()}


def test_messages_go_through_exchanges_bound_to_exchanges_and_round_a_circle_once() -> None:
    bindings = [
        Binding("x", "", "a.#", exchange="y"),
        Binding("x", "s", "a.b"),
        Binding("y", "t", ""),
        Binding("y", "", "", exchange="x"),
        Binding("y", "", "", exchange="z"),
        Binding("z", "u", "a.b"),
        Binding("z", "v", "a.c"),
    ]
    router = Router(exchanges(x="topic", y="fanout", z="direct"), bindings)
    assert sorted(router.route("x", "a.b", NO_HEADERS)) == ["s", "t", "u"]
    assert sorted(router.route("x", "a.c", NO_HEADERS)) == ["t", "v"]
    assert router.route("x", "b", NO_HEADERS) == ()


def test_what_matches_nothing_goes_to_the_alternate_exchange() -> None:
    made = {
        "x": Exchange("x", arguments={"alternate-exchange": "y"}),
        "y": Exchange("y", arguments={"alternate-exchange": "x"}),
        "gone": Exchange("gone", arguments={"alternate-exchange": "nowhere"}),
        "number": Exchange("number", arguments={"alternate-exchange": 5}),
        "z": Exchange("z", "fanout"),
    }
    bindings = [Binding("x", "s", "a"), Binding("x", "", "to z", exchange="z"), Binding("y", "t", "b")]
    router = Router(made, bindings)
    assert router.route("x", "a", NO_HEADERS) == ("s",)
    assert router.route("x", "b", NO_HEADERS) == ("t",)
    assert router.route("x", "c", NO_HEADERS) == ()
    # A binding matched, though it leads to no stream.
    assert router.route("x", "to z", NO_HEADERS) == ()
    assert router.route("gone", "a", NO_HEADERS) == router.route("number", "a", NO_HEADERS) == ()


def test_headers_are_asked_for_only_where_they_have_a_say_and_then_each_time() -> None:
    made = exchanges(x="topic", plain="topic", h="headers") | {
        "alternating": Exchange("alternating", arguments={"alternate-exchange": "h"})
    }
    bindings = [
        Binding("x", "", "#", exchange="h"),
        Binding("plain", "s", "#"),
        Binding("h", "t", "", {"n": 1}),
    ]
    router = Router(made, bindings)
    assert [router.needs_headers(name) for name in ("x", "alternating", "h", "plain")] == [True, True, True, False]
    for number, expected in ((1, ("t",)), (2, ()), (1, ("t",))):
        for name in ("x", "alternating", "h"):
            assert router.route(name, "k", lambda number=number: {"n": number}) == expected

    def never() -> dict[str, object]:
        raise AssertionError

    assert router.route("plain", "k", never) == ("s",)


def test_routes_are_kept_but_not_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.broker.routing._CACHED_ROUTES", 3)
    router = Router(exchanges(x="topic"), [Binding("x", "s", "#")])
    assert router.route("x", "a", NO_HEADERS) is router.route("x", "a", NO_HEADERS)
    for number in range(10):
        router.route("x", str(number), NO_HEADERS)
        assert len(router._routes) <= 3


def test_a_key_with_many_words_is_matched_in_its_time() -> None:
    # Each path that a `#` could take, tried by itself, would be more than anybody waits for.
    key = ".".join("a" * 128)
    bindings = [("#.a.#", {}), ("#.a.a.#.b", {}), (".".join("*" * 128), {}), (".".join(["#"] * 60 + ["b"]), {})]
    assert routed("topic", *bindings, key=key) == [0, 2]


@pytest.mark.parametrize(
    ("kind", "key", "arguments"),
    [
        ("headers", "", {"x-match": "some"}),
        ("headers", "", {"x-match": None}),
        ("headers", "", {"x-match": ["all"]}),
        ("topic", "#.#.#", {}),
    ],
)
def test_bindings_that_an_exchange_does_not_take(kind: str, key: str, arguments: dict[str, object]) -> None:
    with pytest.raises(PreconditionFailedError):
        check_binding(kind, Binding("x", "s", key, arguments))
    check_binding("fanout", Binding("x", "s", key, arguments))
