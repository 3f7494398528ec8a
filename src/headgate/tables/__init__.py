"""Streams as tables of Arrow, without Spark.

    read, StreamTable                        a range of a stream, filtered, with the requested columns; `headgate.read`
    OffsetLike, offset_specification         where a read begins or ends: an offset, a time, a word
    table_range                              the offsets between two such ends, including kept column files
    WholeColumnFile                          a column file among the parts of a table, for other readers of Parquet
    rows_of_files                            the same in polars
    write_table                              its rows as a file: Parquet, Arrow, CSV, JSON lines
    open_rows, json_rows, RowFile            the rows of a file, as messages by a ColumnMapping
    read_served                              messages of a range of a stream on a server
    default_root                             the folder of streams by name: ROOT_VARIABLE, else DEFAULT_ROOT
    place_columns                            offset, timestamp and filter value of messages as columns
    field_values, ANNOTATION                 the filter values of messages, and the field they come from by default

Hidden: which chunks are read (`headgate.scan`), how threads share them, how messages become columns
(`headgate.message.arrow`), and how a server is read. Importing this package imports nothing; its names import pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.tables.export import write_table
    from headgate.tables.folder import WholeColumnFile, table_range
    from headgate.tables.mapping import ColumnMapping, MappedRows
    from headgate.tables.polars_files import rows_of_files
    from headgate.tables.row_files import RowFile, json_rows, open_rows
    from headgate.tables.rows import place_columns
    from headgate.tables.server_messages import read_served
    from headgate.tables.stream_table import (
        DEFAULT_ROOT,
        ROOT_VARIABLE,
        OffsetLike,
        StreamTable,
        default_root,
        offset_specification,
        read,
    )
    from headgate.tables.values import ANNOTATION, field_values
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
