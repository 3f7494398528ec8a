"""The commands of the stream protocol, each declared once: the codec reads and writes by these declarations.

A class is a frame, its fields in the order of the wire (stream_protocol.md section 2). `Request` and `Reply` carry a
correlation id, a reply a response code too. A field with a default may be absent at the end of a frame. Publish,
PublishConfirm, PublishError and Deliver, which carry many things each, are in `publish_frames` and `deliver_frames`.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headgate.log import OffsetKind, OffsetSpecification
from headgate.protocols.stream.codes import Command, ResponseCode
from headgate.protocols.stream.wire import (
    I16,
    U8,
    U16,
    U32,
    U64,
    Binary,
    Brokers,
    NullableOffset,
    Offset,
    OptionalText,
    Properties,
    Statistics,
    StreamReferences,
    Text,
    Texts,
    Versions,
)


class Frame(msgspec.Struct, frozen=True):
    """A frame; used directly, one without correlation id that has no reply."""

    command: ClassVar[Command]
    is_reply: ClassVar[bool] = False
    ignores_trailing_bytes: ClassVar[bool] = False


class Request(Frame, frozen=True, kw_only=True):
    """A frame that is answered by one with the same correlation id."""

    correlation_id: int = 0


class Reply(Frame, frozen=True, kw_only=True):
    """The answer to a request. Where the code is not OK, its fields are not on the wire, unless `is_always_full`."""

    is_reply: ClassVar[bool] = True
    is_always_full: ClassVar[bool] = False

    correlation_id: int = 0
    code: int = ResponseCode.OK


class PeerProperties(Request, frozen=True):
    """The first frame of a client: its properties."""

    command = Command.PEER_PROPERTIES
    properties: Properties


class PeerPropertiesReply(Reply, frozen=True):
    """The properties of the server."""

    command = Command.PEER_PROPERTIES
    properties: Properties = {}


class SaslHandshake(Request, frozen=True):
    """Asks for the SASL mechanisms of the server."""

    command = Command.SASL_HANDSHAKE


class SaslHandshakeReply(Reply, frozen=True):
    """The SASL mechanisms that the server takes."""

    command = Command.SASL_HANDSHAKE
    mechanisms: Texts = ()


class SaslAuthenticate(Request, frozen=True):
    """Credentials, in the form of the mechanism; `data` is absent where it has none."""

    command = Command.SASL_AUTHENTICATE
    mechanism: Text
    data: Binary = None


class SaslAuthenticateReply(Reply, frozen=True):
    """Whether the credentials are right, in the code."""

    command = Command.SASL_AUTHENTICATE


class Tune(Frame, frozen=True):
    """Limits that one side proposes: largest frame in bytes, heartbeat in seconds; 0 is none. No correlation id."""

    command = Command.TUNE
    frame_max: U32
    heartbeat_s: U32


class TuneReply(Tune, frozen=True):
    """A `Tune` with the bit of replies set, which some clients send."""

    is_reply = True


class Open(Request, frozen=True):
    """Go to a virtual host."""

    command = Command.OPEN
    virtual_host: Text


class OpenReply(Reply, frozen=True):
    """The connection is open; `advertised_host` and `advertised_port` are where other connections should go."""

    command = Command.OPEN
    properties: Properties = {}


class Close(Request, frozen=True):
    """End of the connection, by either side; `closing_code` says why."""

    command = Command.CLOSE
    closing_code: U16
    reason: Text


class CloseReply(Reply, frozen=True):
    """Close was received; the socket may be closed."""

    command = Command.CLOSE


class Heartbeat(Frame, frozen=True):
    """Still there."""

    command = Command.HEARTBEAT


class ExchangeCommandVersions(Request, frozen=True):
    """The commands that the client can receive: (key, lowest version, highest version)."""

    command = Command.EXCHANGE_COMMAND_VERSIONS
    versions: Versions


class ExchangeCommandVersionsReply(Reply, frozen=True):
    """The commands that the server can receive."""

    command = Command.EXCHANGE_COMMAND_VERSIONS
    versions: Versions = ()


class DeclarePublisher(Request, frozen=True):
    """A publisher of a stream; with a reference, its messages are deduplicated."""

    command = Command.DECLARE_PUBLISHER
    publisher_id: U8
    reference: OptionalText
    stream: Text


class DeclarePublisherReply(Reply, frozen=True):
    """The publisher may publish."""

    command = Command.DECLARE_PUBLISHER


class DeletePublisher(Request, frozen=True):
    """The end of a publisher."""

    command = Command.DELETE_PUBLISHER
    publisher_id: U8


class DeletePublisherReply(Reply, frozen=True):
    """The id is free again."""

    command = Command.DELETE_PUBLISHER


class QueryPublisherSequence(Request, frozen=True):
    """The highest publishing id that is stored for a reference."""

    command = Command.QUERY_PUBLISHER_SEQUENCE
    reference: Text
    stream: Text


class QueryPublisherSequenceReply(Reply, frozen=True):
    """The publishing id, 0 where there is none."""

    command = Command.QUERY_PUBLISHER_SEQUENCE
    is_always_full = True
    sequence: U64 = 0


class Subscribe(Request, frozen=True):
    """Deliver the chunks of a stream; `credit` of them at first."""

    command = Command.SUBSCRIBE
    subscription_id: U8
    stream: Text
    offset: Offset
    credit: U16
    properties: Properties = {}


class SubscribeReply(Reply, frozen=True):
    """The subscription has begun."""

    command = Command.SUBSCRIBE


class Unsubscribe(Request, frozen=True):
    """The end of a subscription."""

    command = Command.UNSUBSCRIBE
    subscription_id: U8


class UnsubscribeReply(Reply, frozen=True):
    """The id is free again."""

    command = Command.UNSUBSCRIBE


class Credit(Frame, frozen=True):
    """Grants the delivery of this many more chunks."""

    command = Command.CREDIT
    subscription_id: U8
    credit: I16


class CreditReply(Frame, frozen=True):
    """The refusal of a `Credit`; no correlation id."""

    command = Command.CREDIT
    is_reply = True
    code: U16
    subscription_id: U8


class StoreOffset(Frame, frozen=True):
    """An offset to store for a consumer; there is no reply."""

    command = Command.STORE_OFFSET
    reference: Text
    stream: Text
    offset: U64


class QueryOffset(Request, frozen=True):
    """Asks for the stored offset of a reference."""

    command = Command.QUERY_OFFSET
    reference: Text
    stream: Text


class QueryOffsetReply(Reply, frozen=True):
    """The offset that was stored; 0 where the code is not OK."""

    command = Command.QUERY_OFFSET
    is_always_full = True
    offset: U64 = 0


class Create(Request, frozen=True):
    """A new stream; the values of arguments are texts."""

    command = Command.CREATE
    stream: Text
    arguments: Properties = {}


class CreateReply(Reply, frozen=True):
    """The stream was created."""

    command = Command.CREATE


class Delete(Request, frozen=True):
    """Delete a stream."""

    command = Command.DELETE
    stream: Text


class DeleteReply(Reply, frozen=True):
    """The stream was deleted."""

    command = Command.DELETE


class Metadata(Request, frozen=True):
    """Asks for the brokers of these streams."""

    command = Command.METADATA
    streams: Texts


class MetadataReply(Request, frozen=True):
    """Brokers (reference, host, port) and streams (name, code, leader, replicas); it has no code of its own."""

    command = Command.METADATA
    is_reply = True
    brokers: Brokers
    streams: StreamReferences


class MetadataUpdate(Frame, frozen=True):
    """The server: the client's metadata of the stream are out of date."""

    command = Command.METADATA_UPDATE
    code: U16
    stream: Text


class Route(Request, frozen=True):
    """The partitions of a super stream that a routing key leads to."""

    command = Command.ROUTE
    routing_key: Text
    super_stream: Text


class RouteReply(Reply, frozen=True):
    """Names of streams."""

    command = Command.ROUTE
    is_always_full = True
    streams: Texts = ()


class Partitions(Request, frozen=True):
    """The partitions of a super stream."""

    command = Command.PARTITIONS
    super_stream: Text


class PartitionsReply(Reply, frozen=True):
    """Names of streams, in their order."""

    command = Command.PARTITIONS
    is_always_full = True
    streams: Texts = ()


class ConsumerUpdate(Request, frozen=True):
    """The server: this consumer becomes active (1) or inactive (0); the reply says from which offset."""

    command = Command.CONSUMER_UPDATE
    subscription_id: U8
    active: U8


class ConsumerUpdateReply(Reply, frozen=True):
    """The client: deliver from this offset; None: from that of the Subscribe. Some clients send bytes after it."""

    command = Command.CONSUMER_UPDATE
    ignores_trailing_bytes = True
    offset: NullableOffset = None


IDENTITY_STATISTIC = "headgate_identity:"
"""Prefix of the statistic that carries a stream's identity in its name, because values are numbers; its number is
without meaning."""

BODY_SCHEMA_STATISTIC = "headgate_body_schema"
"""The statistic 1 of a stream that declares a schema of its bodies."""


class StreamStats(Request, frozen=True):
    """Figures of a stream."""

    command = Command.STREAM_STATS
    stream: Text


class StreamStatsReply(Reply, frozen=True):
    """Pairs of name and number; a Headgate's have IDENTITY_STATISTIC with the identity, and BODY_SCHEMA_STATISTIC."""

    command = Command.STREAM_STATS
    is_always_full = True
    statistics: Statistics = ()


class CreateSuperStream(Request, frozen=True):
    """A super stream: partitions and their binding keys, pairwise."""

    command = Command.CREATE_SUPER_STREAM
    name: Text
    partitions: Texts
    binding_keys: Texts
    arguments: Properties = {}


class CreateSuperStreamReply(Reply, frozen=True):
    """The super stream was created."""

    command = Command.CREATE_SUPER_STREAM


class DeleteSuperStream(Request, frozen=True):
    """Delete a super stream and its partitions."""

    command = Command.DELETE_SUPER_STREAM
    name: Text


class DeleteSuperStreamReply(Reply, frozen=True):
    """The super stream was deleted."""

    command = Command.DELETE_SUPER_STREAM


class ResolveOffsetSpecification(Request, frozen=True):
    """Asks for the current offset of a place in a stream."""

    command = Command.RESOLVE_OFFSET_SPECIFICATION
    stream: Text
    offset: Offset
    properties: Properties = {}


class ResolveOffsetSpecificationReply(Reply, frozen=True):
    """The place as an offset; 0 where the code is not OK."""

    command = Command.RESOLVE_OFFSET_SPECIFICATION
    is_always_full = True
    offset: Offset = OffsetSpecification(OffsetKind.OFFSET)


_FROM_BOTH = (Tune, Close, CloseReply, Heartbeat)
_REQUESTS = [kind for kind in Request.__subclasses__() if kind not in (Close, MetadataReply, ConsumerUpdate)]
_REPLIES = [kind for kind in Reply.__subclasses__() if kind not in (CloseReply, ConsumerUpdateReply)]

FROM_CLIENT: tuple[type[Frame], ...] = (
    *_FROM_BOTH,
    *_REQUESTS,
    TuneReply,
    Credit,
    StoreOffset,
    ConsumerUpdateReply,
)
"""Frames that a client may send, besides `Publish`."""

FROM_SERVER: tuple[type[Frame], ...] = (
    *_FROM_BOTH,
    *_REPLIES,
    CreditReply,
    MetadataReply,
    MetadataUpdate,
    ConsumerUpdate,
)
"""Frames that a server may send, besides `PublishConfirm`, `PublishError` and `Deliver`."""

REPLY_OF: dict[Command, type[Reply]] = {kind.command: kind for kind in Reply.__subclasses__()}
"""The class of the reply to each request that has a code."""
