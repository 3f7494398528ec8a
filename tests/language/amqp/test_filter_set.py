"""The filter map of an AMQP receiver: what is in force and what is left out (rabbitmq_filters, sections 1 and 5)."""

from __future__ import annotations

import pytest

from headgate.language.amqp.filter_set import (
    FilterEntry,
    OffsetRequest,
    OffsetRequestKind,
    read_filter_set,
)
from headgate.language.printer import print_tree
from headgate.message import AmqpType, AmqpValue, amqp_value


def entry(name: str, descriptor: str | int, value: object) -> FilterEntry:
    return FilterEntry(
        AmqpValue(AmqpType.SYMBOL, name),
        AmqpValue(AmqpType.SYMBOL, descriptor)
        if isinstance(descriptor, str)
        else AmqpValue(AmqpType.ULONG, descriptor),
        amqp_value(value),
    )


def sql(text: str) -> FilterEntry:
    return entry("sql-filter", "amqp:sql-filter", text)


def wanted(name: str, **values: object) -> FilterEntry:
    pairs = tuple((AmqpValue(AmqpType.STRING, key), amqp_value(value)) for key, value in values.items())
    return entry(name, "amqp:application-properties-filter", AmqpValue(AmqpType.MAP, pairs))


def subject(name: str, value: str) -> FilterEntry:
    pair = (AmqpValue(AmqpType.SYMBOL, "subject"), AmqpValue(AmqpType.STRING, value))
    return entry(name, "amqp:properties-filter", AmqpValue(AmqpType.MAP, (pair,)))


def bloom(value: object) -> FilterEntry:
    return entry("rabbitmq:stream-filter", "rabbitmq:stream-filter", value)


def offset(value: object) -> FilterEntry:
    return entry("rabbitmq:stream-offset-spec", "rabbitmq:stream-offset-spec", value)


def test_an_empty_map_asks_for_nothing() -> None:
    found = read_filter_set([])
    assert (found.effective, found.refused, found.tree, found.filter_values, found.offset) == ((), (), None, (), None)


def test_stage_one_and_stage_two_stand_together() -> None:
    found = read_filter_set(
        [
            bloom(["AMER", "EMEA"]),
            entry("any", "rabbitmq:stream-match-unfiltered", True),
            sql("x = 5"),
            offset("first"),
        ]
    )
    assert found.effective == (0, 1, 2, 3)
    assert found.filter_values == (b"AMER", b"EMEA")
    assert found.match_unfiltered
    assert found.text == "x = 5"
    assert found.is_text
    assert found.offset == OffsetRequest(OffsetRequestKind.FIRST)


def test_of_two_bloom_entries_both_are_echoed_and_the_first_is_in_force() -> None:
    found = read_filter_set([bloom("A"), bloom("B")])
    assert found.effective == (0, 1)
    assert found.filter_values == (b"A",)


def test_the_expression_that_stands_last_excludes_the_other_kind() -> None:
    assert read_filter_set([sql("x"), wanted("app", y=1)]).effective == (1,)
    assert read_filter_set([wanted("app", y=1), sql("x")]).effective == (1,)
    assert read_filter_set([wanted("app", y=1), sql("x =")]).effective == (0,)


def test_of_two_filters_of_one_section_the_last_counts_and_both_sections_combine() -> None:
    found = read_filter_set([wanted("one", x=1), subject("two", "s"), wanted("three", y=2)])
    assert found.effective == (1, 2)
    assert found.tree is not None
    assert print_tree(found.tree) == "p.subject = 's' AND y = 2"
    assert not found.is_text


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (sql("x = "), "found the end of the filter"),
        (sql("nope.x = 1"), "found section 'nope'"),
        (entry("sql", "amqp:sql-filter", "TRUE"), "an SQL filter has the name sql-filter, found sql"),
        (entry("sql-filter", 0x120, 5), "an SQL filter is a string, found long"),
        (entry("sql-filter", 0x121, "TRUE"), "no filter has the descriptor ulong 289"),
        (entry("sql-filter", "amqp:properties-filter", "x"), "the name sql-filter belongs to SQL filters"),
        (entry("app", 0x174, "x"), "a property filter is a map, found string"),
        (entry("jms-selector", 0x0000468C00000004, "TRUE"), "no filter has the descriptor"),
        (bloom([]), "filter values are a string or a list with strings"),
        (bloom(5), "filter values are a string or a list with strings, found long"),
        (entry("m", "rabbitmq:stream-match-unfiltered", "true"), "match-unfiltered is a boolean, found string"),
        (offset(-1), "found long"),
        (offset(1.0), "found double"),
        (offset(None), "found null"),
        (FilterEntry(AmqpValue(AmqpType.STRING, "sql-filter"), None, amqp_value("x")), "a filter is a symbol"),
        (FilterEntry(AmqpValue(AmqpType.SYMBOL, "sql-filter"), None, amqp_value("x")), "without descriptor"),
        (
            FilterEntry(
                AmqpValue(AmqpType.SYMBOL, "sql-filter"),
                AmqpValue(AmqpType.STRING, "amqp:sql-filter"),
                amqp_value("TRUE"),
            ),
            "no filter has the descriptor string",
        ),
    ],
)
def test_a_wrong_entry_is_left_out_with_its_reason_and_the_others_stay(wrong: FilterEntry, reason: str) -> None:
    found = read_filter_set([bloom("A"), wrong, offset("last")])
    assert found.effective == (0, 2)
    assert [left_out.index for left_out in found.refused] == [1]
    assert reason in found.refused[0].reason
    assert found.tree is None
    assert found.attach_refused is None


@pytest.mark.parametrize(
    ("value", "request_"),
    [
        ("next", OffsetRequest(OffsetRequestKind.NEXT)),
        (AmqpValue(AmqpType.SYMBOL, "last"), OffsetRequest(OffsetRequestKind.LAST)),
        (AmqpValue(AmqpType.UBYTE, 0), OffsetRequest(OffsetRequestKind.OFFSET, 0)),
        (AmqpValue(AmqpType.ULONG, 2**64 - 1), OffsetRequest(OffsetRequestKind.OFFSET, 2**64 - 1)),
        (AmqpValue(AmqpType.CHAR, 5), OffsetRequest(OffsetRequestKind.OFFSET, 5)),
        (AmqpValue(AmqpType.TIMESTAMP, 1_234_567), OffsetRequest(OffsetRequestKind.TIMESTAMP, 1_234_000)),
        ("10m", OffsetRequest(OffsetRequestKind.INTERVAL, 600_000)),
        ("1Y", OffsetRequest(OffsetRequestKind.INTERVAL, 365 * 86_400_000)),
        ("2M", OffsetRequest(OffsetRequestKind.INTERVAL, 60 * 86_400_000)),
    ],
)
def test_an_offset_is_a_word_a_number_a_time_or_an_interval(value: object, request_: OffsetRequest) -> None:
    assert read_filter_set([offset(value)]).offset == request_


@pytest.mark.parametrize("value", ["middle", "5", "0s", "", "10x", "-1s", "1.5h"])
def test_a_text_that_is_no_offset_refuses_the_attach(value: str) -> None:
    found = read_filter_set([offset(value), sql("x")])
    assert found.attach_refused is not None
    assert found.attach_refused.index == 0
    assert f"found offset {value!r}" in found.attach_refused.reason
    assert found.effective == (1,)


@pytest.mark.parametrize("sql_bytes", [None, 100])
def test_a_filter_that_is_no_utf_8_is_left_out(sql_bytes: int | None) -> None:
    found = read_filter_set([sql("region = '\udcff'")], sql_bytes=sql_bytes)
    assert found.text is None and [entry.index for entry in found.refused] == [0]
