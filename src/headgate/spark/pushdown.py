"""Filters that Spark pushes down on its own and a read uses before it reads: offsets, times, values of text fields."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headgate.message import FieldReference, parse_field
from headgate.message.arrow import DeclaredColumn, SparkType
from headgate.scan import ChunkRange, OffsetRange

_COMPARISONS: dict[type[Filter], tuple[str, Callable[[Any, Any], Any]]] = {
    EqualTo: ("=", operator.eq),
    EqualNullSafe: ("=", operator.eq),
    GreaterThan: (">", operator.gt),
    GreaterThanOrEqual: (">=", operator.ge),
    LessThan: ("<", operator.lt),
    LessThanOrEqual: ("<=", operator.le),
}
_TEXT_PROPERTIES = ("to", "subject", "reply_to", "content_type", "content_encoding", "group_id", "reply_to_group_id")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Pushed:
    """Comparisons of offsets and times are taken over from Spark and exact, so it need not evaluate them again.

    Equality of the filter value, or of a text field that may be declared as its source, rules out chunks (stage 1);
    which messages it holds for is still Spark's to say. Ids are no text: a uuid is shown as text that is not its bytes.
    """

    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Section and name of the text fields that are columns of their own."""
    offsets: list[tuple[type[Filter], int]] = field(default_factory=list)
    times_us: list[tuple[type[Filter], int]] = field(default_factory=list)
    values: list[tuple[FieldReference | None, frozenset[bytes]]] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)
    """The used filters, as text."""

    @staticmethod
    def of(fields: Iterable[DeclaredColumn]) -> Pushed:
        """Nothing so far, of a read in which these fields are columns."""
        texts = (each for each in fields if each.kind is SparkType.STRING and each.field.isidentifier())
        return Pushed({each.name: (each.section.name.lower(), each.field) for each in texts})

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Keep the filters that can be used, give back the rest."""
        return [pushed for pushed in filters if not self._take(pushed)]

    def _take(self, pushed: Filter) -> bool:
        attribute = getattr(pushed, "attribute", None)
        if attribute is not None and len(attribute) == 1:
            attribute = self.places.get(attribute[0], attribute)
        if attribute is not None and _may_be_filter_source(attribute):
            self._note_values(attribute, pushed)
            return False
        if attribute not in (("offset",), ("timestamp",)):
            return False
        if isinstance(pushed, IsNotNull):
            return True
        value = getattr(pushed, "value", None)
        if type(pushed) not in _COMPARISONS:
            return False
        if attribute == ("offset",) and type(value) is int:
            self.offsets.append((type(pushed), value))
        elif attribute == ("timestamp",) and isinstance(value, datetime) and value.tzinfo is not None:
            self.times_us.append((type(pushed), (value - _EPOCH) // timedelta(microseconds=1)))
        else:
            return False
        self.descriptions.append(f"{attribute[0]} {_COMPARISONS[type(pushed)][0]} {value}")
        return True

    def _note_values(self, attribute: tuple[str, ...], pushed: Filter) -> None:
        wanted: object = None
        if isinstance(pushed, EqualTo | EqualNullSafe):
            wanted = (pushed.value,)
        elif isinstance(pushed, In):
            wanted = pushed.value
        if isinstance(wanted, tuple | list) and all(isinstance(value, str) for value in wanted):
            source = None if attribute == ("filter_value",) else parse_field(".".join(attribute))
            self.values.append((source, frozenset(str(value).encode() for value in wanted)))
            self.descriptions.append(f"{'.'.join(attribute)} IN ({', '.join(map(repr, wanted))})")

    def narrowed(self, within: OffsetRange) -> OffsetRange:
        """The offsets of a range for which all comparisons hold."""
        start, stop = within.start, within.stop
        for kind, value in self.offsets:
            if kind in (EqualTo, EqualNullSafe, GreaterThanOrEqual):
                start = max(start, value)
            elif kind is GreaterThan:
                start = max(start, value + 1)
            if kind in (EqualTo, EqualNullSafe, LessThanOrEqual):
                stop = min(stop, value + 1)
            elif kind is LessThan:
                stop = min(stop, value)
        return OffsetRange(start, max(start, stop))

    def chunks_in_time(self, chunks: ChunkRange) -> ChunkRange:
        """The chunks of a range with a matching time, which all messages of a chunk share. Reads an index file."""
        if not self.times_us:
            return chunks
        with chunks.segment.open() as reader:
            times_us = reader.chunks().timestamp_ms[chunks.rows] * 1000
        fits = np.ones(len(times_us), dtype=np.bool_)
        for kind, value in self.times_us:
            fits &= _COMPARISONS[kind][1](times_us, value)
        return replace(chunks, rows=chunks.rows[fits])


def _may_be_filter_source(attribute: tuple[str, ...]) -> bool:
    if attribute == ("filter_value",):
        return True
    section, *names = attribute
    return len(names) == 1 and (
        section == "application_properties" or (section == "properties" and names[0] in _TEXT_PROPERTIES)
    )
