"""Columns with NaN and −0.0 say nothing in a file that lets a reader leave their rows out; others say all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.parquet import ParquetWriter

NAN = float("nan")
OPTIONS: dict[str, Any] = {
    "write_page_index": True,
    "bloom_filter_options": {"x": {"ndv": 10, "fpp": 0.1}, "n": {"ndv": 10, "fpp": 0.1}},
}


def said(path: Path, column: str) -> set[str]:
    """What a file says of a column in any row group."""
    metadata = pq.ParquetFile(path).metadata
    places = [place for place in range(metadata.num_columns) if metadata.schema.column(place).path == column]
    assert len(places) == 1
    found = set()
    for number in range(metadata.num_row_groups):
        chunk = metadata.row_group(number).column(places[0])
        found |= {"limits"} if chunk.statistics is not None and chunk.statistics.has_min_max else set()
        found |= {"dictionary"} if chunk.has_dictionary_page else set()
        found |= {"page index"} if chunk.has_column_index else set()
        found |= {"bloom"} if chunk.bloom_filter_offset is not None else set()
    return found


def write(path: Path, groups: list[pa.Table], **options: Any) -> None:
    with ParquetWriter(path, groups[0].schema, **options) as writer:
        for group in groups:
            writer.write(group)


EVERYTHING = {"limits", "dictionary", "page index", "bloom"}


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("odd", [NAN, -NAN, -0.0])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_column_with_such_a_value_says_nothing_wherever_it_comes(
    tmp_path: Path, kind: pa.DataType, odd: float, place: int
) -> None:
    values: list[list[float | None]] = [[1.0, 2.0, None], [0.0, float("inf")], [3.0, 3.0]]
    path = tmp_path / "x.parquet"
    plain = [pa.table({"n": [1] * len(group), "x": pa.array(group, kind)}) for group in values]
    write(path, plain, **OPTIONS)
    assert said(path, "x") == said(path, "n") == EVERYTHING
    values[place].append(odd)
    groups = [pa.table({"n": [1] * len(group), "x": pa.array(group, kind)}) for group in values]
    write(path, groups, **OPTIONS)
    assert (said(path, "x"), said(path, "n")) == (set(), EVERYTHING)
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(number).num_rows for number in range(3)] == [len(group) for group in groups]
    assert str(file.read().to_pylist()) == str(pa.concat_tables(groups).to_pylist())
    assert [each.name for each in tmp_path.iterdir()] == ["x.parquet"]


@pytest.mark.parametrize(
    ("kind", "clean", "odd", "column"),
    [
        (pa.float16(), 1.0, NAN, "x"),
        (pa.struct([("s", pa.string()), ("a", pa.float64())]), {"a": 1.0}, {"a": -0.0}, "x.a"),
        (pa.list_(pa.float32()), [1.0], [2.0, NAN], "x.list.element"),
        (pa.list_(pa.float32(), 2), [1.0, 1.0], [2.0, NAN], "x.list.element"),
        (pa.map_(pa.string(), pa.float64()), [("a", 1.0)], [("a", NAN)], "x.key_value.value"),
        (pa.list_(pa.struct([("b", pa.float64())])), [{"b": 1.0}], [None, {"b": NAN}], "x.list.element.b"),
    ],
)
def test_columns_inside_of_others_count(tmp_path: Path, kind: pa.DataType, clean: Any, odd: Any, column: str) -> None:
    path = tmp_path / "x.parquet"
    groups = [pa.table({"x": pa.array([None, each], kind), "n": [1, 2]}) for each in (clean, odd, clean)]
    write(path, [groups[0]])
    assert said(path, column)
    write(path, groups)
    assert (said(path, column), said(path, "n")) == (set(), {"limits", "dictionary"})
    assert str(pq.read_table(path).to_pylist()) == str(pa.concat_tables(groups).to_pylist())


def test_what_the_options_left_out_stays_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    group = pa.table({"n": [1.5], "x": [NAN], "a.b": ["t"]})
    write(path, [group, group], use_dictionary=["x"], write_statistics=["x", "n"])
    assert (said(path, "x"), said(path, "n"), said(path, "a.b")) == (set(), {"limits"}, set())
    write(path, [group], use_dictionary=False, write_statistics=False)
    assert said(path, "n") == set()


@given(st.lists(st.lists(st.none() | st.floats(width=32), max_size=3), max_size=5))
def test_rows_and_row_groups_are_those_that_were_written(
    tmp_path_factory: Any, values: list[list[float | None]]
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    groups = [pa.table({"x": pa.array(group, pa.float32())}) for group in values]
    write(path, groups or [pa.table({"x": pa.array([], pa.float32())})])
    assert str(pq.read_table(path)["x"].to_pylist()) == str([value for group in values for value in group])
