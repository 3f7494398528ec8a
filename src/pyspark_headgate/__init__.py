"""Makes `USING headgate` and `format("headgate")` known to every Spark session that can import this package.

Hides nothing: Spark looks for installed modules called `pyspark_…` that have a `DefaultSource`, imports them all in a
process of its own, and registers what it finds. That process runs under `PYSPARK_PYTHON`, by default `python3` of the
PATH: where that is a Python without this package, Spark says `DATA_SOURCE_NOT_FOUND`, and nothing here runs.

This module imports nothing heavy before it is used. A session that `headgate.spark.register` was called with has more:
filters that Spark pushes down, and `headgate_match`.
"""
# ruff: noqa: N802 - Spark gives the methods their names

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Streams as a source and sink; the same as `headgate.spark.source.HeadgateSource`, imported when it is used."""

    @classmethod
    def name(cls) -> str:
        """`headgate`."""
        return "headgate"

    def _source(self) -> DataSource:
        from headgate.spark import HeadgateSource

        return HeadgateSource(self.options)

    def schema(self) -> StructType | str:
        """The asked columns."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read."""
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write."""
        return self._source().streamWriter(schema, overwrite)
