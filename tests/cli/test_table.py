"""`headgate table`: publish, list, drop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import Run
from headgate.derived.columns import column_files
from headgate.log import Stream, pairs
from iceberg_tables import stream_with_files

FAR = 1 << 42


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A stream `sales` under the root of `run`."""
    return stream_with_files(tmp_path / "root")


def test_a_table_is_published_listed_and_dropped(run: Run, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("table", "ls").err == "no table; make one with: headgate table publish STREAM\n"
    files = column_files(stream)
    rows = sum(file.rows for file in files)
    published = run("table", "publish", "sales")
    location = stream.path.parent.parent / ".headgate/iceberg/headgate/sales"
    assert published.out == f"headgate.sales: {len(files)} segments added ({rows} rows); file://{location}\n"
    pairs.delete_pair(stream.path, stream.segments()[0].first_chunk_id)
    again = run("table", "publish", stream.path, "--expire-after", "1h", "--json").json[0]
    assert (again["stream"], again["segments"], again["removed"], again["expired"]) == ("sales", 0, 1, 0)
    listed = run("table", "ls", "--json").json[0]
    assert (listed["table"], listed["rows"]) == ("headgate.sales", rows - files[0].rows)
    assert f"headgate.sales\tsales\t0-{rows}\t{rows - files[0].rows}\t{len(files) - 1}\t" in run("table", "ls").out
    monkeypatch.setattr("headgate.cli.table.now_ms", lambda: FAR)
    cleaned = run("table", "publish", "sales", "--retain", "forever").out
    assert re.search(r": 0 segments added \(0 rows\), 1 snapshot expired, \d files deleted;", cleaned)
    assert run("table", "drop", "sales").out == "headgate.sales: dropped\n"
    assert not run("table", "ls").out


@pytest.mark.usefixtures("stream")
def test_what_is_wrong_is_named(run: Run, tmp_path: Path) -> None:
    run("stream", "create", "plain")
    assert "plain: it has no declared columns" in run("table", "publish", "plain").err
    assert "pyiceberg knows no catalog 'lake'" in run("table", "publish", "sales", "--catalog", "lake").err
    assert "--property: found 'uri', expected NAME=VALUE" in run("table", "ls", "--property", "uri").err
    twice = run("table", "ls", "--property", "a=1", "--property", "a=2")
    assert twice.status == 2 and "--property a: given twice" in twice.err
    elsewhere = ("--catalog", "lake", "--property", f"uri=sqlite:///{tmp_path}/none/c.db", "--property", "type=sql")
    failed = run("table", "publish", "sales", *elsewhere)
    assert failed.status == 1 and "headgate: catalog 'lake': OperationalError: " in failed.err
    named = ("--catalog", "lake", "--property", f"uri=sqlite:///{tmp_path}/c.db", "--property", "type=sql")
    warehouse = ("--property", f"warehouse=file://{tmp_path}/lake")
    assert "shop.sold: " in run("table", "publish", "sales", *named, *warehouse, "--table", "shop.sold").out
    assert [row["table"] for row in run("table", "ls", *named, "--json").json] == ["shop.sold"]
    assert "headgate.sales: there is no such table in catalog 'lake'" in run("table", "drop", "sales", *named).err
