"""The options of source and sink, one declaration each.

`make docs` writes `docs/reference/spark-source.md` and `spark-sink.md` from them. `headgate.spark.options` parses
options by them, and checks combinations of options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from headgate.client import DEFAULT_USER, ServerAddress
from headgate.errors import ConfigError
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT, dialect_named
from headgate.log import COMPRESSION_NAMES, OffsetKind, OffsetSpecification, StreamArguments, absolute_root
from headgate.message import parse_field
from headgate.message.arrow import DeclaredColumn, declared_columns, declared_properties
from headgate.spark.option_reader import (
    FLAG,
    TOKEN,
    WORDS,
    Option,
    Values,
    choice,
    found,
    json_value,
    number,
    text_of,
)
from headgate.tables import DEFAULT_ROOT, ROOT_VARIABLE

COLUMNS = (
    "offset",
    "timestamp",
    "filter_value",
    "header",
    "properties",
    "application_properties",
    "message_annotations",
    "body",
    "message",
)
"""All columns of a stream, in the order of its schema."""

DEFAULT_COLUMNS = COLUMNS[:-1]
"""The columns of a source without the option `columns`: all but the encoded message."""


def interval_ms(text: str) -> int:
    """Milliseconds of an interval such as `7D` (units Y M D h m s). Raises ConfigError for any other text."""
    specification = OffsetSpecification.parse(text)
    if specification.kind is not OffsetKind.INTERVAL:
        raise ConfigError(f"found {text!r}, expected a number and a unit of Y, M, D, h, m, s, such as 7D")
    return specification.value


def time_ms(text: str) -> int:
    """Milliseconds since 1970, from a number of them or an ISO time (UTC where it names no zone).

    Raises ConfigError for any other text.
    """
    if re.fullmatch(r"\d{1,15}", text.strip()):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(f"found {text!r}, expected an ISO time or milliseconds since 1970") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _folder(text: str) -> Path:
    return absolute_root(text)


def _one_stream(text: str) -> str:
    streams = WORDS.parse(text)
    if len(streams) > 1 or any(character in streams[0] for character in "*?["):
        raise found(", ".join(streams), "one stream")
    return streams[0]


def _dialect(text: str) -> str:
    # `dialect_names` is not used: reading the metadata of all distributions costs milliseconds at every read.
    dialect_named(text)
    return text


def _property_filter(text: str) -> Filter:
    maps = json_value(text, "a JSON object")
    if not isinstance(maps, dict):
        raise found(text, "a JSON object")
    for section, fields in maps.items():
        if section not in ("properties", "application_properties") or not isinstance(fields, dict):
            raise found(section, "objects named properties and application_properties")
    return Filter.from_properties(**maps)


def _columns(text: str) -> tuple[DeclaredColumn | str, ...]:
    columns = declared_columns(", ".join(WORDS.parse(text)) if text.lstrip().startswith("[") else text)
    for column in columns:
        if isinstance(column, str):
            if column not in COLUMNS:
                raise found(column, f"some of {', '.join(COLUMNS)}, or a field with its type, as in '{column} string'")
        elif column.name.lower() in COLUMNS:
            raise found(column.name, "another name for this field, by `as`: each stream has a column of that name")
    return columns


def _declarable(text: str) -> str:
    # Imported here: not many writes declare columns.
    from headgate.derived.columns import extended

    extended(None, text)
    return text


def _field(text: str) -> str:
    parse_field(text)
    return text


_FOLDER = Values("a folder", _folder)
_POSITION = Values(
    "`first`, `last`, `next`, an offset, an interval before now such as `10m` (units Y M D h m s), or an ISO time",
    OffsetSpecification.parse,
)
_ONE_STREAM = Values("a stream's name or the path of its folder", _one_stream)
_FIELD = Values("a field of the message, such as `application_properties.region`", _field)

ROOT = Option(
    "root",
    Values("a folder, or for reading a place in object storage", _folder),
    "The folder under which streams are found, and created, by name; for a read also a place in "
    "[object storage](../howto/object-storage.md#reading), such as `s3://bucket/prefix`.",
    "/data/streams",
    otherwise=f"the variable `{ROOT_VARIABLE}`, else `{DEFAULT_ROOT}`",
)
SERVER = Option(
    "server",
    Values("`host:port`, or a URL `headgate-stream://user:password@host:port`", ServerAddress.parse),
    "The stream listener of a Headgate or RabbitMQ server that has the streams; in place of `root`. "
    "[What differs](../howto/spark-through-a-server.md).",
    "broker:5552",
    otherwise="the files under `root`",
)
USER = Option(
    "user",
    text_of("a name"),
    "The user to log in with at the server.",
    "spark",
    otherwise=f"that of the URL, else `{DEFAULT_USER}`",
)
PASSWORD = Option(
    "password",
    text_of("a text"),
    "The user's password at the server.",
    "…",
    otherwise=f"that of the URL, else `{DEFAULT_USER}`",
)
COUNTERS = Option(
    "counters",
    TOKEN,
    "The name of the counters of what was examined, skipped, kept and written, for "
    "`headgate.spark.counters(name, root=…)`.",
    "nightly-orders",
    otherwise="nothing is counted",
)

STREAMS = Option(
    "stream",
    Values("names under `root`, or paths of folders: one, a comma list, or a JSON list", WORDS.parse),
    "The streams to read. Patterns with `*`, `?` and `[…]` match the streams that exist when a read, or a batch of a "
    "streaming read, is planned. At a server: names, also of super streams, without patterns.",
    "orders-*",
    otherwise="required",
)
PATH = replace(
    STREAMS,
    name="path",
    meaning="The same as `stream`; what is given to `.load(…)`.",
    example="headgate-data/streams/orders",
    otherwise="",
)
TOPIC = Option(
    "topic",
    text_of("a name"),
    "In place of `stream`: the topic of which the copies of a `subscription` are read. Not at a server.",
    "shop/orders",
    otherwise="streams are read",
)
SUBSCRIPTION = Option(
    "subscription",
    text_of("a name"),
    "With `topic`: the subscription whose copies are read, [below](#copies-of-a-subscription).",
    "red",
    otherwise="required with `topic`",
)
FILTER = Option(
    "filter",
    text_of("a filter"),
    "Stage 2: messages for which it is true are read. If the stream declares its filter source, chunks in which it "
    "cannot be true are skipped unread, too.",
    "region = 'EMEA' AND price > 100",
    otherwise="every message",
)
DIALECT = Option(
    "dialect",
    Values("a language of filters", _dialect),
    "The language of `filter`: [`amqp`](../languages/amqp.md), [`rabbitmq`](../languages/rabbitmq.md), "
    "[`rocketmq`](../languages/rocketmq.md), [`servicebus`](../languages/servicebus.md), "
    "[`cesql`](../languages/cesql.md), or one that is installed.",
    "servicebus",
    default=DEFAULT_DIALECT,
)
PROPERTY_FILTER = Option(
    "property_filter",
    Values("a JSON object with the objects `properties`, `application_properties`, or both", _property_filter),
    "In place of `filter`: [RabbitMQ's property filter](../languages/rabbitmq.md).",
    '{"properties": {"subject": "&p:order."}, "application_properties": {"region": "EMEA"}}',
    otherwise="every message",
)
FILTER_VALUES = Option(
    "filter_values",
    WORDS,
    "Stage 1: chunks whose Bloom filter has none of these values are skipped unread. The other chunks give all their "
    "messages, so add a `filter` where the rows must be exact.",
    "order.created,order.paid",
    otherwise="no chunk is skipped for its values, but see `filter`",
)
MATCH_UNFILTERED = Option(
    "match_unfiltered",
    FLAG,
    "With `filter_values`: chunks that hold messages without a filter value are read, too.",
    "true",
    default="false",
)
START = Option(
    "start",
    _POSITION,
    "Where to begin, inclusive; for a streaming query, in its first run. A time or an interval means the first chunk "
    "written then or later, `last` the first message of the last chunk, `next` the end of the stream.",
    "2026-11-21T08:00:00Z",
    default="first",
)
END = Option(
    "end",
    _POSITION,
    "Where a batch read ends, exclusive; as for `start`.",
    "120000",
    otherwise="the end of the stream when the read is planned",
)
COLUMN_NAMES = Option(
    "columns",
    Values(
        "a comma list of the columns below, and of fields: `name type`, `p.field`, `h.field`, `m.name type`, "
        "`body.path type`",
        _columns,
    ),
    "The columns of the DataFrame. A field is a column of its own, called as the field unless `as` says otherwise; "
    "application properties have their types, fields of the properties and header sections those of the standard. "
    "Nothing else is decoded. Spark does not tell a Python source which columns a query needs, so each unneeded column "
    "costs time ([how much](../howto/read-in-spark.md)).",
    "offset, region string, price double, p.subject",
    default=",".join(DEFAULT_COLUMNS),
)
PROPERTIES = Option(
    "properties",
    Values("names with types: `name type, name type, …`; special names in backquotes", declared_properties),
    "Makes `application_properties` a struct of these, in place of a VARIANT. A property that a message does not have, "
    "or has with another type, is null.",
    "region string, price double",
    otherwise="a VARIANT of all",
)
MAX_MESSAGES_PER_BATCH = Option(
    "max_messages_per_batch",
    number(),
    "At most this many messages in a batch of a streaming read, of all streams together and before any filter; a batch "
    "ends with a whole chunk and has at least one.",
    "1000000",
    otherwise="all messages",
)
MAX_BYTES_PER_BATCH = Option(
    "max_bytes_per_batch",
    number(),
    "The same in bytes of the files. Not at a server, which does not report sizes.",
    "500000000",
    otherwise="all messages",
)
FAIL_ON_DATA_LOSS = Option(
    "fail_on_data_loss",
    FLAG,
    "Whether a read fails where offsets were deleted by retention, or a stream was cut back, before they were read. "
    "`false`: it continues with what is left.",
    "false",
    default="true",
)
ON_MISMATCH = Option(
    "on_mismatch",
    choice("null", "fail", "cast"),
    "How an application property of another type than declared is read: `null` makes it null, with one warning; "
    "`fail` ends the read; `cast` converts it if that loses nothing, and else makes it null "
    "([which conversions](../howto/read-in-spark.md)).",
    "cast",
    default="null",
)
ON_CORRUPT = Option(
    "on_corrupt",
    choice("fail", "skip"),
    "A damaged chunk, or a sealed segment that cannot be read at all, fails the read, or is skipped and counted.",
    "skip",
    default="fail",
)
VERIFY_CRC = Option(
    "verify_crc",
    FLAG,
    "Whether the checksum of each chunk that is read is checked.",
    "false",
    default="true",
)
PARTITIONS = Option(
    "partitions",
    number(most=100_000),
    "At most this many tasks read.",
    "16",
    otherwise="by size and cores",
)
MATCH_INDEX = Option(
    "match_index",
    FLAG,
    "Whether precomputed results are used: those [of the filter](../design/match-index.md), and which copies a "
    "subscription has ([postings](../design/decisions.md)). `false`: filters and rules are evaluated for each message.",
    "false",
    default="true",
)
COLUMN_FILES = Option(
    "column_files",
    FLAG,
    "Whether [column files](../design/columns.md) decide a filter where they can; the messages that match are read. "
    "`false`: filters are evaluated for each message.",
    "false",
    default="true",
)
AS_OF = Option(
    "as_of",
    Values("an ISO time (UTC unless it says another zone), or milliseconds since 1970", time_ms),
    "The value of `UTC()` in a filter, and the time from which intervals in `start` and `end` count back. With "
    "`subscription` a batch read without `end` has the messages that had arrived by then.",
    "2026-11-21T08:00:00Z",
    otherwise="the time of planning",
)
COUNTERS_ROOT = Option(
    "counters_root",
    _FOLDER,
    "The folder where counters are kept.",
    "/data/counters",
    otherwise="`root`",
)

SOURCE_OPTIONS: Mapping[str, tuple[Option[object], ...]] = {
    "Where streams are": (STREAMS, PATH, TOPIC, SUBSCRIPTION, ROOT, SERVER, USER, PASSWORD),
    "Which messages": (
        FILTER,
        DIALECT,
        PROPERTY_FILTER,
        FILTER_VALUES,
        MATCH_UNFILTERED,
        START,
        END,
    ),
    "Which columns": (COLUMN_NAMES, PROPERTIES),
    "How much a batch of a streaming read takes": (MAX_MESSAGES_PER_BATCH, MAX_BYTES_PER_BATCH),
    "What is lost, damaged or of another type": (FAIL_ON_DATA_LOSS, ON_CORRUPT, VERIFY_CRC, ON_MISMATCH),
    "How it runs": (PARTITIONS, MATCH_INDEX, COLUMN_FILES, AS_OF, COUNTERS, COUNTERS_ROOT),
}
"""All options of a source, by subject."""

STREAM = Option(
    "stream",
    _ONE_STREAM,
    "The stream to write to. A missing stream is created; its name may not contain `*`, `?` or `[`.",
    "orders",
    otherwise="required",
)
TARGET_PATH = replace(
    STREAM,
    name="path",
    meaning="The same as `stream`; what is given to `.save(…)`.",
    example="headgate-data/streams/orders",
    otherwise="",
)
STAGING = Option(
    "staging",
    _FOLDER,
    "Where rows wait until the batch is decided: a folder that driver and tasks share and that outlives them. "
    "With `server` only.",
    "/shared/staging",
    otherwise="`root`",
)
FILTER_VALUE = Option(
    "filter_value",
    text_of("a column of the DataFrame, or a field of the message"),
    "Where the filter value of each message comes from.",
    "application_properties.region",
    otherwise="what the stream declares, else the column `filter_value`, else the annotation `x-stream-filter-value`",
)
WRITE_ID = Option(
    "write_id",
    TOKEN,
    "Names a batch write: a write with the `write_id` and `batch_id` of an earlier one adds nothing. Not for streaming "
    "queries, whose id is in their checkpoint.",
    "nightly-orders",
    otherwise="each write adds its rows",
)
BATCH_ID = Option(
    "batch_id",
    number(least=0, most=2**43 - 1),
    "Numbers the writes of one `write_id`.",
    "20261121",
    default="0",
)
DURABILITY = Option(
    "durability",
    choice("process", "disk"),
    "What a finished write survives: `process`, the end of every process; `disk`, also a power loss, by flushing. Not "
    "at a server, which has its own setting.",
    "disk",
    default="process",
)
_MADE = StreamArguments()
FILTER_SIZE_BYTES = Option(
    "filter_size_bytes",
    number(least=16, most=255),
    "The size of the Bloom filter of each chunk; [how large?](../howto/size-a-bloom-filter.md)",
    "32",
    otherwise=f"`{_MADE.filter_size_bytes}`",
)
MAX_SEGMENT_SIZE_BYTES = Option(
    "max_segment_size_bytes",
    number(most=3_000_000_000),
    "The size at which a segment ends and the next one begins.",
    "100000000",
    otherwise=f"`{_MADE.max_segment_size_bytes}`",
)
MAX_LENGTH_BYTES = Option(
    "max_length_bytes",
    number(),
    "Retention: the oldest segments are deleted while the stream is larger.",
    "10000000000",
    otherwise="unlimited",
)
MAX_AGE = Option(
    "max_age",
    Values("a number and a unit of Y, M, D, h, m, s", interval_ms),
    "Retention: segments whose messages are all older are deleted.",
    "7D",
    otherwise="unlimited",
)
FILTER_SOURCE = Option(
    "filter_source",
    _FIELD,
    "The field that the stream declares as its filter source: every writer takes filter values from it, and filters "
    "that compare the field skip chunks automatically.",
    "application_properties.region",
    otherwise="the stream declares none",
)

DECLARED_COLUMNS = Option(
    "columns",
    Values("fields with types: `name type, p.field, h.field, m.name type, body.path type`; `body`", _declarable),
    "The columns that are declared for the stream: [column files](../design/columns.md) of its segments hold them.",
    "region string, price double, p.subject",
    otherwise="none are declared",
)
BODY_SCHEMA = Option(
    "body_schema",
    Values("`FILE.avsc`, `FILE.desc#package.Message`, or a folder of such files under the ids of a registry", str),
    "The schema of the stream's [bodies in Avro or Protobuf](../languages/amqp.md#bodies-in-avro-and-protobuf), read "
    "on the driver's side. The stream keeps its content.",
    "orders.desc#shop.Order",
    otherwise="in a copy or route, the schema of the stream that is read; else bodies are JSON, if anything",
)

COMPRESSION = Option(
    "compression",
    choice(*COMPRESSION_NAMES),
    "The codec that packs the messages of each chunk into a sub-batch. Readers unpack them, which takes more time, and "
    "skip chunks as before. RabbitMQ's own AMQP consumers do not see compressed messages, its stream clients do.",
    "zstd",
    default=COMPRESSION_NAMES[0],
)

NO_VALUES_COMPRESSED = (
    "the stream protocol has no room for the filter values of compressed messages; leave them out, or declare "
    "filter_source, from which a Headgate server fills them in"
)
"""Why a server refuses compression together with filter values."""

SINK_OPTIONS: Mapping[str, tuple[Option[object], ...]] = {
    "Where the stream is": (STREAM, TARGET_PATH, ROOT, SERVER, USER, PASSWORD, STAGING),
    "How rows are written": (FILTER_VALUE, WRITE_ID, BATCH_ID, DURABILITY, COMPRESSION, COUNTERS),
    "What a stream that is made by the write is like": (
        FILTER_SIZE_BYTES,
        MAX_SEGMENT_SIZE_BYTES,
        MAX_LENGTH_BYTES,
        MAX_AGE,
        FILTER_SOURCE,
        DECLARED_COLUMNS,
        BODY_SCHEMA,
    ),
}
"""All options of a sink, by subject."""
