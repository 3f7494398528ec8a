"""Comparisons that Spark pushes down narrow a read, and are exact."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from headgate.message import parse_field
from headgate.message.arrow import DeclaredColumn, declared_columns
from headgate.scan import ChunkRange, OffsetRange
from headgate.spark import counters
from headgate.spark.pushdown import Pushed

from .conftest import NOW_MS, order, subject_values, write_stream

MEANINGS: dict[type[Filter], Callable[[int, int], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
comparisons = st.lists(st.tuples(st.sampled_from(list(MEANINGS)), st.integers(-3, 25)), max_size=4)


@given(comparisons)
def test_the_narrowed_range_holds_exactly_the_offsets_for_which_all_comparisons_are_true(
    chosen: list[tuple[type[Filter], int]],
) -> None:
    pushed = Pushed()
    assert pushed.take([kind(("offset",), value) for kind, value in chosen]) == []  # type: ignore[call-arg]
    found = pushed.narrowed(OffsetRange(2, 20))
    expected = [n for n in range(2, 20) if all(MEANINGS[kind](n, value) for kind, value in chosen)]
    assert list(range(found.start, found.stop)) == expected


def test_what_is_not_understood_is_given_back_the_same_object() -> None:
    given_back: list[Filter] = [
        In(("offset",), (1, 2)),
        Not(EqualTo(("offset",), 1)),
        EqualTo(("filter_value",), "x"),
        EqualTo(("offset",), None),
        EqualTo(("properties", "subject"), "x"),
        GreaterThan(("timestamp",), datetime(2025, 1, 1)),
    ]
    taken: list[Filter] = [IsNotNull(("offset",)), GreaterThan(("offset",), 3), IsNotNull(("timestamp",))]
    left = Pushed().take([*given_back, *taken])
    assert [id(each) for each in left] == [id(each) for each in given_back]


def test_equality_of_the_filter_value_is_noted_and_still_left_to_spark() -> None:
    pushed = Pushed()
    filters: list[Filter] = [
        In(("filter_value",), ("x", "y")),
        EqualTo(("filter_value",), "x"),
        IsNotNull(("filter_value",)),
    ]
    assert pushed.take(filters) == filters
    assert pushed.values == [(None, {b"x", b"y"}), (None, {b"x"})]
    columns = declared_columns("p.subject as kind, region string, tier int, `a.b` string as c")
    fields = Pushed.of(column for column in columns if isinstance(column, DeclaredColumn))
    asked: list[Filter] = [EqualTo((name,), "x") for name in ("kind", "region", "tier", "c")]
    assert fields.take(asked) == asked
    places = ("properties.subject", "application_properties.region")
    assert fields.values == [(parse_field(place), {b"x"}) for place in places]
    other = Pushed()
    other.take(
        [
            Not(EqualTo(("filter_value",), "x")),
            EqualNullSafe(("filter_value",), None),
            GreaterThan(("filter_value",), "x"),
        ]
    )
    other.take(
        [EqualTo(("properties", "message_id"), "x"), EqualTo(("header", "priority"), 4), EqualTo(("body",), b"x")]
    )
    assert other.values == []


@pytest.mark.spark
@pytest.mark.parametrize(
    "condition", ["filter_value = 'order.created'", "properties.subject IN ('order.created', 'x')"]
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_condition_on_the_filter_value_skips_chunks_where_the_stream_declares_its_source(
    spark: SparkSession, root: Path, declared: bool, condition: str
) -> None:
    source = "properties.subject" if declared else None
    messages = [order(number) for number in range(400)]
    write_stream(root, "orders", messages, filter_values=subject_values(400), filter_source=source)
    rows = spark.read.format("headgate").options(
        root=str(root), stream="orders", counters="pushed", columns="offset,filter_value,properties"
    )
    found = rows.load().where(condition)
    assert [row.offset for row in found.collect()] == [n for n in range(400) if n // 100 % 2]
    assert counters("pushed", root=root)["chunks_skipped"] == (4 if declared else 0)


@pytest.mark.parametrize("kind", list(MEANINGS))
def test_chunks_are_kept_by_their_time_to_the_microsecond(root: Path, kind: type[Filter]) -> None:
    stream = write_stream(root, "orders", [order(number) for number in range(200)])
    segment = stream.segments()[0]
    chunks = ChunkRange(segment, np.arange(4), OffsetRange(0, 200), 1)
    for microseconds in (-1, 0, 1):
        limit = datetime.fromtimestamp(NOW_MS / 1000 + 2, tz=UTC) + timedelta(microseconds=microseconds)
        pushed = Pushed()
        assert pushed.take([kind(("timestamp",), limit)]) == []  # type: ignore[call-arg]
        expected = [row for row in range(4) if MEANINGS[kind](row * 1_000_000, 2_000_000 + microseconds)]
        assert pushed.chunks_in_time(chunks).rows.tolist() == expected
