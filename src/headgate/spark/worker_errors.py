"""Errors that Headgate raises in a Python worker: Spark shows their sentence, without the worker's traceback.

Before an error of a worker Spark writes its traceback, dozens of lines about files of Headgate, unless
`SPARK_HIDE_TRACEBACK` is set in the worker's process. It is set here when a `HeadgateError` or `OSError` leaves
Headgate. That error ends the worker, so all other errors, and errors of other code, keep their tracebacks.
"""

# ruff: noqa: N802 - Spark gives the methods their names

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from headgate.errors import HeadgateError

_HIDING = "SPARK_HIDE_TRACEBACK"
_WORKERS = "PYTHON_WORKER_FACTORY_"
"""Begins the names of variables that Spark sets for its workers, and for no driver."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def told_briefly(kind: type[T]) -> type[T]:
    """A class decorator that applies `briefly` to the class's own methods, except names that begin with `_`."""
    for name, value in vars(kind).copy().items():
        if isinstance(value, types.FunctionType) and not name.startswith("_"):
            setattr(kind, name, briefly(value))
    return kind


def briefly(function: F) -> F:
    """A decorator: errors of Headgate that leave the function, or its generator, are shown without a traceback."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generating(*arguments: Any, **named: Any) -> Iterator[Any]:
            with _hiding():
                yield from function(*arguments, **named)

        return generating  # type: ignore[return-value]

    @functools.wraps(function)
    def calling(*arguments: Any, **named: Any) -> Any:
        with _hiding():
            return function(*arguments, **named)

    return calling  # type: ignore[return-value]


@contextmanager
def _hiding() -> Iterator[None]:
    try:
        yield
    except (HeadgateError, OSError):
        if any(name.startswith(_WORKERS) for name in os.environ):
            os.environ[_HIDING] = "1"
        raise


@told_briefly
class _RefusedStream(DataSourceStreamReader):
    """Stands for a streaming reader that cannot be made: raises its error at the first request for an offset."""

    def __init__(self, error: HeadgateError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        """Raises the error."""
        raise self._error

    def latestOffset(self, start: dict[Any, Any], limit: ReadLimit) -> dict[Any, Any]:
        """Raises the error: a query that continues does not ask where it begins."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Raises the error."""
        raise self._error


def stream_reader(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """A streaming reader, or one that says why there is none.

    An error while a reader is made would be lost: Spark 4.3's worker then stops the reader that it does not have.
    """
    try:
        return make()
    except HeadgateError as error:
        return _RefusedStream(error)
