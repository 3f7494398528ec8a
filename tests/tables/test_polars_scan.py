"""`headgate.polars.scan`: the rows of `headgate.read`, whatever a query asks; and what it does not read."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import headgate
from examples import examples
from headgate.derived.columns import COLUMN_FILES, declare_columns, drop_columns
from headgate.errors import StreamNotFoundError
from headgate.log import Stream, StreamArguments, Writer
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.arrow import declared_columns
from headgate.polars import scan
from headgate.polars.predicates import Between, Needed, needed_by
from headgate.polars.source import _Scan
from headgate.server.stream import StreamHandler
from log_streams import quick_folder
from server.running import running_server

COLUMNS = (
    "offset, timestamp, s string, n bigint, i int, d double, f float, b boolean, t timestamp, "
    "p.subject as title, p.message_id, p.creation_time, h.priority, m.x-opt-tag string as tag, "
    "b.x double, b.x bigint as whole, b.y string"
)
DECLARED = COLUMNS.removeprefix("offset, timestamp, ")
BY_NAME = {each if isinstance(each, str) else each.name: each for each in declared_columns(COLUMNS)}
UTC = datetime.UTC
NUMBERS = (0, 1, -1, 5, 100, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**31 - 1)
FLOATS = (0.0, -0.0, 1.0, 5.5, -1e300, 1e-300, float("nan"), float("inf"), -float("inf"), 2.0**53, 0.1)
TEXTS = ("", "a", "EMEA", "it's", "grün", "a\nb", "%_\\", "5")
BODIES = (b"body", b'{"x":0.1000000000000000055,"y":"EMEA"}', b'{"x":5,"y":"a"}', b'{"x":9007199254740993,"y":5}')
MOMENTS = (0, 1, -1, 1_700_000_000_000, 1_700_000_000_001)


def of(kind: AmqpType, value: object) -> AmqpValue:
    return AmqpValue(kind, value)


values = st.one_of(
    st.sampled_from(NUMBERS).map(lambda each: of(AmqpType.LONG, each)),
    st.sampled_from([0, 1, 5, 2**64 - 1]).map(lambda each: of(AmqpType.ULONG, each)),
    st.sampled_from([0, 5, 100]).map(lambda each: of(AmqpType.UBYTE, each)),
    st.sampled_from(FLOATS).map(lambda each: of(AmqpType.DOUBLE, each)),
    st.sampled_from([0.0, 5.5, float("nan"), float("inf")]).map(lambda each: of(AmqpType.FLOAT, each)),
    st.sampled_from(TEXTS).flatmap(
        lambda each: st.sampled_from([of(kind, each) for kind in (AmqpType.STRING, AmqpType.SYMBOL)])
    ),
    st.sampled_from([ord("a"), ord("5")]).map(lambda each: of(AmqpType.CHAR, each)),
    st.sampled_from(MOMENTS).map(lambda each: of(AmqpType.TIMESTAMP, each)),
    st.booleans(),
    st.sampled_from([b"EMEA", b"\xff"]),
    st.none(),
)
messages = st.builds(
    lambda fields, subject, message_id, created, priority, tag, body: Message(
        body,
        header={"priority": priority},
        properties={
            "subject": subject,
            "message_id": message_id,
            "creation_time": None if created is None else of(AmqpType.TIMESTAMP, created),
        },
        application_properties=fields,
        message_annotations={"x-opt-tag": tag},
    ).encode(),
    st.dictionaries(st.sampled_from("snidfbt"), values, max_size=7),
    st.none() | st.sampled_from(TEXTS),
    st.none() | st.sampled_from(["EMEA", b"EMEA"]),
    st.none() | st.sampled_from(MOMENTS),
    st.none() | st.sampled_from([0, 4, 9]),
    st.none() | st.sampled_from(TEXTS),
    st.sampled_from(BODIES),
)

moments = st.sampled_from(MOMENTS).flatmap(
    lambda ms: st.sampled_from([-1, 0, 1]).map(
        lambda more: datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(milliseconds=ms, microseconds=more)
    )
)
CONSTANTS: dict[str, st.SearchStrategy[object]] = {
    "offset": st.integers(-1, 12),
    "timestamp": st.integers(-1, 6).map(
        lambda second: datetime.datetime(1970, 1, 1, 0, 0, tzinfo=UTC) + datetime.timedelta(seconds=second)
    ),
    "n": st.sampled_from(NUMBERS),
    "i": st.sampled_from([0, 1, -1, 5, 100]),
    "d": st.sampled_from(FLOATS),
    "f": st.sampled_from([0.0, 5.5, float("nan"), 1e300]),
    "t": moments,
    "creation_time": moments,
    "priority": st.sampled_from([0, 4, 9]),
    "b": st.booleans(),
    "x": st.sampled_from(FLOATS),
    "whole": st.sampled_from(NUMBERS),
} | {name: st.sampled_from(TEXTS) for name in ("s", "title", "message_id", "tag", "y")}


@st.composite
def comparisons(draw: st.DrawFn) -> polars.Expr:
    name = draw(st.sampled_from(sorted(CONSTANTS)))
    column, constants = polars.col(name), CONSTANTS[name]
    form = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "in", "between", "null", "turned", "itself"]))
    constant = draw(constants)
    match form:
        case "in":
            return column.is_in(
                draw(st.lists(constants, max_size=3)) * draw(st.sampled_from([1, 30])), nulls_equal=draw(st.booleans())
            )
        case "between" if name not in ("b",):
            return column.is_between(
                polars.lit(constant),
                polars.lit(draw(constants)),
                closed=draw(st.sampled_from(["both", "left", "none"])),
            )
        case "null":
            return column.is_null()
        case "turned":
            return polars.lit(constant) < column
        case "itself":
            return polars.col("b")
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return {
                "<": column.__lt__,
                "<=": column.__le__,
                ">": column.__gt__,
                ">=": column.__ge__,
                "==": column.__eq__,
                "!=": column.__ne__,
            }[form](constant)
    return column.is_not_null()


predicates = st.recursive(
    comparisons(),
    lambda parts: st.one_of(
        st.tuples(parts, parts).map(lambda two: two[0] & two[1]),
        st.tuples(parts, parts).map(lambda two: two[0] | two[1]),
        parts.map(lambda one: ~one),
    ),
    max_leaves=4,
)


def written(folder: Path, parts: list[list[bytes]], *, segment_bytes: int = 500_000) -> Stream:
    stream = Stream.create(
        folder / "orders", name="orders", now_ms=0, arguments=StreamArguments(max_segment_size_bytes=segment_bytes)
    )
    with Writer.open(stream, now_ms=0) as writer:
        for second, part in enumerate(parts):
            # The clock goes back in between.
            writer.append([(each, None) for each in part], now_ms=(second if second != 2 else 0) * 1000)
    return stream


@examples(0.3)
@given(
    parts=st.lists(st.lists(messages, min_size=1, max_size=4), min_size=1, max_size=4),
    predicate=predicates,
    names=st.lists(st.sampled_from(sorted(BY_NAME)), min_size=1, max_size=3, unique=True),
    given_filter=st.sampled_from([None, "n >= 1 OR n < 1 OR s <> 'x'"]),
    declared=st.sampled_from([None, "n bigint, d double", DECLARED]),
)
def test_a_predicate_gives_the_rows_that_it_gives_of_all(
    parts: list[list[bytes]], predicate: polars.Expr, names: list[str], given_filter: str | None, declared: str | None
) -> None:
    with quick_folder() as folder:
        stream = written(Path(folder), parts, segment_bytes=200)
        everything = headgate.read(stream.path, columns=COLUMNS, filter=given_filter).to_polars()
        if declared is not None:
            declare_columns(stream, declared)
            assert [each.trouble for each in COLUMN_FILES.build(stream, now_ms=0) if each.trouble] == []
        lazy = scan(stream.path, columns=COLUMNS, filter=given_filter)
        assert_frame_equal(lazy.filter(predicate).select(names).collect(), everything.filter(predicate).select(names))


@pytest.fixture(scope="module")
def stream() -> Iterator[Stream]:
    """30 chunks, one a second, of 100 messages."""
    parts = [
        [
            Message(application_properties={"s": f"region {chunk % 3}", "n": chunk * 100 + row}).encode()
            for row in range(100)
        ]
        for chunk in range(30)
    ]
    with quick_folder() as folder:
        yield written(Path(folder), parts, segment_bytes=20_000)


def read_by(stream: Stream, query: polars.Expr, given_filter: str | None = None) -> tuple[int, int]:
    """How many messages are evaluated, and how many are decoded for the predicate."""
    table = headgate.read(stream.path, columns=COLUMNS)
    source = _Scan(
        stream.path,
        table,
        COLUMNS,
        given_filter,
        (),
        {"dialect": "amqp", "match_unfiltered": False, "root": None, "server": None, "dictionaries": (), "threads": 1},
    )
    narrowed = source.narrowed(["n"], needed_by(query, BY_NAME))
    decoded = 0 if narrowed is None else narrowed.to_arrow().num_rows
    return 0 if narrowed is None else narrowed.counters.messages_evaluated, decoded


def test_offsets_and_times_skip_chunks(stream: Stream) -> None:
    offset, timestamp = polars.col("offset"), polars.col("timestamp")
    assert read_by(stream, offset.is_between(250, 349))[1] == 100
    assert read_by(stream, (offset < 100) | (offset == 150))[1] == 151
    assert read_by(stream, offset > 5000) == (0, 0)
    moment = datetime.datetime(1970, 1, 1, 0, 0, 28, tzinfo=UTC)
    assert read_by(stream, timestamp >= moment) == (200, 200)
    assert read_by(stream, (timestamp < moment) & (offset >= 2700)) == (100, 100)
    assert read_by(stream, timestamp > moment + datetime.timedelta(days=1)) == (0, 0)


def test_comparisons_of_fields_are_decided_before_rows_are_made(stream: Stream) -> None:
    s, n = polars.col("s"), polars.col("n")
    assert read_by(stream, s == "region 1") == (3000, 1000)
    assert read_by(stream, s.is_in(["region 1", "region 2"]) & (n < 300)) == (3000, 200)
    assert read_by(stream, n.is_in([7, 70, 700])) == (3000, 3)
    assert read_by(stream, n.is_in(list(range(0, 200, 2)))) == (3000, 199)
    assert read_by(stream, s.str.starts_with("region 1")) == (3000, 3000)


def test_times_of_history_without_its_log_are_not_left_out(tmp_path: Path) -> None:
    parts = [[Message(application_properties={"n": second}).encode()] * 50 for second in range(10)]
    stream = written(tmp_path, parts, segment_bytes=3_000)
    everything = headgate.read(stream.path, columns="timestamp, n bigint").to_polars()
    declare_columns(stream, "n bigint", keep="forever")
    list(COLUMN_FILES.build(stream, now_ms=0))
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.drop_first_below(200)
    first = stream.first_offset()
    assert first > 0
    lazy = scan(stream.path, columns="timestamp, n bigint")
    timestamp = polars.col("timestamp")
    for second in (1, first // 50, 8):
        moment = datetime.datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC)
        for predicate in (timestamp <= moment, timestamp >= moment):
            assert_frame_equal(lazy.filter(predicate).collect(), everything.filter(predicate))


def test_beside_a_filter_a_condition_that_declared_columns_do_not_decide_is_left_to_polars(stream: Stream) -> None:
    declare_columns(stream, "n bigint")
    try:
        assert read_by(stream, polars.col("n") == 5, "n < 300") == (3000, 1)
        assert read_by(stream, polars.col("s") == "region 1", "n < 300") == (3000, 300)
        assert read_by(stream, polars.col("s") == "region 1") == (3000, 1000)
    finally:
        drop_columns(stream, None)
    assert read_by(stream, polars.col("s") == "region 1", "n < 300") == (3000, 100)


def test_what_is_needed_follows_from_what_is_known() -> None:
    n, offset = polars.col("n"), polars.col("offset")
    assert needed_by((n > 5) & n.is_null(), BY_NAME) == Needed(condition="(n > 5)")
    assert needed_by((n > 5) | n.is_null(), BY_NAME) == Needed()
    assert needed_by((n > 5) | (offset > 5), BY_NAME) == Needed()
    assert needed_by(((offset > 5) & (n == 1)) | (offset == 3), BY_NAME) == Needed(Between(3, None))
    assert needed_by(polars.col("message_id") == "EMEA", BY_NAME) == Needed()
    assert needed_by(polars.col("nothing") == 5, BY_NAME) == Needed()


def test_a_query_reads_the_rows_and_columns_that_it_asks_for(stream: Stream) -> None:
    lazy = scan(stream.path, columns=COLUMNS)
    assert lazy.select("n").head(3).collect()["n"].to_list() == [0, 1, 2]
    assert lazy.select(polars.len()).collect().item() == 3000
    assert lazy.filter(polars.col("n") >= 2990).head(5).collect()["n"].to_list() == list(range(2990, 2995))
    assert lazy.group_by("s").agg(polars.col("n").sum()).sort("s").collect()["n"].sum() == sum(range(3000))
    assert scan(stream.path, columns=["n bigint as count"], dictionaries=[]).collect().columns == ["count"]
    assert scan(stream.path).collect_schema().names() == ["offset", "timestamp", "properties", "body"]


def test_functions_of_python_are_left_to_polars(stream: Stream) -> None:
    query = scan(stream.path, columns="offset, n bigint")
    odd = polars.col("offset").map_elements(lambda offset: bin(offset)[-1:] == "1", return_dtype=polars.Boolean)
    found = query.filter(odd & (polars.col("offset") < 100)).collect()
    assert found["offset"].to_list() == list(range(1, 100, 2))


def test_texts_that_repeat_are_categories(stream: Stream) -> None:
    lazy = scan(stream.path, columns="s string, n bigint", dictionaries=["s"], start=100, stop=200)
    assert lazy.filter(polars.col("n") > 150).collect()["s"].dtype == polars.Categorical
    assert lazy.select("n").collect()["n"].to_list() == list(range(100, 200))


def test_a_server_gives_the_same_rows(tmp_path: Path) -> None:
    rows = [Message(application_properties={"n": number}).encode() for number in range(100)]
    written(tmp_path / "data" / "streams", [rows[:50], rows[50:]])
    with running_server(tmp_path, handlers={"stream": StreamHandler}) as running:
        lazy = scan("orders", server=f"127.0.0.1:{running.ports['stream']}", columns="offset, timestamp, n bigint")
        late = polars.col("timestamp") >= datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        assert lazy.filter(late & (polars.col("n") < 60)).select("n").collect()["n"].to_list() == list(range(50, 60))


def test_what_is_wrong_is_refused_when_the_query_is_made(tmp_path: Path) -> None:
    with pytest.raises(StreamNotFoundError):
        scan("nothing", root=tmp_path)


def test_importing_imports_no_polars() -> None:
    code = "import headgate.polars, sys; sys.exit('polars' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
