"""Types inside performatives: source and target of a link, outcomes of deliveries, errors.

Source: OASIS AMQP 1.0 part 3 (messaging), sections 3.4 and 3.5; part 4 (transactions), section 4.5.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from headgate.errors import ConfigError
from headgate.language.amqp import FilterEntry
from headgate.message import AmqpType, AmqpValue, Described, decode_value, encode_value, read_unsigned, value_bounds
from headgate.protocols.amqp10.composites import (
    Any_,
    Binary,
    Boolean,
    Composite,
    FieldEncoding,
    Map,
    String,
    Symbol,
    Symbols,
    Uint,
    Ulong,
    composite,
    encode_compound,
    one_of,
)


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One entry of a filter map, as its bytes: an echo is exact."""

    name: bytes
    value: bytes

    def read(self) -> FilterEntry:
        """Name, descriptor and value, decoded. Raises MessageError for bytes that are no values."""
        value = decode_value(self.value)
        if value.type is AmqpType.DESCRIBED:
            return FilterEntry(decode_value(self.name), value.value.descriptor, value.value.value)
        return FilterEntry(decode_value(self.name), None, value)

    @staticmethod
    def of(name: str, descriptor: str | int, value: AmqpValue) -> RawEntry:
        """An entry with a name and a descriptor of the types that the standard asks for."""
        kind = AmqpType.SYMBOL if isinstance(descriptor, str) else AmqpType.ULONG
        described = AmqpValue(AmqpType.DESCRIBED, Described(AmqpValue(kind, descriptor), value))
        return RawEntry(encode_value(AmqpValue(AmqpType.SYMBOL, name)), encode_value(described))


def _decode_filter(octets: bytes) -> tuple[RawEntry, ...]:
    if octets[0] not in (0xC1, 0xD1):
        raise ConfigError("no map")
    width = 1 if octets[0] == 0xC1 else 4
    count = read_unsigned(octets, 1 + width, width, len(octets))
    if count % 2:
        raise ConfigError("a map of an odd number of keys and values")
    bounds = value_bounds(octets, 1 + 2 * width, len(octets), count)
    if bounds[-1] != len(octets):
        raise ConfigError("bytes behind the entries")
    parts = [octets[begin:end] for begin, end in itertools.pairwise(bounds)]
    return tuple(map(RawEntry, parts[::2], parts[1::2]))


def _encode_filter(entries: Sequence[RawEntry]) -> bytes:
    return encode_compound(0xC1, [part for entry in entries for part in (entry.name, entry.value)])


Filters = Annotated[tuple[RawEntry, ...], FieldEncoding("a filter map", _decode_filter, _encode_filter)]


@composite(0x1D, "amqp:error:list")
class Error(Composite):
    """Why something ended."""

    condition: Symbol
    description: String | None = None
    info: Map | None = None


NO_INFO = AmqpValue(AmqpType.MAP, ())
"""An empty map, for clients that fail when the error of a rejected message has no info."""

ErrorField = Annotated[Error, one_of("an error", Error)]


@composite(0x23, "amqp:received:list")
class Received(Composite):
    """How much of a delivery has arrived."""

    section_number: Uint
    section_offset: Ulong


@composite(0x24, "amqp:accepted:list")
class Accepted(Composite):
    """The receiver has it."""


@composite(0x25, "amqp:rejected:list")
class Rejected(Composite):
    """The receiver cannot take it, and why."""

    error: ErrorField | None = None


@composite(0x26, "amqp:released:list")
class Released(Composite):
    """The receiver does not take it; another receiver may."""


@composite(0x27, "amqp:modified:list")
class Modified(Composite):
    """The receiver will not take it, and changes it for the next one."""

    delivery_failed: Boolean | None = None
    undeliverable_here: Boolean | None = None
    message_annotations: Map | None = None


@composite(0x33, "amqp:declared:list")
class Declared(Composite):
    """A transaction has begun; never sent by Headgate."""

    txn_id: Binary


@composite(0x34, "amqp:transactional-state:list")
class TransactionalState(Composite):
    """A state inside of a transaction; refused by Headgate."""

    txn_id: Binary
    outcome: Any_ | None = None


DeliveryState = Received | Accepted | Rejected | Released | Modified | Declared | TransactionalState
StateField = Annotated[
    DeliveryState,
    one_of("a delivery state", Received, Accepted, Rejected, Released, Modified, Declared, TransactionalState),
]


@composite(0x28, "amqp:source:list")
class Source(Composite):
    """Where messages come from."""

    address: Any_ | None = None
    durable: Uint | None = None
    expiry_policy: Symbol | None = None
    timeout: Uint | None = None
    dynamic: Boolean | None = None
    dynamic_node_properties: Map | None = None
    distribution_mode: Symbol | None = None
    filter: Filters | None = None
    default_outcome: StateField | None = None
    outcomes: Symbols | None = None
    capabilities: Symbols | None = None


@composite(0x29, "amqp:target:list")
class Target(Composite):
    """Where messages go."""

    address: Any_ | None = None
    durable: Uint | None = None
    expiry_policy: Symbol | None = None
    timeout: Uint | None = None
    dynamic: Boolean | None = None
    dynamic_node_properties: Map | None = None
    capabilities: Symbols | None = None


@composite(0x30, "amqp:coordinator:list")
class Coordinator(Composite):
    """The target of a link that controls transactions."""

    capabilities: Symbols | None = None


SourceField = Annotated[Source, one_of("a source", Source)]
TargetField = Annotated[Target | Coordinator, one_of("a target", Target, Coordinator)]


def address_text(terminus: Source | Target) -> str | None:
    """The address, a string or a symbol; None without an address. Raises ConfigError for other types."""
    if terminus.address is None:
        return None
    if terminus.address.type not in (AmqpType.STRING, AmqpType.SYMBOL):
        raise ConfigError(f"an address is a string, found {terminus.address.type.value}")
    text: str = terminus.address.value
    return text
