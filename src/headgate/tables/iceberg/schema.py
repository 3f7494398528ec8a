"""The columns of a table: the columns of the column files, with the same field ids.

A column that is no longer declared leaves the table's schema; older snapshots have it. Its id is never used again, so a
new column of the same name is another one, null in rows published before. Columns that other programs added stay.
`entry` is in no table: it is a place in a segment, and Iceberg has no unsigned integers.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, SetCurrentSchemaUpdate, TableUpdate
from pyiceberg.types import BinaryType, NestedField

from headgate.derived.columns import ColumnDeclaration, column_schema

LEFT_OUT = "entry"

_LAST_OWN_ID = 10_999
"""The last id for columns of column files; ids behind it are for columns of other programs."""

_RESERVED = NestedField(_LAST_OWN_ID, "reserved", BinaryType(), required=False)


def file_schema(schema: pa.Schema) -> Schema:
    """Iceberg's schema of a column file with this Arrow schema, but for `entry`."""
    return pyarrow_to_schema(pa.schema([field for field in schema if field.name != LEFT_OUT]))


def evolve(table: Table, declaration: ColumnDeclaration) -> None:
    """Give a table the columns of a declaration. One commit, none where it has them.

    Raises CommitFailedException where another program changed the schema meanwhile.
    """
    there = {field.field_id: field for field in table.schema().fields}
    fields = [
        field.model_copy(update={"doc": there[field.field_id].doc}) if field.field_id in there else field
        for field in file_schema(column_schema(declaration)).fields
    ]
    fields += [field for field in table.schema().fields if field.field_id > _LAST_OWN_ID]
    if tuple(fields) == table.schema().fields:
        return
    updates: list[TableUpdate] = []
    if table.metadata.last_column_id < _LAST_OWN_ID:
        # Without it the next column of another program would get the id of `entry`, and be read from there.
        updates.append(AddSchemaUpdate(schema=Schema(_RESERVED, schema_id=1)))
    known = next((each.schema_id for each in table.metadata.schemas if each.fields == tuple(fields)), None)
    if known is None:
        next_id = 1 + len(updates) + max(each.schema_id for each in table.metadata.schemas)
        updates.append(AddSchemaUpdate(schema=Schema(*fields, schema_id=next_id)))
    # -1: the one that was just added, whichever id the catalog gave it.
    updates.append(SetCurrentSchemaUpdate.model_validate({"schema-id": -1 if known is None else known}))
    required = AssertCurrentSchemaId.model_validate({"current-schema-id": table.metadata.current_schema_id})
    # Not `table.update_schema()`, which gives ids of its own.
    table.catalog.commit_table(table, (required,), tuple(updates))
    table.refresh()
