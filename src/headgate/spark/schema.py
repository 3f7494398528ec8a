"""The columns of a stream in Spark: types and contents; `make docs` writes `docs/reference/spark-source.md` from them.

Application properties are a VARIANT because their keys are an open set with exact types. A VARIANT is transferred to
the JVM as fast as a struct, but Spark can push comparisons down only for a declared struct.

A stream keeps no filter value per message, only the Bloom filter of a chunk: the column `filter_value` is the field
from which the value is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headgate.errors import ConfigError
from headgate.message.arrow import DeclaredColumn, DeclaredProperty, column_type, declared_properties
from headgate.spark.option_declarations import COLUMNS

_OPTIONS = "headgate.options"

COLUMN_MEANINGS: Mapping[str, str] = {
    "offset": "The position in the stream.",
    "timestamp": "When the chunk was written, to the millisecond.",
    "filter_value": "The field from which the filter value is made: the filter source that the stream declares, else "
    "the annotation `x-stream-filter-value`; null where the message has neither. A value that a publisher of the "
    "stream protocol sent beside the message is not kept.",
    "header": "The header section; null where the message has none. Defaults of the standard are not filled in.",
    "properties": "The properties section; null where the message has none.",
    "application_properties": "All application properties with their types; with the option `properties` a struct of "
    "the declared ones. Null where the message has none.",
    "message_annotations": "All message annotations; null where the message has none.",
    "body": "The data sections, joined, or the text or the bytes of an AMQP value; null for another body.",
    "message": "The whole encoded message. Only if `columns` names it.",
}
"""The content of the columns, in Markdown."""

_STREAM_FIELDS = {
    "offset": StructField("offset", LongType(), nullable=False),
    "timestamp": StructField("timestamp", TimestampType(), nullable=False),
    "filter_value": StructField("filter_value", StringType()),
}


def stream_schema(columns: Sequence[DeclaredColumn | str], properties: tuple[DeclaredProperty, ...]) -> StructType:
    """The Spark schema of some columns; `properties` not empty makes `application_properties` a struct."""
    return StructType([_field(column, properties) for column in columns])


def _field(column: DeclaredColumn | str, properties: tuple[DeclaredProperty, ...]) -> StructField:
    if isinstance(column, DeclaredColumn):
        return StructField(column.name, from_arrow_type(column.type))
    known = _STREAM_FIELDS.get(column)
    if known is not None:
        return known
    return StructField(column, from_arrow_type(column_type(column, properties or None)))


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema with options in the metadata of its first column.

    Spark keeps the options of `CREATE TABLE … USING headgate`, but gives a reader of the table only the schema.
    """
    first = schema.fields[0]
    kept = StructField(first.name, first.dataType, first.nullable, {_OPTIONS: dict(options)})
    return StructType([kept, *schema.fields[1:]])


def options_in(schema: StructType) -> dict[str, str]:
    """The options that `with_options` kept; none if there are none."""
    return dict(schema.fields[0].metadata.get(_OPTIONS, {})) if schema.fields else {}


def batch_of_bytes(rows: Sequence[bytes], schema: StructType) -> pa.RecordBatch:
    """A batch for a schema of one binary column."""
    # Made from buffers, because `pyarrow.array` imports pandas: a quarter of a second in each new worker.
    bounds = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(rows))]
    column = pa.Array.from_buffers(pa.binary(), len(rows), buffers)
    return pa.RecordBatch.from_arrays([column], schema=arrow_schema(schema))


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of batches; it must be met exactly, nullability included."""
    return to_arrow_schema(schema, timezone="UTC")


def check_schema(
    given: StructType, properties: tuple[DeclaredProperty, ...], columns: Sequence[DeclaredColumn | str] = ()
) -> tuple[DeclaredProperty, ...]:
    """The declared properties of a schema for reading, which may be the user's own and declare them itself.

    Columns that are fields of messages are among `columns`.

    Raises ConfigError that names an unknown column or one of another type. A column that a message may lack cannot be
    declared NOT NULL.
    """
    fields = {column.name: column for column in columns if isinstance(column, DeclaredColumn)}
    for field in given.fields:
        if field.name not in COLUMNS and field.name not in fields:
            known = ", ".join([*COLUMNS, *fields])
            raise ConfigError(f"schema: a stream has no column {field.name!r}; there are {known}")
        if field.name == "application_properties" and isinstance(field.dataType, StructType) and not properties:
            properties = _declared(field.dataType)
        expected = _field(fields.get(field.name, field.name), properties).dataType
        if field.dataType != expected:
            raise ConfigError(
                f"schema: column {field.name} is declared {field.dataType.simpleString()}, "
                f"expected {expected.simpleString()}"
            )
        if not field.nullable and field.name not in ("offset", "timestamp"):
            raise ConfigError(f"schema: column {field.name} is declared NOT NULL, but a message may be without it")
    return properties


def _declared(struct: StructType) -> tuple[DeclaredProperty, ...]:
    names = (field.name.replace("`", "``") for field in struct.fields)
    kinds = (field.dataType.simpleString() for field in struct.fields)
    return declared_properties(", ".join(f"`{name}` {kind}" for name, kind in zip(names, kinds, strict=True)))
