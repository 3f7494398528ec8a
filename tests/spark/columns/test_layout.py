"""Which columns a filter reads, and what is refused because a column is missing or cannot carry its values."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from headgate.errors import ConfigError
from headgate.evaluate.filter import Filter
from headgate.spark.columns.layout import layout_of


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def struct(**fields: DataType) -> StructType:
    return schema(**fields)


def paths(text: str, columns: StructType, dialect: str = "rabbitmq", **named: str) -> list[str]:
    given = {key.replace("__", "."): column for key, column in named.items()}
    return [".".join(each.path) for each in layout_of(Filter.parse(text, dialect), columns, given)]


MAP = MapType(StringType(), StringType())


def test_application_properties_are_columns_of_the_same_name_where_no_column_holds_them_all() -> None:
    columns = schema(price=DoubleType(), other=DateType(), region=StringType())
    assert paths("region = 'AMER' AND price > 5 OR region = 'EMEA'", columns) == ["price", "region"]


def test_fields_of_sections_are_read_out_of_the_struct_columns_of_their_names() -> None:
    columns = schema(
        properties=struct(subject=StringType(), to=StringType()),
        header=struct(priority=IntegerType()),
        application_properties=struct(n=LongType(), region=StringType()),
    )
    assert paths("p.subject = 'x' AND h.priority > 4 AND n = 1", columns) == [
        "header.priority",
        "properties.subject",
        "application_properties.n",
    ]


@pytest.mark.parametrize("kind", [MAP, VariantType()])
def test_open_sections_are_read_whole_and_once(kind: DataType) -> None:
    assert paths("a = 'x' OR b = 'y'", schema(application_properties=kind)) == ["application_properties"]


def test_annotations_are_read_in_the_languages_that_have_them() -> None:
    columns = schema(message_annotations=struct(**{"x-opt-rocketmq-tag": StringType(), "x-opt-y": LongType()}))
    assert paths("TAGS = 'a'", columns, "rocketmq") == ["message_annotations.x-opt-rocketmq-tag"]
    assert paths("m.[x-opt-y] = 5", columns, "amqp") == ["message_annotations.x-opt-y"]


def test_columns_may_be_named_by_field() -> None:
    columns = schema(title=StringType(), geo=struct(area=StringType()), **{"odd.name": LongType()})
    found = paths(
        "p.subject = 'x' AND region = 'AMER' AND n > 4",
        columns,
        properties__subject="title",
        application_properties__region="geo.area",
        application_properties__n="odd.name",
    )
    assert found == ["title", "geo.area", "odd.name"]


def test_service_bus_finds_columns_in_any_letter_case_and_keeps_their_order() -> None:
    columns = schema(REGION=StringType(), other=StringType(), Region=StringType())
    assert paths("region = 'a'", columns, "servicebus") == ["REGION", "Region"]


def test_absent_columns_of_type_void_are_read_as_absent() -> None:
    assert paths("n > 5", schema(n=NullType())) == ["n"]
    assert paths("n > 5", schema(application_properties=MapType(StringType(), NullType()))) == [
        "application_properties"
    ]


NUMBERS_IN_TEXT = "the filter compares application_properties.n with a number"
REFUSED = [
    ("n = 1", schema(m=LongType()), "there is not a column 'n'"),
    ("n = 1", schema(N=LongType()), "did you mean N? Names are compared with their case"),
    ("n = 1", schema(application_properties=struct(m=LongType())), "a field 'n' in column application_properties"),
    ("p.subject = 'x'", schema(subject=StringType()), "there is no column properties; add it as a struct"),
    ("p.subject = 'x'", schema(properties=struct(to=StringType())), "a field 'subject' in column properties"),
    ("p.subject = 'x'", schema(properties=MAP), "column properties is map<string,string>, expected a struct"),
    ("h.priority > 4", schema(n=LongType()), "there is no column header"),
    ("n = 1", schema(application_properties=StringType()), "expected a struct of scalars, a MAP or a VARIANT"),
    ("n = 1", schema(n=DecimalType(10, 2)), "column n is decimal(10,2): a filter can read boolean"),
    ("n = 1", schema(n=DateType()), "column n is date"),
    ("n = 1", schema(n=DayTimeIntervalType()), "column n is interval"),
    ("n = 1", schema(n=ArrayType(LongType())), "column n is array<bigint>"),
    ("n = 1", schema(n=VariantType()), "column n is variant"),
    ("n = 1", schema(n=MAP), "column n is map<string,string>"),
    ("p.subject = 'x'", schema(properties=struct(subject=LongType())), "column properties.subject is bigint"),
    ("p.creation_time > 5", schema(properties=struct(creation_time=LongType())), "creation_time is timestamp; cast it"),
    ("h.priority = 5", schema(header=struct(priority=DoubleType())), "priority is an integer type; cast it"),
    ("p.message_id = 'x'", schema(properties=struct(message_id=LongType())), "message_id is string or binary"),
    ("n = 1", schema(application_properties=MapType(LongType(), LongType())), "the keys of a section are strings"),
    ("n = 1", schema(application_properties=MapType(StringType(), DateType())), "values must be scalars"),
    ("n > 5", schema(application_properties=MAP), NUMBERS_IN_TEXT),
    ("5 < n", schema(application_properties=MAP), NUMBERS_IN_TEXT),
    ("m = 'a' OR n IN ('x', 5)", schema(application_properties=MAP), NUMBERS_IN_TEXT),
    ("n + 1 > n", schema(application_properties=MAP), NUMBERS_IN_TEXT),
    ("-n < n", schema(application_properties=MAP), NUMBERS_IN_TEXT),
    ("n < UTC()", schema(application_properties=MAP), NUMBERS_IN_TEXT),
    ("n", schema(application_properties=MAP), "with a truth value (the filter itself)"),
    ("NOT n", schema(application_properties=MAP), "with a truth value (the operand of NOT)"),
    ("n = TRUE", schema(application_properties=MAP), "with a truth value (True)"),
    ("n LIKE 'a%'", schema(application_properties=MapType(StringType(), LongType())), "with a text (LIKE)"),
    ("n = 'a'", schema(application_properties=MapType(StringType(), BooleanType())), "with a text ('a')"),
]


@pytest.mark.parametrize(("text", "columns", "reason"), REFUSED)
def test_what_columns_cannot_carry_is_refused_by_name(text: str, columns: StructType, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        paths(text, columns)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("n = 'x' AND m LIKE 'a%' AND m <> n", MAP),
        ("n IS NULL OR m = 'a'", MAP),
        ("n > 5 AND m < n + 1", MapType(StringType(), DoubleType())),
        ("n > 1700000000000", MapType(StringType(), TimestampType())),
        ("n = 0x00FF", MapType(StringType(), BinaryType())),
    ],
)
def test_maps_serve_filters_that_compare_what_they_hold(text: str, kind: MapType) -> None:
    assert paths(text, schema(application_properties=kind)) == ["application_properties"]


def test_a_map_of_strings_serves_rocketmq_which_reads_numbers_out_of_them() -> None:
    assert paths("n > 5", schema(application_properties=MAP), "rocketmq") == ["application_properties"]
    with pytest.raises(ConfigError, match=r"with a number \(5\)"):
        paths("n > 5", schema(application_properties=MAP), "servicebus")


def test_parts_of_messages_that_rows_do_not_have_are_refused_by_name() -> None:
    columns = schema(n=MAP, application_properties=MAP)
    with pytest.raises(ConfigError, match="a field of the footer"):
        paths("f.x = 'a'", columns, "amqp")
    with pytest.raises(ConfigError, match="a field of the delivery annotations"):
        paths("d.x = 'a'", columns, "amqp")
    with pytest.raises(ConfigError, match=r"looks into application_properties\.n, and only a VARIANT"):
        paths("n[0] = 'a'", columns, "amqp")
    with pytest.raises(ConfigError, match=r"a property of a computed name, .*: property\('a' \+ b\)"):
        paths("property('a' + b) = 'x'", columns, "servicebus")
    with pytest.raises(ConfigError, match=r"reads body\.type, and rows have no body of JSON"):
        paths("type = 'x'", columns, "cesql")


def test_named_columns_must_be_there_and_leave_no_section_half_mapped() -> None:
    columns = schema(title=StringType(), twice=LongType(), application_properties=MAP)
    with pytest.raises(ConfigError, match=r"properties\.subject is to come from 'name', but there is no such column"):
        paths("p.subject = 'x'", columns, properties__subject="name")
    with pytest.raises(ConfigError, match="come from application_properties and from title"):
        paths("a = 'x' AND b = 'y'", columns, application_properties__a="title")
    with pytest.raises(ConfigError, match="section properties has no field 'topic'"):
        paths("p.subject = 'x'", columns, properties__topic="title")
    double = StructType([*columns, StructField("twice", LongType())])
    with pytest.raises(ConfigError, match="column 'twice' is there twice"):
        paths("a = 'x'", double, application_properties__a="twice")
    plain = StructType([StructField("n", LongType()), StructField("n", LongType())])
    with pytest.raises(ConfigError, match="column n is there twice"):
        paths("n = 1", plain)
