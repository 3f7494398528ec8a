"""Column files: declared columns of the messages of sealed segments, one Parquet file each; derived, never the truth.

    ColumnDeclaration, declaration_of          which columns a stream has; declare_columns, complete_declaration,
                                               extended, drop_columns
    column_rows, column_schema                 the rows of some messages, as in a file
    ColumnFile, RowGroup, column_files         the files that can be believed; ColumnFileWarning for the others
    GroupReader                                reads row groups of a file, in one thread
    COLUMN_FILES                               the kind: builds, sweeps and drops the files (`headgate.derived.kind`)
    column_filter, ColumnFilter                what of a filter the columns decide exactly; ColumnNode are its parts
    ColumnAnswers, SegmentColumns              what files say of messages, a source of `headgate.scan.answers`
    decide_rows, group_outcome                 which rows it may be true for, and which for certain; by statistics
    infer_columns, ddl_of                      which columns a stream could have, as they are declared

Hidden: which rows hold all that a filter would see of the message (`exactness`), and how files are checked.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.derived.columns.declaration import (
        ColumnDeclaration,
        ColumnOfFile,
        Keep,
        complete_declaration,
        ddl_of,
        declaration_of,
        declare_columns,
        drop_columns,
        extended,
    )
    from headgate.derived.columns.evaluation import decide_rows, group_outcome
    from headgate.derived.columns.files import (
        ColumnFile,
        ColumnFileWarning,
        GroupReader,
        RowGroup,
        column_files,
        open_column_file,
    )
    from headgate.derived.columns.filter import (
        ColumnAnd,
        ColumnComparison,
        ColumnFilter,
        ColumnMembership,
        ColumnNode,
        ColumnNot,
        ColumnNull,
        ColumnOr,
        ColumnValue,
        FromBytes,
        column_filter,
    )
    from headgate.derived.columns.inference import InferredColumn, infer_columns
    from headgate.derived.columns.kind import COLUMN_FILES
    from headgate.derived.columns.rows import FIELD_IDS, column_rows, column_schema
    from headgate.derived.columns.source import ColumnAnswers, SegmentColumns
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
