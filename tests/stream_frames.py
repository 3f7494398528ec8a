"""Frames and connections of the stream protocol, made for tests."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from headgate.log.chunk_builder import FilterValues
from headgate.log.offsets import OffsetKind, OffsetSpecification
from headgate.protocols.stream import frames as f
from headgate.protocols.stream import wire
from headgate.protocols.stream.client import ClientConnection, ClientEvent
from headgate.protocols.stream.codec import encode
from headgate.protocols.stream.framing import ProtocolViolation
from headgate.protocols.stream.publish_frames import Publish, encode_publish
from headgate.protocols.stream.server import ServerConnection, ServerEvent, ServerLimits

U8, U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
TEXTS = st.text(max_size=12)
NAMES = st.dictionaries(TEXTS, TEXTS, max_size=3)
OFFSETS = st.one_of(
    st.sampled_from([OffsetSpecification.first(), OffsetSpecification.last(), OffsetSpecification.next()]),
    st.builds(OffsetSpecification.offset, st.integers(0, 2**63 - 1)),
    st.builds(OffsetSpecification, st.just(OffsetKind.TIMESTAMP), st.integers(-(2**63), 2**63 - 1)),
)

_STRATEGIES: dict[object, st.SearchStrategy[Any]] = {
    wire.U8: U8,
    wire.U16: U16,
    wire.U32: U32,
    wire.U64: U64,
    wire.I16: st.integers(-(2**15), 2**15 - 1),
    wire.Text: TEXTS,
    wire.OptionalText: st.none() | st.text(min_size=1, max_size=12),
    wire.Texts: st.lists(TEXTS, max_size=3).map(tuple),
    wire.Binary: st.none() | st.binary(max_size=20),
    wire.Properties: NAMES,
    wire.Offset: OFFSETS,
    wire.NullableOffset: st.none() | OFFSETS,
    wire.Versions: st.lists(st.tuples(U16, U16, U16), max_size=3).map(tuple),
    wire.Statistics: st.lists(st.tuples(TEXTS, st.integers(-(2**63), 2**63 - 1)), max_size=3).map(tuple),
    wire.Brokers: st.lists(st.tuples(U16, TEXTS, U32), max_size=2).map(tuple),
    wire.StreamReferences: st.lists(st.tuples(TEXTS, U16, U16, st.lists(U16, max_size=2).map(tuple)), max_size=2).map(
        tuple
    ),
}


def frames_of(kind: type[f.Frame]) -> st.SearchStrategy[f.Frame]:
    """Frames of one class with any fields; a reply with a code that leaves its fields away has none."""
    from typing import get_type_hints

    hints = get_type_hints(kind, include_extras=True)
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name in kind.__struct_fields__:
        if name == "correlation_id":
            fields[name] = U32
        elif name == "code" and issubclass(kind, f.Reply):
            fields[name] = st.just(1) if not kind.is_always_full else st.integers(1, 30)
        else:
            fields[name] = _STRATEGIES[hints[name]]
    return st.builds(kind, **fields)


def publish(
    entries: Iterable[tuple[int, bytes] | tuple[int, bytes, bytes | None]],
    *,
    publisher_id: int = 0,
    has_heads: bool = False,
    frame_entries: int = 4096,
) -> bytes:
    """Publish frames: of version 2 when the entries have a third member, their filter value."""
    rows = list(entries)
    lengths = np.array([len(row[1]) for row in rows], dtype=np.int64)
    values = [row[2] for row in rows if len(row) == 3]
    return encode_publish(
        publisher_id,
        np.array([row[0] for row in rows], dtype=np.uint64),
        np.frombuffer(b"".join(row[1] for row in rows), dtype=np.uint8),
        np.cumsum(lengths) - lengths,
        lengths,
        filter_values=FilterValues.of(values) if values else None,
        entries_have_heads=has_heads,
        frame_entries=frame_entries,
    )


def sub_batch(records: int, data: bytes, *, compression: int = 0, expanded: int | None = None) -> bytes:
    """A sub-batch with its head, right or wrong."""
    size = len(data) if expanded is None else expanded
    return struct.pack(">BHII", 0x80 | compression << 4, records, size, len(data)) + data


def flat(events: Iterable[ServerEvent]) -> list[object]:
    """Events that can be compared: the entries of Publish one by one, however they were grouped."""
    found: list[object] = []
    for event in events:
        if isinstance(event, Publish):
            found += [("entry", event.publisher_id, *entry) for entry in event.rows()]
            found += [("refused", event.publisher_id, int(number)) for number in event.refused_ids]
        elif isinstance(event, ProtocolViolation):
            found.append(("violation", event.error.code, event.is_answered))
        else:
            found.append(event)
    return found


class Served:
    """A server's connection that answers as a server would, without a broker."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.connection = ServerConnection(limits)
        self.events: list[ServerEvent] = []
        self.versions: Sequence[tuple[int, int, int]] = ((1, 1, 1), (2, 1, 2))
        self.authentication_code = 1
        self.open_code = 1
        self.on_violation: Callable[[ProtocolViolation], None] = self.connection.fail

    def receive(self, data: bytes) -> bytes:
        """What it answers to these bytes."""
        events = self.connection.receive(data)
        while events:
            for event in events:
                self.events.append(event)
                self._answer(event)
            events = self.connection.go_on()
        return self.connection.take_output()

    def _answer(self, event: ServerEvent) -> None:
        connection = self.connection
        if isinstance(event, ProtocolViolation):
            self.on_violation(event)
        elif isinstance(event, f.PeerProperties):
            properties = {"product": "RabbitMQ", "version": "4.3.6", "headgate": "0.1.0"}
            connection.send(f.PeerPropertiesReply(properties, correlation_id=event.correlation_id))
        elif isinstance(event, f.SaslHandshake):
            connection.send(f.SaslHandshakeReply(("PLAIN",), correlation_id=event.correlation_id))
        elif isinstance(event, f.SaslAuthenticate):
            connection.reply(event, self.authentication_code)
        elif isinstance(event, f.Open):
            connection.send(
                f.OpenReply({"advertised_port": "1"}, correlation_id=event.correlation_id, code=self.open_code)
            )
        elif isinstance(event, f.ExchangeCommandVersions):
            connection.send(f.ExchangeCommandVersionsReply(self.versions, correlation_id=event.correlation_id))
        elif isinstance(event, f.Metadata):
            connection.send(f.MetadataReply((), (), correlation_id=event.correlation_id))
        elif isinstance(event, f.Request):
            connection.reply(event)


HANDSHAKE: tuple[f.Frame, ...] = (
    f.PeerProperties({"product": "test"}, correlation_id=1),
    f.SaslHandshake(correlation_id=2),
    f.SaslAuthenticate("PLAIN", b"\0guest\0guest", correlation_id=3),
    f.Tune(1 << 20, 60),
    f.Open("/", correlation_id=4),
)


def opened(limits: ServerLimits | None = None) -> Served:
    """A server's connection whose handshake is over; its events are forgotten."""
    served = Served(limits)
    for frame in HANDSHAKE:
        served.receive(encode(frame))
    served.events.clear()
    return served


def connected(served: Served | None = None, **options: Any) -> tuple[ClientConnection, Served, list[ClientEvent]]:
    """Both sides, after everything that they had to say; and what the client saw."""
    served = served or Served()
    client = ClientConnection(**options)
    return client, served, list(exchanged(client, served))


def exchanged(client: ClientConnection, served: Served) -> Iterator[ClientEvent]:
    """Carries bytes between both sides until nobody says more; gives what the client sees."""
    while said := (served.connection.take_output() + served.receive(client.take_output())):
        yield from client.receive(said)
