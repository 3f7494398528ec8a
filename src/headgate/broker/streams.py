"""The streams of a broker, as its users make, change and delete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headgate.broker.arguments import changed_arguments
from headgate.broker.catalogue import Catalogue, Declared
from headgate.broker.deleted_streams import DeletedStreams
from headgate.broker.environment import Environment
from headgate.broker.exchanges import Exchanges
from headgate.broker.stream import BrokerStream
from headgate.broker.stream_writes import StreamWrites
from headgate.errors import ConfigError, PreconditionFailedError


@dataclass(slots=True)
class BrokerCounters:
    """Commands since the broker began."""

    streams_created: int = 0
    streams_deleted: int = 0
    publishers_opened: int = 0
    publishers_closed: int = 0
    consumers_opened: int = 0
    consumers_closed: int = 0
    offsets_stored: int = 0


class Streams:
    """The streams of one broker; in its thread only.

    `end` ends every use of a stream, and gives a call that tells sessions about it.
    """

    def __init__(
        self,
        environment: Environment,
        catalogue: Catalogue,
        exchanges: Exchanges,
        writes: StreamWrites,
        counters: BrokerCounters,
        end: Callable[[BrokerStream], Callable[[], None]],
    ) -> None:
        self.catalogue = catalogue
        self._environment = environment
        self.exchanges = exchanges
        self._writes = writes
        self._counters = counters
        self._end = end
        self.deleted = DeletedStreams(environment)

    def declare(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        numbers_as_text: bool = True,
        body_schema: str | None = None,
    ) -> Declared:
        """Make a stream, or find it with equal arguments; as `Catalogue.declare`."""
        declared = self.catalogue.declare(
            name,
            arguments,
            now_ms=self._environment.now_ms(),
            numbers_as_text=numbers_as_text,
            body_schema=body_schema,
        )
        if declared is Declared.CREATED:
            self._counters.streams_created += 1
        return declared

    def delete(self, stream: BrokerStream) -> int:
        """Delete a stream: its publishers and consumers end, then sessions are told. Gives its number of messages.

        Messages queued before are written and confirmed, as their publishers get no other answer. Sessions are told at
        the next `write_queued`, so that the client that deleted the stream gets its answer first. Raises
        StreamLockedError where another process writes the stream, StreamReadOnlyError for a foreign one, LogError.
        """
        self._writes.write_all(stream)
        messages = stream.next_offset - stream.first_offset
        with self.catalogue.taken_for_deletion(stream):
            tell = self._end(stream)
            left = self.catalogue.delete(stream)
        if left is not None:
            self.deleted.remove(left)
        self.exchanges.forget_queue(stream.name)
        self._counters.streams_deleted += 1
        tell()
        return messages

    def delete_damaged(self, name: str) -> None:
        """Delete a stream that cannot be opened, and so has no publishers and consumers; errors of `delete`."""
        left = self.catalogue.delete_damaged(name)
        if left is not None:
            self.deleted.remove(left)
        self.exchanges.forget_queue(name)
        self._counters.streams_deleted += 1

    def change(self, name: str, changes: Mapping[str, object]) -> None:
        """Change limits of a stream, by argument names without `x-`; None removes a limit.

        The change is in force and on disk at the return; messages beyond the limits are deleted. Raises
        ResourceNotFoundError, PreconditionFailedError, StreamLockedError where another process writes the stream,
        LogError.
        """
        stream = self.catalogue.get(name)
        self._writes.finish(stream)
        self._environment.watch(stream)
        writer, now_ms = stream.open_writer(now_ms=self._environment.now_ms()), self._environment.now_ms()
        declaration, arguments = changed_arguments(writer.settings, changes)
        known = None if writer.settings.declaration is None else declaration
        try:
            writer.change_arguments(arguments, known, now_ms=now_ms)
        except ConfigError as error:
            raise PreconditionFailedError(str(error), subject=name) from error
        stream.stream = replace(stream.stream, settings=writer.settings)
        stream.refresh()
