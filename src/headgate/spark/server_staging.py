"""Rows that wait to be published to a server, and the decision about which of them are a batch.

    <staging>/.headgate/publishing/<query>/part-<partition>-<random>.arrow   what one attempt of a task wrote
    <staging>/.headgate/publishing/<query>/<batch>.json                      a batch that is being published
    <staging>/.headgate/publishing/<query>/completed.json                    the last batch that is in the stream
    <staging>/.headgate/publishing/.lock                                     held while batches are decided

A task that runs twice may bring its rows in another order, so tasks publish nothing: they write files. The decision,
made once under the lock, says which files are the batch and in which order; from then on message n of batch b has
publishing id b · 2^32 + 1 + n, so after any crash the next commit publishes the same messages under the same ids.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from headgate.errors import ConfigError, LogError, SinkError
from headgate.log import PRIVATE_FOLDER, BatchManifest, FilterValues, ManifestFolder, storage_error
from headgate.log.format import SLACK_BYTES
from headgate.message import EncodedMessages
from headgate.message.lookup import MessageCollector
from headgate.spark.values import column_values

FORMAT = 1
MESSAGE_BITS = 32
"""Publishing ids are batch · 2^32 + 1 + number of the message in the batch."""

MAX_BATCH = (1 << (63 - MESSAGE_BITS)) - 1

_SCHEMA = pa.schema([("message", pa.binary()), ("filter_value", pa.binary())])
_BATCH_BYTES = 64 << 20


class StagedMessages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finished file of messages; small, picklable, and JSON in a decision. `name` is that in the query's folder."""

    name: str
    messages: int
    size_bytes: int


class Decision(BatchManifest, frozen=True, forbid_unknown_fields=True):
    """One batch: its target and its parts."""

    server: str
    stream: str
    parts: tuple[StagedMessages, ...]
    format: int = FORMAT

    @property
    def message_count(self) -> int:
        """Messages of all parts."""
        return sum(part.messages for part in self.parts)

    @property
    def first_id(self) -> int:
        """The publishing id of the first message."""
        return (self.batch << MESSAGE_BITS) + 1

    @property
    def last_id(self) -> int:
        """The publishing id of the last message; one below the first if there is none."""
        return self.first_id + self.message_count - 1


class MessageFile:
    """Writes the messages of one task; the file is made with the first of them."""

    def __init__(self, staging: Path, *, query: str, partition: int) -> None:
        self._path = query_folder(staging, query) / f"part-{partition:06d}-{secrets.token_hex(8)}.arrow"
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._messages = 0

    def add(self, messages: EncodedMessages, values: FilterValues) -> None:
        """Add messages and their filter values; errors of the file system are LogErrors."""
        try:
            for rows in _slices(messages):
                self._write(messages.take(rows), values.slice(rows.start, rows.stop))
        except OSError as error:
            raise storage_error(error, self._path) from error

    def _write(self, messages: EncodedMessages, values: FilterValues) -> None:
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pa.ipc.new_stream(str(self._path), _SCHEMA)
        gathered = MessageCollector()
        gathered.add(messages)
        together = gathered.take()
        places = np.append(together.starts, together.starts[-1:] + together.lengths[-1:]).astype(np.int32)
        encoded = pa.Array.from_buffers(
            pa.binary(), len(messages), [None, pa.py_buffer(places), pa.py_buffer(together.data)]
        )
        given = pa.array([values.value(row) or None for row in range(len(messages))], type=pa.binary())
        self._writer.write_batch(pa.RecordBatch.from_arrays([encoded, given], schema=_SCHEMA))
        self._messages += len(messages)

    def finish(self) -> StagedMessages | None:
        """Close the file; None if there was no message."""
        if self._writer is None:
            return None
        try:
            self._writer.close()
            # What a decision names must be there after a power loss.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(error, self._path) from error
        return StagedMessages(self._path.name, self._messages, self._path.stat().st_size)

    def discard(self) -> None:
        """Remove the file; for a task that failed."""
        if self._writer is not None:
            self._writer.close()
        self._path.unlink(missing_ok=True)


def read_messages(path: Path) -> Iterator[tuple[EncodedMessages, FilterValues]]:
    """The messages of a finished file with their filter values, batch by batch; LogError if it cannot be read."""
    try:
        with pa.ipc.open_stream(str(path)) as reader:
            for batch in reader:
                column = batch.column(0)
                _, places_buffer, data_buffer = column.buffers()
                places = np.frombuffer(places_buffer, dtype=np.int32)[: len(column) + 1].astype(np.int64)
                octets = np.frombuffer(data_buffer, dtype=np.uint8)[: int(places[-1])]
                data = np.concatenate([octets, np.zeros(SLACK_BYTES, dtype=np.uint8)])
                yield EncodedMessages(data, places[:-1], np.diff(places)), column_values(batch.column(1))
    except (OSError, pa.ArrowInvalid) as error:
        raise LogError(f"staged messages cannot be read: {error}", path=path) from error


def _slices(messages: EncodedMessages) -> Iterator[slice]:
    """Rows in groups of bounded size."""
    ends = np.cumsum(messages.lengths)
    first = 0
    while first < len(messages):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + _BATCH_BYTES, side="right")))
        yield slice(first, stop)
        first = stop


def query_folder(staging: Path, query: str) -> Path:
    """Where the files of a query lie."""
    return _decisions(staging).query_folder(query)


def _decisions(staging: Path) -> ManifestFolder[Decision]:
    return ManifestFolder(staging / PRIVATE_FOLDER / "publishing", Decision, formats=(FORMAT,))


def decide(staging: Path, wanted: Decision) -> tuple[Decision | None, bool]:
    """The decision about a batch, and whether it was made just now; None when the batch is in the stream already.

    Staged parts that are not in the decision are removed. Raises ConfigError for a batch that cannot be numbered, or
    that an earlier attempt sent elsewhere.
    """
    if not 0 <= wanted.batch <= MAX_BATCH:
        raise ConfigError(f"batch {wanted.batch} of query {wanted.query!r}; expected 0 to {MAX_BATCH}")
    if wanted.message_count >= 1 << MESSAGE_BITS:
        raise ConfigError(
            f"batch {wanted.batch} of query {wanted.query!r} has {wanted.message_count} messages; fewer than "
            f"{1 << MESSAGE_BITS} can be numbered: make smaller batches"
        )
    decisions = _decisions(staging)
    folder = decisions.query_folder(wanted.query)
    with decisions.lock():
        completed = decisions.completed(wanted.query)
        if completed is not None and completed.batch >= wanted.batch:
            _check_same_place(completed, wanted)
            _remove(folder, wanted.parts)
            return None, False
        decided = decisions.find(wanted.query, wanted.batch)
        if decided is None:
            decisions.put(wanted, is_done=False)
            return wanted, True
        _check_same_place(decided, wanted)
        named = {part.name for part in decided.parts}
        _remove(folder, [part for part in wanted.parts if part.name not in named])
        return decided, False


def complete(staging: Path, decision: Decision) -> None:
    """Note that a batch is in the stream, and remove its files and the files of older attempts. Again is harmless."""
    decisions = _decisions(staging)
    folder = decisions.query_folder(decision.query)
    with decisions.lock():
        if folder.is_dir():
            _clean(folder, decision)
            decisions.complete(decision)


def undecided(staging: Path, query: str, parts: Sequence[StagedMessages]) -> None:
    """Remove staged files that no decision names; for a batch that is abandoned."""
    decisions = _decisions(staging)
    folder = decisions.query_folder(query)
    with decisions.lock():
        named = {part.name for decision in decisions.pending(folder) for part in decision.parts}
        _remove(folder, [part for part in parts if part.name not in named])


def check_not_published(decision: Decision, last_sequence: int) -> None:
    """SinkError where the stream has messages of a batch that was decided only now: its first decision is lost."""
    if last_sequence >= decision.first_id:
        raise SinkError(
            f"stream {decision.stream!r} has messages of batch {decision.batch} of query {decision.query!r} already, "
            "but the staging folder knows nothing of it; it has to be the folder of the earlier attempt (option "
            "staging)"
        )


def _clean(folder: Path, decision: Decision) -> None:
    """Remove the batch's files, and older ones of earlier attempts, whose tasks are over."""
    own = [folder / part.name for part in decision.parts]
    times = [path.stat().st_mtime_ns for path in own if path.exists()]
    before = min(times, default=0)
    for path in folder.glob("*.arrow"):
        with contextlib.suppress(FileNotFoundError):
            if path in own or path.stat().st_mtime_ns < before:
                path.unlink()


def _remove(folder: Path, parts: Iterable[StagedMessages]) -> None:
    for part in parts:
        (folder / part.name).unlink(missing_ok=True)


def _check_same_place(decided: Decision, wanted: Decision) -> None:
    if (decided.server, decided.stream) != (wanted.server, wanted.stream):
        raise ConfigError(
            f"batch {wanted.batch} of query {wanted.query!r} was decided for stream {decided.stream!r} at "
            f"{decided.server}; found stream {wanted.stream!r} at {wanted.server}"
        )
