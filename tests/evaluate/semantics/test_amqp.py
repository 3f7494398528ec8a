"""Verdicts of the dialect `amqp`: the examples of amqp_extensions (section 8), and no change to those of `rabbitmq`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given

from amqp_strategies import amqp_expressions, amqp_messages
from headgate.errors import FilterError
from headgate.evaluate import Filter
from headgate.evaluate.pruning import wanted_values
from headgate.evaluate.verdict import Verdict
from headgate.message.fields import FieldReference, Section
from strategies import encoded_messages, expressions

_MESSAGES = Path(__file__).parents[2] / "vectors" / "own" / "amqp_messages.jsonl"
_LINES = [json.loads(line) for line in _MESSAGES.read_text().splitlines()]
M, E = (bytes.fromhex(line["encoded_hex"]) for line in _LINES[:2])
NOW_MS = 1_795_200_000_000
REFUSED = "R"
_LETTERS = {"T": Verdict.TRUE, "F": Verdict.FALSE, "U": Verdict.UNKNOWN}


@pytest.mark.parametrize(
    ("text", "on", "letter"),
    [
        ("h.durable", M, "T"),
        ("h.durable", E, "F"),
        ("h.ttl <= 60000", M, "T"),
        ("h.ttl IS NULL", E, "T"),
        ("h.delivery_count = 0", M, "T"),
        ("EXISTS(h.delivery_count)", M, "F"),
        ("h.Durable", M, "R"),
        ("m.hops = 2", M, "T"),
        ("m.[x-opt-partition-key] = 'k7'", M, "T"),
        ("m.[x-opt-note] IS NULL", M, "T"),
        ("EXISTS(m.[x-opt-note])", M, "T"),
        ("m.hops = 2", E, "U"),
        ("d.trace IS NULL", M, "T"),
        ("f.crc = 42", M, "T"),
        ("EXISTS(qty) AND NOT EXISTS(Qty)", M, "T"),
        ("EXISTS(none)", M, "T"),
        ("EXISTS(qty + 1)", M, "R"),
        ("tags[0] = 'red'", M, "T"),
        ("tags[3] IS NULL", M, "T"),
        ("EXISTS(tags[3])", M, "F"),
        ("tags[-1] = 3", M, "R"),
        ("addr['geo']['lat'] > 59", M, "T"),
        ("addr[0] = 'Oslo'", M, "U"),
        ("addr.city = 'Oslo'", M, "R"),
        ("qty['x'] IS NULL", M, "T"),
        ("EXISTS(addr)", M, "T"),
        ("LOWER(p.subject) = 'order.created'", M, "T"),
        ("LOWER(city) LIKE 'mün%'", M, "T"),
        ("UPPER(qty) = '5'", M, "U"),
        ("UPPER(5) = '5'", M, "R"),
        ("lower(first) = 'ada'", M, "R"),
        ("LOWER(raw) = 'x'", M, "U"),
        ("LEFT(city, 2) = 'MÜ'", M, "T"),
        ("RIGHT(first, 10) = 'Ada'", M, "T"),
        ("LEFT(first, qty - 6) = ''", M, "U"),
        ("SUBSTRING(p.subject, 7) = 'Created'", M, "T"),
        ("SUBSTRING(first, 0, 2) = 'A'", M, "T"),
        ("SUBSTRING(first, 9) = ''", M, "T"),
        ("SUBSTRING(first) = 'Ada'", M, "R"),
        ("DATE(when) = 1767227400000", M, "T"),
        ("p.creation_time >= DATE('2026-01-01')", M, "T"),
        ("DATE(first) > 0", M, "U"),
        ("DATE('2026-02-30') > 0", M, "R"),
        ("temp = INF", M, "T"),
        ("temp > 5", M, "U"),
        ("qty < INF AND temp <> -INF", M, "T"),
        ("ratio = NAN", M, "T"),
        ("first = INF", M, "F"),
        ("qty + 1 < INF", M, "R"),
        ("first || ' ' || last = 'Ada Lovelace'", M, "T"),
        ("first || qty = 'Ada5'", M, "U"),
        ("first + last = 'AdaLovelace'", M, "U"),
    ],
)
def test_an_example_of_the_specification(text: str, on: bytes, letter: str) -> None:
    if letter == REFUSED:
        with pytest.raises(FilterError):
            Filter.parse(text, "amqp")
        return
    accepted = Filter.parse(text, "amqp")
    assert accepted.verdict(on, now_ms=NOW_MS) is _LETTERS[letter]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("temp < NAN", Verdict.FALSE),
        ("absent = NAN", Verdict.UNKNOWN),
        ("none <> INF", Verdict.UNKNOWN),
        ("tags <> INF", Verdict.UNKNOWN),
        ("first < INF", Verdict.FALSE),
        ("first <> NAN", Verdict.TRUE),
        ("ratio <= INF", Verdict.FALSE),
        ("qty <> NAN", Verdict.TRUE),
        ("absent < NAN", Verdict.UNKNOWN),
        ("EXISTS(absent[0])", Verdict.FALSE),
        ("LOWER(absent) = 'a'", Verdict.UNKNOWN),
        ("first || absent = 'Ada'", Verdict.UNKNOWN),
        ("LEFT(first, 2.0) = 'Ad'", Verdict.UNKNOWN),
        ("first || qty IN ('Ada5')", Verdict.UNKNOWN),
        ("DATE(first) NOT IN (1)", Verdict.UNKNOWN),
    ],
)
def test_unknown_is_told_from_false(text: str, verdict: Verdict) -> None:
    assert Filter.parse(text, "amqp").verdict(M, now_ms=NOW_MS) is verdict


@given(expressions, encoded_messages())
def test_no_extension_changes_a_verdict_of_rabbitmq(text: str, message: bytes) -> None:
    ours, original = Filter.parse(text, "amqp"), Filter.parse(text, "rabbitmq")
    assert ours.tree == original.tree
    assert ours.verdict(message, now_ms=NOW_MS) is original.verdict(message, now_ms=NOW_MS)


@given(amqp_expressions, amqp_messages())
def test_an_accepted_filter_never_raises(text: str, message: bytes) -> None:
    try:
        accepted = Filter.parse(text, "amqp")
    except FilterError:
        return
    assert accepted.verdict(message, now_ms=NOW_MS) in (Verdict.TRUE, Verdict.FALSE, Verdict.UNKNOWN)


REGION = FieldReference(Section.APPLICATION_PROPERTIES, key=b"region")


@pytest.mark.parametrize(
    "text",
    [
        "LOWER(region) = 'amer'",
        "region['x'] = 'AMER'",
        "region[0] IN ('AMER', 'EMEA')",
        "region || 'x' = 'AMERx'",
        "EXISTS(region)",
        "region = INF",
        "region <> NAN",
        "region = LOWER(s)",
        "region IN ('AMER', s || 'x')",
        "LEFT(region, 2) = 'AM'",
        "DATE(region) > 0",
        "m.region = 'AMER'",
        "f.region = 'AMER'",
    ],
)
def test_an_extension_says_nothing_about_the_filter_value(text: str) -> None:
    assert wanted_values(Filter.parse(text, "amqp").tree, REGION) is None


def test_a_plain_conjunct_beside_an_extension_still_names_its_filter_values() -> None:
    tree = Filter.parse("EXISTS(tags[0]) AND region = 'AMER' AND LOWER(s) = 'x'", "amqp").tree
    assert wanted_values(tree, REGION) == {b"AMER"}
