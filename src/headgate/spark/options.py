"""The options of source, sink and copy, read and checked before any work; no Spark is needed for it.

Each option is declared in `headgate.spark.option_declarations`. Every one that is unknown, malformed or
contradicts another is a ConfigError that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

from headgate.client import ServerAddress
from headgate.errors import ConfigError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification, absolute_root
from headgate.message.arrow import DeclaredColumn, DeclaredProperty
from headgate.spark import option_declarations as declared
from headgate.spark.option_reader import Option, OptionReader
from headgate.tables import default_root

T = TypeVar("T")

_FILTER_OPTIONS = (declared.FILTER, declared.DIALECT, declared.PROPERTY_FILTER)
FILTER_OPTIONS = frozenset(option.name for option in _FILTER_OPTIONS)
"""Options that together say one filter."""


class OnMismatch(Enum):
    """The treatment of an application property of another type than declared."""

    NULL = "null"
    FAIL = "fail"
    CAST = "cast"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read: the values of `declared.SOURCE_OPTIONS`."""

    root: Path
    server: ServerAddress | None
    streams: tuple[str, ...]
    """With a `subscription` the name of its topic."""
    subscription: str | None
    filter: Filter | None
    filter_values: tuple[bytes, ...]
    match_unfiltered: bool
    start: OffsetSpecification
    end: OffsetSpecification | None
    columns: tuple[DeclaredColumn | str, ...]
    properties: tuple[DeclaredProperty, ...]
    max_messages_per_batch: int | None
    max_bytes_per_batch: int | None
    fail_on_data_loss: bool
    on_mismatch: OnMismatch
    skip_corrupt: bool
    verify_crc: bool
    match_index: bool
    column_files: bool
    partitions: int | None
    as_of_ms: int | None
    counters: str | None
    counters_root: Path

    @property
    def fields(self) -> tuple[DeclaredColumn, ...]:
        """The columns that are fields of the messages."""
        return tuple(column for column in self.columns if isinstance(column, DeclaredColumn))

    @staticmethod
    def parse(options: Mapping[str, str]) -> SourceOptions:
        """Options by name; FilterError for a filter that is refused, ConfigError for anything else that is wrong."""
        reader = OptionReader(options, _all(declared.SOURCE_OPTIONS), subject="headgate source")
        server, root = _server(reader), _root(reader)
        parsed = SourceOptions(
            root=root,
            server=server,
            streams=_topic(reader) or _named(reader, declared.STREAMS, declared.PATH),
            subscription=reader.given(declared.SUBSCRIPTION),
            filter=_filter(reader),
            filter_values=tuple(value.encode() for value in reader.given(declared.FILTER_VALUES) or ()),
            match_unfiltered=reader.value(declared.MATCH_UNFILTERED),
            start=reader.value(declared.START),
            end=reader.given(declared.END),
            columns=reader.value(declared.COLUMN_NAMES),
            properties=reader.given(declared.PROPERTIES) or (),
            max_messages_per_batch=reader.given(declared.MAX_MESSAGES_PER_BATCH),
            max_bytes_per_batch=reader.given(declared.MAX_BYTES_PER_BATCH),
            fail_on_data_loss=reader.value(declared.FAIL_ON_DATA_LOSS),
            on_mismatch=OnMismatch(reader.value(declared.ON_MISMATCH)),
            skip_corrupt=reader.value(declared.ON_CORRUPT) == "skip",
            verify_crc=reader.value(declared.VERIFY_CRC),
            match_index=reader.value(declared.MATCH_INDEX),
            column_files=reader.value(declared.COLUMN_FILES),
            partitions=reader.given(declared.PARTITIONS),
            as_of_ms=reader.given(declared.AS_OF),
            counters=reader.given(declared.COUNTERS),
            counters_root=reader.given(declared.COUNTERS_ROOT) or root,
        )
        # Options are read again by each process of a query: without `as_of` the clock must not decide.
        if parsed.end is not None and parsed.start.is_after(parsed.end, now_ms=parsed.as_of_ms):
            raise reader.conflict(
                declared.START, declared.END, f"found {parsed.start}, which lies behind the end, {parsed.end}"
            )
        if parsed.server is not None and parsed.max_bytes_per_batch is not None:
            raise reader.conflict(
                declared.SERVER,
                declared.MAX_BYTES_PER_BATCH,
                "a server does not say how large messages are; limit their number",
            )
        if parsed.match_unfiltered and not parsed.filter_values:
            raise reader.conflict(
                declared.MATCH_UNFILTERED, declared.FILTER_VALUES, "match_unfiltered says nothing without filter_values"
            )
        if parsed.properties and "application_properties" not in parsed.columns:
            raise reader.conflict(
                declared.PROPERTIES, declared.COLUMN_NAMES, "properties types a column that columns leaves out"
            )
        if parsed.fields and parsed.on_mismatch is not OnMismatch.NULL:
            raise reader.conflict(
                declared.ON_MISMATCH,
                declared.COLUMN_NAMES,
                "a field that is a column is null where it does not fit; declare it with the option properties",
            )
        return parsed


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write, and for creating a missing stream: the values of `declared.SINK_OPTIONS`."""

    root: Path
    server: ServerAddress | None
    staging: Path
    stream: str
    filter_value: str | None
    write_id: str | None
    batch_id: int
    durability: str
    compression: str
    filter_size_bytes: int | None
    max_segment_size_bytes: int | None
    max_length_bytes: int | None
    max_age_ms: int | None
    filter_source: str | None
    columns: str | None
    body_schema: str | None
    """The text of the schema."""
    counters: str | None

    @property
    def is_compressed(self) -> bool:
        """Whether messages are written in sub-batches."""
        return self.compression != declared.COMPRESSION.default

    @staticmethod
    def parse(options: Mapping[str, str]) -> SinkOptions:
        """Options by name; Raises ConfigError that names the error."""
        reader = OptionReader(options, _all(declared.SINK_OPTIONS), subject="headgate sink")
        server, root = _server(reader), _root(reader)
        parsed = SinkOptions(
            root=root,
            server=server,
            staging=reader.given(declared.STAGING) or root,
            stream=_named(reader, declared.STREAM, declared.TARGET_PATH),
            filter_value=reader.given(declared.FILTER_VALUE),
            write_id=reader.given(declared.WRITE_ID),
            batch_id=reader.value(declared.BATCH_ID),
            durability=reader.value(declared.DURABILITY),
            compression=reader.value(declared.COMPRESSION),
            filter_size_bytes=reader.given(declared.FILTER_SIZE_BYTES),
            max_segment_size_bytes=reader.given(declared.MAX_SEGMENT_SIZE_BYTES),
            max_length_bytes=reader.given(declared.MAX_LENGTH_BYTES),
            max_age_ms=reader.given(declared.MAX_AGE),
            filter_source=reader.given(declared.FILTER_SOURCE),
            columns=reader.given(declared.DECLARED_COLUMNS),
            body_schema=_body_schema(reader),
            counters=reader.given(declared.COUNTERS),
        )
        if reader.has(declared.STAGING) and server is None:
            raise reader.conflict(declared.STAGING, declared.SERVER, "without a server chunks are staged under root")
        if server is not None and parsed.durability != "process":
            raise reader.conflict(
                declared.DURABILITY, declared.SERVER, "how safe a confirmed message is, the server decides"
            )
        if server is not None and parsed.is_compressed and parsed.filter_value and not parsed.filter_source:
            raise reader.conflict(declared.COMPRESSION, declared.FILTER_VALUE, declared.NO_VALUES_COMPRESSED)
        if server is not None and parsed.body_schema is not None:
            raise reader.conflict(
                declared.BODY_SCHEMA,
                declared.SERVER,
                "make the stream first, with headgate stream create --server … --body-schema FILE",
            )
        if reader.has(declared.BATCH_ID) and parsed.write_id is None:
            raise reader.conflict(
                declared.BATCH_ID, declared.WRITE_ID, "a batch_id numbers the writes of one write_id; give both"
            )
        if parsed.filter_value and parsed.filter_source and parsed.filter_value != parsed.filter_source:
            raise reader.conflict(
                declared.FILTER_VALUE, declared.FILTER_SOURCE, "a stream that declares its source is filled from that"
            )
        return parsed


def _body_schema(reader: OptionReader) -> str | None:
    given = reader.given(declared.BODY_SCHEMA)
    if given is None:
        return None
    # Imported here: not many writes declare a schema.
    from headgate.message.body_schema import read_body_schema

    try:
        return read_body_schema(given).text
    except ConfigError as error:
        raise ConfigError(f"headgate sink option {declared.BODY_SCHEMA.name}: {error}") from error


def parse_filter(options: Mapping[str, str], *, subject: str) -> Filter | None:
    """The filter of the options `filter` + `dialect` or `property_filter`, which stand alone here."""
    return _filter(OptionReader(options, _FILTER_OPTIONS, subject=subject))


def _all(sections: Mapping[str, tuple[Option[object], ...]]) -> Iterable[Option[object]]:
    return (option for section in sections.values() for option in section)


def _root(reader: OptionReader) -> Path:
    return reader.given(declared.ROOT) or absolute_root(default_root())


def _server(reader: OptionReader) -> ServerAddress | None:
    server, user, password = reader.given(declared.SERVER), reader.given(declared.USER), reader.given(declared.PASSWORD)
    if server is None:
        for option in (declared.USER, declared.PASSWORD):
            if reader.has(option):
                raise reader.conflict(option, declared.SERVER, f"a {option.name} is for a server, and there is none")
        return None
    if reader.has(declared.ROOT):
        raise reader.conflict(declared.ROOT, declared.SERVER, "both say where the streams are; give one")
    return replace(
        server,
        user=server.user if user is None else user,
        password=server.password if password is None else password,
    )


def _topic(reader: OptionReader) -> tuple[str, ...]:
    """The topic of a subscription that is read; nothing for streams."""
    topic = reader.given(declared.TOPIC)
    if topic is None:
        if reader.has(declared.SUBSCRIPTION):
            raise reader.conflict(declared.SUBSCRIPTION, declared.TOPIC, "a subscription is one of a topic; give both")
        return ()
    for other in (declared.STREAMS, declared.PATH):
        if reader.has(other):
            raise reader.conflict(declared.TOPIC, other, "both name what to read; give one")
    if not reader.has(declared.SUBSCRIPTION):
        raise reader.conflict(declared.TOPIC, declared.SUBSCRIPTION, "copies are those of a subscription; name it")
    if reader.has(declared.SERVER):
        raise reader.conflict(declared.TOPIC, declared.SERVER, "copies of subscriptions are read from files")
    return (topic,)


def _named(reader: OptionReader, stream: Option[T], path: Option[T]) -> T:
    if reader.has(stream) and reader.has(path):
        raise reader.conflict(stream, path, "both name what to open; give one")
    named = reader.given(stream) or reader.given(path)
    if named is None:
        raise reader.missing(stream)
    return named


def _filter(reader: OptionReader) -> Filter | None:
    if reader.has(declared.FILTER) and reader.has(declared.PROPERTY_FILTER):
        raise reader.conflict(declared.FILTER, declared.PROPERTY_FILTER, "they exclude each other; give one")
    text, dialect = reader.given(declared.FILTER), reader.value(declared.DIALECT)
    if text is not None:
        return Filter.parse(text, dialect=dialect)
    if reader.has(declared.DIALECT):
        raise reader.conflict(declared.DIALECT, declared.FILTER, "a dialect without a filter says nothing")
    return reader.given(declared.PROPERTY_FILTER)
