"""The options of source, sink and copy: read and checked here, before any work is done; no Spark is needed for it.

Spark hands options over as strings and ignores the case of their names. Every option that is unknown, malformed or
contradicts another is a ConfigError that names it.

Source: `root`, `stream` (name, path, comma list or JSON list, globs allowed; also as the path of `load`), `filter` +
`dialect` or `property_filter` (JSON: `{"properties": {…}, "application_properties": {…}}`), `filter_values`,
`match_unfiltered`, `start`, `end` (`first`, `last`, `next`, an offset, an interval such as `10m`, an ISO time),
`columns`, `properties` (`region string, price double`), `max_messages_per_batch`, `max_bytes_per_batch`,
`fail_on_data_loss`, `on_corrupt` (`fail`, `skip`), `verify_crc`, `match_index` (`false`: evaluate, whatever was
calculated ahead), `partitions`, `as_of` (the time that `UTC()` gives and
intervals count from; default: the time of planning), `counters` (a token, see `headgate.spark.counters`) and
`counters_root` (where they are kept; default: `root`).

Source and sink: `server` (`host:port`, or a URL with user and password) with `user` and `password`, in place of
`root`; `stream` has names then, also of super streams.

Sink: `root`, `stream`, `filter_value` (a column, or a field such as `application_properties.region`), `write_id` and
`batch_id` (a write with the pair of an earlier one does nothing; default: a pair of its own; streaming queries use
theirs), `durability` (`process`, `disk`), `counters`, and for a stream that is made by the write: `filter_size_bytes`,
`max_segment_size_bytes`, `max_length_bytes`, `max_age`, `filter_source`. With a server also `staging`: a folder that
driver and tasks share and that outlives them, where rows wait until the batch is decided (default: as `root`).
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from headgate.client.address import ServerAddress
from headgate.errors import ConfigError
from headgate.evaluate.filter import Filter
from headgate.language import DEFAULT_DIALECT, dialect_names
from headgate.log import OffsetKind, OffsetSpecification
from headgate.message.arrow import DeclaredProperty, declared_properties
from headgate.message.fields import parse_field

T = TypeVar("T")

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
"""What a source has when `columns` is not given: everything but the encoded message."""

FILTER_OPTIONS = frozenset({"filter", "dialect", "property_filter"})
"""Options that together say one filter."""

DEFAULT_ROOT = "headgate-data"
ROOT_VARIABLE = "HEADGATE_ROOT"

_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path", "serialization.format"}) | {
    # what Spark's catalogue knows of a table comes along with the table's options
    *("collation", "comment", "external", "is_managed_location", "location", "owner", "provider", "table_type")
}


class OptionReader:
    """Takes options one by one, by snake_case name; `finish` refuses what nobody took."""

    def __init__(self, options: Mapping[str, str], *, subject: str) -> None:
        # Spark gives the options of a table twice, once with this prefix.
        given = {name.lower(): value for name, value in options.items()}
        self._options = {name: value for name, value in given.items() if not name.startswith("option.")}
        self._left = set(self._options)
        self._known: set[str] = set()
        self.subject = subject

    def text(self, name: str) -> str | None:
        """The option's text; None when it is not given. Empty text is an error."""
        self._known.add(name)
        self._left.discard(name)
        value = self._options.get(name)
        if value is not None and not value.strip():
            raise self.wrong(name, value, "a value")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """`true` or `false`."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise self.wrong(name, value, "true or false")
        return value.lower() == "true"

    def number(self, name: str, *, least: int = 1, most: int = 2**63 - 1) -> int | None:
        """A whole number within bounds."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"\d{1,19}", value.strip()) or not least <= int(value) <= most:
            raise self.wrong(name, value, f"a whole number from {least} to {most}")
        return int(value)

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One of a few words."""
        value = self.text(name)
        if value is None:
            return default
        if value not in allowed:
            raise self.wrong(name, value, " or ".join(allowed))
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """A comma list, or a JSON list of strings for values that hold commas; () when not given."""
        value = self.text(name)
        if value is None:
            return ()
        if value.lstrip().startswith("["):
            words = self._json(name, value, "a JSON list of strings")
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise self.wrong(name, value, "a JSON list of strings")
        else:
            words = [word.strip() for word in value.split(",")]
            if not all(words):
                raise self.wrong(name, value, "names between the commas")
        if not words:
            raise self.wrong(name, value, "at least one value")
        return tuple(words)

    def json_map(self, name: str) -> dict[str, object] | None:
        """A JSON object."""
        value = self.text(name)
        if value is None:
            return None
        parsed = self._json(name, value, "a JSON object")
        if not isinstance(parsed, dict):
            raise self.wrong(name, value, "a JSON object")
        return parsed

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """What `parse` makes of the text; its errors come back with the option's name."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value)
        except ConfigError as error:
            raise ConfigError(f"{self.subject} option {name}: {error}") from error

    def checked(self, name: str, parse: Callable[[str], object]) -> str | None:
        """The text itself, if `parse` accepts it."""
        self.parsed(name, parse)
        return self._options.get(name)

    def _json(self, name: str, value: str, expected: str) -> object:
        try:
            return json.loads(value)
        except ValueError:
            raise self.wrong(name, value, expected) from None

    def wrong(self, name: str, value: str, expected: str) -> ConfigError:
        """The error for an option whose value is not what it must be."""
        shown = value if len(value) <= 80 else value[:77] + "…"
        return ConfigError(f"{self.subject} option {name}: found {shown!r}, expected {expected}")

    def conflict(self, first: str, second: str, reason: str) -> ConfigError:
        """The error for two options that cannot stand together."""
        return ConfigError(f"{self.subject} options {first} and {second}: {reason}")

    def finish(self) -> None:
        """Refuse what was not taken, and name the nearest option there is."""
        for name in sorted(self._left - _SPARKS_OWN):
            near = difflib.get_close_matches(name, self._known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(self._known))}"
            raise ConfigError(f"{self.subject} option {name} is unknown{hint}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read; see the head of this module."""

    root: Path
    server: ServerAddress | None
    streams: tuple[str, ...]
    filter: Filter | None
    filter_values: tuple[bytes, ...]
    match_unfiltered: bool
    start: OffsetSpecification | None
    end: OffsetSpecification | None
    columns: tuple[str, ...]
    properties: tuple[DeclaredProperty, ...]
    max_messages_per_batch: int | None
    max_bytes_per_batch: int | None
    fail_on_data_loss: bool
    skip_corrupt: bool
    verify_crc: bool
    match_index: bool
    partitions: int | None
    as_of_ms: int | None
    counters: str | None
    counters_root: Path

    @staticmethod
    def parse(options: Mapping[str, str]) -> SourceOptions:
        """Options by name; FilterError for a filter that is refused, ConfigError for anything else that is wrong."""
        reader = OptionReader(options, subject="headgate source")
        server = _server(reader)
        root, counters_root = _root(reader), reader.text("counters_root")
        parsed = SourceOptions(
            root=root,
            server=server,
            streams=_streams(reader),
            filter=_filter(reader),
            filter_values=tuple(value.encode() for value in reader.words("filter_values")),
            match_unfiltered=reader.flag("match_unfiltered", False),
            start=reader.parsed("start", OffsetSpecification.parse),
            end=reader.parsed("end", OffsetSpecification.parse),
            columns=_columns(reader),
            properties=_properties(reader),
            max_messages_per_batch=reader.number("max_messages_per_batch"),
            max_bytes_per_batch=reader.number("max_bytes_per_batch"),
            fail_on_data_loss=reader.flag("fail_on_data_loss", True),
            skip_corrupt=reader.choice("on_corrupt", ("fail", "skip"), "fail") == "skip",
            verify_crc=reader.flag("verify_crc", True),
            match_index=reader.flag("match_index", True),
            partitions=reader.number("partitions", most=100_000),
            as_of_ms=reader.parsed("as_of", time_ms),
            counters=_token(reader, "counters"),
            counters_root=root if counters_root is None else Path(counters_root).absolute(),
        )
        reader.finish()
        if parsed.server is not None and parsed.max_bytes_per_batch is not None:
            raise reader.conflict(
                "server", "max_bytes_per_batch", "a server does not say how large messages are; limit their number"
            )
        if parsed.match_unfiltered and not parsed.filter_values:
            raise reader.conflict(
                "match_unfiltered", "filter_values", "match_unfiltered says nothing without filter_values"
            )
        if parsed.properties and "application_properties" not in parsed.columns:
            raise reader.conflict("properties", "columns", "properties types a column that columns leaves out")
        return parsed


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write, and how a stream that is not there is made; see the head of this module."""

    root: Path
    server: ServerAddress | None
    staging: Path
    stream: str
    filter_value: str | None
    write_id: str | None
    batch_id: int | None
    durability: str
    filter_size_bytes: int | None
    max_segment_size_bytes: int | None
    max_length_bytes: int | None
    max_age_ms: int | None
    filter_source: str | None
    counters: str | None

    @staticmethod
    def parse(options: Mapping[str, str]) -> SinkOptions:
        """Options by name; ConfigError names what is wrong."""
        reader = OptionReader(options, subject="headgate sink")
        streams = _streams(reader)
        server = _server(reader)
        root, staging = _root(reader), reader.text("staging")
        parsed = SinkOptions(
            root=root,
            server=server,
            staging=root if staging is None else Path(staging).absolute(),
            stream=streams[0],
            filter_value=reader.text("filter_value"),
            write_id=_token(reader, "write_id"),
            batch_id=reader.number("batch_id", least=0, most=2**43 - 1),
            durability=reader.choice("durability", ("process", "disk"), "process"),
            filter_size_bytes=reader.number("filter_size_bytes", least=16, most=255),
            max_segment_size_bytes=reader.number("max_segment_size_bytes", most=3_000_000_000),
            max_length_bytes=reader.number("max_length_bytes"),
            max_age_ms=reader.parsed("max_age", interval_ms),
            filter_source=reader.checked("filter_source", parse_field),
            counters=_token(reader, "counters"),
        )
        reader.finish()
        if len(streams) > 1 or any(character in parsed.stream for character in "*?["):
            raise reader.wrong("stream", ", ".join(streams), "one stream")
        if staging is not None and server is None:
            raise reader.conflict("staging", "server", "without a server chunks are staged under root")
        if server is not None and parsed.durability != "process":
            raise reader.conflict("durability", "server", "how safe a confirmed message is, the server decides")
        if parsed.batch_id is not None and parsed.write_id is None:
            raise reader.conflict("batch_id", "write_id", "a batch_id numbers the writes of one write_id; give both")
        if parsed.filter_value and parsed.filter_source and parsed.filter_value != parsed.filter_source:
            raise reader.conflict(
                "filter_value", "filter_source", "a stream that declares its source is filled from that"
            )
        return parsed


def interval_ms(text: str) -> int:
    """Milliseconds of an interval such as `7D` (units Y M D h m s)."""
    specification = OffsetSpecification.parse(text)
    if specification.kind is not OffsetKind.INTERVAL:
        raise ConfigError(f"found {text!r}, expected a number and a unit of Y, M, D, h, m, s, such as 7D")
    return specification.value


def time_ms(text: str) -> int:
    """Milliseconds since 1970 from such a number or an ISO time (UTC where it names no zone)."""
    if re.fullmatch(r"\d{1,15}", text.strip()):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(f"found {text!r}, expected an ISO time or milliseconds since 1970") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def default_root() -> Path:
    """Where streams are looked for by name when no root is given."""
    return Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)


def _root(reader: OptionReader) -> Path:
    given = reader.text("root")
    return (default_root() if given is None else Path(given)).absolute()


def names_server(options: Mapping[str, str]) -> bool:
    """Whether options are about a server."""
    return any(name.lower() == "server" for name in options)


def _server(reader: OptionReader) -> ServerAddress | None:
    user, password = reader.text("user"), reader.text("password")
    server = reader.parsed("server", lambda text: ServerAddress.parse(text, user=user, password=password))
    if server is None:
        for name, value in (("user", user), ("password", password)):
            if value is not None:
                raise reader.conflict(name, "server", f"a {name} is for a server, and there is none")
    elif reader.text("root") is not None:
        raise reader.conflict("root", "server", "both say where the streams are; give one")
    return server


def _streams(reader: OptionReader) -> tuple[str, ...]:
    streams, path = reader.words("stream"), reader.text("path")
    if streams and path:
        raise reader.conflict("stream", "path", "both name what to open; give one")
    if not streams and not path:
        raise ConfigError(f"{reader.subject} option stream is missing: a stream's name or the path of its folder")
    return streams or reader.words("path")


def parse_filter(options: Mapping[str, str], *, subject: str) -> Filter | None:
    """The filter of the options `filter` + `dialect` or `property_filter`, which stand alone here."""
    reader = OptionReader(options, subject=subject)
    parsed = _filter(reader)
    reader.finish()
    return parsed


def _filter(reader: OptionReader) -> Filter | None:
    text, maps = reader.text("filter"), reader.json_map("property_filter")
    dialect = reader.text("dialect")
    if text is not None and maps is not None:
        raise reader.conflict("filter", "property_filter", "they exclude each other; give one")
    if dialect is not None and text is None:
        raise reader.conflict("dialect", "filter", "a dialect without a filter says nothing")
    if dialect is not None and dialect not in (known := dialect_names()):
        raise reader.wrong("dialect", dialect, f"one of {', '.join(sorted(known))}")
    if maps is None:
        return None if text is None else Filter.parse(text, dialect=dialect or DEFAULT_DIALECT)
    for section, fields in maps.items():
        if section not in ("properties", "application_properties") or not isinstance(fields, dict):
            raise reader.wrong("property_filter", section, "objects named properties and application_properties")
    return reader.parsed("property_filter", lambda text: Filter.from_properties(**json.loads(text)))


def _columns(reader: OptionReader) -> tuple[str, ...]:
    columns = reader.words("columns") or DEFAULT_COLUMNS
    for column in columns:
        if column not in COLUMNS:
            raise reader.wrong("columns", column, f"some of {', '.join(COLUMNS)}")
    if len(set(columns)) < len(columns):
        raise reader.wrong("columns", ", ".join(columns), "each column once")
    return columns


def _properties(reader: OptionReader) -> tuple[DeclaredProperty, ...]:
    return reader.parsed("properties", declared_properties) or ()


def _token(reader: OptionReader, name: str) -> str | None:
    value = reader.text(name)
    if value is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise reader.wrong(name, value, "at most 100 letters, digits, dots, dashes and underscores")
    return value
