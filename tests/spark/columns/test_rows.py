"""Rows give the verdict of the message they stand for: in every layout of columns and every language."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, IntegerType, MapType, StringType, StructField, StructType, VariantType

from headgate.errors import ConfigError, FilterError
from headgate.evaluate.filter import Filter
from headgate.language.tree import Compare, CompareOperator, Constant, Field, OwnRules
from headgate.message import EncodedMessages
from headgate.message.arrow import messages_of, variant_type
from headgate.message.fields import FieldReference, Section
from headgate.spark.columns.layout import layout_of
from headgate.spark.columns.rows import RowFilter

from .languages import LANGUAGES
from .rows import NOW_MS, Rows, expected, typed_rows

REFUSALS = ("in this language a value of such a map is none", "only a VARIANT holds lists and maps")


def matched(filter: Filter, rows: Rows) -> list[bool]:
    """What the code under test says of each row; ConfigError where the columns cannot carry the filter."""
    inputs = layout_of(filter, rows.schema)
    columns = [reach(rows.columns, each.path) for each in inputs]
    found = RowFilter(filter, inputs).matches(columns, rows.columns.num_rows, now_ms=NOW_MS)
    return [bool(each) for each in found]


def reach(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def agree(text: str, dialect: str, rows: Rows) -> None:
    try:
        filter = Filter.parse(text, dialect)
    except FilterError:
        return
    try:
        found = matched(filter, rows)
    except ConfigError as refused:
        if not any(reason in str(refused) for reason in REFUSALS):
            raise
        return
    assert found == expected(filter, rows)


@pytest.mark.parametrize("dialect", sorted(LANGUAGES))
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), typed_rows())
def test_rows_give_the_verdicts_of_their_messages_in_every_language(
    dialect: str, data: st.DataObject, rows: Rows
) -> None:
    for text in data.draw(st.lists(LANGUAGES[dialect], min_size=1, max_size=5)):
        agree(text, dialect, rows)


def test_an_empty_batch_gives_an_empty_answer() -> None:
    filter = Filter.parse("n = 1", "rabbitmq")
    inputs = layout_of(filter, StructType([StructField("n", IntegerType())]))
    assert RowFilter(filter, inputs).matches([pa.array([], pa.int32())], 0, now_ms=0).tolist() == []


def test_a_filter_without_fields_holds_for_every_row() -> None:
    filter = Filter.parse("UTC() > 5", "rabbitmq")
    assert RowFilter(filter, ()).matches([], 3, now_ms=6).tolist() == [True] * 3
    assert RowFilter(filter, ()).matches([], 3, now_ms=5).tolist() == [False] * 3


def test_cells_that_no_message_can_hold_are_not_matched_and_leave_their_neighbours_alone() -> None:
    filter = Filter.parse("n <> 5", "rabbitmq")
    inputs = layout_of(filter, StructType([StructField("n", DecimalType(38, 0))]))
    cells = pa.array([1, 10**30, 5, -(10**30), 2**64 - 1], pa.decimal128(38, 0))
    found = RowFilter(filter, inputs).matches([cells], 5, now_ms=0)
    assert found.tolist() == [True, False, False, False, True]


@pytest.mark.parametrize("shape", ["priorities", "variants"])
def test_rows_that_are_wrong_at_a_look_are_left_out_before_any_message_is_made(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(batch: pa.RecordBatch) -> EncodedMessages:
        made.append(batch.num_rows)
        return messages_of(batch)

    monkeypatch.setattr("headgate.spark.columns.rows.messages_of", counted)
    if shape == "priorities":
        filter, schema = Filter.parse("h.priority >= 0", "rabbitmq"), [StructField("priority", IntegerType())]
        inputs = layout_of(filter, StructType([StructField("header", StructType(schema))]))
        column = pa.array([300, -1, 5, None, 256] * 100, pa.int32())
    else:
        filter = Filter.parse("n IS NULL", "rabbitmq")
        inputs = layout_of(filter, StructType([StructField("application_properties", VariantType())]))
        wrong, right = (
            {"value": b"\x0c\x05", "metadata": b"\x01\x00\x00"},
            {"value": b"\x02\x00\x00", "metadata": b"\x01\x00\x00"},
        )
        column = pa.array([wrong, wrong, right, None, wrong] * 100, variant_type())
    found = RowFilter(filter, inputs).matches([column], 500, now_ms=0)
    assert found.tolist() == [False, False, True, True, False] * 100
    assert made == [200]


def test_a_language_from_outside_decides_rows_by_its_own_operators() -> None:
    rules = OwnRules("headgate.evaluate.semantics.rabbitmq")
    field = Field(FieldReference(Section.APPLICATION_PROPERTIES, key=b"n"), rules)
    filter = Filter(Compare(CompareOperator.EQUAL, field, Constant(5), rules), "n = 5", "outside")
    inputs = layout_of(filter, StructType([StructField("n", IntegerType())]))
    cells = pa.array([4, 5, None], pa.int32())
    assert RowFilter(filter, inputs).matches([cells], 3, now_ms=0).tolist() == [False, True, False]
    texts = StructType([StructField("application_properties", MapType(StringType(), StringType()))])
    assert len(layout_of(filter, texts)) == 1
