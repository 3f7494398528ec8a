"""The generator: the same events for the same seed, in bounded memory, shaped so that chunks can be skipped."""

import json
import sys
from collections import Counter
from itertools import groupby, pairwise
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.errors import ConfigError
from headgate.generate import write_events
from headgate.generate.events import BASE_TIME, BLOCK_EVENTS, EVENT_TYPES, SCHEMA, event_block


@pytest.fixture(scope="module")
def block() -> pa.Table:
    return event_block(7, 0, 2_000)


def test_one_seed_gives_one_content_and_another_seed_another(block: pa.Table) -> None:
    assert event_block(7, 0, 2_000).equals(block)
    assert not event_block(8, 0, 2_000)["event_type"].equals(block["event_type"])
    assert not event_block(7, 1, 2_000)["event_id"].equals(block["event_id"])


def test_a_longer_file_begins_with_the_shorter_one(tmp_path: Path) -> None:
    write_events(tmp_path / "short.parquet", events=1_000, seed=3)
    write_events(tmp_path / "long.parquet", events=BLOCK_EVENTS + 500, seed=3)
    short, long = pq.read_table(tmp_path / "short.parquet"), pq.read_table(tmp_path / "long.parquet")
    assert (short.num_rows, long.num_rows) == (1_000, BLOCK_EVENTS + 500)
    assert long.slice(0, 1_000).equals(short)
    assert pq.ParquetFile(tmp_path / "long.parquet").num_row_groups == 2


def test_json_lines_hold_the_same_events_as_parquet(tmp_path: Path) -> None:
    write_events(tmp_path / "events.parquet", events=300, seed=3)
    write_events(tmp_path / "events.jsonl", events=300, seed=3, format="jsonl")
    lines = (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()
    rows = pq.read_table(tmp_path / "events.parquet").to_pylist()
    assert len(lines) == 300
    for line, row in zip(map(json.loads, lines), rows, strict=True):
        assert line.pop("creation_time") == row.pop("creation_time").strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        assert line == {name: value for name, value in row.items() if value is not None}


def test_columns_have_the_documented_types_and_identifiers_are_random_uuids(block: pa.Table) -> None:
    assert block.schema == SCHEMA
    block.validate(full=True)
    identifiers = [UUID(text) for text in block["event_id"][:1_000].to_pylist()]
    assert {identifier.version for identifier in identifiers} == {4}
    assert len(set(identifiers)) == 1_000


def test_regions_types_and_priorities_come_in_the_stated_shares(block: pa.Table) -> None:
    regions = Counter(block["region"].to_pylist())
    for region, share in (("AMER", 0.45), ("EMEA", 0.35), ("APJ", 0.20)):
        assert regions[region] / BLOCK_EVENTS == pytest.approx(share, abs=0.02)
    assert set(block["event_type"].to_pylist()) == set(EVENT_TYPES)
    priorities = Counter(block["priority"].to_pylist())
    assert priorities[None] / BLOCK_EVENTS == pytest.approx(0.6, abs=0.02)
    assert set(priorities) - {None} == set(range(10))


def test_premium_is_a_matter_of_the_customer_not_of_the_event(block: pa.Table) -> None:
    pairs = set(zip(block["customer_id"].to_pylist(), block["premium_customer"].to_pylist(), strict=True))
    assert len(pairs) == len({customer for customer, _ in pairs})
    assert 0.08 < sum(premium for _, premium in pairs) / len(pairs) < 0.16


def test_orders_come_in_runs_so_that_most_chunks_hold_none(block: pa.Table) -> None:
    runs = [is_order for is_order, _ in groupby(text.startswith("order.") for text in block["event_type"].to_pylist())]
    assert 10 < len(runs) < 120
    chunks = [block["event_type"].to_pylist()[start : start + 512] for start in range(0, BLOCK_EVENTS, 512)]
    assert sum("order.created" in chunk for chunk in chunks) < len(chunks) / 2


def test_a_shorter_run_length_mixes_orders_and_browsing_more_finely() -> None:
    def changes(run_length: int) -> int:
        types = event_block(7, 0, run_length)["event_type"].to_pylist()
        return sum(1 for _ in groupby(text.startswith("order.") for text in types))

    assert changes(100) > 5 * changes(5_000)


def test_bodies_are_json_that_agrees_with_the_columns_and_some_is_not_ascii(block: pa.Table) -> None:
    rows = block.slice(0, 20_000).to_pylist()
    for row in rows:
        body = json.loads(row["body"])
        assert (body["event"], body["customer"]) == (row["event_type"], row["customer_id"])
        if row["event_type"].startswith("order."):
            lines = body["order"]["lines"]
            assert 1 <= len(lines) <= 4
            assert body["order"]["total"] == row["price"]
            assert sum(round(line["price"] * 100) * line["quantity"] for line in lines) == round(row["price"] * 100)
            assert sum(line["quantity"] for line in lines) == row["quantity"]
            assert lines[0]["sku"] == row["sku"]
    assert any(not row["body"].isascii() for row in rows)


def test_fields_are_null_exactly_where_the_type_has_none(block: pa.Table) -> None:
    for row in block.slice(0, 20_000).to_pylist():
        priced = row["event_type"].startswith(("order.", "cart.", "product."))
        assert [row[name] is not None for name in ("price", "quantity", "sku", "currency")] == [priced] * 4
        assert (row["stars"] is not None) == (row["event_type"] == "review.submitted")
        assert row["campaign"] is None or row["event_type"] in ("user.login", "search.run")


def test_creation_times_are_whole_milliseconds_and_go_on_from_block_to_block(block: pa.Table) -> None:
    first = block["creation_time"].to_pylist()
    second = event_block(7, 1, 2_000)["creation_time"].to_pylist()
    assert min(first) >= BASE_TIME
    assert all(moment.microsecond % 1000 == 0 for moment in first)
    assert abs((min(second) - max(first)).total_seconds()) < 4
    assert any(later < earlier for earlier, later in pairwise(first))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"events": 0, "seed": 1}, "events"),
        ({"events": 1, "seed": -1}, "seed"),
        ({"events": 1, "seed": 1, "run_length": 0}, "run_length"),
        ({"events": 1, "seed": 1, "format": "csv"}, "format"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(
    tmp_path: Path, arguments: dict[str, object], name: str
) -> None:
    with pytest.raises(ConfigError, match=name):
        write_events(tmp_path / "events", **arguments)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        write_events(tmp_path / "missing" / "events.parquet", events=1, seed=1)
    with pytest.raises(ConfigError, match="folder"):
        write_events(tmp_path, events=1, seed=1)


def test_importing_the_generator_imports_neither_pyarrow_nor_numpy() -> None:
    import subprocess

    code = "import sys, headgate.generate; print({'pyarrow', 'numpy'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
