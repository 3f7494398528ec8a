"""CloudEvents SQL: the dialect, and its values, casts, functions and errors.

CESQL                         the dialect
ValueType, cast, type_of      the three types, and how a value of one becomes one of another
compare, arithmetic, signed   operators on values
applied, Failure, ErrorKind   functions by name; the error that an operator or function ends with
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.language.cesql.dialect import CESQL
    from headgate.language.cesql.functions import FUNCTIONS, applied, result_type
    from headgate.language.cesql.values import (
        INTEGER_MAX,
        INTEGER_MIN,
        ErrorKind,
        Failure,
        ValueType,
        arithmetic,
        cast,
        compare,
        signed,
        type_of,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
