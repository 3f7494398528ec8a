"""Making and deleting super streams: an exchange and its partitions, all or nothing. Callers check the rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.broker.catalogue import Declared, check_name
from headgate.broker.stream import BrokerStream
from headgate.broker.streams import Streams
from headgate.errors import HeadgateError, ResourceExistsError

Partition = tuple[str, str]
"""The name of a stream, and its binding key."""


def numbered_partitions(name: str, first: int, stop: int) -> list[Partition]:
    """The partitions of a super stream with these numbers, named and bound as RabbitMQ's tools do it."""
    return [(f"{name}-{number}", str(number)) for number in range(first, stop)]


def create_super_stream(
    streams: Streams,
    name: str,
    partitions: Sequence[Partition],
    arguments: Mapping[str, object],
    *,
    takes_empty: bool = False,
) -> None:
    """Make the partitions, each with the arguments, and the super stream of them, in order.

    `takes_empty`: an existing empty stream with the same arguments becomes a partition; a process that died between the
    partitions and the super stream leaves such streams. Raises ResourceExistsError if the super stream or a partition
    exists, PreconditionFailedError for bad names, UnsuitableArgumentError, LogError; then nothing was made.
    """
    check_name(name)
    if name in streams.exchanges:
        raise ResourceExistsError("there is an exchange or a super stream of that name", subject=name)
    with _MadeStreams(streams, partitions, arguments, takes_empty):
        streams.exchanges.create_super_stream(name, partitions)


def add_partitions(
    streams: Streams, name: str, partitions: Sequence[Partition], arguments: Mapping[str, object]
) -> None:
    """Add partitions to a super stream, behind its last one; existing empty streams may become partitions.

    Raises ResourceNotFoundError, and as `create_super_stream`.
    """
    with _MadeStreams(streams, partitions, arguments, takes_empty=True):
        streams.exchanges.add_partitions(name, partitions)


def delete_super_stream(streams: Streams, name: str) -> None:
    """Delete a super stream and its partitions.

    Raises ResourceNotFoundError, ReservedNameError for a plain exchange of the broker, LogError.
    """
    # The exchange last: if a partition cannot be deleted, the request can be repeated.
    for partition in streams.exchanges.partitions(name):
        stream = streams.catalogue.find(partition)
        if stream is not None:
            streams.delete(stream)
    streams.exchanges.delete(name, if_unused=False)


class _MadeStreams:
    """Makes streams, and deletes them again if the body of the context fails."""

    def __init__(
        self,
        streams: Streams,
        partitions: Sequence[Partition],
        arguments: Mapping[str, object],
        takes_empty: bool,
    ) -> None:
        self._streams = streams
        self._takes_empty = takes_empty
        self._names = [partition for partition, _ in partitions]
        self._arguments = arguments
        self._made: list[str] = []

    def __enter__(self) -> None:
        streams = self._streams
        for name in self._names:
            check_name(name)
            found = streams.catalogue.find(name)
            if found is not None and not (self._takes_empty and self._is_left(found)):
                raise ResourceExistsError("there is a stream of that name", subject=name)
        try:
            for name in self._names:
                if streams.declare(name, self._arguments) is Declared.CREATED:
                    self._made.append(name)
        except HeadgateError:
            self._take_back()
            raise

    def _is_left(self, stream: BrokerStream) -> bool:
        return not stream.next_offset and not self._streams.exchanges.bindings(queue=stream.name)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, HeadgateError):
            self._take_back()

    def _take_back(self) -> None:
        for name in self._made:
            self._streams.delete(self._streams.catalogue.get(name))
