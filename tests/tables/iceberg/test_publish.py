"""A table has the rows of the column files, each once, whatever happens; what goes from the log goes from it."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config

from headgate.derived.columns import COLUMN_FILES, ColumnFileWarning, column_files, declare_columns, drop_columns
from headgate.errors import ConfigError, LogError, PreconditionFailedError, ResourceNotFoundError, SinkError
from headgate.log import (
    PublishStep,
    Stream,
    StreamArguments,
    Writer,
    derived_folder,
    pairs,
    stream_folder,
    sweep_derived,
)
from headgate.log.derived import GRACE_MS
from headgate.message import Message
from headgate.tables.iceberg import CatalogLocation, PublishReport, drop_table, list_tables, upkeep
from headgate.tables.iceberg.offsets import OffsetRanges
from headgate.tables.iceberg.waste import Waste
from iceberg_tables import COLUMNS, NAME, WRITES, assert_has, build, publish, rows, stream_with_files, summaries
from match_indexes import append, create
from nursery import Nursery

FAR = 1 << 42
"""A time at which everything is old."""


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return stream_with_files(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> CatalogLocation:
    return CatalogLocation(tmp_path)


def data_files(root: Path) -> set[str]:
    """The names of the files in the table's own folder for data."""
    return {path.name for path in (root / ".headgate" / "iceberg").rglob("data/*")}


def metadata_files(root: Path) -> int:
    return len(list((root / ".headgate" / "iceberg").rglob("metadata/*.avro")))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8))
def test_ranges_are_the_set_of_their_offsets(parts: list[tuple[int, int]]) -> None:
    ranges, expected = OffsetRanges(), set[int]()
    for start, stop in parts:
        ranges, expected = ranges.joined(start, stop), expected | set(range(start, stop))
    assert {offset for start, stop in ranges.ranges for offset in range(start, stop)} == expected
    assert all(stop < start for (_, stop), (start, _) in zip(ranges.ranges, ranges.ranges[1:], strict=False))
    assert OffsetRanges.parse(str(ranges)) == ranges
    for start in range(30):
        for stop in range(start + 1, 31):
            assert ranges.has(start, stop) == (set(range(start, stop)) <= expected)
            assert ranges.meets(start, stop) == bool(set(range(start, stop)) & expected)
    with pytest.raises(SinkError, match="expected ranges"):
        OffsetRanges.parse("3")


def test_a_table_has_the_rows_of_sealed_segments_and_gets_new_ones(stream: Stream, place: CatalogLocation) -> None:
    first = publish(stream, place)
    files = column_files(stream)
    assert (first.table, first.segments, first.rows) == ("headgate.sales", len(files), sum(f.rows for f in files))
    assert_has(place, stream)
    assert publish(stream, place).segments == 0
    append(stream, WRITES)
    build(stream)
    assert publish(stream, place).segments == len(column_files(stream)) - len(files)
    assert_has(place, stream)
    said = summaries(place)
    assert [each["operation"] for each in said] == ["append", "append"]
    middle, end = files[-1].next_offset, column_files(stream)[-1].next_offset
    assert [each["headgate.offsets"] for each in said] == [f"0-{middle}", f"{middle}-{end}"]
    assert {each["headgate.stream"] for each in said} == {stream.identity}
    # The same bytes under a second name.
    inodes = {path.stat().st_ino for path in place.root.rglob(".headgate/iceberg/headgate/sales/data/*")}
    assert inodes == {file.path.stat().st_ino for file in column_files(stream)}


def test_duckdb_and_polars_read_it(stream: Stream, place: CatalogLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    publish(stream, place)
    expected = rows(place).to_pandas().groupby("region")["price"].sum().to_dict()
    assert len(expected) == 2
    with place.opened() as catalog:
        table = catalog.load_table(NAME)
        connection = table.scan().to_duckdb("sales")
        assert dict(connection.sql("SELECT region, sum(price) FROM sales GROUP BY ALL").fetchall()) == {
            **expected,
            None: connection.sql("SELECT sum(price) FROM sales WHERE region IS NULL").fetchall()[0][0],
        }
        connection.close()
        frame = pl.scan_iceberg(table).filter(pl.col("region").is_not_null())
        summed = frame.group_by("region").agg(pl.col("price").sum()).collect()
        assert dict(summed.iter_rows()) == expected
        # The files are as good as any Parquet; their statistics say which a filter needs.
        paths = [task.file.file_path for task in table.scan().plan_files()]
        counted = duckdb.sql(f"SELECT count(*) FROM read_parquet({paths})").fetchall()[0][0]
        assert (
            counted
            == table.scan().count()
            == frame.select(pl.len()).collect().item() + rows(place)["region"].null_count
        )
        assert len(list(table.scan(row_filter="offset < 5").plan_files())) == 1


def test_values_in_bodies_are_columns_of_the_table(tmp_path: Path, place: CatalogLocation) -> None:
    arguments = StreamArguments(max_segment_size_bytes=2_000)
    made = Stream.create(stream_folder(tmp_path, "sales"), name="sales", now_ms=0, arguments=arguments)
    with Writer.open(made, now_ms=0) as writer:
        for number in range(60):
            body = json.dumps({"order": {"total": number / 4, "region": ("EMEA", None)[number % 2]}})
            writer.append([(Message(body.encode()).encode(), None)], now_ms=number)
    stream = Stream.open(made.path)
    declare_columns(stream, "b.order.total decimal(10,2), b.order.region string")
    build(stream)
    assert publish(stream, place).rows > 20
    for offset, row in enumerate(rows(place).to_pylist()):
        assert (row["offset"], row["total"]) == (offset, Decimal(offset) / 4)
        assert row["region"] == ("EMEA", None)[offset % 2]


def test_columns_come_and_go_by_their_ids(stream: Stream, place: CatalogLocation) -> None:
    publish(stream, place)
    before = rows(place)
    declare_columns(stream, "p.subject, tier string")
    drop_columns(stream, ["region"])
    assert publish(stream, place).replaced == 0
    table = rows(place)
    assert table["price"].equals(before["price"]) and table["tier"].null_count == len(table)
    with place.opened() as catalog:
        ids = {field.name: field.field_id for field in catalog.load_table(NAME).schema().fields}
    assert (ids["price"], ids["subject"], ids["tier"], ids["offset"], ids["inexact"]) == (2, 3, 4, 10001, 10007)
    assert "region" not in ids and "entry" not in ids
    # A new column of an old name is another one: the old files do not answer for it.
    drop_columns(stream, ["price"])
    declare_columns(stream, "price string, region string")
    publish(stream, place)
    assert rows(place)["price"].null_count == rows(place)["region"].null_count == len(before)
    build(stream)
    report = publish(stream, place)
    assert (report.replaced, report.segments) == (len(column_files(stream)), 0)
    assert_has(place, stream)
    assert rows(place)["region"].equals(before["region"])
    assert summaries(place)[-1]["headgate.replaced"] == f"0-{len(before)}"
    assert publish(stream, place).replaced == 0
    drop_columns(stream)
    with pytest.raises(PreconditionFailedError, match="sales: it has no declared columns"):
        publish(stream, place)


def test_columns_of_others_stay_and_a_schema_that_was_there_comes_back(stream: Stream, place: CatalogLocation) -> None:
    publish(stream, place)
    with place.opened() as catalog, catalog.load_table(NAME).update_schema() as update:
        update.add_column("note", StringType(), doc="by hand")
        update.update_column("region", doc="where it was sold")
    for text in ("a string", None):
        if text is None:
            drop_columns(stream, ["a"])
        else:
            declare_columns(stream, text)
        publish(stream, place)
        with place.opened() as catalog:
            table = catalog.load_table(NAME)
            assert table.schema().find_field("note").doc == "by hand"
            assert table.schema().find_field("region").doc == "where it was sold"
            assert ("a" in table.schema().column_names) == (text is not None)
            assert len(table.metadata.schemas) == 5


def test_what_the_log_loses_leaves_the_table_and_then_the_disk(stream: Stream, place: CatalogLocation) -> None:
    publish(stream, place)
    first, *others = column_files(stream)
    pairs.delete_pair(stream.path, first.segment)
    sweep_derived(stream, now_ms=0)
    sweep_derived(stream, now_ms=GRACE_MS)
    assert not first.path.exists()
    assert publish(stream, place, retain="forever").removed == 0
    assert len(rows(place)) == first.rows + sum(file.rows for file in others)
    report = publish(stream, place)
    assert (report.removed, report.expired, report.deleted_files) == (1, 0, 0)
    assert_has(place, stream)
    said = summaries(place)
    assert (said[-1]["operation"], said[-1]["headgate.removed-below"]) == ("delete", str(first.next_offset))
    with place.opened() as catalog:
        table = catalog.load_table(NAME)
        old = table.metadata.snapshots[0]
        assert table.scan(snapshot_id=old.snapshot_id).to_arrow()["offset"][0].as_py() == 0
    assert publish(stream, place, expire_after_ms=0, now_ms=old.timestamp_ms).expired == 0
    report = publish(stream, place, expire_after_ms=0, now_ms=FAR)
    assert (report.removed, report.expired) == (0, 1)
    assert data_files(place.root) == {file.path.name for file in others}
    assert len(summaries(place)) == 1
    assert metadata_files(place.root) == 3  # of the snapshot: its list, what it has, what it removed
    # None of its snapshots says any more what was added; the table itself does.
    assert publish(stream, place, now_ms=FAR).segments == 0
    assert_has(place, stream)


def test_with_kept_files_the_table_outlives_the_log(stream: Stream, place: CatalogLocation) -> None:
    declare_columns(stream, "region string", keep="forever")
    build(stream)
    pairs.delete_pair(stream.path, stream.segments()[0].first_chunk_id)
    COLUMN_FILES.sweep(stream, now_ms=GRACE_MS)
    assert publish(stream, place).removed == 0
    assert rows(place)["offset"][0].as_py() == 0
    assert_has(place, stream)


def test_what_other_programs_do_to_the_table_is_respected(stream: Stream, place: CatalogLocation) -> None:
    publish(stream, place)
    before = rows(place)
    with place.opened() as catalog:
        table = catalog.load_table(NAME)
        table.overwrite(table.scan().to_arrow())  # as when files are joined
        joined = table.metadata.snapshots[-1]
    assert publish(stream, place).segments == 0
    declare_columns(stream, "p.subject")
    build(stream)
    report = publish(stream, place, expire_after_ms=0, now_ms=FAR)
    assert (report.segments, report.replaced) == (0, 0) and report.expired > 0
    assert rows(place).select(before.column_names).equals(before)
    pairs.delete_pair(stream.path, stream.segments()[0].first_chunk_id)
    # The joined file has rows of other segments as well.
    assert publish(stream, place).removed == 0
    with place.opened() as catalog:
        assert catalog.load_table(NAME).metadata.current_snapshot_id == joined.snapshot_id
    assert publish(stream, place).segments == 0


def test_a_table_that_was_rolled_back_is_brought_up_to_date(stream: Stream, place: CatalogLocation) -> None:
    publish(stream, place)
    with place.opened() as catalog:
        first = catalog.load_table(NAME).metadata.current_snapshot_id
    assert first is not None
    append(stream, WRITES)
    build(stream)
    publish(stream, place)
    with place.opened() as catalog, catalog.load_table(NAME).manage_snapshots() as snapshots:
        snapshots.rollback_to_snapshot(first)
    assert publish(stream, place).segments > 0
    assert_rows_once(place, stream)


def assert_rows_once(place: CatalogLocation, stream: Stream) -> None:
    expected = sum(file.rows for file in column_files(stream))
    assert rows(place)["offset"].to_pylist() == list(range(expected))


def test_a_damaged_file_is_published_when_it_was_made_again(stream: Stream, place: CatalogLocation) -> None:
    damaged = column_files(stream)[1]
    raw = damaged.path.read_bytes()
    damaged.path.write_bytes(raw[:10] + bytes([raw[10] ^ 1]) + raw[11:])
    with pytest.warns(ColumnFileWarning, match="does not have its checksum.*not published"):
        report = publish(stream, place)
    assert report.segments == len(column_files(stream)) - 1
    assert not {damaged.segment} & set(rows(place)["offset"].to_pylist())
    assert damaged.path.name not in data_files(place.root)
    damaged.path.write_bytes(raw)
    assert publish(stream, place).segments == 1
    assert_has(place, stream)


def test_what_was_stored_and_is_not_wanted_any_more_is_deleted(
    stream: Stream, place: CatalogLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no more of this")

    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "data_file_of", fail)
        with pytest.raises(SinkError, match="no more of this"):
            publish(stream, place)
    assert data_files(place.root) == {file.path.name for file in column_files(stream)}
    pairs.delete_pair(stream.path, stream.segments()[0].first_chunk_id)
    assert publish(stream, place).deleted_files == 1
    assert data_files(place.root) == {file.path.name for file in column_files(stream)}
    assert_has(place, stream)


def test_another_publisher_that_was_faster_is_noticed(
    stream: Stream, place: CatalogLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has a copy of the stream's folder, so that no lock keeps them apart."""
    shutil.copytree(stream.path, tmp_path / "copy" / "streams" / "sales")
    copy = Stream.open(tmp_path / "copy" / "streams" / "sales")
    assert copy.identity == stream.identity
    plain = upkeep.store
    lock = (derived_folder(stream) / "iceberg.lock").open("w")
    at_once = [lambda: publish(copy, place)]

    def store(*arguments: object) -> None:
        plain(*arguments)  # type: ignore[arg-type]
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if at_once:
            assert at_once.pop()().segments > 0

    monkeypatch.setattr(upkeep, "store", store)
    assert publish(stream, place).segments == 0
    assert not at_once
    assert_has(place, stream)
    for each in (stream, copy):
        declare_columns(each, "p.subject")
        build(each)
    replaced = []
    at_once.append(lambda: replaced.append(publish(copy, place).replaced) or dataclasses.replace(NOTHING, segments=1))
    assert publish(stream, place).replaced == 0
    assert replaced == [len(column_files(stream))]
    assert_has(place, stream)
    # That it does not try again itself is a property of this process's copy only.
    with place.opened() as catalog:
        assert "commit.retry.num-retries" not in catalog.load_table("headgate.sales").properties
    assert list(derived_folder(stream).glob("iceberg-*.json")) == []
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock.close()


NOTHING = PublishReport("", "")


class Lives:
    """Another process that publishes, and may be killed."""

    def __init__(self) -> None:
        self.nursery = Nursery(Path(__file__).with_name("publish_child.py"), Path(__file__).parents[2])

    def publish(
        self, stream: Stream, place: CatalogLocation, *, crash_at: str = "", calls: int = 0, now_ms: int = 0
    ) -> tuple[int, int]:
        """The signal that it ended by, and how many calls there were."""
        life = {"stream": str(stream.path), "root": str(place.root)}
        process = self.nursery.process
        assert process.stdin is not None and process.stdout is not None
        given = {**life, "crash_at": crash_at, "calls": calls, "now_ms": now_ms}
        process.stdin.write(json.dumps(given).encode() + b"\n")
        process.stdin.flush()
        seen = 0
        while True:
            word, number = json.loads(process.stdout.readline())
            if word == "ended":
                return number, seen
            seen = number


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    started = Lives()
    yield started
    started.nursery.close()


def work_for_each_step(stream: Stream, place: CatalogLocation) -> None:
    """A table to which there is something to add, to replace, to remove, and with an old snapshot."""
    publish(stream, place)
    pairs.delete_pair(stream.path, stream.segments()[0].first_chunk_id)
    declare_columns(stream, "p.subject")
    append(stream, WRITES)
    build(stream)


def assert_nothing_is_left(stream: Stream, place: CatalogLocation) -> None:
    """After one more pass: the rows, and no file that nobody needs."""
    publish(stream, place, now_ms=FAR)
    publish(stream, place, now_ms=FAR)
    assert_has(place, stream)
    assert data_files(place.root) == {file.path.name for file in column_files(stream)}
    assert list(derived_folder(stream).glob("iceberg-*.json")) == []


@pytest.mark.slow
@pytest.mark.faults
def test_killed_at_each_step_whoever_comes_next_goes_on(stream: Stream, place: CatalogLocation, lives: Lives) -> None:
    work_for_each_step(stream, place)
    # Each goes on where the one before it died: first it adds, then it replaces.
    adding = (PublishStep.STORED, f"{PublishStep.STORED}:4", PublishStep.COMMITTED)
    for crash_at in (*adding, *PublishStep):
        assert lives.publish(stream, place, crash_at=crash_at, now_ms=FAR)[0] == signal.SIGKILL
        offsets = rows(place)["offset"].to_pylist()
        assert offsets == sorted(set(offsets))
    assert_nothing_is_left(stream, place)


@pytest.mark.slow
@pytest.mark.faults
def test_killed_anywhere_again_and_again_each_row_is_there_once(
    stream: Stream, place: CatalogLocation, lives: Lives, seed: int
) -> None:
    killed_at_random(stream, place, lives, random.Random(seed), times=3)


@pytest.mark.faults
@pytest.mark.long
def test_killed_anywhere_very_often(stream: Stream, place: CatalogLocation, lives: Lives, seed: int) -> None:
    killed_at_random(stream, place, lives, random.Random(seed), times=200)


def killed_at_random(
    stream: Stream, place: CatalogLocation, lives: Lives, chance: random.Random, *, times: int
) -> None:
    work_for_each_step(stream, place)
    twin = stream_with_files(place.root / "twin")
    work_for_each_step(twin, CatalogLocation(place.root / "twin"))
    status, calls = lives.publish(twin, CatalogLocation(place.root / "twin"), now_ms=FAR)
    assert status == 0 and calls > 500
    for _ in range(times):
        lives.publish(stream, place, calls=chance.randrange(1, calls), now_ms=FAR)
        offsets = rows(place)["offset"].to_pylist()
        assert offsets == sorted(set(offsets))
        append(stream, WRITES[:20])
        build(stream)
    assert_nothing_is_left(stream, place)


def test_a_damaged_list_of_unused_files_deletes_none(stream: Stream, place: CatalogLocation) -> None:
    publish(stream, place)
    with place.opened() as catalog:
        table = catalog.load_table(NAME)
        waste = Waste(stream, table)
        waste.add(["file:///warehouse/unused.parquet"])
        (path,) = derived_folder(stream).glob("iceberg-*.json")
        path.write_bytes(path.read_bytes().replace(b"unused", b"wanted"))
        with pytest.raises(LogError, match="their checksum is") as raised:
            Waste(stream, table)
    assert raised.value.path == path
    with pytest.raises(LogError, match="not a list of a table's files"):
        publish(stream, place)


def test_a_table_of_another_stream_is_refused_and_named(stream: Stream, place: CatalogLocation, tmp_path: Path) -> None:
    publish(stream, place)
    before = summaries(place)
    other = stream_with_files(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=rf"headgate.sales in catalog .* is of stream 'sales' .{stream.identity}"):
        publish(other, place)
    with pytest.raises(ConfigError, match="is of stream 'sales'"):
        drop_table(other, place)
    with place.opened() as catalog:
        catalog.create_table(("headgate", "plain"), rows(place).schema)
    with pytest.raises(ConfigError, match=r"headgate.plain in catalog .* is of no stream"):
        publish(other, place, table="headgate.plain")
    with pytest.raises(ConfigError, match=r"--table: found 'plain', expected NAMESPACE.NAME"):
        publish(other, place, table="plain")
    assert summaries(place) == before
    assert publish(other, place, table="shop.sales").segments == len(column_files(other))
    assert [each.table for each in list_tables(place)] == ["headgate.sales", "shop.sales"]


def test_segments_with_other_borders_than_what_was_published_are_refused(
    stream: Stream, place: CatalogLocation, tmp_path: Path
) -> None:
    publish(stream, place)
    replica = create(tmp_path / "replica" / "streams" / "sales", WRITES, segment_bytes=3000, identity=stream.identity)
    declare_columns(replica, COLUMNS)
    build(replica)
    for other, first in ((stream, replica), (replica, stream)):
        name = f"copies.of_{len(column_files(first))}"
        publish(first, place, table=name)
        with pytest.raises(SinkError, match=rf"table {name} has some offsets of segment .* with other borders"):
            publish(other, place, table=name)
    assert_has(place, stream)


def test_tables_that_were_copied_with_their_streams_are_left_alone(
    stream: Stream, place: CatalogLocation, tmp_path: Path
) -> None:
    publish(stream, place)
    shutil.copytree(place.root, copy := tmp_path / "copy")
    append(stream, WRITES)
    for use in (publish, drop_table):
        with pytest.raises(ConfigError, match="these streams were moved or copied with their tables"):
            use(Stream.open(copy / "streams" / "sales"), CatalogLocation(copy))
    assert_has(place, stream)


def test_a_dropped_table_leaves_no_file_and_the_stream_can_be_published_anew(
    stream: Stream, place: CatalogLocation
) -> None:
    publish(stream, place)
    listed = list_tables(place)[0]
    files = column_files(stream)
    assert (listed.stream, listed.offsets, listed.files) == ("sales", f"0-{files[-1].next_offset}", len(files))
    assert (listed.rows, listed.size_bytes) == (sum(f.rows for f in files), sum(f.size_bytes for f in files))
    assert drop_table(stream, place) == "headgate.sales"
    assert list_tables(place) == []
    assert data_files(place.root) == set() and metadata_files(place.root) == 0
    with pytest.raises(ResourceNotFoundError, match=r"headgate.sales: there is no such table in catalog"):
        drop_table(stream, place)
    publish(stream, place)
    assert_has(place, stream)


def test_configured_catalogs_are_used_and_those_that_are_not_there_named(
    stream: Stream, place: CatalogLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="pyiceberg knows no catalog 'lake'"):
        publish(stream, CatalogLocation(place.root, "lake"))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKES__URI", f"sqlite:///{place.root}/lakes.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKES__WAREHOUSE", f"file://{place.root}/lakes")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    with pytest.raises(ConfigError, match="no catalog 'lake'; did you mean 'lakes'"):
        publish(stream, CatalogLocation(place.root, "lake"))
    configured = CatalogLocation(place.root, "lakes")
    publish(stream, configured)
    assert_has(configured, stream)
    rest = CatalogLocation(place.root, "lake", {"type": "rest", "uri": "http://127.0.0.1:9"})
    with pytest.raises(SinkError, match=r"catalog 'lake': ConnectionError: .*127.0.0.1"):
        publish(stream, rest)
    with pytest.raises(SinkError, match=r"catalog 'lake': .*unable to open database file"):
        publish(stream, CatalogLocation(place.root, "lake", {"type": "sql", "uri": "sqlite:////nowhere/at/all.db"}))
    (place.root / ".headgate" / "iceberg").mkdir(parents=True)
    (place.root / ".headgate" / "iceberg" / "catalog.db").write_bytes(os.urandom(4096))
    with pytest.raises(SinkError, match=r"catalog.db: DatabaseError: .*file is not a database"):
        publish(stream, place)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'headgate\[iceberg\]'"):
        publish(stream, place)
