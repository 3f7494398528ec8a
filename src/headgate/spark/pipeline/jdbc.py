"""Batches of a streaming query into a table of a database, each exactly once.

    <table>                      the user's; must be there
    headgate_batches             query, batch: the last batch in the table; staging: the run that may write the next
    headgate_staging_<token>     the rows of the batch at hand, with the columns of the table and `headgate_row`

1. A run takes the query over: one transaction puts the name of a new staging table of its own into `headgate_batches`
   and drops that of the run before. What a run that was believed dead still does is without effect from then on.
2. Spark's own JDBC writer fills the staging table, from as many tasks as it likes. A task that is repeated after
   it had committed meets the unique index on `headgate_row` and fails, rather than writing rows twice.
3. One transaction copies the rows into the table, empties the staging table and raises the batch number, if the
   name in `headgate_batches` is still that of this run.

A batch up to the number that is recorded is skipped. With `keys`, a row replaces the one in the table with the same
keys (of several in a batch the last stays); the table needs a primary key or a unique index over them, and a
database with `INSERT … ON CONFLICT`, such as PostgreSQL and SQLite.

The driver's statements go over a connection that Spark's dialect for the URL opens in this process's JVM, with the
options of the tasks; so this needs a session in this process, and is refused over Spark Connect.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import monotonically_increasing_id

from headgate.errors import SinkError
from headgate.log import CommitStep, reached
from headgate.spark.pipeline.sinks import JDBC, TAKEN_OVER

BATCHES = "headgate_batches"
_STAGING = "headgate_staging_"
_ROW = "headgate_row"
_FROM_DRIVER = -1
"""The partition number for which Spark's dialects connect from the driver."""


@dataclass(slots=True)
class JdbcTable:
    """The table that the batches of one query go to, for one run.

    `query_id` gives the id of the query's checkpoint; it is called when the first batch arrives. That batch fences off
    earlier runs.
    """

    spark: SparkSession
    options: Mapping[str, str]
    keys: Sequence[str]
    query_id: Callable[[], str]
    _staging: str | None = field(default=None, init=False)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Put a batch into the table unless the table has it already; for `foreachBatch`.

        Raises SinkError if the table lacks columns of the frame, if another run has taken over, and for errors of the
        database.
        """
        with _database_errors():
            if self._staging is None:
                self._staging = self._take_over(frame.columns)
            if self._recorded(self._staging) >= batch:
                return
            options = {name: value for name, value in self.options.items() if name.lower() != "dbtable"}
            rows = frame.withColumn(_ROW, monotonically_increasing_id())
            rows.write.format(JDBC).options(**options, dbtable=self._staging).mode("append").save()
            reached(CommitStep.STAGED)
            self._commit(frame.columns, batch, self._staging)
            reached(CommitStep.COMPLETED)

    def close(self) -> None:
        """Drop the staging table: the run has come to its end."""
        if self._staging is not None:
            with _database_errors(), self._transaction() as database:
                database.execute(f"DROP TABLE IF EXISTS {self._staging}")
            self._staging = None

    @property
    def _table(self) -> str:
        return next(value for name, value in self.options.items() if name.lower() == "dbtable")

    def _take_over(self, columns: Sequence[str]) -> str:
        staging = _STAGING + secrets.token_hex(8)
        query = self.query_id()
        self._make_batches()
        with self._transaction() as database:
            names = ", ".join(database.columns_of(self._table, columns).values())
            if not database.execute(f"UPDATE {BATCHES} SET staging = staging WHERE query = ?", query):
                database.execute(f"INSERT INTO {BATCHES} (query, batch, staging) VALUES (?, -1, '')", query)
            before = database.value(f"SELECT staging FROM {BATCHES} WHERE query = ?", query)
            database.execute(f"UPDATE {BATCHES} SET staging = ? WHERE query = ?", staging, query)
            if before:
                database.execute(f"DROP TABLE IF EXISTS {before}")
            select = f"SELECT {names}, CAST(0 AS BIGINT) AS {_ROW} FROM {self._table} WHERE 1 = 0"
            database.execute(f"CREATE TABLE {staging} AS {select}")
            database.execute(f"CREATE UNIQUE INDEX {staging}_row ON {staging} ({_ROW})")
        return staging

    def _make_batches(self) -> None:
        """Make the table of batches; if two sinks do it at once, the table of the other one is used."""
        columns = "query VARCHAR(64) PRIMARY KEY, batch BIGINT NOT NULL, staging VARCHAR(64) NOT NULL"
        with self._transaction() as database:
            try:
                database.execute(f"CREATE TABLE IF NOT EXISTS {BATCHES} ({columns})")
            except Py4JJavaError:
                database.connection.rollback()
                database.value(f"SELECT count(*) FROM {BATCHES}")

    def _recorded(self, staging: str) -> int:
        query = f"SELECT batch FROM {BATCHES} WHERE query = ? AND staging = ?"
        with self._transaction() as database:
            batch = database.value(query, self.query_id(), staging)
        if batch is None:
            raise SinkError(TAKEN_OVER)
        return int(batch)

    def _commit(self, columns: Sequence[str], batch: int, staging: str) -> None:
        with self._transaction() as database:
            raised = f"UPDATE {BATCHES} SET batch = ? WHERE query = ? AND staging = ? AND batch < ?"
            if not database.execute(raised, batch, self.query_id(), staging, batch):
                raise SinkError(TAKEN_OVER)
            names = database.columns_of(self._table, columns)
            keys = database.columns_of(self._table, self.keys)
            database.execute(_insertion(self._table, staging, list(names.values()), list(keys.values())))
            database.execute(f"DELETE FROM {staging}")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[_Database]:
        """A connection whose statements are committed together at the end of the block, or not at all."""
        jvm: Any = self.spark._jvm
        options = jvm.java.util.HashMap()
        for name, value in self.options.items():
            options.put(name, value)
        scala_options = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options)
        parsed = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(scala_options)
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(parsed.url())
        connection = dialect.createConnectionFactory(parsed).apply(_FROM_DRIVER)
        try:
            connection.setAutoCommit(False)
            yield _Database(connection, dialect)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()


def _insertion(table: str, staging: str, names: Sequence[str], keys: Sequence[str]) -> str:
    """The statement that copies the staged rows."""
    listed = ", ".join(names)
    copied = f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {staging}"
    if not keys:
        return f"{copied} ORDER BY {_ROW}"
    target = ", ".join(keys)
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in keys)
    last = f"{_ROW} IN (SELECT max({_ROW}) FROM {staging} GROUP BY {target})"
    return f"{copied} WHERE {last} ON CONFLICT ({target}) DO {f'UPDATE SET {changed}' if changed else 'NOTHING'}"


@dataclass(frozen=True, slots=True)
class _Database:
    """Statements over a `java.sql.Connection`, in the dialect that Spark has for it."""

    connection: Any
    dialect: Any

    def execute(self, sql: str, *values: str | int) -> int:
        """Run a statement; gives the number of rows that it changed."""
        with contextlib.closing(self._prepared(sql, values)) as statement:
            return int(statement.executeUpdate())

    def value(self, sql: str, *values: str | int) -> Any:
        """The first column of the first row; None without rows."""
        with contextlib.closing(self._prepared(sql, values)) as statement:
            rows = statement.executeQuery()
            return rows.getString(1) if rows.next() else None

    def columns_of(self, table: str, names: Sequence[str]) -> dict[str, str]:
        """The columns of a table by the names that a frame has for them, quoted; without case, if need be."""
        with contextlib.closing(self._prepared(f"SELECT * FROM {table} WHERE 1 = 0", ())) as statement:
            described = statement.executeQuery().getMetaData()
            there = [described.getColumnName(place + 1) for place in range(described.getColumnCount())]
        without_case = {name.lower(): name for name in there}
        found = {name: name if name in there else without_case.get(name.lower()) for name in names}
        for name, column in found.items():
            if column is None:
                raise SinkError(f"table {table} has no column {name!r}; it has {', '.join(there)}")
        return {name: self.dialect.quoteIdentifier(column) for name, column in found.items()}

    def _prepared(self, sql: str, values: Sequence[str | int]) -> Any:
        statement = self.connection.prepareStatement(sql)
        for place, value in enumerate(values, start=1):
            if isinstance(value, int):
                statement.setLong(place, value)
            else:
                statement.setString(place, value)
        return statement


@contextlib.contextmanager
def _database_errors() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise SinkError(f"the database says: {_deepest(error.java_exception)}") from error


def _deepest(error: Any) -> str:
    while error.getCause() is not None:
        error = error.getCause()
    return str(error.getMessage() or error.toString()).strip()
