"""The cases of RabbitMQ tables: what a line says, run against the filters, the Bloom filter and the start rules.

A check returns when the case came out as the table says and raises `Disagreement` otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, TypeVar

from headgate.errors import FilterError
from headgate.evaluate import Engine, Filter
from headgate.language.amqp import (
    PRECONDITION_FAILED,
    FilterEntry,
    FilterSet,
    OffsetRequest,
    OffsetRequestKind,
    read_filter_set,
)
from headgate.log import DEFAULT_FILTER_SIZE_BYTES, BloomMatcher, bit_positions, bloom_bytes, phash2, phash2_of_list
from headgate.message import AmqpType, AmqpValue, EncodedMessages, from_json

T = TypeVar("T")
Line = dict[str, Any]


DEFAULT_TABLE_DIALECT = "rabbitmq"
"""The dialect of lines that name none by the key `dialect`: that of the recordings."""


class WrongLine(Exception):  # noqa: N818 - ends up as a TableFailure
    """A line that does not have the form of its kind; the message names the key."""


class MissingMessages(Exception):  # noqa: N818 - ends up as a TableFailure
    """A case that needs messages, while there are none."""


class Disagreement(Exception):  # noqa: N818 - ends up as a TableFailure
    """A case whose result is not the one in the table."""

    def __init__(self, expected: object, got: object, engine: str = "") -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected = _shortened(expected)
        self.got = _shortened(got)
        self.engine = engine


def _shortened(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 2000 else f"{text[:2000]}… ({len(text)} characters)"


def field(content: Line, key: str, kind: type[T]) -> T:
    """The value of a key of a line; raises WrongLine unless it is there and of that type."""
    value = content.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise WrongLine(f"key {key!r}: found {value!r}, expected {kind.__name__}")
    return value


def hex_bytes(text: str) -> bytes:
    """Bytes from hexadecimal; raises WrongLine."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise WrongLine(f"found {text[:40]!r}, expected bytes in hexadecimal") from None


def compare(content: Line, got: dict[str, object]) -> None:
    """Raise Disagreement unless the line has these values for these keys."""
    expected = {key: content.get(key) for key in got}
    if got != expected:
        raise Disagreement(expected, got)


def _numbers(content: Line, key: str) -> list[int]:
    values = field(content, key, list)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        raise WrongLine(f"key {key!r}: expected a list of numbers")
    return values


def filter_text(content: Line) -> str:
    """What a line is about, for showing a failure."""
    for key in ("sql", "filters", "expr", "expression", "action", "filter", "hex"):
        if key in content:
            value = content[key]
            return value if isinstance(value, str) else _shortened(value)
    return ""


@dataclass(frozen=True, slots=True)
class MessageTable:
    """Messages by number: `numbers[i]` is that of row i of `batch`; or the problem why there are none."""

    numbers: tuple[int, ...] = ()
    batch: EncodedMessages = dataclass_field(default_factory=lambda: EncodedMessages.of(()))
    problem: str | None = None

    def matching(self, filter: Filter | None, engine: Engine, now_ms: int) -> list[int]:
        """Numbers of the messages that a filter (None: no filter) delivers; raises MissingMessages."""
        if self.problem is not None:
            raise MissingMessages(self.problem)
        if filter is None:
            return list(self.numbers)
        mask = filter.mask(self.batch, now_ms=now_ms, engine=engine)
        return [number for number, chosen in zip(self.numbers, mask, strict=True) if chosen]


def check_sql(
    content: Line, messages: MessageTable, engines: tuple[Engine, ...], dialect: str | None, now_ms: int
) -> int:
    """A case with `sql`: whether the filter is accepted, and which messages match. Gives 1, or 0 for no case.

    `dialect` None is the one that the line names. Another dialect may accept a text that this one refuses; for it the
    line is not a case.
    """
    text, accepted, own_dialect = field(content, "sql", str), _accepted(content), _dialect(content)
    expected = _numbers(content, "matches") if accepted else None
    try:
        filter = Filter.parse(text, dialect or own_dialect)
    except FilterError as error:
        if accepted:
            raise Disagreement("accepted", f"refused: {error.reason}") from None
        return 1
    if accepted is False:
        if dialect not in (None, own_dialect):
            return 0
        raise Disagreement("refused", "accepted")
    _check_matches(expected, filter, messages, engines, now_ms)
    return 1


def _dialect(content: Line) -> str:
    return field(content, "dialect", str) if "dialect" in content else DEFAULT_TABLE_DIALECT


def check_properties(
    content: Line, messages: MessageTable, engines: tuple[Engine, ...], dialect: str | None, now_ms: int
) -> int:
    """A case with `filters`: which entries are in force, and which messages match. Gives 1, or 0 as `check_sql`."""
    accepted, entries, own_dialect = _accepted(content), _entries(content), _dialect(content)
    filter_set = read_filter_set(entries, dialect or own_dialect)
    if accepted is False and filter_set.effective != read_filter_set(entries, own_dialect).effective:
        return 0
    expected: list[int] | None = None
    if accepted is not None:
        _check_effective(content, filter_set)
        all_accepted = len(filter_set.effective) == len(entries)
        if all_accepted is not accepted:
            raise Disagreement("every entry in force" if accepted else "an entry left out", _refusals(filter_set))
        expected = _numbers(content, "matches") if "matches" in content else list(messages.numbers)
    _check_matches(expected, Filter.from_set(filter_set), messages, engines, now_ms)
    return 1


def _accepted(content: Line) -> bool | None:
    accepted = content["accepted"]
    if accepted is not None and not isinstance(accepted, bool):
        raise WrongLine(f"key 'accepted': found {accepted!r}, expected true, false or null")
    return accepted


def _check_matches(
    expected: list[int] | None,
    filter: Filter | None,
    messages: MessageTable,
    engines: tuple[Engine, ...],
    now_ms: int,
) -> None:
    """Run the filter with every engine; without `expected` it is enough that nothing raises."""
    for engine in engines:
        got = messages.matching(filter, engine, now_ms)
        if expected is not None and got != expected:
            raise Disagreement(f"matches {expected}", f"matches {got}{_difference(expected, got)}", engine.value)


def _difference(expected: list[int], got: list[int]) -> str:
    too_many, missing = sorted(set(got) - set(expected)), sorted(set(expected) - set(got))
    return (f"; too many: {too_many}" if too_many else "") + (f"; missing: {missing}" if missing else "")


def _entries(content: Line) -> list[FilterEntry]:
    entries = []
    for given in field(content, "filters", list):
        if not isinstance(given, dict) or not {"name", "descriptor", "value"} <= given.keys():
            raise WrongLine(f"key 'filters': found {given!r}, expected name, descriptor and value")
        name = given["name"]
        entries.append(
            FilterEntry(
                AmqpValue(AmqpType.SYMBOL, name) if isinstance(name, str) else from_json(name),
                None if given["descriptor"] is None else from_json(given["descriptor"]),
                from_json(given["value"]),
            )
        )
    return entries


def _check_effective(content: Line, filter_set: FilterSet) -> None:
    given = field(content, "filters", list)
    got = [given[index]["name"] for index in filter_set.effective]
    expected = field(content, "effective", list)
    if got != expected:
        raise Disagreement(f"in force {expected}", f"in force {got}; {_refusals(filter_set)}")


def _refusals(filter_set: FilterSet) -> str:
    if not filter_set.refused:
        return "no entry is left out"
    return "left out: " + "; ".join(f"entry {entry.index}: {entry.reason}" for entry in filter_set.refused)


@dataclass(frozen=True, slots=True)
class _Chunk:
    chunk_id: int
    num_records: int
    timestamp_ms: int
    bloom: bytes


@dataclass(slots=True)
class ChunkLayout:
    """The stream of stage-1 cases: chunks, Bloom bytes made from their filter values, and the messages by offset."""

    chunks: list[_Chunk] = dataclass_field(default_factory=list)
    messages: dict[int, bytes] = dataclass_field(default_factory=dict)

    @staticmethod
    def read(content: Line) -> ChunkLayout:
        """The chunks of a `layout` line; raises WrongLine."""
        layout = ChunkLayout()
        for given in field(content, "chunks", list):
            if not isinstance(given, dict):
                raise WrongLine(f"key 'chunks': found {given!r}, expected an object")
            values = field(given, "filter_values", list)
            if not all(value is None or isinstance(value, str) for value in values):
                raise WrongLine("key 'filter_values': expected texts and null")
            encoded = [None if value is None else value.encode() for value in values]
            layout.chunks.append(
                _Chunk(
                    field(given, "chunk_id", int),
                    field(given, "num_records", int),
                    field(given, "timestamp", int),
                    bloom_bytes(encoded, DEFAULT_FILTER_SIZE_BYTES),
                )
            )
        return layout

    def add_message(self, content: Line) -> None:
        """The message of a `message` line; raises WrongLine."""
        self.messages[field(content, "idx", int)] = hex_bytes(field(content, "encoded_hex", str))

    def delivered(self, filter_set: FilterSet, engine: Engine, now_ms: int) -> list[int]:
        """Offsets that a reader with these filters gets until the end of the stream."""
        start = self._start(filter_set.offset)
        chunks = [chunk for chunk in self.chunks if chunk.chunk_id + chunk.num_records > start]
        if filter_set.filter_values:
            matcher = BloomMatcher(filter_set.filter_values, match_unfiltered=filter_set.match_unfiltered)
            chunks = [chunk for chunk in chunks if matcher.matches(chunk.bloom)]
        offsets = [
            offset
            for offset in sorted(self.messages)
            if offset >= start and any(0 <= offset - chunk.chunk_id < chunk.num_records for chunk in chunks)
        ]
        filter = Filter.from_set(filter_set)
        if filter is None:
            return offsets
        batch = EncodedMessages.of(self.messages[offset] for offset in offsets)
        return MessageTable(tuple(offsets), batch).matching(filter, engine, now_ms)

    def _start(self, offset: OffsetRequest | None) -> int:
        """The first offset to deliver; `now` of intervals is the time of the last chunk."""
        end = self.chunks[-1].chunk_id + self.chunks[-1].num_records if self.chunks else 0
        match offset:
            case None | OffsetRequest(OffsetRequestKind.NEXT):
                return end
            case OffsetRequest(OffsetRequestKind.FIRST):
                return 0
            case OffsetRequest(OffsetRequestKind.LAST):
                return self.chunks[-1].chunk_id if self.chunks else 0
            case OffsetRequest(OffsetRequestKind.OFFSET, value):
                return value
            case OffsetRequest(OffsetRequestKind.INTERVAL, value):
                since = (self.chunks[-1].timestamp_ms if self.chunks else 0) - value
            case OffsetRequest(_, value):
                since = value
        return next((chunk.chunk_id for chunk in self.chunks if chunk.timestamp_ms >= since), end)


def check_chunk_case(
    content: Line, layout: ChunkLayout, engines: tuple[Engine, ...], dialect: str, now_ms: int
) -> None:
    """A case with `kind` = `case`: filters on the chunks of the layout, or the error that the attach ends with."""
    filter_set = read_filter_set(_entries(content), dialect)
    error = content.get("error")
    if error == "attach-refused":
        expected, got = content.get("condition"), PRECONDITION_FAILED if filter_set.attach_refused else "attached"
        if got != expected:
            raise Disagreement(f"the attach is refused: {expected}", got)
        return
    if error not in (None, "end"):
        raise WrongLine(f"key 'error': found {error!r}, expected end or attach-refused")
    if error is None:
        if filter_set.attach_refused is not None:
            raise Disagreement("attached", f"the attach is refused: {filter_set.attach_refused.reason}")
        _check_effective(content, filter_set)
    for engine in engines:
        got_offsets = layout.delivered(filter_set, engine, now_ms)
        if error is None and got_offsets != (delivered := _numbers(content, "delivered")):
            difference = _difference(delivered, got_offsets)
            raise Disagreement(f"delivered {delivered}", f"delivered {got_offsets}{difference}", engine.value)


def check_hash(content: Line) -> None:
    """A case with `hex`, `h`, `h_list`: the hashes of a value, and its bits for every filter size that is named."""
    value = hex_bytes(field(content, "hex", str))
    found: dict[str, object] = {"h": phash2(value), "h_list": phash2_of_list(value)}
    for key in content:
        size = key.removeprefix("bits")
        if key.startswith("bits"):
            if not size.isdecimal() or not 1 <= int(size) <= 255:
                raise WrongLine(f"key {key!r}: expected bits and a filter size up to 255")
            found[key] = list(bit_positions(value, int(size)))
    compare(content, found)
