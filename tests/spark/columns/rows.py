"""Typed rows for the tests of columns, and the message that each row stands for, made without the code under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from headgate.evaluate.filter import Filter
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.arrow import variant_type
from headgate.message.fields import Section
from headgate.message.variant import encode_variant

from ...strategies import FLOATS, INTEGERS, KEYS, TEXTS, WIDE_INTEGERS

NOW_MS = 1_750_000_000_000
NAMES = (*(key.decode() for key in KEYS), "a.n", "absent")


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    pool = [value for value in (*INTEGERS, *WIDE_INTEGERS) if low <= value <= high]
    return st.one_of(st.sampled_from(pool), st.integers(low, high))


_number_texts = st.sampled_from(("5", "-1", "5.0", "99.99", "true", "nan", "0x1p3", " 5"))
_texts = st.one_of(st.sampled_from(TEXTS), _number_texts, st.text(max_size=4))
_doubles = st.one_of(st.sampled_from(FLOATS), st.floats())


@dataclass(frozen=True)
class ColumnKind:
    """One type of column: values for it, and what such a value is in a message."""

    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    amqp: Callable[[Any], AmqpValue]


def _of(kind: AmqpType) -> Callable[[Any], AmqpValue]:
    return lambda value: AmqpValue(kind, value)


def _whole(value: Decimal) -> AmqpValue:
    return AmqpValue(AmqpType.LONG if value < 2**63 else AmqpType.ULONG, int(value))


SCALARS = {
    "boolean": ColumnKind(pa.bool_(), st.booleans(), _of(AmqpType.BOOLEAN)),
    "tinyint": ColumnKind(pa.int8(), _integers(8), _of(AmqpType.BYTE)),
    "smallint": ColumnKind(pa.int16(), _integers(16), _of(AmqpType.SHORT)),
    "int": ColumnKind(pa.int32(), _integers(32), _of(AmqpType.INT)),
    "bigint": ColumnKind(pa.int64(), _integers(64), _of(AmqpType.LONG)),
    "decimal": ColumnKind(pa.decimal128(20, 0), st.integers(-(2**63), 2**64 - 1).map(Decimal), _whole),
    "float": ColumnKind(pa.float32(), st.floats(width=32), _of(AmqpType.FLOAT)),
    "double": ColumnKind(pa.float64(), _doubles, _of(AmqpType.DOUBLE)),
    "string": ColumnKind(pa.string(), _texts, _of(AmqpType.STRING)),
    "binary": ColumnKind(pa.binary(), _texts.map(str.encode), _of(AmqpType.BINARY)),
    "timestamp": ColumnKind(
        pa.timestamp("us", tz="UTC"),
        st.sampled_from((0, -1, 4999, 5000, 5999, 6000, 1_767_225_600_000_999, -62_135_596_800_000_000)),
        lambda micros: AmqpValue(AmqpType.TIMESTAMP, micros // 1000),
    ),
}

_PROPERTIES = {
    "message_id": ("string", AmqpType.STRING),
    "user_id": ("binary", AmqpType.BINARY),
    "to": ("string", AmqpType.STRING),
    "subject": ("string", AmqpType.STRING),
    "reply_to": ("string", AmqpType.STRING),
    "correlation_id": ("binary", AmqpType.BINARY),
    "content_type": ("string", AmqpType.SYMBOL),
    "content_encoding": ("string", AmqpType.SYMBOL),
    "absolute_expiry_time": ("timestamp", AmqpType.TIMESTAMP),
    "creation_time": ("timestamp", AmqpType.TIMESTAMP),
    "group_id": ("string", AmqpType.STRING),
    "group_sequence": ("bigint", AmqpType.UINT),
    "reply_to_group_id": ("string", AmqpType.STRING),
}
_ANNOTATIONS = ("x-opt-rocketmq-tag", "x-opt-rocketmq-keys")
_HEADER = {"priority": ("smallint", AmqpType.UBYTE), "durable": ("boolean", AmqpType.BOOLEAN)}


@dataclass(frozen=True)
class Rows:
    """A table in one of the layouts there are, and the message of each row.

    In the first row the priority (`wrong_priority`) or the application properties (`wrong_properties`) may be nothing
    that a message can hold; then they are left out of its message.
    """

    columns: pa.RecordBatch
    messages: tuple[Message, ...]
    wrong_priority: bool
    wrong_properties: bool

    @property
    def schema(self) -> StructType:
        return StructType([StructField(field.name, from_arrow_type(field.type)) for field in self.columns.schema])


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)


@st.composite
def typed_rows(draw: st.DrawFn, shape: str | None = None) -> Rows:
    """Rows whose application properties are columns of their own, a struct, a MAP or a VARIANT."""
    count = draw(st.integers(1, 6))
    shape = shape or draw(st.sampled_from(("columns", "struct", "map", "variant")))
    fields, sections, wrong_priority = _sections(draw, count)
    wrong_properties = shape == "variant" and draw(st.integers(0, 4)) == 0
    if shape == "map":
        columns, entries = _map(draw, count)
    elif shape == "variant":
        columns, entries = _variant(draw, count, wrong=wrong_properties)
    else:
        columns, entries = _cells(draw, count)
    if shape == "struct":
        struct = pa.StructArray.from_arrays([column for _, column in columns], [name for name, _ in columns])
        columns = [("application_properties", struct)]
    batch = pa.RecordBatch.from_arrays([c for _, c in (*fields, *columns)], [n for n, _ in (*fields, *columns)])
    messages = [
        Message(None, application_properties=entry, **section) for section, entry in zip(sections, entries, strict=True)
    ]
    return Rows(batch, tuple(messages), wrong_priority, wrong_properties)


Columns = list[tuple[str, pa.Array]]
Entries = list[dict[str, AmqpValue]]


def _sections(draw: st.DrawFn, count: int) -> tuple[Columns, list[dict[str, Any]], bool]:
    """The columns of the other sections, what they are in messages, and whether the first priority is none."""
    found: Columns = []
    messages: list[dict[str, Any]] = [{} for _ in range(count)]
    wrong = draw(st.integers(0, 4)) == 0
    for section, kinds in (("header", _HEADER), ("properties", _PROPERTIES)):
        arrays = []
        for name, (scalar, amqp) in kinds.items():
            values = st.integers(0, 9) if name == "priority" else st.integers(0, 2**32 - 1)
            chosen = SCALARS[scalar].values if amqp not in (AmqpType.UBYTE, AmqpType.UINT) else values
            cells = draw(st.lists(st.none() | chosen, min_size=count, max_size=count))
            if name == "priority" and wrong:
                cells[0] = draw(st.sampled_from((-1, 256)))
            for number, (message, cell) in enumerate(zip(messages, cells, strict=True)):
                if cell is not None and not (name == "priority" and wrong and number == 0):
                    held = cell // 1000 if amqp is AmqpType.TIMESTAMP else cell
                    message.setdefault(section, {})[name] = AmqpValue(amqp, held)
            arrays.append(_array(cells, SCALARS[scalar].arrow))
        found.append((section, pa.StructArray.from_arrays(arrays, list(kinds))))
    annotations = []
    for name in _ANNOTATIONS:
        cells = draw(st.lists(st.none() | _texts, min_size=count, max_size=count))
        annotations.append(pa.array(cells, pa.string()))
        for message, cell in zip(messages, cells, strict=True):
            if cell is not None:
                message.setdefault("message_annotations", {})[name] = AmqpValue(AmqpType.STRING, cell)
    found.append(("message_annotations", pa.StructArray.from_arrays(annotations, list(_ANNOTATIONS))))
    return found, messages, wrong


def _cells(draw: st.DrawFn, count: int) -> tuple[Columns, Entries]:
    columns: Columns = []
    entries: list[dict[str, AmqpValue]] = [{} for _ in range(count)]
    for name in NAMES:
        kind = SCALARS[draw(st.sampled_from(sorted(SCALARS)))]
        cells = [None] * count
        if name != "absent":
            cells = draw(st.lists(st.none() | kind.values, min_size=count, max_size=count))
        for entry, cell in zip(entries, cells, strict=True):
            if cell is not None:
                entry[name] = kind.amqp(cell)
        columns.append((name, _array(cells, kind.arrow)))
    return columns, entries


def _keyed(draw: st.DrawFn, count: int, values: st.SearchStrategy[Any]) -> list[dict[str, Any] | None]:
    rows = st.none() | st.dictionaries(st.sampled_from(NAMES[:-1]), values, max_size=6)
    return draw(st.lists(rows, min_size=count, max_size=count))


def _map(draw: st.DrawFn, count: int) -> tuple[Columns, Entries]:
    kind = SCALARS[draw(st.sampled_from(("string", "string", "bigint", "double", "boolean")))]
    rows = _keyed(draw, count, st.none() | kind.values)
    column = pa.array([None if row is None else list(row.items()) for row in rows], pa.map_(pa.string(), kind.arrow))
    null = AmqpValue(AmqpType.NULL, None)
    entries = [{k: null if v is None else kind.amqp(v) for k, v in (row or {}).items()} for row in rows]
    return [("application_properties", column)], entries


_NESTED = AmqpValue(AmqpType.LIST, (AmqpValue(AmqpType.STRING, "abc"),))
_variants = st.one_of(
    st.just(AmqpValue(AmqpType.NULL, None)),
    st.just(_NESTED),
    *(kind.values.map(kind.amqp) for name, kind in SCALARS.items() if name not in ("timestamp", "decimal")),
)


def _variant(draw: st.DrawFn, count: int, *, wrong: bool) -> tuple[Columns, Entries]:
    rows = _keyed(draw, count, _variants)
    if wrong:
        rows[0] = None
    encoded: list[dict[str, bytes] | None] = []
    for row in rows:
        pairs = tuple((AmqpValue(AmqpType.STRING, key), value) for key, value in (row or {}).items())
        value, metadata = encode_variant(pairs)
        encoded.append(None if row is None else {"value": value, "metadata": metadata})
    if wrong:
        encoded[0] = {"value": b"\x0c\x05", "metadata": b"\x01\x00\x00"}
    return [("application_properties", pa.array(encoded, variant_type()))], [row or {} for row in rows]


def expected(filter: Filter, rows: Rows) -> list[bool]:
    """For which rows the filter is true, by the reference; never where it reads a cell that no message can hold."""
    found = [filter.matches(message, now_ms=NOW_MS) for message in rows.messages]
    read = {(field.section, field.position) for field in filter.fields}
    wrong_priority = rows.wrong_priority and (Section.HEADER, 1) in read
    wrong_properties = rows.wrong_properties and (Section.APPLICATION_PROPERTIES, None) in read
    return [False, *found[1:]] if wrong_priority or wrong_properties else found
