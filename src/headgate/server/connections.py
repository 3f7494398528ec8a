"""Records of open connections, and counts of all connections, for lists and metrics."""

from __future__ import annotations

import ipaddress
import itertools
import re
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.server.transport import Known, Peer

_PORT = re.compile(r":[0-9]*$")


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address in the peer's own form: an IPv4 address through a socket for both families is IPv4."""
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def is_name_of_this_machine(host: str) -> bool:
    """Whether a `Host` is a name of this machine, or an address, which no other site has as its name."""
    name = _PORT.sub("", host).strip("[]").rstrip(".").lower()
    if name in ("", "localhost", socket.gethostname().lower()) or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


@dataclass(slots=True)
class ConnectionRecord:
    """One connection. The event loop fills in the record; the handler fills in `protocol` and `client`."""

    number: int
    """Counted from 1; 0 for a caller without a connection, such as a request over HTTP."""
    peer: Peer
    listener: str = ""
    opened_ms: int = 0
    protocol: str = ""
    """In the protocol's own words with its version, such as `AMQP 1.0`."""
    user: str | None = None
    """None until the client is known."""
    client: dict[str, str] = field(default_factory=dict)
    """The client's own properties: product, version, connection name."""
    bytes_received: int = 0
    bytes_sent: int = 0
    is_read: bool = True
    """False while the connection is not read: it publishes faster than streams are written, takes no answers, or its
    login is being checked."""

    @property
    def name(self) -> str:
        """The name of the connection in logs and lists."""
        host = f"[{self.peer.host}]" if ":" in self.peer.host else self.peer.host
        return f"{host}:{self.peer.port}#{self.number}"


@dataclass(slots=True)
class ConnectionTotals:
    """Counts since the server started."""

    opened: int = 0
    closed: int = 0
    refused: int = 0
    """Connections beyond the limit."""
    failed: int = 0
    """Ended by an error in the server itself."""
    timed_out: int = 0
    """Ended by a time limit: not known in time, too slow, or silent."""
    logins: int = 0
    logins_failed: int = 0


class Connections:
    """Records of open connections by their transports."""

    def __init__(self) -> None:
        self.totals = ConnectionTotals()
        self._records: dict[Known, ConnectionRecord] = {}
        self._numbers = itertools.count(1)
        self._received_before: Counter[str] = Counter()
        self._sent_before: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ConnectionRecord]:
        return iter(tuple(self._records.values()))

    def opened(self, caller: Known, *, listener: str, now_ms: int) -> ConnectionRecord:
        """Record an accepted connection."""
        record = ConnectionRecord(next(self._numbers), caller.peer, listener, now_ms)
        self._records[caller] = record
        self.totals.opened += 1
        return record

    def of(self, caller: Known) -> ConnectionRecord:
        """The record of a caller, to read or to fill in; for a caller that is not open, a record in no list."""
        return self._records.get(caller) or ConnectionRecord(0, caller.peer)

    def unlisted(self, caller: Known) -> ConnectionRecord:
        """Take a connection out of the lists, which show its clients one by one; returns its record."""
        record = self.of(caller)
        if self._records.pop(caller, None) is not None:
            self.totals.opened -= 1
        return record

    def closed(self, caller: Known) -> None:
        """Record the end of a connection."""
        record = self._records.pop(caller, None)
        if record is not None:
            self.totals.closed += 1
            self._received_before[record.listener] += record.bytes_received
            self._sent_before[record.listener] += record.bytes_sent

    def bytes_received(self) -> Counter[str]:
        """Bytes from all clients of each listener since the server started."""
        received = self._received_before.copy()
        for record in self._records.values():
            received[record.listener] += record.bytes_received
        return received

    def bytes_sent(self) -> Counter[str]:
        """Bytes to all clients of each listener since the server started."""
        sent = self._sent_before.copy()
        for record in self._records.values():
            sent[record.listener] += record.bytes_sent
        return sent
