"""The streams that a name means: one stream, or the queues of a topic of RocketMQ's clients."""

from __future__ import annotations

from pathlib import Path

from headgate.broker import Exchanges
from headgate.errors import StreamNotFoundError
from headgate.log import Stream, private_folder, resolve_stream, storage_root, stream_folder
from headgate.topic import SubscriptionName


def streams_of(name: str, root: str | Path) -> list[Stream]:
    """The stream of a name under a root, or in the folder `name`; of a super stream its partitions, in order.

    `orders/Subscriptions/red` means the stream of `orders`. Raises StreamNotFoundError with similar names, LogError.
    """
    try:
        return [resolve_stream(name, root)]
    except StreamNotFoundError:
        partitions = _partitions(name, root)
        if partitions:
            return partitions
        parsed = SubscriptionName.parse(name)
        if parsed is not None:
            return [resolve_stream(parsed.topic, root)]
        raise


def _partitions(name: str, root: str | Path) -> list[Stream]:
    if storage_root(root) is not None:
        return []
    exchanges = Exchanges(private_folder(Path(root)) / "exchanges.json")
    names = exchanges.partitions(name) if exchanges.is_super_stream(name) else []
    return [Stream.open(stream_folder(root, each)) for each in names]
