"""What Catalyst makes of filters over column files: true for the exact rows whose messages match."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from examples import examples
from headgate.derived.columns import ColumnFilter, column_filter
from headgate.errors import FilterError
from headgate.evaluate import Filter
from headgate.message import AmqpType, AmqpValue, EncodedMessages, Message
from headgate.message.arrow import DeclaredColumn, columns_of, declared_columns, fields_of
from headgate.spark.columns import decided, matching

pytestmark = pytest.mark.spark

NOW_MS = 1_767_225_600_000
NAMES = {
    "amqp": ("s", "b", "n", "d", "f", "t", "y", "p.subject", "h.priority", "p.creation_time", "m.tag"),
    "rocketmq": ("s", "b", "n", "d", "f", "TAGS"),
    "servicebus": ("s", "b", "n", "d", "f", "sys.Label"),
}
CONSTANTS = (
    "'a'",
    "'é'",
    "''",
    "'5'",
    "0",
    "-0.0",
    "5",
    "-1",
    "0.5",
    "127.5",
    "9007199254740993",
    "4",
    "1e300",
    "TRUE",
)
NO_TEXT = ("s IN (0xFF)", "NOT (s IN (0xFF))", "s NOT IN (0xFF, 0xFE)", "s NOT IN (0xFF, 'a')", "NOT (s = 0xFF)")
"""Filters with members that no text can be: with them Spark's IN is of less, or of nothing."""
TEXT = (
    "s string, b boolean, n bigint, d double, f float, t timestamp, y binary, `TAGS` string, "
    "p.subject, h.priority, p.creation_time, m.tag string"
)
DECLARED = tuple(each for each in declared_columns(TEXT) if isinstance(each, DeclaredColumn))
VALUES = {
    "s": ("a", "é", "", "5", "zz"),
    "b": (True, False),
    "n": (0, 5, -1, 2**53 + 1),
    "d": (0.0, 0.5, -1.0, 127.5, 1e300),
    "f": tuple(AmqpValue(AmqpType.FLOAT, value) for value in (0.0, 0.5, 5.0)),
    "t": tuple(AmqpValue(AmqpType.TIMESTAMP, value) for value in (0, 5, -1, NOW_MS)),
    "y": (b"a", b"", b"\xff"),
    "TAGS": ("a", ""),
}


def messages_of(chance: random.Random, count: int) -> list[bytes]:
    """Messages in which every column is exact."""
    return [
        Message(
            b"-",
            subject=chance.choice((None, "a", "", "5")),
            priority=chance.choice((None, 0, 4, 5)),
            creation_time=chance.choice((None, 0, 5, NOW_MS)),
            application_properties={
                name: chance.choice(held) for name, held in VALUES.items() if chance.random() < 0.8
            },
            message_annotations=chance.choice((None, {"tag": "a"}, {"tag": "é"})),
        ).encode()
        for _ in range(count)
    ]


def text_of(chance: random.Random, names: tuple[str, ...], depth: int = 2) -> str:
    def part() -> str:
        return f"({text_of(chance, names, depth - 1)})"

    name, constants = chance.choice(names), chance.sample(CONSTANTS, 2)
    shapes = [f"{name} {chance.choice(('=', '<>', '<', '<=', '>', '>='))} {constants[0]}"] * 3
    shapes += [
        f"{name} {chance.choice(('', 'NOT '))}IN ({', '.join(constants)})",
        f"{name} IS {chance.choice(('', 'NOT '))}NULL",
    ]
    if depth:
        shapes += [f"{part()} AND {part()}", f"{part()} OR {part()}", f"NOT {part()}", f"NOT {part()}"]
    return chance.choice(shapes)


def whole_filters(chance: random.Random, count: int) -> list[tuple[Filter, ColumnFilter]]:
    found: list[tuple[Filter, ColumnFilter]] = []
    texts = [("rabbitmq", text) for text in NO_TEXT]
    while len(found) < count:
        dialect = chance.choice(list(NAMES))
        dialect, text = texts.pop() if texts else (dialect, text_of(chance, NAMES[dialect]))
        try:
            parsed = Filter.parse(text, dialect)
        except FilterError:
            continue
        over = column_filter(parsed, DECLARED, now_ms=NOW_MS)
        if over is not None and over.is_whole:
            found.append((parsed, over))
    return found


@given(st.integers(0, 2**32))
@examples(0.01)
def test_exact_rows_match_by_columns_as_by_their_bytes(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    messages, filters = messages_of(chance, 60), whole_filters(chance, 20)
    path = tmp_path_factory.mktemp("decided") / "rows.parquet"
    write(path, messages)
    rows = spark.read.parquet(str(path))
    asked = [decided(over, DECLARED).alias(f"by_columns{n}") for n, (_, over) in enumerate(filters)]
    asked += [
        matching(each, F.col("message"), now_ms=NOW_MS).alias(f"by_bytes{n}") for n, (each, _) in enumerate(filters[:3])
    ]
    found = rows.select("offset", *asked).sort("offset").toArrow().to_pydict()
    for number, (each, _) in enumerate(filters):
        expected = [each.matches(message, now_ms=NOW_MS) for message in messages]
        assert [value is True for value in found[f"by_columns{number}"]] == expected, each
        if number < 3:
            assert found[f"by_bytes{number}"] == expected, each
    each, over = filters[0]
    kept = rows.where(decided(over, DECLARED)).count()
    assert kept == sum(each.matches(message, now_ms=NOW_MS) for message in messages), each


def write(path: Path, messages: list[bytes]) -> None:
    batch = EncodedMessages.of(messages)
    columns = {"offset": pa.array(range(len(messages))), **fields_of(batch, DECLARED), **columns_of(batch, ["message"])}
    pq.write_table(pa.table(columns), path)
