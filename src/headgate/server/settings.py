"""The settings with their defaults: one structure per table of the file (see `configuration`).

Handlers of protocols read limits and timeouts from here; nothing else of the server has defaults of its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)] | Literal["off"]
"""A TCP port; 0 takes a free one, `off` opens none."""


Count = Annotated[int, Meta(ge=1)]
Sessions = Annotated[int, Meta(ge=1, le=65_536)]
Seconds = Annotated[float, Meta(gt=0)]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; an unknown key is refused."""


class Listeners(_Table, frozen=True):
    """Where clients are accepted. The last five are opened when `[tls]` has a certificate."""

    host: str = "*"
    """Address to listen at; `*` is every address of this machine, IPv4 and IPv6."""
    amqp: Port = 5672
    """AMQP 1.0 and AMQP 0.9.1; and the administration of Service Bus over HTTP, unless `servicebus` and
    `servicebus_tls` are off."""
    stream: Port = 5552
    """RabbitMQ's stream protocol."""
    stomp: Port = 61613
    """STOMP 1.0, 1.1 and 1.2."""
    http: Port = 15672
    """Console, health, metrics, lists, users."""
    servicebus: Port = 5300
    """Service Bus's clients: administration over HTTP, and AMQP, also over WebSockets. TLS is spoken at the same port,
    with the certificate of `[tls]` or one for `localhost` that the server makes."""
    servicebus_tls: Port = "off"
    """The same as `servicebus`, with TLS only, such as 443, where these clients look for WebSockets unless told."""
    rocketmq: Port = 8081
    """RocketMQ's clients that speak gRPC."""
    rocketmq_names: Port = 9876
    """RocketMQ's clients of the classic protocol: where they ask for topics, the name server. With a certificate
    clients with TLS (`tls.enable`) are served at both of these ports, too."""
    rocketmq_classic: Port = 10911
    """The port that the same clients are told to connect to as the broker. Both ports serve all requests."""
    amqps: Port = 5671
    """The same as `amqp` with TLS."""
    stream_tls: Port = 5551
    """The same as `stream` with TLS."""
    stomp_tls: Port = 61614
    """The same as `stomp` with TLS."""
    https: Port = 15671
    """The same as `http` with TLS; clients show no certificates there."""
    rocketmq_tls: Port = 8082
    """The same as `rocketmq` with TLS."""


class Advertised(_Table, frozen=True):
    """The address that the server tells clients to connect to that ask for one; needed behind a forwarded port."""

    host: str | None = None
    """Default: `localhost` for a client on this machine, else the address that the client used. RocketMQ's classic
    clients without TLS are told the address in any case, and should be told one in numbers, not a name."""
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """Default: the port of the listener."""
    tls_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """The same for clients with TLS."""
    rocketmq_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """The same for clients of RocketMQ's classic protocol."""


class Tls(_Table, frozen=True):
    """TLS: files in PEM form."""

    certificate: str
    """The server's certificate and the intermediate certificates up to its authority."""
    key: str
    """The certificate's private key, without a passphrase."""
    ca: str | None = None
    """Certificate authorities trusted for client certificates."""
    verify_client: Literal["no", "optional", "required"] = "no"
    """Whether clients present a certificate; an invalid one ends the connection. Needs `ca`."""


class Limits(_Table, frozen=True):
    """Limits for one client, and for all together."""

    connections: Count = 10_000
    """Connections of all protocols together, without HTTP."""
    channels: Count = 2047
    """AMQP 0.9.1: channels of a connection."""
    sessions: Sessions = 65_536
    """AMQP 1.0: sessions of a connection. Some clients begin a session for each link."""
    links: Count = 256
    """AMQP 1.0: links of a session."""
    connection_links: Count = 16_384
    """AMQP 1.0: links of a connection, in all its sessions together."""
    publishers: Count = 256
    """Stream protocol: publishers of a connection. The protocol numbers them with one byte."""
    consumers: Count = 256
    """Consumers of a connection; AMQP 1.0 consumers count as links instead."""
    frame_size_bytes: Count = 262_144
    """AMQP 1.0: the largest frame in either direction."""
    frame_size_bytes_091: Count = 131_072
    """AMQP 0.9.1: the largest frame in either direction."""
    stream_frame_size_bytes: Count = 1_048_576
    """Stream protocol: the largest frame that a client may send."""
    message_size_bytes: Count = 16_777_216
    """The largest message, in all protocols."""
    unconfirmed_messages: Count = 50_000
    """A connection with more unconfirmed messages is not read from until a quarter of this is left. AMQP 1.0: each
    publishing link gets credit for this many messages, and for at most 4 000."""
    unconfirmed_bytes: Count = 16_777_216
    """The same for the bytes of unconfirmed messages, which stay in memory until they are written."""
    sub_batch_expansion_bytes: Count = 67_108_864
    """The largest sub-batch, uncompressed."""
    filter_bytes: Count = 16_384
    """The longest filter expression; the languages have further limits."""
    filter_values: Count = 1_000
    """Filter values of a consumer; each is looked up in every chunk."""
    entities: Count = 10_000
    """Topics and queues; clients of Service Bus can make no more."""
    consumer_groups: Count = 10_000
    """Consumer groups of RocketMQ's clients; no more are declared."""
    login_failures_a_minute: Count = 30
    """Failed logins from one address; further logins are refused unchecked until the minute is over."""


class Timeouts(_Table, frozen=True):
    """Durations in seconds."""

    handshake_s: Seconds = 10.0
    """From accepting a connection to the login, and from there to an open connection; over HTTP, for a whole
    request, and for taking its answer."""
    heartbeat_s: Count = 60
    """The heartbeat proposed to clients; AMQP and the stream protocol."""
    login_failure_s: Seconds = 1.0
    """Delay of the answer to wrong credentials."""
    linger_s: Seconds = 3.0
    """After this time a closed connection is cut, even if the client has not received all data."""
    shutdown_s: Seconds = 10.0
    """After this time connections that are still open when the server stops are cut."""


class Authentication(_Table, frozen=True):
    """Which users may log in."""

    users_file: str | None = None
    """File of users with hashed passwords and permissions; default: `.headgate/users.json` under the root."""
    default_user: str = "guest"
    """Created with all permissions when there is no users file yet."""
    default_password: str | None = None
    """The default user's first password. Default: its name; then it may log in only from this machine."""
    anonymous: bool = True
    """Whether clients on this machine may use ANONYMOUS, as the default user."""


class Storage(_Table, frozen=True):
    """How streams are written, and where new streams have their sealed segments."""

    durability: Literal["process", "disk"] = "process"
    """The guarantee of a confirm, and of the answer to a settlement: written (survives the end of the process) or on
    the disk (survives a power cut).
    """
    remote: str | None = None
    """Place in [object storage](../howto/object-storage.md) that sealed segments of new streams move to, a URI without
    a secret. Default: they stay in the stream's folder. Other streams: `headgate stream change`."""
    remote_after_s: Annotated[float, Meta(ge=0)] = 0.0
    """Age of the last chunk of a segment at which it moves."""
    local_bytes: Annotated[int, Meta(ge=0)] = 0
    """Bytes of the newest moved segments of each stream that stay in its folder as well."""


class Columns(_Table, frozen=True):
    """Column files of streams with declared columns."""

    build: bool = False
    """Whether a process of low priority makes the file of each segment when it is sealed. Without it
    `headgate columns build` makes them."""


class Lookup(_Table, frozen=True):
    """Lookup files of streams with lookup fields."""

    build: bool = False
    """Whether the same process makes the files of each segment when it is sealed. Without it `headgate lookup build`
    makes them."""


class Spark(_Table, frozen=True):
    """Spark for back-tests and builds that users start over HTTP."""

    master: str | None = None
    """Where these run: `local[2]` (in processes of this machine, at low priority) or a cluster. Default: they are not
    offered. Needs `headgate[spark]`."""


class Tracing(_Table, frozen=True):
    """Spans of batches for OpenTelemetry ([how](../howto/trace-with-opentelemetry.md)). Needs `headgate[otel]`."""

    enabled: bool = False
    """Whether there is a span for each batch that is published or delivered. The variables `OTEL_…` say where spans go,
    and which are kept."""
    links: Count = 16
    """At most so many links in a span, to sampled contexts of its messages; OpenTelemetry keeps 128."""


class Filters(_Table, frozen=True):
    """How filters of clients are treated."""

    on_bad_filter: Literal["leave_out", "detach"] = "leave_out"
    """AMQP 1.0: a wrong filter is left out of the confirmed filters, as RabbitMQ does, or the link is detached."""
    dialect: str = "amqp"
    """Language of SQL filters of AMQP 1.0 and of `x-headgate-sql`."""


class ServiceBus(_Table, frozen=True):
    """Clients of Service Bus."""

    open: Literal["loopback", "no"] = "loopback"
    """Clients that need no token: `loopback`, clients on this machine while there are no access keys; `no`, none."""
    message_size_bytes: Count = 1_048_576
    """The largest message, and the largest batch of messages, that they may send."""


class MessageTopicEntry(_Table, frozen=True):
    """A topic that the server makes at its start, or changes to these settings."""

    name: str
    """Its name, of letters, digits, `%`, `|`, `_` and `-`."""
    queues: Count | None = None
    """How many queues; a topic that is there gets more, never fewer. Default: `topic_queues`, for a new one."""
    accepts: list[Literal["normal", "fifo", "delay"]] | None = None
    """Kinds of messages that it accepts. Default: all, for a new one."""


class ConsumerGroupEntry(_Table, frozen=True):
    """A consumer group that the server declares at its start; omitted settings stay as they are.

    [What is behind these keys](rocketmq.md#settings-of-a-consumer-group), and how RocketMQ calls it.
    """

    name: str
    """Its name."""
    fifo: bool | None = None
    """Whether messages of a message group are delivered one after the other. Default: false."""
    max_attempts: Count | None = None
    """Attempts until a message becomes a dead letter. Default: 17."""
    backoff_ms: list[Count] | None = None
    """How long a message waits behind its first attempt that failed, its second, and so on; the last one from then on.
    Default: 1 s, 5 s, 10 s, 30 s, 1 min and so on up to 2 h, as in RocketMQ."""
    enabled: bool | None = None
    """Whether its members are given messages. Default: true."""
    broadcast: bool | None = None
    """Whether members may consume on their own, each all messages. Default: true."""
    start: Literal["first", "last", "first_while_young"] | None = None
    """Where it begins in a queue that is new to it. Default: `group_start`."""


class RocketMq(_Table, frozen=True):
    """Clients of RocketMQ. [How RocketMQ calls these settings](rocketmq.md#settings)."""

    open: Literal["loopback", "no"] = "loopback"
    """Clients that need no access key: `loopback`, clients on this machine while there are no keys; `no`, none."""
    check_filters: Literal["early", "late"] = "early"
    """When a wrong SQL92 filter is refused: as soon as a client gives it, with the reason; or when it receives, as the
    original does."""
    message_size_bytes: Count = 4_194_304
    """The largest body of a message that they may send."""
    clients: Count = 10_000
    """gRPC: clients, by the ids that they give themselves."""
    client_silence_s: Seconds = 60.0
    """gRPC: a client without a call for so long has gone. Clients send heartbeats every ten seconds."""
    calls: Count = 20_000
    """gRPC: calls of all clients at once; receives that wait for messages and streams of settings are calls, too."""
    connection_calls: Count = 1_000
    """gRPC: calls of one connection at once; further ones wait in their client."""
    renewed_messages: Count = 16_384
    """gRPC: unsettled messages of a push consumer that the server renews; with more it receives none."""
    pulls: Count = 4_096
    """Classic protocol: queues that a connection reads at a time."""
    create_topics: Literal["never", "producers", "anybody"] = "producers"
    """Clients for which a missing topic is made: none, classic producers that send to it, or all that ask for it."""
    topic_queues: Count = 4
    """Queues of a topic that is made without saying how many."""
    create_groups: bool = True
    """Whether a consumer group is declared by its first use; else only declared ones may be used."""
    group_start: Literal["first", "last", "first_while_young"] = "first_while_young"
    """Where a group begins in a queue that is new to it: at the first message, behind the last one, or at the first one
    of a queue that has all its messages still, at most 1 GiB."""
    calculate_filter_bitmap: bool = False
    """Whether the match index of a stream that gets its first expression from a consumer group is kept up by the server
    as it writes. Other streams: `headgate index configure`."""
    topic: list[MessageTopicEntry] = []
    group: list[ConsumerGroupEntry] = []


class Log(_Table, frozen=True):
    """The log, which the server writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is written."""
    format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object per line."""


class PermissionEntry(_Table, frozen=True):
    """Patterns of names that a user may declare and delete, publish to, consume from."""

    configure: str = ""
    """Streams, super streams, exchanges: declare and delete."""
    write: str = ""
    """Publish; bind a stream."""
    read: str = ""
    """Consume; bind to an exchange."""


class UserEntry(_Table, frozen=True):
    """A user that the server creates or changes at start, with this password and these permissions."""

    name: str
    """The login name."""
    password: str
    """The password; only its hash is stored."""
    tags: list[str] = []
    """`administrator` may change users, `monitoring` may see all streams, consumers and connections."""
    permissions: PermissionEntry = PermissionEntry()


ArgumentValue = str | int | bool


class StreamEntry(_Table, frozen=True):
    """A stream that is declared at start; an existing stream with other arguments is an error."""

    name: str
    """Its name."""
    arguments: dict[str, ArgumentValue] = {}
    """As clients give them, without `x-`."""
    columns: str | None = None
    """Columns to declare, as in `region string, price double`; they are added to the declared columns."""
    lookup: list[str] = []
    """Lookup fields to declare, as in `application_properties.customer_id`; they are added to the declared fields."""


class SuperStreamEntry(_Table, frozen=True):
    """A super stream that is declared at start."""

    name: str
    """Its name; partitions are named after it and their binding keys."""
    partitions: Count | None = None
    """Number of partitions, with the binding keys 0, 1, and so on. Give either this or `binding_keys`."""
    binding_keys: list[str] = []
    """One per partition."""
    arguments: dict[str, ArgumentValue] = {}
    """Arguments of each partition, as clients give them, without `x-`."""


class EntitySubscriptionEntry(_Table, frozen=True):
    """A subscription of a topic."""

    name: str
    """Its name, unique in the topic, ignoring case."""
    dead_letter_on_errors: bool = True
    """Whether messages that its rules fail on become dead letters."""
    forward_to: str | None = None
    """Topic or queue that its copies go to."""
    settings: dict[str, Any] = {}
    """[Settings of a subscription](rules.md#settings-of-a-subscription)."""
    rule: list[dict[str, Any]] = []
    """[Rules in their written form](rules.md), all of them. Default: a new subscription gets `$Default`, which takes
    every message; an existing one keeps its rules.
    """


class TopicEntry(_Table, frozen=True):
    """A topic with its subscriptions that the server makes at its start, or changes to these settings.

    Omitted parts of it stay.
    """

    name: str
    """Its name; names are compared without case."""
    max_size_megabytes: Count | None = None
    """How much may wait to be settled before publishers are refused. Default: 1024."""
    settings: dict[str, Any] = {}
    """[Properties of topics and queues](entities.md#properties)."""
    subscription: list[EntitySubscriptionEntry] = []
    """Subscriptions; others that it has stay."""


class QueueEntry(_Table, frozen=True):
    """A queue: the same for a topic with one subscription that is implied."""

    name: str
    """Its name; topics have others."""
    max_size_megabytes: Count | None = None
    """As of a topic."""
    settings: dict[str, Any] = {}
    """[Properties of topics and queues](entities.md#properties)."""
    delivery: dict[str, Any] = {}
    """[Settings of a subscription](rules.md#settings-of-a-subscription): how its messages are delivered."""
    forward_to: str | None = None
    """Topic or queue that its messages go to."""


class Audit(_Table, frozen=True):
    """The stream `headgate.audit`: who changed what, when and from where. Administrators may read it."""

    enabled: bool = True
    """Whether administrative changes are recorded."""
    max_age: str = "1Y"
    """After this time entries may be deleted; like `max_bytes` read when the stream is made."""
    max_bytes: Count = 268_435_456
    """Above this size the oldest entries are deleted."""


class ServerSettings(_Table, frozen=True):
    """The whole file."""

    root: str = "headgate-data"
    """Folder of the streams."""
    listeners: Listeners = Listeners()
    advertised: Advertised = Advertised()
    tls: Tls | None = None
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    authentication: Authentication = Authentication()
    storage: Storage = Storage()
    columns: Columns = Columns()
    lookup: Lookup = Lookup()
    spark: Spark = Spark()
    tracing: Tracing = Tracing()
    filters: Filters = Filters()
    servicebus: ServiceBus = ServiceBus()
    rocketmq: RocketMq = RocketMq()
    log: Log = Log()
    audit: Audit = Audit()
    user: list[UserEntry] = []
    stream: list[StreamEntry] = []
    super_stream: list[SuperStreamEntry] = []
    topic: list[TopicEntry] = []
    queue: list[QueueEntry] = []
