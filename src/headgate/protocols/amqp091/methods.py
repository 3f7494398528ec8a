"""The methods of AMQP 0.9.1: one class each; its fields are the layout by which `codec` reads and writes.

`reserved` fields have no meaning. Source: AMQP 0-9-1 with the extensions of RabbitMQ (publisher confirms, nack,
bindings between exchanges, update-secret).
"""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar

import msgspec

from headgate.protocols.amqp091.fields import Table


class Domain(enum.Enum):
    """The elementary domain of a method's argument, which says how it is laid out (AMQP 0.9.1, section 4.2.5)."""

    BIT = "bit"
    OCTET = ">B"
    SHORT = ">H"
    LONG = ">I"
    LONG_LONG = ">Q"
    SHORT_STRING = "shortstr"
    LONG_STRING = "longstr"
    TABLE = "table"


Bit = Annotated[bool, Domain.BIT]
Octet = Annotated[int, Domain.OCTET]
Short = Annotated[int, Domain.SHORT]
Long = Annotated[int, Domain.LONG]
LongLong = Annotated[int, Domain.LONG_LONG]
ShortString = Annotated[str, Domain.SHORT_STRING]
LongString = Annotated[bytes, Domain.LONG_STRING]
Arguments = Annotated[Table, Domain.TABLE]


class Method(msgspec.Struct, frozen=True):
    """A method; `CODE` is its class and its number."""

    CODE: ClassVar[tuple[int, int]] = (0, 0)


class ConnectionStart(Method, frozen=True):
    """Server: how a connection may be opened."""

    CODE = (10, 10)
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Arguments = {}
    mechanisms: LongString = b"PLAIN"
    locales: LongString = b"en_US"


class ConnectionStartOk(Method, frozen=True):
    """Client: its credentials."""

    CODE = (10, 11)
    client_properties: Arguments = {}
    mechanism: ShortString = "PLAIN"
    response: LongString = b""
    locale: ShortString = "en_US"


class ConnectionSecure(Method, frozen=True):
    """Server: a challenge."""

    CODE = (10, 20)
    challenge: LongString = b""


class ConnectionSecureOk(Method, frozen=True):
    """Client: the answer to a challenge."""

    CODE = (10, 21)
    response: LongString = b""


class ConnectionTune(Method, frozen=True):
    """Server: limits that it proposes."""

    CODE = (10, 30)
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionTuneOk(Method, frozen=True):
    """Client: limits that hold; heartbeat in seconds, 0 = none."""

    CODE = (10, 31)
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionOpen(Method, frozen=True):
    """Client: the virtual host it wants."""

    CODE = (10, 40)
    virtual_host: ShortString = "/"
    reserved_1: ShortString = ""
    reserved_2: Bit = False


class ConnectionOpenOk(Method, frozen=True):
    """Server: the connection is open."""

    CODE = (10, 41)
    reserved: ShortString = ""


class ConnectionClose(Method, frozen=True):
    """Either: the connection ends, and why; class and method that caused it, or 0."""

    CODE = (10, 50)
    reply_code: Short = 200
    reply_text: ShortString = ""
    class_id: Short = 0
    method_id: Short = 0


class ConnectionCloseOk(Method, frozen=True):
    """Either: the connection has ended."""

    CODE = (10, 51)


class ConnectionBlocked(Method, frozen=True):
    """Server: publishing is held up."""

    CODE = (10, 60)
    reason: ShortString = ""


class ConnectionUnblocked(Method, frozen=True):
    """Server: publishing may continue."""

    CODE = (10, 61)


class ConnectionUpdateSecret(Method, frozen=True):
    """Client: new credentials for a connection that is open."""

    CODE = (10, 70)
    new_secret: LongString = b""
    reason: ShortString = ""


class ConnectionUpdateSecretOk(Method, frozen=True):
    """Server: they are taken."""

    CODE = (10, 71)


class ChannelOpen(Method, frozen=True):
    """Client: open a channel."""

    CODE = (20, 10)
    reserved: ShortString = ""


class ChannelOpenOk(Method, frozen=True):
    """Server: the channel is open."""

    CODE = (20, 11)
    reserved: LongString = b""


class ChannelFlow(Method, frozen=True):
    """Either: stop or go on sending contents."""

    CODE = (20, 20)
    active: Bit = True


class ChannelFlowOk(Method, frozen=True):
    """Either: how it is now."""

    CODE = (20, 21)
    active: Bit = True


class ChannelClose(Method, frozen=True):
    """Either: the channel ends, and why; class and method that caused it, or 0."""

    CODE = (20, 40)
    reply_code: Short = 200
    reply_text: ShortString = ""
    class_id: Short = 0
    method_id: Short = 0


class ChannelCloseOk(Method, frozen=True):
    """Either: the channel has ended."""

    CODE = (20, 41)


class ExchangeDeclare(Method, frozen=True):
    """Client: an exchange that shall be there."""

    CODE = (40, 10)
    reserved: Short = 0
    exchange: ShortString = ""
    type: ShortString = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


class ExchangeDeclareOk(Method, frozen=True):
    """Server: it is there."""

    CODE = (40, 11)


class ExchangeDelete(Method, frozen=True):
    """Client: an exchange that shall go."""

    CODE = (40, 20)
    reserved: Short = 0
    exchange: ShortString = ""
    if_unused: Bit = False
    nowait: Bit = False


class ExchangeDeleteOk(Method, frozen=True):
    """Server: it is gone."""

    CODE = (40, 21)


class ExchangeBind(Method, frozen=True):
    """Client: bind an exchange to an exchange."""

    CODE = (40, 30)
    reserved: Short = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    nowait: Bit = False
    arguments: Arguments = {}


class ExchangeBindOk(Method, frozen=True):
    """Server: it is bound."""

    CODE = (40, 31)


class ExchangeUnbind(Method, frozen=True):
    """Client: take a binding between exchanges away."""

    CODE = (40, 40)
    reserved: Short = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    nowait: Bit = False
    arguments: Arguments = {}


class ExchangeUnbindOk(Method, frozen=True):
    """Server: it is gone."""

    CODE = (40, 51)


class QueueDeclare(Method, frozen=True):
    """Client: a queue that shall be there."""

    CODE = (50, 10)
    reserved: Short = 0
    queue: ShortString = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


class QueueDeclareOk(Method, frozen=True):
    """Server: it is there."""

    CODE = (50, 11)
    queue: ShortString = ""
    message_count: Long = 0
    consumer_count: Long = 0


class QueueBind(Method, frozen=True):
    """Client: bind a queue to an exchange."""

    CODE = (50, 20)
    reserved: Short = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    nowait: Bit = False
    arguments: Arguments = {}


class QueueBindOk(Method, frozen=True):
    """Server: it is bound."""

    CODE = (50, 21)


class QueuePurge(Method, frozen=True):
    """Client: remove all messages."""

    CODE = (50, 30)
    reserved: Short = 0
    queue: ShortString = ""
    nowait: Bit = False


class QueuePurgeOk(Method, frozen=True):
    """Server: how many there were."""

    CODE = (50, 31)
    message_count: Long = 0


class QueueDelete(Method, frozen=True):
    """Client: a queue that shall go."""

    CODE = (50, 40)
    reserved: Short = 0
    queue: ShortString = ""
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


class QueueDeleteOk(Method, frozen=True):
    """Server: how many messages it had."""

    CODE = (50, 41)
    message_count: Long = 0


class QueueUnbind(Method, frozen=True):
    """Client: take a binding away."""

    CODE = (50, 50)
    reserved: Short = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    arguments: Arguments = {}


class QueueUnbindOk(Method, frozen=True):
    """Server: it is gone."""

    CODE = (50, 51)


class BasicQos(Method, frozen=True):
    """Client: how many messages may be unacknowledged."""

    CODE = (60, 10)
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    is_global: Bit = False


class BasicQosOk(Method, frozen=True):
    """Server: the limit holds."""

    CODE = (60, 11)


class BasicConsume(Method, frozen=True):
    """Client: start a consumer."""

    CODE = (60, 20)
    reserved: Short = 0
    queue: ShortString = ""
    consumer_tag: ShortString = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


class BasicConsumeOk(Method, frozen=True):
    """Server: it runs."""

    CODE = (60, 21)
    consumer_tag: ShortString = ""


class BasicCancel(Method, frozen=True):
    """Either: end a consumer; from the server when its queue was deleted."""

    CODE = (60, 30)
    consumer_tag: ShortString = ""
    nowait: Bit = False


class BasicCancelOk(Method, frozen=True):
    """Either: it has ended."""

    CODE = (60, 31)
    consumer_tag: ShortString = ""


class BasicPublish(Method, frozen=True):
    """Client: a message follows."""

    CODE = (60, 40)
    reserved: Short = 0
    exchange: ShortString = ""
    routing_key: ShortString = ""
    mandatory: Bit = False
    immediate: Bit = False


class BasicReturn(Method, frozen=True):
    """Server: a message that went nowhere follows."""

    CODE = (60, 50)
    reply_code: Short = 0
    reply_text: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""


class BasicDeliver(Method, frozen=True):
    """Server: a message for a consumer follows."""

    CODE = (60, 60)
    consumer_tag: ShortString = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortString = ""
    routing_key: ShortString = ""


class BasicGet(Method, frozen=True):
    """Client: one message, if there is one."""

    CODE = (60, 70)
    reserved: Short = 0
    queue: ShortString = ""
    no_ack: Bit = False


class BasicGetOk(Method, frozen=True):
    """Server: it follows."""

    CODE = (60, 71)
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortString = ""
    routing_key: ShortString = ""
    message_count: Long = 0


class BasicGetEmpty(Method, frozen=True):
    """Server: there is no message."""

    CODE = (60, 72)
    reserved: ShortString = ""


class BasicAck(Method, frozen=True):
    """Client: a message is done with; server: it is kept. `multiple`: all up to it."""

    CODE = (60, 80)
    delivery_tag: LongLong = 0
    multiple: Bit = False


class BasicReject(Method, frozen=True):
    """Client: a message is refused."""

    CODE = (60, 90)
    delivery_tag: LongLong = 0
    requeue: Bit = False


class BasicRecoverAsync(Method, frozen=True):
    """Client: deliver the unacknowledged messages again."""

    CODE = (60, 100)
    requeue: Bit = False


class BasicRecover(Method, frozen=True):
    """Client: deliver the unacknowledged messages again."""

    CODE = (60, 110)
    requeue: Bit = False


class BasicRecoverOk(Method, frozen=True):
    """Server: the unacknowledged messages are delivered again."""

    CODE = (60, 111)


class BasicNack(Method, frozen=True):
    """Client: messages are refused; server: published messages were not kept."""

    CODE = (60, 120)
    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = False


class ConfirmSelect(Method, frozen=True):
    """Client: confirm the messages published on this channel."""

    CODE = (85, 10)
    nowait: Bit = False


class ConfirmSelectOk(Method, frozen=True):
    """Server: messages are confirmed from now on."""

    CODE = (85, 11)


class TxSelect(Method, frozen=True):
    """Client: use transactions."""

    CODE = (90, 10)


class TxCommit(Method, frozen=True):
    """Client: end a transaction."""

    CODE = (90, 20)


class TxRollback(Method, frozen=True):
    """Client: undo a transaction."""

    CODE = (90, 30)


METHODS: dict[tuple[int, int], type[Method]] = {method.CODE: method for method in Method.__subclasses__()}
"""All methods by class and number."""
