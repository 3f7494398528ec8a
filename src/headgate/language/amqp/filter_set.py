"""The filter map of an AMQP 1.0 receiver: the entries in force, and the ignored entries with reasons.

Source: rabbitmq_filters, sections 1 and 5. Entries are judged alone, from the last to the first; a bad one is left out
and the link is attached without it. Only a text that is not an offset specification refuses the attach.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.errors import FilterError
from headgate.language import DEFAULT_DIALECT, bind, parse
from headgate.language.amqp.properties import (
    PropertyFilter,
    application_properties_filter,
    joined,
    properties_filter,
)
from headgate.language.tree import Node
from headgate.message import INTEGER_RANGES, AmqpType, AmqpValue

PRECONDITION_FAILED = "amqp:precondition-failed"
"""Error condition of an attach that is refused because of its offset specification."""


@dataclass(frozen=True, slots=True)
class FilterEntry:
    """One entry of a filter map: its name, and the descriptor (None: not described) and value after it."""

    name: AmqpValue
    descriptor: AmqpValue | None
    value: AmqpValue


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An entry that is not in force: its place in the map, and the reason."""

    index: int
    reason: str


class OffsetRequestKind(enum.Enum):
    """The kinds of an offset specification, as `headgate.log` knows them."""

    FIRST = "first"
    LAST = "last"
    NEXT = "next"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True)
class OffsetRequest:
    """Where a receiver wants to start; `value` is an offset, milliseconds since 1970, or milliseconds before now."""

    kind: OffsetRequestKind
    value: int = 0


@dataclass(frozen=True, slots=True)
class FilterSet:
    """A filter map, read.

    `effective`: indexes of the entries to echo, in the order given. `filter_values` are ORed (none: no
    stage 1). `tree` and `text`: the expression of stage 2, an SQL filter or property filters ANDed. `offset`: None is
    the default, next. `is_text`: the expression is an SQL filter, a text of `dialect`.
    `attach_refused`: the entry because of which the attach fails with `PRECONDITION_FAILED`.
    """

    effective: tuple[int, ...]
    refused: tuple[RefusedEntry, ...]
    filter_values: tuple[bytes, ...] = ()
    match_unfiltered: bool = False
    offset: OffsetRequest | None = None
    dialect: str = DEFAULT_DIALECT
    text: str | None = None
    tree: Node | None = None
    is_text: bool = False
    attach_refused: RefusedEntry | None = None


class _LeftOut(Exception):  # noqa: N818 - ends up as a RefusedEntry
    """The entry is not in force; the message says why."""


class _AttachRefused(Exception):  # noqa: N818 - ends up as `attach_refused`
    """The attach fails; the message says why."""


SQL_FILTER_NAME = "sql-filter"
"""The one name under which an SQL filter is taken."""

_SQL = ("amqp:sql-filter", 0x120)
_PROPERTIES = ("amqp:properties-filter", 0x173)
_APPLICATION_PROPERTIES = ("amqp:application-properties-filter", 0x174)
_INTERVAL = re.compile(r"([0-9]+)([YMDhms])")
_UNIT_MS = {"Y": 365 * 86_400_000, "M": 30 * 86_400_000, "D": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def read_filter_set(
    entries: Sequence[FilterEntry], dialect: str = DEFAULT_DIALECT, *, sql_bytes: int | None = None
) -> FilterSet:
    """Read the entries of a filter map; SQL filters are texts of `dialect`, of at most `sql_bytes` bytes.

    A wrong entry never raises.
    """
    reader = _Reader(dialect, sql_bytes)
    effective: list[int] = []
    refused: list[RefusedEntry] = []
    attach_refused: RefusedEntry | None = None
    for index in reversed(range(len(entries))):
        try:
            reader.read(entries[index])
        except _LeftOut as left_out:
            refused.append(RefusedEntry(index, str(left_out)))
        except FilterError as error:
            refused.append(RefusedEntry(index, str(error)))
        except _AttachRefused as wrong:
            attach_refused = RefusedEntry(index, str(wrong))
            refused.append(attach_refused)
        else:
            effective.append(index)
    text, tree = reader.expression()
    return FilterSet(
        effective=tuple(reversed(effective)),
        refused=tuple(reversed(refused)),
        filter_values=reader.filter_values,
        match_unfiltered=reader.match_unfiltered,
        offset=reader.offset,
        dialect=dialect,
        text=text,
        tree=tree,
        is_text=reader.is_text,
        attach_refused=attach_refused,
    )


class _Reader:
    """Takes entries from the last to the first: of stage 1 and offset the last taken counts, of others the first."""

    def __init__(self, dialect: str, sql_bytes: int | None) -> None:
        self.dialect = dialect
        self.sql_bytes = sql_bytes
        self.filter_values: tuple[bytes, ...] = ()
        self.match_unfiltered = False
        self.offset: OffsetRequest | None = None
        self._sql: tuple[str, Node] | None = None
        self._by_section: dict[str, PropertyFilter] = {}

    def read(self, entry: FilterEntry) -> None:
        if entry.name.type is not AmqpType.SYMBOL:
            raise _LeftOut(f"the name of a filter is a symbol, found {entry.name.type.value}")
        if entry.descriptor is None:
            raise _LeftOut("found a value without descriptor")
        descriptor = _descriptor(entry.descriptor)
        is_sql_name = entry.name.value == SQL_FILTER_NAME
        if descriptor == "rabbitmq:stream-offset-spec":
            self.offset = _offset(entry.value)
        elif descriptor == "rabbitmq:stream-filter":
            self.filter_values = _filter_values(entry.value)
        elif descriptor == "rabbitmq:stream-match-unfiltered":
            if entry.value.type is not AmqpType.BOOLEAN:
                raise _LeftOut(f"match-unfiltered is a boolean, found {entry.value.type.value}")
            self.match_unfiltered = entry.value.value
        elif descriptor in _SQL and is_sql_name:
            self._read_sql(entry.value)
        elif descriptor in (*_PROPERTIES, *_APPLICATION_PROPERTIES) and not is_sql_name:
            self._read_properties(descriptor in _PROPERTIES, entry.value)
        elif descriptor in _SQL:
            raise _LeftOut(f"an SQL filter has the name {SQL_FILTER_NAME}, found {entry.name.value}")
        elif descriptor in (*_PROPERTIES, *_APPLICATION_PROPERTIES):
            raise _LeftOut(f"the name {SQL_FILTER_NAME} belongs to SQL filters, found a property filter")
        else:
            raise _LeftOut(f"no filter has the descriptor {entry.descriptor.type.value} {entry.descriptor.value!r}")

    def _read_sql(self, value: AmqpValue) -> None:
        if value.type is not AmqpType.STRING:
            raise _LeftOut(f"an SQL filter is a string, found {value.type.value}")
        text: str = value.value
        if self.sql_bytes is not None and len(text.encode("utf-8", "surrogatepass")) > self.sql_bytes:
            raise _LeftOut(f"a filter of more than {self.sql_bytes} bytes")
        tree = bind(parse(text, self.dialect), self.dialect, text)
        if self._sql or self._by_section:
            raise _LeftOut("a later entry of the map is the expression in force")
        self._sql = (text, tree)

    def _read_properties(self, fixed: bool, value: AmqpValue) -> None:
        if value.type is not AmqpType.MAP:
            raise _LeftOut(f"a property filter is a map, found {value.type.value}")
        section = "properties" if fixed else "application-properties"
        found = properties_filter(value.value) if fixed else application_properties_filter(value.value)
        if self._sql:
            raise _LeftOut("a later entry of the map is an SQL filter, which excludes property filters")
        if section in self._by_section:
            raise _LeftOut(f"a later entry of the map is a {section} filter, too")
        self._by_section[section] = found

    def expression(self) -> tuple[str | None, Node | None]:
        if self._sql:
            return self._sql
        found = [
            self._by_section[name] for name in ("properties", "application-properties") if name in self._by_section
        ]
        if not found:
            return None, None
        return joined(found)

    @property
    def is_text(self) -> bool:
        return self._sql is not None


def _descriptor(descriptor: AmqpValue) -> object:
    return descriptor.value if descriptor.type in (AmqpType.SYMBOL, AmqpType.ULONG) else None


def _filter_values(value: AmqpValue) -> tuple[bytes, ...]:
    given = value.value if value.type is AmqpType.LIST else (value,)
    strings = tuple(item.octets() or b"" for item in given if item.type is AmqpType.STRING)
    if not strings:
        raise _LeftOut(f"filter values are a string or a list with strings, found {value.type.value}")
    return strings


def _offset(value: AmqpValue) -> OffsetRequest:
    if value.type is AmqpType.TIMESTAMP:
        return OffsetRequest(OffsetRequestKind.TIMESTAMP, value.value // 1000 * 1000)
    if value.type in INTEGER_RANGES and value.value >= 0:
        return OffsetRequest(OffsetRequestKind.OFFSET, value.value)
    if value.type not in (AmqpType.STRING, AmqpType.SYMBOL):
        raise _LeftOut(f"an offset is a word, a number ≥ 0, a timestamp or an interval, found {value.type.value}")
    text: str = value.value
    if text in ("first", "last", "next"):
        return OffsetRequest(OffsetRequestKind(text))
    interval = _INTERVAL.fullmatch(text)
    if interval is None or int(interval[1]) == 0:
        raise _AttachRefused(f"found offset {text!r}, expected first, last, next or an interval such as 10m")
    return OffsetRequest(OffsetRequestKind.INTERVAL, int(interval[1]) * _UNIT_MS[interval[2]])
