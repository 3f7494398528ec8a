"""Batches of a streaming query into a Delta table, each exactly once, through delta-rs (package `deltalake`).

    <table>/_delta_log/                                 the commits: which files are in the table
    <table>/headgate/<owner>/<batch>-<token>/*.parquet  the files of one attempt at a batch; Delta takes any path
    <table>/_headgate/<owner>/<batch>-<token>           the attempt is not over: its files may be in no commit

The owner is the id of the query's checkpoint; for tables that are replaced, the name of pipeline and sink.

1. Tasks write the rows into files of the attempt's folder (`delta_files`); the driver gets what a commit says of them.
2. One commit adds the files, and raises two application transactions (protocol, "Transaction Identifiers"):
   `<owner>` to the batch and `<owner>/run` to the run. Two commits that raise the same one never both succeed, so a
   batch is in the table once, by whichever run. A batch up to the recorded one is skipped.
3. A run that finds unfinished attempts first raises `<owner>/run`, in a commit without files. From then on what
   the runs before still do comes to nothing, so the files of attempts behind the recorded batch can be removed. Those
   of a batch that is recorded stay: a commit may name them.

The id in `<owner>` and the batch number are what Delta's own connector for Spark records, too.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headgate import clock
from headgate.errors import SinkError
from headgate.log import CommitStep, reached
from headgate.spark.pipeline.delta_files import DESCRIBED, AddedFile, FilePlan, described, write_files
from headgate.spark.pipeline.delta_schema import (
    check_fit,
    check_partitioning,
    check_table,
    stored_schema,
    table_schema,
)
from headgate.spark.pipeline.sinks import TAKEN_OVER

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

_FILES = "headgate"
_ATTEMPTS = "_headgate"
_ATTEMPT = re.compile("[0-9]+-[0-9a-f]{16}")
_TRIES = 5
"""How often a commit is tried against others that change the table itself; appends of others do not count."""

SaveMode = Literal["append", "overwrite"]


def query_id(checkpoint: Path) -> str:
    """The id of the query that has this checkpoint, from when it has begun."""
    return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


@dataclass(slots=True)
class DeltaSink:
    """The Delta table of one sink, for one run; `path` is a folder that driver and executors share.

    `owner` gives the name of its transactions and folders; it is called when rows arrive. Without `partition_by`, an
    existing table keeps its own.
    """

    path: Path
    owner: Callable[[], str]
    partition_by: Sequence[str] | None = None
    _run: int = field(default=0, init=False)
    _opened: DeltaTable | None = field(default=None, init=False)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Append a batch unless the table has it already; for `foreachBatch`. Creates a missing table.

        Raises SinkError for rows that do not fit the table, if another run has taken over, and for errors of delta-rs.
        """
        with _delta_errors(self.path):
            rows = stored_schema(frame.schema)
            if self._recorded(self._table(rows)) < batch:
                self._bring(frame, rows, batch, "append")

    def replace(self, frame: DataFrame) -> int:
        """Replace all rows of the table, in one commit; gives the number of new rows. Errors as in `write`."""
        with _delta_errors(self.path):
            rows = stored_schema(frame.schema)
            return self._bring(frame, rows, self._recorded(self._table(rows)) + 1, "overwrite")

    def _table(self, rows: StructType) -> DeltaTable:
        """The table as it is now; the first time, it is created if it is missing, and this run takes it over."""
        from deltalake import DeltaTable

        if self._opened is not None:
            self._opened.update_incremental()
            return self._opened
        if not DeltaTable.is_deltatable(str(self.path)):
            self._create(rows)
        table = DeltaTable(self.path)
        self._run = self._take_over(table)
        self._opened = table
        return table

    def _create(self, rows: StructType) -> None:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        partition_by = list(self.partition_by or ())
        check_partitioning(rows, partition_by)
        try:
            DeltaTable.create(self.path, Schema.from_json(rows.json()), partition_by=partition_by)
        except DeltaError:
            # Another sink may have made it in this moment; then the rows are compared with that one.
            if not DeltaTable.is_deltatable(str(self.path)):
                raise

    def _take_over(self, table: DeltaTable) -> int:
        """End the attempts of earlier runs; gives the number of this run."""
        from deltalake.exceptions import CommitFailedError

        for _ in range(_TRIES):
            run = self._recorded_run(table)
            attempts = self._attempts
            names = [each.name for each in attempts.iterdir()] if attempts.is_dir() else []
            left = [name for name in names if _ATTEMPT.fullmatch(name)]
            if not left:
                return run
            check_table(self.path, table)
            try:
                _commit_to(table, [], "append", {self._run_id: run + 1})
            except CommitFailedError:
                table.update_incremental()
                continue
            table.update_incremental()
            self._end(left, self._recorded(table))
            return run + 1
        raise SinkError(TAKEN_OVER)

    def _end(self, attempts: Iterable[str], recorded: int) -> None:
        for name in attempts:
            if int(name.partition("-")[0]) > recorded:
                self._discard(name)
            else:
                (self._attempts / name).unlink(missing_ok=True)

    def _bring(self, frame: DataFrame, rows: StructType, batch: int, mode: SaveMode) -> int:
        """Write the files of a batch and commit them; gives the number of rows."""
        partition_by, required = self._checked(self._table(rows), rows)
        name = f"{batch}-{secrets.token_hex(8)}"
        self._attempts.mkdir(parents=True, exist_ok=True)
        (self._attempts / name).touch()
        try:
            files = self._write_files(frame, rows, name, partition_by, required)
        except BaseException:
            self._discard(name)
            raise
        reached(CommitStep.STAGED)
        named = bool(files or mode == "overwrite") and self._commit(files, rows, batch, mode, partition_by)
        reached(CommitStep.FINISHED)
        if named and files:
            (self._attempts / name).unlink(missing_ok=True)
        else:
            self._discard(name)
        reached(CommitStep.COMPLETED)
        return sum(file.rows for file in files)

    def _checked(self, table: DeltaTable, rows: StructType) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns that the table is partitioned by, and the columns that must not be null."""
        check_table(self.path, table)
        partition_by = tuple(table.metadata().partition_columns)
        if self.partition_by is not None and tuple(self.partition_by) != partition_by:
            raise SinkError(
                f"partition_by is {list(self.partition_by)}; table {self.path} is partitioned by {list(partition_by)}"
            )
        required = check_fit(self.path, rows, table_schema(table))
        check_partitioning(rows, partition_by)
        return partition_by, required

    def _write_files(
        self, frame: DataFrame, rows: StructType, name: str, partition_by: tuple[str, ...], required: tuple[str, ...]
    ) -> list[AddedFile]:
        folder = f"{_FILES}/{self.owner()}/{name}"
        (self.path / folder).mkdir(parents=True)
        plan = FilePlan(self.path, folder, to_arrow_schema(rows, timezone="UTC"), partition_by, required)
        # By number, since `mapInArrow` finds no column that has a dot in its name.
        numbers = {column: str(number) for number, column in enumerate(rows.names)}
        ordered = frame.toDF(*numbers.values())
        if partition_by:
            ordered = ordered.sortWithinPartitions(*(numbers[column] for column in partition_by))
        written = ordered.mapInArrow(partial(write_files, plan), DESCRIBED)
        files = described([row.added for row in written.collect()])
        for file in files:
            place = self.path / file.path
            if not place.is_file() or place.stat().st_size != file.size_bytes:
                raise SinkError(
                    f"{place} was written by a task, but is not here as it was written; "
                    "a Delta table has to be in a folder that all executors and this process share"
                )
        return files

    def _commit(
        self, files: Sequence[AddedFile], rows: StructType, batch: int, mode: SaveMode, partition_by: tuple[str, ...]
    ) -> bool:
        """Commit files unless the batch is recorded; gives whether a commit may refer to them.

        The result of a failed commit is uncertain, so nothing is removed here: the next run does it, when that commit
        can no longer succeed.
        """
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        now_ms = clock.now_ms()
        actions = [
            AddAction(file.path, file.size_bytes, file.partition_values, now_ms, True, file.statistics)
            for file in files
        ]
        failed: CommitFailedError | None = None
        for _ in range(_TRIES):
            table = self._table(rows)
            recorded = self._recorded(table)
            if self._recorded_run(table) != self._run or (mode == "overwrite" and recorded >= batch):
                raise SinkError(TAKEN_OVER)
            if recorded >= batch:
                return failed is not None
            if self._checked(table, rows)[0] != partition_by:
                raise SinkError(f"table {self.path} was partitioned anew while rows were written")
            try:
                _commit_to(table, actions, mode, {self.owner(): batch, self._run_id: self._run})
            except CommitFailedError as error:
                failed = error
            else:
                return True
        raise SinkError(f"table {self.path} is changed by others all the time: {failed}") from failed

    @property
    def _attempts(self) -> Path:
        return self.path / _ATTEMPTS / self.owner()

    @property
    def _run_id(self) -> str:
        return f"{self.owner()}/run"

    def _recorded(self, table: DeltaTable) -> int:
        batch = table.transaction_version(self.owner())
        return -1 if batch is None else batch

    def _recorded_run(self, table: DeltaTable) -> int:
        return table.transaction_version(self._run_id) or 0

    def _discard(self, name: str) -> None:
        """Remove the files of an attempt; where a task still writes some, the next run has to do it."""
        folder = self.path / _FILES / self.owner() / name
        try:
            if folder.exists():
                shutil.rmtree(folder)
        except OSError:
            return
        (self._attempts / name).unlink(missing_ok=True)


def _commit_to(table: DeltaTable, actions: Sequence[AddAction], mode: SaveMode, raised: dict[str, int]) -> None:
    """One commit on the state of the table that was read, which fails if another one raised one of these since.

    The transactions have no time, so that no table forgets them.
    """
    from deltalake.transaction import CommitProperties, Transaction

    transactions = [Transaction(application, version) for application, version in raised.items()]
    table.create_write_transaction(
        list(actions),
        mode,
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=CommitProperties(app_transactions=transactions),
    )


@contextlib.contextmanager
def _delta_errors(path: Path) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as error:
        raise SinkError(f"table {path}: delta-rs says: {error}") from error
