"""What can be configured, with its defaults: one structure per table of the file (see `configuration`).

Handlers of protocols read limits and timeouts from here; nothing else of the server has defaults of its own.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)] | Literal["off"]
"""A TCP port; 0 takes a free one, `off` opens none."""


Count = Annotated[int, Meta(ge=1)]
Sessions = Annotated[int, Meta(ge=1, le=65_536)]
Seconds = Annotated[float, Meta(gt=0)]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file: a key that it does not have is refused."""


class Listeners(_Table, frozen=True):
    """Where clients are accepted. The last four are opened when `[tls]` has a certificate."""

    host: str = "*"
    """Address to listen at; `*` is every address of this machine, IPv4 and IPv6."""
    amqp: Port = 5672
    """AMQP 1.0 and AMQP 0.9.1."""
    stream: Port = 5552
    """RabbitMQ's stream protocol."""
    stomp: Port = 61613
    """STOMP 1.0, 1.1 and 1.2."""
    http: Port = 15672
    """Console, health, metrics, lists, users."""
    amqps: Port = 5671
    """The same as `amqp` with TLS."""
    stream_tls: Port = 5551
    """The same as `stream` with TLS."""
    stomp_tls: Port = 61614
    """The same as `stomp` with TLS."""
    https: Port = 15671
    """The same as `http` with TLS; clients show no certificates there."""


class Advertised(_Table, frozen=True):
    """The address that stream clients are told to connect to; needed where they come through a forwarded port."""

    host: str | None = None
    """Default: `localhost` for a client on this machine, else the address by which the client came."""
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """Default: the port that is listened on."""
    tls_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """The same for clients with TLS."""


class Tls(_Table, frozen=True):
    """TLS: files in PEM form."""

    certificate: str
    """The server's certificate with the ones that lead to its authority."""
    key: str
    """The certificate's private key, without a passphrase."""
    ca: str | None = None
    """Authorities whose client certificates are believed."""
    verify_client: Literal["no", "optional", "required"] = "no"
    """Whether clients show a certificate; one that does not check ends the connection. Needs `ca`."""


class Limits(_Table, frozen=True):
    """What one client, and all together, may take."""

    connections: Count = 10_000
    """Of all protocols together, HTTP left out."""
    channels: Count = 2047
    """AMQP 0.9.1 channels of a connection."""
    sessions: Sessions = 65_536
    """AMQP 1.0 sessions of a connection: there are clients that begin one for each of their links."""
    links: Count = 256
    """AMQP 1.0 links of a session."""
    connection_links: Count = 16_384
    """AMQP 1.0 links of a connection, those of all its sessions."""
    publishers: Count = 256
    """Stream protocol publishers of a connection: the protocol numbers them with a byte."""
    consumers: Count = 256
    """Consumers of a connection; those of AMQP 1.0 are links, and limited as such."""
    frame_size_bytes: Count = 262_144
    """AMQP 1.0: the largest frame in either direction."""
    frame_size_bytes_091: Count = 131_072
    """AMQP 0.9.1: the largest frame in either direction."""
    stream_frame_size_bytes: Count = 1_048_576
    """Stream protocol: the largest frame that a client may send."""
    message_size_bytes: Count = 16_777_216
    """The largest message, whatever the protocol."""
    unconfirmed_messages: Count = 50_000
    """A publishing connection with more is not read from until a quarter of it is left. AMQP 1.0: each publishing link
    has credit for so many, and for 4 000 at most."""
    unconfirmed_bytes: Count = 16_777_216
    """The same for the bytes of those messages, which wait in memory until they are written."""
    sub_batch_expansion_bytes: Count = 67_108_864
    """The largest sub-batch, uncompressed."""
    filter_bytes: Count = 16_384
    """The longest filter expression; the languages have limits of their own beside it."""
    filter_values: Count = 1_000
    """The most filter values of a consumer: each is looked for in every chunk."""
    login_failures_a_minute: Count = 30
    """From one address; further attempts are refused unseen until the minute is over."""


class Timeouts(_Table, frozen=True):
    """Durations in seconds."""

    handshake_s: Seconds = 10.0
    """From accepting a connection to a user that is known, and from there to an open connection; over HTTP, for a whole
    request, and for taking its answer."""
    heartbeat_s: Count = 60
    """What is proposed to clients; AMQP and the stream protocol."""
    login_failure_s: Seconds = 1.0
    """How long the answer to wrong credentials is held back."""
    linger_s: Seconds = 3.0
    """How long a closed connection may take to receive what was written."""
    shutdown_s: Seconds = 10.0
    """How long clients may take to leave when the server stops."""


class Authentication(_Table, frozen=True):
    """Who may come in."""

    users_file: str | None = None
    """Users with hashed passwords and permissions; default: `.headgate/users.json` under the root."""
    default_user: str = "guest"
    """Made with all permissions when there is no users file yet."""
    default_password: str | None = None
    """Its first password. Without one its name is the password, and it may come from this machine only."""
    anonymous: bool = True
    """Whether ANONYMOUS is offered to clients on this machine: they are the default user."""


class Storage(_Table, frozen=True):
    """How streams are written."""

    durability: Literal["process", "disk"] = "process"
    """What a confirm promises: written (survives the end of the process) or on the disk (survives a power cut)."""


class Filters(_Table, frozen=True):
    """How filters of clients are taken."""

    on_bad_filter: Literal["leave_out", "detach"] = "leave_out"
    """AMQP 1.0: a filter that is refused is left out of those confirmed, as RabbitMQ does, or the link is detached."""
    dialect: str = "amqp"
    """Language of SQL filters of AMQP 1.0 and of `x-headgate-sql`."""


class Log(_Table, frozen=True):
    """What the server writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is written."""
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
    """A user that is there, with this password and these permissions, whenever the server has started."""

    name: str
    """What it logs in with."""
    password: str
    """Kept as a hash only."""
    tags: list[str] = []
    """`administrator` may change users, `monitoring` may see all streams, consumers and connections."""
    permissions: PermissionEntry = PermissionEntry()


ArgumentValue = str | int | bool


class StreamEntry(_Table, frozen=True):
    """A stream that is declared at start; one that is there with other arguments is an error."""

    name: str
    """Its name."""
    arguments: dict[str, ArgumentValue] = {}
    """As clients give them, without `x-`."""


class SuperStreamEntry(_Table, frozen=True):
    """A super stream that is declared at start."""

    name: str
    """Its name; partitions are called after it and their binding keys."""
    partitions: Count | None = None
    """How many: their binding keys are 0, 1, and so on. Either this or `binding_keys`."""
    binding_keys: list[str] = []
    """One per partition."""
    arguments: dict[str, ArgumentValue] = {}
    """Of each partition, as clients give them, without `x-`."""


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
    filters: Filters = Filters()
    log: Log = Log()
    user: list[UserEntry] = []
    stream: list[StreamEntry] = []
    super_stream: list[SuperStreamEntry] = []
