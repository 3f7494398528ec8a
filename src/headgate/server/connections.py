"""The connections that are open, and counts of those that were: what lists and metrics show of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.server.link import Link, Peer


@dataclass(slots=True)
class ConnectionRecord:
    """One connection. The driver fills what it knows; `protocol` and `client` are the handler's to fill."""

    number: int
    peer: Peer
    listener: str = ""
    opened_ms: int = 0
    protocol: str = ""
    """In the protocol's own words with its version, such as `AMQP 1.0`."""
    user: str | None = None
    """None until the client is known."""
    client: dict[str, str] = field(default_factory=dict)
    """What the client says of itself: product, version, connection name."""
    bytes_received: int = 0
    bytes_sent: int = 0

    @property
    def name(self) -> str:
        """How logs and lists call it."""
        host = f"[{self.peer.host}]" if ":" in self.peer.host else self.peer.host
        return f"{host}:{self.peer.port}#{self.number}"


@dataclass(slots=True)
class ConnectionTotals:
    """Counts since the server started."""

    opened: int = 0
    closed: int = 0
    refused: int = 0
    """Beyond the limit of connections."""
    failed: int = 0
    """Ended by an error in the server itself."""
    timed_out: int = 0
    """Not known in time."""
    logins: int = 0
    logins_failed: int = 0
    bytes_received: int = 0
    """Of connections that are closed; `Connections.bytes_received` adds the open ones."""
    bytes_sent: int = 0


class Connections:
    """Records of open connections by their links."""

    def __init__(self) -> None:
        self.totals = ConnectionTotals()
        self._records: dict[Link, ConnectionRecord] = {}
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ConnectionRecord]:
        return iter(tuple(self._records.values()))

    def opened(self, link: Link, *, listener: str, now_ms: int) -> ConnectionRecord:
        """Note a connection that was accepted."""
        record = ConnectionRecord(next(self._numbers), link.peer, listener, now_ms)
        self._records[link] = record
        self.totals.opened += 1
        return record

    def of(self, link: Link) -> ConnectionRecord:
        """The record of a link, to read or to fill; one that nobody lists for a link that is not open."""
        return self._records.get(link) or ConnectionRecord(0, link.peer)

    def closed(self, link: Link) -> None:
        """Note that a connection is gone."""
        record = self._records.pop(link, None)
        if record is not None:
            self.totals.closed += 1
            self.totals.bytes_received += record.bytes_received
            self.totals.bytes_sent += record.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes of all connections since the server started."""
        return self.totals.bytes_received + sum(record.bytes_received for record in self._records.values())

    @property
    def bytes_sent(self) -> int:
        """Bytes of all connections since the server started."""
        return self.totals.bytes_sent + sum(record.bytes_sent for record in self._records.values())
