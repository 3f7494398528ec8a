"""The performatives of AMQP 1.0 and the frames of its SASL layer, as typed records.

Source: OASIS AMQP 1.0 part 2 (transport), section 2.7; part 5 (security), section 5.3.3.
"""

from __future__ import annotations

from headgate.protocols.amqp10.composites import (
    Binary,
    Boolean,
    Composite,
    Map,
    String,
    Symbol,
    Symbols,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    composite,
)
from headgate.protocols.amqp10.terminus import ErrorField, SourceField, StateField, TargetField

SENDER = False
RECEIVER = True
"""The roles of the ends of a link, as performatives write them."""

UNSETTLED, SETTLED, MIXED = 0, 1, 2
"""Values of `snd_settle_mode`."""

FIRST, SECOND = 0, 1
"""Values of `rcv_settle_mode`."""


@composite(0x10, "amqp:open:list")
class Open(Composite):
    """The name and the limits of one side of a connection."""

    container_id: String
    hostname: String | None = None
    max_frame_size: Uint = 0xFFFFFFFF
    channel_max: Ushort = 0xFFFF
    idle_time_out: Uint | None = None
    outgoing_locales: Symbols | None = None
    incoming_locales: Symbols | None = None
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: Map | None = None


@composite(0x11, "amqp:begin:list")
class Begin(Composite):
    """A session on a channel."""

    remote_channel: Ushort | None
    next_outgoing_id: Uint
    incoming_window: Uint
    outgoing_window: Uint
    handle_max: Uint = 0xFFFFFFFF
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: Map | None = None


@composite(0x12, "amqp:attach:list")
class Attach(Composite):
    """A link to a session; `role` is the role of the side that sends the frame."""

    name: String
    handle: Uint
    role: Boolean
    snd_settle_mode: Ubyte = MIXED
    rcv_settle_mode: Ubyte = FIRST
    source: SourceField | None = None
    target: TargetField | None = None
    unsettled: Map | None = None
    incomplete_unsettled: Boolean = False
    initial_delivery_count: Uint | None = None
    max_message_size: Ulong | None = None
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: Map | None = None


@composite(0x13, "amqp:flow:list")
class Flow(Composite):
    """Windows of a session and, with a handle, the credit of a link."""

    next_incoming_id: Uint | None
    incoming_window: Uint
    next_outgoing_id: Uint
    outgoing_window: Uint
    handle: Uint | None = None
    delivery_count: Uint | None = None
    link_credit: Uint | None = None
    available: Uint | None = None
    drain: Boolean = False
    echo: Boolean = False
    properties: Map | None = None


@composite(0x14, "amqp:transfer:list")
class Transfer(Composite):
    """A message or a part of one; its bytes follow the performative in the frame."""

    handle: Uint
    delivery_id: Uint | None = None
    delivery_tag: Binary | None = None
    message_format: Uint | None = None
    settled: Boolean | None = None
    more: Boolean = False
    rcv_settle_mode: Ubyte | None = None
    state: StateField | None = None
    resume: Boolean = False
    aborted: Boolean = False
    batchable: Boolean = False


@composite(0x15, "amqp:disposition:list")
class Disposition(Composite):
    """The state of deliveries `first` … `last`; `role` is the role of the side that sends the frame."""

    role: Boolean
    first: Uint
    last: Uint | None = None
    settled: Boolean = False
    state: StateField | None = None
    batchable: Boolean = False


@composite(0x16, "amqp:detach:list")
class Detach(Composite):
    """The end of a link, for good if `closed`."""

    handle: Uint
    closed: Boolean = False
    error: ErrorField | None = None


@composite(0x17, "amqp:end:list")
class End(Composite):
    """The end of a session."""

    error: ErrorField | None = None


@composite(0x18, "amqp:close:list")
class Close(Composite):
    """The end of a connection."""

    error: ErrorField | None = None


@composite(0x40, "amqp:sasl-mechanisms:list")
class SaslMechanisms(Composite):
    """The mechanisms that a server offers."""

    sasl_server_mechanisms: Symbols


@composite(0x41, "amqp:sasl-init:list")
class SaslInit(Composite):
    """The mechanism that a client chose, and its first answer."""

    mechanism: Symbol
    initial_response: Binary | None = None
    hostname: String | None = None


@composite(0x42, "amqp:sasl-challenge:list")
class SaslChallenge(Composite):
    """A question of the server."""

    challenge: Binary


@composite(0x43, "amqp:sasl-response:list")
class SaslResponse(Composite):
    """The answer to a challenge."""

    response: Binary


@composite(0x44, "amqp:sasl-outcome:list")
class SaslOutcome(Composite):
    """Whether the client may go on (`SaslCode`)."""

    code: Ubyte
    additional_data: Binary | None = None


PERFORMATIVES = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
SASL_FRAMES = (SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome)
