"""A table over column files has the rows that it has without them, whatever is asked, declared, stored or damaged."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate
from headgate.derived.columns import COLUMN_FILES, ColumnFileWarning, build, column_files, declare_columns, drop_columns
from headgate.errors import ConfigError, CorruptSidecarError, OffsetOutOfRangeError
from headgate.log import Stream, StreamArguments, Writer, pairs
from headgate.message import AmqpType, AmqpValue, Message
from headgate.tables import StreamTable, WholeColumnFile
from log_streams import quick_folder

TEXT = "region string, price double, n bigint, p.subject as title, b.total double, b.kind string as k"
ASKED = (
    "offset",
    "timestamp",
    "region string",
    "n bigint",
    "price double as cost",
    "p.subject",
    "body",
    "h.priority",
    "filter_value",
    "body.total double",
    "b.kind string",
)
FILTERS = (
    None,
    "region = 'AMER'",
    "region <> 'AMER' OR n < 20",
    "region IN ('EMEA', 'é') AND (n >= 5 AND n <= 60)",
    "region IS NULL",
    "NOT (price > 3.5)",
    "price >= 3 AND n >= 0",
    "n = 7 OR subject = 's1'",
    "region LIKE 'A%'",
    "other > 1",
    "body.total > 3.5 AND body.kind <> 'k1'",
    "body.kind IS NULL OR body.total = 4.0",
)


def message(number: int, odd: int) -> bytes:
    region: object = ("AMER", "EMEA", "é", "")[number % 4]
    price: object = number % 11 / 2
    if odd == 1:
        region, price = AmqpValue(AmqpType.SYMBOL, "AMER"), AmqpValue(AmqpType.FLOAT, 4.0)
    elif odd == 2:
        region, price = number, -0.0
    elif odd == 3:
        return b"no message %d" % number
    total = f"{number % 9 / 2}{'0' * 20}1" if odd == 1 else number % 9 / 2
    body = f'{{"kind":"k{number % 3}","total":{total}}}' if odd != 2 else '{"kind":null'
    properties = {"region": region, "price": price, "n": number, "other": number % 3}
    if number % 5 == 0 and not odd:
        del properties["region"]
    return Message(body.encode(), properties={"subject": f"s{number % 3}"}, application_properties=properties).encode()


def write(folder: Path, odd: list[int], *, per_chunk: int = 7, keep: str = "segment") -> Stream:
    """A stream with declared columns, one message for each of `odd`, in segments of a few chunks; no file is built."""
    stream = Stream.create(
        folder,
        name=folder.name,
        now_ms=0,
        arguments=StreamArguments(max_segment_size_bytes=2500),
        filter_source="application_properties.region",
    )
    with Writer.open(stream, now_ms=0) as writer:
        for first in range(0, len(odd), per_chunk):
            messages = [
                (message(number, odd[number]), None) for number in range(first, min(first + per_chunk, len(odd)))
            ]
            writer.append(messages, now_ms=first * 1000)
    declare_columns(stream, TEXT, keep=keep)  # type: ignore[arg-type]
    return Stream.open(folder)


def built(stream: Stream) -> Stream:
    list(COLUMN_FILES.build(stream, now_ms=2))
    assert column_files(stream)
    return stream


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    made = built(write(tmp_path / "s", [0] * 200))
    assert len(column_files(made)) > 3
    return made


@pytest.fixture(scope="module")
def streams() -> Iterator[list[tuple[Stream, Stream]]]:
    """The same streams without and with files: all exact, and with all kinds of messages; of many row groups."""
    with quick_folder() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "GROUP_ROWS", 20)
        found = []
        for name, odd in (("exact", [0] * 200), ("odd", [number % 4 if number % 3 else 0 for number in range(200)])):
            plain = write(Path(folder) / f"{name}-plain", odd)
            found.append((plain, built(write(Path(folder) / name, odd))))
        yield found


@given(data=st.data())
def test_rows_are_the_same_with_files_and_without(streams: list[tuple[Stream, Stream]], data: st.DataObject) -> None:
    plain, filed = data.draw(st.sampled_from(streams))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 200), st.integers(0, 200))))
    asked = {
        "columns": data.draw(st.lists(st.sampled_from(ASKED), min_size=1, unique=True)),
        "filter": data.draw(st.sampled_from(FILTERS)),
        "dialect": "amqp",
        "start": start,
        "stop": stop,
        "filter_values": data.draw(st.sampled_from(([], [], ["AMER"]))),
    }
    if "body." not in str(asked["filter"]) and data.draw(st.booleans()):
        asked["dialect"] = "rabbitmq"
    if asked["dialect"] == "rabbitmq" and asked["filter"] is not None:
        asked["filter"] = str(asked["filter"]).replace("subject", "p.subject")
    expected = headgate.read(plain.path, **asked).to_arrow()  # type: ignore[arg-type]
    table = headgate.read(filed.path, **asked)  # type: ignore[arg-type]
    got = table.to_arrow()
    assert got.schema == expected.schema
    assert got.to_pylist() == expected.to_pylist()
    assert table.counters.messages_matched == len(got)


def test_exact_rows_come_from_files_and_inexact_ones_from_the_messages_in_them(
    streams: list[tuple[Stream, Stream]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for (_, filed), inexact in zip(streams, (False, True), strict=True):
        behind = column_files(filed)[-1].next_offset
        table = headgate.read(filed.path, columns="n bigint", filter="region = 'AMER'", stop=behind)
        table.to_arrow()
        counters = table.counters
        assert counters.messages_evaluated + counters.messages_decided_by_columns == behind
        assert (counters.messages_evaluated > 0) == inexact
        whole = headgate.read(filed.path, columns="n bigint, p.subject", stop=behind, dictionaries=["subject"])
        assert whole.schema.field("subject").type == pa.dictionary(pa.int32(), pa.string())
        assert whole.to_arrow()["subject"].to_pylist()[1] == "s1"
        assert whole.counters.messages_evaluated == 0


def test_stage_one_leaves_out_rows_of_files_too(tmp_path: Path) -> None:
    stream = Stream.create(
        tmp_path / "s",
        name="s",
        now_ms=0,
        arguments=StreamArguments(max_segment_size_bytes=2500),
        filter_source="application_properties.region",
    )
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(40):
            region = ("AMER", "EMEA")[number // 2 % 2]
            bodies = [Message(b"x" * 50, application_properties={"region": region, "n": number}).encode()] * 5
            writer.append(
                [(body, region.encode()) for body in bodies],
                now_ms=number,
                filter_source="application_properties.region",
            )
    declare_columns(stream, "n bigint")
    built(stream)
    table = headgate.read(stream.path, columns="n bigint", filter_values=["EMEA"])
    assert set(table.to_arrow()["n"].to_pylist()) == {number for number in range(40) if number // 2 % 2}
    assert table.counters.chunks_skipped == 20


def test_a_changed_declaration_leaves_files_the_columns_that_they_have(stream: Stream) -> None:
    declare_columns(stream, "other bigint")
    drop_columns(stream, ["n"])
    behind = column_files(stream)[-1].next_offset
    for columns, from_files in (("n bigint", True), ("n bigint, other bigint", False), ("n int", False)):
        table = headgate.read(stream.path, columns=columns, stop=behind)
        assert table.to_arrow()["n"].to_pylist() == list(range(behind))
        assert (table.counters.messages_evaluated == 0) == from_files


def test_a_damaged_file_is_warned_of_once_and_its_messages_are_read(stream: Stream) -> None:
    expected = headgate.read(stream.path, columns=TEXT).to_arrow()
    file = column_files(stream)[1]
    column = file.metadata.row_group(0).column(file.schema.get_field_index("n"))
    raw = bytearray(file.path.read_bytes())
    raw[column.data_page_offset + column.total_compressed_size // 2] ^= 4
    file.path.write_bytes(raw)
    table = headgate.read(stream.path, columns=TEXT)
    with pytest.warns(ColumnFileWarning, match="'n' does not have its checksum") as seen:
        assert table.to_arrow() == expected
    assert len(seen) == 1
    assert table.counters.messages_evaluated == file.rows + 200 - column_files(stream)[-1].next_offset
    os.unlink(file.path)
    assert headgate.read(stream.path, columns=TEXT).to_arrow() == expected


def test_a_file_that_goes_while_it_is_read_is_made_up_for(stream: Stream) -> None:
    expected = headgate.read(stream.path, columns=TEXT).to_arrow()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnFileWarning)
        batches = headgate.read(stream.path, columns=TEXT, threads=1).batches()
        first = next(batches)
        COLUMN_FILES.drop_files(stream)
        assert pa.Table.from_batches([first, *batches]) == expected


def test_kept_files_outlive_the_log(tmp_path: Path) -> None:
    stream = built(write(tmp_path / "s", [number % 2 for number in range(200)], keep="forever"))
    expected = headgate.read(stream.path, columns=TEXT).to_arrow()
    some = headgate.read(stream.path, columns=TEXT, filter="region = 'AMER'").to_arrow()
    gone = stream.segments()[:2]
    first = stream.segments()[2].first_chunk_id
    for segment in gone:
        pairs.delete_pair(stream.path, segment.first_chunk_id)
    table = headgate.read(stream.path, columns=TEXT)
    assert table.offsets == (0, 200)
    assert table.to_arrow() == expected
    assert headgate.read(stream.path, columns=TEXT, filter="region = 'AMER'").to_arrow() == some
    assert headgate.read(stream.path, columns=TEXT, start=5, stop=first + 1).to_arrow() == expected.slice(5, first - 4)
    times = expected.slice(14)
    assert headgate.read(stream.path, columns=TEXT, start="1970-01-01T00:00:13Z").to_arrow() == times
    for asked, named in (
        ({"columns": "other bigint"}, "column 'other' is not among"),
        ({"columns": "offset", "filter": "other > 1"}, "do not decide the filter 'other > 1'"),
        ({"columns": "offset", "filter_values": ["AMER"]}, "filter values"),
    ):
        with pytest.raises(ConfigError, match=named):
            headgate.read(stream.path, **asked)  # type: ignore[arg-type]
        headgate.read(stream.path, start=first, **asked).to_arrow()  # type: ignore[arg-type]
    # Followers see what the log has.
    assert stream.first_offset() == first

    kept = column_files(stream)
    kept[1].path.write_bytes(kept[1].path.read_bytes()[:-1] + b"?")
    with pytest.warns(ColumnFileWarning), pytest.raises(OffsetOutOfRangeError, match="offsets 0 to"):
        headgate.read(stream.path, columns=TEXT, start=0)


def test_a_kept_file_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    stream = built(write(tmp_path / "s", [0] * 200, keep="forever"))
    pairs.delete_pair(stream.path, stream.segments()[0].first_chunk_id)
    table = headgate.read(stream.path, columns="n bigint")
    file = column_files(stream)[0]
    column = file.metadata.row_group(0).column(file.schema.get_field_index("n"))
    raw = bytearray(file.path.read_bytes())
    raw[column.data_page_offset + column.total_compressed_size // 2] ^= 4
    file.path.write_bytes(raw)
    with pytest.raises(CorruptSidecarError, match="'n' does not have its checksum"):
        table.to_arrow()


def test_files_and_the_tail_are_handed_out_to_other_readers(stream: Stream) -> None:
    columns = "offset, region string as area, p.subject"
    table = headgate.read(stream.path, columns=columns, start=3)
    parts = table.column_files_and_tail()
    files = [part for part in parts if isinstance(part, WholeColumnFile)]
    assert len(files) == len(column_files(stream)) and isinstance(parts[-1], StreamTable)
    frames = []
    for part in parts:
        if isinstance(part, WholeColumnFile):
            rows = polars.scan_parquet(part.path).filter(polars.col("offset").is_between(part.start, part.stop, "left"))
            frames.append(rows.select(polars.col(there).alias(name) for name, there in part.columns.items()).collect())
        else:
            frames.append(part.to_polars())
    assert polars.concat(frames).equals(table.to_polars())
    filtered = headgate.read(stream.path, columns=columns, filter="region = 'AMER'")
    assert filtered.column_files_and_tail() == [filtered]
