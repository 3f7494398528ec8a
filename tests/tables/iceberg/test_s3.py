"""The same on S3, of a server of moto: files are uploaded once, under names that say what they are."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import duckdb
import msgspec
import polars as pl
import pyarrow.fs as pf
import pytest
from moto.server import ThreadedMotoServer

from headgate.derived.columns import column_files
from headgate.errors import SinkError
from headgate.log import GRACE_MS, Writer, derived_folder, move_segments, pairs
from headgate.log.remote.cache import cache_folder
from headgate.tables.iceberg import CatalogLocation, drop_table, upkeep
from iceberg_tables import NAME, WRITES, assert_has, build, publish, rows, stream_with_files
from match_indexes import append

pytestmark = pytest.mark.slow

BUCKET = "lake"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server with an empty bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    filesystem(address).create_dir(BUCKET)
    yield address
    server.stop()


def filesystem(endpoint: str) -> pf.S3FileSystem:
    return pf.S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=endpoint,
        region="us-east-1",
        allow_bucket_creation=True,
    )


def place_on(endpoint: str, root: Path, **more: str) -> CatalogLocation:
    given = {"access-key-id": "key", "secret-access-key": "secret", "region": "us-east-1", **more}
    properties = {f"s3.{name}": value for name, value in given.items()}
    return CatalogLocation(
        root, properties={"warehouse": f"s3://{BUCKET}/{root.name}", "s3.endpoint": endpoint, **properties}
    )


def objects(endpoint: str, root: Path) -> dict[str, pf.FileInfo]:
    """The data files of the table by name."""
    selected = pf.FileSelector(f"{BUCKET}/{root.name}/headgate/sales/data", allow_not_found=True)
    return {info.base_name: info for info in filesystem(endpoint).get_file_info(selected)}


def test_files_are_uploaded_once_read_by_others_and_deleted(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    stream, place = stream_with_files(tmp_path), place_on(endpoint, tmp_path)

    def fail(*_: object) -> None:
        raise OSError("the network went away")

    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "data_file_of", fail)
        with pytest.raises(SinkError, match="the network went away"):
            publish(stream, place)
    uploaded = objects(endpoint, tmp_path)
    assert set(uploaded) == {file.path.name for file in column_files(stream)}
    assert publish(stream, place).segments == len(uploaded)
    assert {name: info.mtime for name, info in objects(endpoint, tmp_path).items()} == {
        name: info.mtime for name, info in uploaded.items()
    }
    assert_has(place, stream)
    with place.opened() as catalog:
        table = catalog.load_table(NAME)
        arrow = table.scan(row_filter="region = 'EMEA'", selected_fields=("price",)).to_arrow()
        assert duckdb.sql("SELECT sum(price) FROM arrow").fetchall() == [(sum(arrow["price"].to_pylist()),)]
        frame = pl.scan_iceberg(table, reader_override="pyiceberg").filter(pl.col("region") == "EMEA")
        assert frame.select("price").collect()["price"].to_list() == arrow["price"].to_pylist()
    pairs.delete_pair(stream.path, stream.segments()[0].first_chunk_id)
    append(stream, WRITES)
    build(stream)
    assert publish(stream, place).removed == 1
    assert publish(stream, place, now_ms=1 << 42).deleted_files > 0
    assert set(objects(endpoint, tmp_path)) == {file.path.name for file in column_files(stream)}
    assert_has(place, stream)
    drop_table(stream, place)
    assert objects(endpoint, tmp_path) == {}


def test_a_stream_whose_segments_lie_on_s3_is_published_there(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "HEADGATE_REMOTE_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    cache_folder.cache_clear()
    stream, place = stream_with_files(tmp_path), place_on(endpoint, tmp_path)
    before = {file.path.name: file.path.read_bytes() for file in column_files(stream)}
    with Writer.open(stream, now_ms=0) as writer:
        remote = msgspec.structs.replace(writer.settings.arguments, remote=f"s3://{BUCKET}/{tmp_path.name}/streams")
        writer.change(now_ms=0, arguments=remote)
        move_segments(writer.stream, now_ms=1)
        writer.release_local()
        stream = writer.stream
    assert stream.segments().num_remote == len(before)
    for name in before:
        (derived_folder(stream) / name).unlink()
    build(stream)
    assert {file.path.name: file.path.read_bytes() for file in column_files(stream)} == before
    for later_ms in (1, 1 + GRACE_MS):
        move_segments(stream, now_ms=later_ms)
    assert all(file.is_remote for file in column_files(stream))
    published = publish(stream, place)
    assert published.segments == len(before)
    assert_has(place, stream)
    assert publish(stream, place).segments == 0
    assert set(objects(endpoint, tmp_path)) == set(before)
    cache_folder.cache_clear()


def test_the_beginning_of_a_file_that_is_there_is_not_taken_for_it(endpoint: str, tmp_path: Path) -> None:
    stream, place = stream_with_files(tmp_path), place_on(endpoint, tmp_path)
    first = column_files(stream)[0]
    with filesystem(endpoint).open_output_stream(
        f"{BUCKET}/{tmp_path.name}/headgate/sales/data/{first.path.name}"
    ) as cut:
        cut.write(first.path.read_bytes()[:100])
    publish(stream, place)
    assert_has(place, stream)


def test_wrong_credentials_and_buckets_are_named_and_the_stream_is_unharmed(endpoint: str, tmp_path: Path) -> None:
    stream = stream_with_files(tmp_path)
    files = [file.path for file in column_files(stream)]
    nowhere = CatalogLocation(
        tmp_path, properties={**place_on(endpoint, tmp_path).properties, "warehouse": "s3://none"}
    )
    with pytest.raises(SinkError, match=r"catalog .*catalog.db: .*bucket 'none'"):
        publish(stream, nowhere)
    demand_credentials(endpoint, after=0)
    try:
        with pytest.raises(SinkError, match=r"catalog .*catalog.db: .*(ACCESS_DENIED|INVALID_ACCESS_KEY_ID)"):
            publish(stream, place_on(endpoint, tmp_path))
    finally:
        demand_credentials(endpoint, after=1 << 40)
    assert [file.path for file in column_files(stream)] == files
    place = place_on(endpoint, tmp_path)
    publish(stream, place)
    assert len(rows(place)) == sum(file.rows for file in column_files(stream))


def demand_credentials(endpoint: str, *, after: int) -> None:
    """Behind so many requests the server looks at who asks."""
    address, headers = f"{endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
    with urllib.request.urlopen(urllib.request.Request(address, data=b"%d" % after, headers=headers)):
        pass
