"""The data source for writing to a server, exactly once.

Tasks write files (`server_staging`); the commit on the driver's side decides which of them are the batch, and publishes
them under the name of the query. The server drops publishing ids that it has: a commit that died half way goes on where
it was. A batch appears message by message, not at once; if it is never committed again, a part of it stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headgate.client import Client, ServerAddress
from headgate.errors import ConfigError, PreconditionFailedError
from headgate.spark.counters import record_counters
from headgate.spark.interpreter import keep_imports
from headgate.spark.option_declarations import NO_VALUES_COMPRESSED
from headgate.spark.options import SinkOptions
from headgate.spark.server_staging import (
    Decision,
    MessageFile,
    StagedMessages,
    check_not_published,
    complete,
    decide,
    query_folder,
    read_messages,
    undecided,
)
from headgate.spark.target import StagedRows, warn_without_value
from headgate.spark.values import ValueSource, value_source

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ServerSink:
    """A write to a stream of a server."""

    address: ServerAddress
    values: ValueSource
    message_columns: tuple[str, ...]
    options: SinkOptions

    def stage(self, rows: Iterator[pa.RecordBatch], *, query: str, partition: int) -> StagedRows:
        """Write the messages of one task to a file; on any error it is removed. Raises ConfigError."""
        from headgate.message.arrow import messages_of

        keep_imports()
        without_value = 0
        staged = MessageFile(self.options.staging, query=query, partition=partition)
        try:
            for batch in rows:
                messages = messages_of(batch.select(self.message_columns))
                values = self.values.values(batch, messages)
                missing = int((values.lengths <= 0).sum())
                if missing < len(messages) and self.options.is_compressed and self.options.filter_source is None:
                    # Before the batch is decided: afterwards it could be neither published nor given up.
                    raise ConfigError(f"headgate sink option compression: {NO_VALUES_COMPRESSED}")
                without_value += missing
                staged.add(messages, values)
            return StagedRows(partition, query, staged.finish(), without_value)
        except BaseException:
            staged.discard()
            raise

    def commit(self, parts: Sequence[StagedRows], *, query: str, batch: int) -> None:
        """Publish the staged messages of the tasks, in the order of the partitions, or continue an earlier decision."""
        ordered = sorted(parts, key=lambda part: part.partition)
        staged = tuple(part.staged for part in ordered if isinstance(part.staged, StagedMessages))
        wanted = Decision(query, batch, self.address.place, self.options.stream, staged)
        decision, is_new = decide(self.options.staging, wanted)
        if decision is not None:
            self._publish(decision, is_new=is_new)
            complete(self.options.staging, decision)
        without_value = sum(part.without_value for part in ordered)
        if self.options.counters is not None:
            written = {"messages_written": wanted.message_count, "messages_without_filter_value": without_value}
            record_counters(self.options.root, self.options.counters, f"write-{query}-{batch}", written)
        if without_value:
            warn_without_value(self.options.staging, self.options.stream, query=query, count=without_value)

    def abort(self, parts: Sequence[StagedRows]) -> None:
        """Remove staged files that are not decided."""
        for query in {part.query for part in parts}:
            staged = [part.staged for part in parts if part.query == query and isinstance(part.staged, StagedMessages)]
            undecided(self.options.staging, query, staged)

    def _publish(self, decision: Decision, *, is_new: bool) -> None:
        if decision.message_count == 0:
            return
        folder = query_folder(self.options.staging, decision.query)
        compression = self.options.compression
        # The server fills them in.
        leaves_values_out = self.options.is_compressed and self.options.filter_source is not None
        with (
            Client.connect(self.address, keep=True) as client,
            client.publisher(decision.stream, name=decision.query, compression=compression) as publisher,
        ):
            if is_new:
                check_not_published(decision, publisher.last_sequence)
            if publisher.last_sequence >= decision.last_id:
                return
            first = decision.first_id
            for part in decision.parts:
                for messages, values in read_messages(folder / part.name):
                    behind = first + len(messages)
                    # Ids below are in the stream already; of a batch that was sent in part the server takes the rest.
                    if behind > publisher.next_publishing_id:
                        ids = np.arange(first, behind, dtype=np.uint64)
                        new = slice(max(0, publisher.next_publishing_id - first), None)
                        given = None if leaves_values_out else values.slice(new.start, len(values))
                        publisher.send_encoded(messages.take(new), given, ids=ids[new])
                    first = behind


def server_sink(options: SinkOptions, message_columns: tuple[str, ...], *, columns: frozenset[str]) -> ServerSink:
    """A write with checked options; a missing stream is created.

    ConfigError if an option contradicts the existing stream, or cannot be sent to the server.
    """
    assert options.server is not None
    values = value_source(option=options.filter_value, declared=options.filter_source, columns=columns)
    with Client.connect(options.server, keep=True) as client:
        _make_stream(client, options)
    return ServerSink(options.server, values, message_columns, options)


def _make_stream(client: Client, options: SinkOptions) -> None:
    if options.filter_source is not None and not client.is_headgate:
        raise ConfigError("headgate sink option filter_source: the server knows no declared filter sources")
    if options.columns is not None and not client.is_headgate:
        raise ConfigError("headgate sink option columns: the server knows no declared columns")
    given = {
        "stream-filter-size-bytes": options.filter_size_bytes,
        "stream-max-segment-size-bytes": options.max_segment_size_bytes,
        "max-length-bytes": options.max_length_bytes,
        "max-age": None if options.max_age_ms is None else f"{max(1, options.max_age_ms // 1000)}s",
        "headgate-filter-source": options.filter_source,
        "headgate-columns": options.columns,
    }
    arguments = {name: value for name, value in given.items() if value is not None}
    if not arguments and client.has_stream(options.stream):
        return
    try:
        client.create_stream(options.stream, arguments)
    except PreconditionFailedError as error:
        raise ConfigError(
            f"headgate sink: stream {options.stream!r} cannot be made with {arguments}, or is there already with other "
            f"arguments: {error}"
        ) from error
