"""Messages as Arrow columns and back, in the types that Spark uses.

Hides the kernels that read and write encoded messages, and the Variant encoding. Importing this package imports
pyarrow; nothing in `headgate.message` itself does. The columns and their types are in `schema`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate.errors import ConfigError
from headgate.message.arrow.decode import decode_columns, decode_fields
from headgate.message.arrow.decode.reference import mismatches_in
from headgate.message.arrow.encode import check_types, messages_of
from headgate.message.arrow.scalars.sizes import size_table
from headgate.message.arrow.schema import (
    COLUMNS,
    HEADER_TYPES,
    INTEGER_RANGES,
    PROPERTIES_TYPES,
    DeclaredColumn,
    DeclaredProperty,
    Mismatches,
    SparkType,
    check_bodies,
    column_ddl,
    column_type,
    declared_columns,
    declared_properties,
    unknown_column,
    variant_type,
)
from headgate.message.batch import EncodedMessages
from headgate.message.body_values import BodyValues, reference_body_values

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = [
    "COLUMNS",
    "DeclaredColumn",
    "DeclaredProperty",
    "HEADER_TYPES",
    "INTEGER_RANGES",
    "Mismatches",
    "PROPERTIES_TYPES",
    "SparkType",
    "check_bodies",
    "check_types",
    "column_ddl",
    "column_type",
    "columns_of",
    "declared_columns",
    "declared_properties",
    "fields_of",
    "messages_of",
    "mismatches_in",
    "size_table",
    "variant_type",
]


def columns_of(
    batch: EncodedMessages,
    columns: Iterable[str] = COLUMNS,
    properties: str | Iterable[DeclaredProperty] | None = None,
    *,
    cast: bool = False,
    mismatches: Mismatches | None = None,
) -> dict[str, pa.Array]:
    """The requested columns of the messages, one row per message, in the given order; nothing else is decoded.

    `properties` ("region string, price double") makes `application_properties` a struct of these; otherwise it is a
    VARIANT. Malformed messages and values of other types than a column takes are null (rules: `decode.reference`); with
    `cast` values of declared properties are converted where that is exact (`decode.conversions`), one by one in Python:
    some 15 µs per value of another type. Values that are null all the same are added to `mismatches`. Raises
    ConfigError for an unknown or repeated column, a bad declaration, and for more than 2 GiB in one column.
    """
    asked = tuple(columns)
    for position, column in enumerate(asked):
        if column not in COLUMNS:
            raise unknown_column(column)
        if column in asked[:position]:
            raise ConfigError(f"columns: {column!r} is asked for twice")
    if isinstance(properties, str):
        declared: tuple[DeclaredProperty, ...] | None = declared_properties(properties)
    else:
        declared = None if properties is None else tuple(properties)
    noted = Mismatches() if mismatches is None else mismatches
    return decode_columns(batch, asked, declared, cast=cast, mismatches=noted)


def fields_of(
    batch: EncodedMessages, columns: Iterable[DeclaredColumn], bodies: BodyValues | None = None
) -> dict[str, pa.Array]:
    """One column for each declared field, one row per message; nothing else of the messages is decoded.

    A missing field is null, and so is a value that its column does not take (rules: `decode.reference`, of bodies
    `decode.bodies`). `bodies` are the values in the bodies, by default `reference_body_values`;
    `headgate.evaluate.body_values` finds them a hundred times faster. Cost: 0.1 µs a message for two columns, and that
    of the bodies. Raises ConfigError for more than 2 GiB of text in one column.
    """
    asked = tuple(columns)
    return decode_fields(batch, asked, reference_body_values(batch, asked) if bodies is None else bodies)
