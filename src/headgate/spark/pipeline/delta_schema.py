"""The schema of a Delta table: types of Delta, columns of an existing table, and its requirements on writers.

A Delta table's schema is written in the JSON that Spark has for its own types (protocol, "Schema Serialization
Format"), so most of it is comparing Spark's types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types

from headgate.errors import SinkError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_STORED = (
    types.BinaryType,
    types.BooleanType,
    types.ByteType,
    types.DateType,
    types.DecimalType,
    types.DoubleType,
    types.FloatType,
    types.IntegerType,
    types.LongType,
    types.ShortType,
    types.StringType,
    types.TimestampNTZType,
    types.TimestampType,
)
_PARTITIONING = tuple(kind for kind in _STORED if kind not in (types.BinaryType, types.DoubleType, types.FloatType))
_NOT_IN_NAMES = " ,;{}()\n\t="
_FEATURES_SERVED = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Writer features of tables that take plain files of rows, if `check_table` finds the features unused."""


def stored_schema(schema: types.StructType) -> types.StructType:
    """The schema that a Delta table of these rows has: every column may be null, and has no metadata.

    SinkError names a column whose name or type Delta does not support.
    """
    seen: set[str] = set()
    for column in schema:
        if column.name.lower() in seen:
            raise SinkError(f"column {column.name!r} is there twice; Delta takes names without case")
        seen.add(column.name.lower())
    return types.StructType(
        [types.StructField(column.name, _stored(column.name, column.dataType)) for column in _named("", schema)]
    )


def _named(path: str, schema: types.StructType) -> Iterator[types.StructField]:
    for column in schema:
        if any(sign in _NOT_IN_NAMES for sign in column.name) or not column.name:
            raise SinkError(f"column {path + column.name!r}: a name in a Delta table has none of {_NOT_IN_NAMES!r}")
        yield column


def _stored(path: str, kind: types.DataType) -> types.DataType:
    if isinstance(kind, types.StructType):
        fields = [
            types.StructField(each.name, _stored(f"{path}.{each.name}", each.dataType))
            for each in _named(f"{path}.", kind)
        ]
        return types.StructType(fields)
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(_stored(f"{path}.element", kind.elementType))
    if isinstance(kind, types.MapType):
        return types.MapType(_stored(f"{path}.key", kind.keyType), _stored(f"{path}.value", kind.valueType))
    if type(kind) not in _STORED:
        raise SinkError(f"column {path!r} is of type {kind.simpleString()}, which Delta has not; cast it in a step")
    if isinstance(kind, types.StringType) and kind != types.StringType():
        raise SinkError(f"column {path!r} is {kind.simpleString()}; Delta keeps no collation: cast it to string")
    return kind


def check_partitioning(schema: types.StructType, partition_by: Sequence[str]) -> None:
    """SinkError where rows of a schema cannot be partitioned like this."""
    for name in partition_by:
        if name not in schema.names:
            raise SinkError(f"partition_by: there is no column {name!r}; there are {', '.join(schema.names)}")
        kind = schema[name].dataType
        if type(kind) not in _PARTITIONING:
            raise SinkError(f"partition_by: column {name!r} is of type {kind.simpleString()}; take another column")
    if len(partition_by) == len(schema.names):
        raise SinkError("partition_by: names every column; one at least has to be in the files")


def table_schema(table: DeltaTable) -> types.StructType:
    """The schema of a table, in Spark's types."""
    return types.StructType.fromJson(json.loads(table.schema().to_json()))


def check_table(path: object, table: DeltaTable) -> None:
    """SinkError for a table that requires more of writers than is done here: check rows, fill columns, rename them."""
    protocol = table.protocol()
    unknown = sorted(set(protocol.writer_features or ()) - _FEATURES_SERVED)
    if unknown:
        raise SinkError(f"table {path} asks its writers for {', '.join(unknown)}, which Headgate does not do")
    configuration = table.metadata().configuration
    asked = [name for name in configuration if name.startswith("delta.constraints.")]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        asked.append("delta.columnMapping.mode")
    for column in table_schema(table):
        asked.extend(f"{name} of column {column.name!r}" for name in _told(column) if name.startswith("delta."))
    if asked:
        raise SinkError(f"table {path} asks its writers for {', '.join(asked)}, which Headgate does not do")


def _told(column: types.StructField) -> Iterator[str]:
    yield from column.metadata or ()
    waiting: list[types.DataType] = [column.dataType]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, types.StructType):
            for each in kind:
                yield from each.metadata or ()
                waiting.append(each.dataType)
        elif isinstance(kind, types.ArrayType):
            waiting.append(kind.elementType)
        elif isinstance(kind, types.MapType):
            waiting.extend((kind.keyType, kind.valueType))


def check_fit(path: object, rows: types.StructType, there: types.StructType) -> tuple[str, ...]:
    """Compare rows (`stored_schema`) with the columns of a table; gives the columns that must not be null in the rows.

    SinkError names columns that the table lacks, that are of another type, or that the rows lack though the table says
    NOT NULL. Other columns that the rows lack become null.
    """
    for column in rows:
        if column.name not in there.names:
            raise SinkError(f"table {path} has no column {column.name!r}; it has {', '.join(there.names)}")
        kind = there[column.name].dataType
        if _without_nullability(kind) != column.dataType:
            raise SinkError(
                f"column {column.name!r} is of type {column.dataType.simpleString()}; "
                f"in table {path} it is {kind.simpleString()}"
            )
        if _without_nullability(kind) != kind:
            raise SinkError(
                f"column {column.name!r} of table {path} has parts that are NOT NULL; that is not checked here"
            )
    required = tuple(column.name for column in there if not column.nullable)
    for name in required:
        if name not in rows.names:
            raise SinkError(f"the rows have no column {name!r}, which is NOT NULL in table {path}")
    return required


def _without_nullability(kind: types.DataType) -> types.DataType:
    if isinstance(kind, types.StructType):
        return types.StructType([types.StructField(each.name, _without_nullability(each.dataType)) for each in kind])
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(_without_nullability(kind.elementType))
    if isinstance(kind, types.MapType):
        return types.MapType(_without_nullability(kind.keyType), _without_nullability(kind.valueType))
    return kind
