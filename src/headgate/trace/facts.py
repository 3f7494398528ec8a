"""What only a server knows: the consumers that are connected, their filters in force, and how far they are."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.evaluate import Filter


@dataclass(frozen=True, slots=True)
class ConnectedConsumer:
    """One consumer of a stream, receiver of a subscription, or reader for a consumer group of RocketMQ's clients.

    `name` is the name of its stored offset, of its subscription or of its group; `tag` the one that its client gave it.
    It reads from `begun_at` on, and `next_offset` next; None for a receiver.
    """

    stream: str
    name: str
    tag: str = ""
    connection: str = ""
    user: str = ""
    protocol: str = ""
    filter: Filter | None = None
    filter_values: tuple[bytes, ...] = ()
    match_unfiltered: bool = False
    begun_at: int | None = None
    next_offset: int | None = None
    credit: int = 0

    @property
    def place(self) -> str:
        """Who it is, for people: user and connection."""
        return f"user {self.user!r}, {self.protocol} from {self.connection}" if self.connection else self.protocol


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server knows beside its files: `consumers` and `receivers` by stream, and `readers` of consumer groups.

    `is_known` is False where no server was asked.
    """

    is_known: bool = False
    consumers: tuple[ConnectedConsumer, ...] = ()
    receivers: tuple[ConnectedConsumer, ...] = ()
    readers: tuple[ConnectedConsumer, ...] = ()
    offsets: tuple[tuple[str, str, int], ...] = ()
    """Stored offsets that are not in the files yet: stream, name, offset."""


NO_FACTS = Facts()
