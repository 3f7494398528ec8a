"""Which sink gives which guarantee over restarts: the kinds that a pipeline knows (`docs/reference/sinks.md`).

A format that is not listed runs all the same; what it guarantees is then said by its connector, and reported as
`unknown`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.errors import ConfigError

HEADGATE = "headgate"
JDBC = "jdbc"


class Guarantee(enum.Enum):
    """What a sink in mode append holds after runs that were killed anywhere and repeated."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A format of sinks; `reason` says where its guarantee comes from, `transactional` whether a replacement
    (mode complete) is seen whole or not at all.
    """

    guarantee: Guarantee
    reason: str
    transactional: bool = False


_FILES = SinkKind(
    Guarantee.EXACTLY_ONCE,
    "Spark's file sink lists the files of a batch in `_spark_metadata` by one rename; readers that go by it, as Spark "
    "does, see each row once; others may see files of a batch that died",
)
_TABLE_FORMAT = "its Spark connector keeps the query's id and batch in the commit of the table; not tested here"

KINDS: Mapping[str, SinkKind] = {
    HEADGATE: SinkKind(Guarantee.EXACTLY_ONCE, "one manifest per batch, numbered appends"),
    "parquet": _FILES,
    "orc": _FILES,
    "json": _FILES,
    "csv": _FILES,
    "text": _FILES,
    JDBC: SinkKind(
        Guarantee.EXACTLY_ONCE,
        "rows of a batch and its number are written in one transaction of the database",
    ),
    "delta": SinkKind(Guarantee.EXACTLY_ONCE, _TABLE_FORMAT, transactional=True),
    "iceberg": SinkKind(Guarantee.EXACTLY_ONCE, _TABLE_FORMAT, transactional=True),
    "kafka": SinkKind(
        Guarantee.AT_LEAST_ONCE,
        "Spark writes to Kafka without transactions: the records of a batch that died are sent again",
    ),
    "console": SinkKind(Guarantee.NONE, "shows rows, keeps nothing; a repeated batch is shown again"),
    "noop": SinkKind(Guarantee.NONE, "drops every row"),
}
"""The formats whose guarantee is known here."""

_OTHER = SinkKind(Guarantee.UNKNOWN, "as its connector says")


def sink_kind(name: str) -> SinkKind:
    """What is known of a format; its name is taken without case, as Spark does."""
    return KINDS.get(name.lower(), _OTHER)


_TABLE = re.compile(r"[\w.\"`$]+")
_FOR_READING = ("query", "partitionColumn", "lowerBound", "upperBound", "predicates")


def check_jdbc_options(options: Mapping[str, str], keys: Sequence[str]) -> None:
    """Refuse options that name no table, or keys that name no column; ConfigError says which."""
    lowered = {name.lower(): value for name, value in options.items()}
    for name in ("url", "dbtable"):
        if not lowered.get(name):
            raise ConfigError(f"options: {name} is missing; a jdbc sink needs url and dbtable")
    for name in _FOR_READING:
        if name.lower() in lowered:
            raise ConfigError(f"options: {name} is for reading; a jdbc sink writes the table that dbtable names")
    if not _TABLE.fullmatch(lowered["dbtable"]):
        raise ConfigError(f"options: dbtable is {lowered['dbtable']!r}; expected the name of a table")
    if len(set(keys)) < len(keys) or not all(keys):
        raise ConfigError(f"key is {list(keys)}; expected names of columns, each once")
