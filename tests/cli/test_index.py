"""`headgate index`: register, look, build, count, forget."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import Run

pytestmark = pytest.mark.usefixtures("orders")


@pytest.fixture
def _registered(orders: Run) -> None:
    assert orders("index", "register", "orders", "amer", "--filter", "region = 'AMER'").out == "amer: new\n"


@pytest.mark.usefixtures("_registered")
def test_a_registered_filter_is_built_listed_and_counted_from_the_index(run: Run) -> None:
    before = run("index", "ls", "--json").json
    assert [(row["id"], row["state"], row["dialect"], row["indexed"]) for row in before] == [
        ("amer", "standing", "amqp", 0.0)
    ]
    built = run("index", "build", "--here", "--json").json
    assert [(row["stream"], row["chunks_decided"], row["messages_decided"]) for row in built] == [("orders", 3, 30)]
    (done,) = run("index", "ls", "orders", "--json").json
    assert (done["indexed"], done["missing"]) == (1.0, 0)
    counted = run("index", "count", "orders", "--filter", "region = 'AMER'", "--json").json[0]
    assert (counted["matches"], counted["from_index"]) == (10, 10)
    assert counted["counters"]["bytes_read"] == counted["counters"]["messages_evaluated"] == 0


@pytest.mark.usefixtures("_registered")
def test_a_count_evaluates_what_the_index_does_not_hold(run: Run) -> None:
    shown = run("index", "count", "orders", "--filter", "region = 'AMER'", "--from", "5")
    assert shown.out == "5\n"
    assert "0 messages decided by the index, 25 evaluated" in shown.err
    run("index", "build", "--here")
    shown = run("index", "count", "orders", "--filter", "region = 'AMER'", "--from", "5", "--until", "8")
    assert (shown.out, shown.err) == ("3\n", "3 messages decided by the index, 0 evaluated (0 B read)\n")
    assert run("index", "count", "orders", "--filter", "region = 'EMEA'").out == "10\n"


@pytest.mark.usefixtures("_registered")
def test_tail_takes_results_from_the_index_and_says_so(run: Run) -> None:
    arguments = ("tail", "orders", "--filter", "region = 'AMER'", "--offsets", "--counters")
    before = run(*arguments)
    run("index", "build", "--here")
    after = run(*arguments)
    assert after.out == before.out
    assert "match index" not in before.err
    assert "match index: 2 chunks skipped unread, 30 messages decided" in after.err


@pytest.mark.usefixtures("_registered")
def test_a_build_says_what_it_did_and_does_nothing_twice(run: Run) -> None:
    first = run("index", "build", "orders", "--here")
    assert re.match(r"orders: 3 of 3 chunks read, 30 messages decided, 1 of 1 sidecar written \(\d+ B\)\n", first.out)
    assert run("index", "build", "orders", "--here").out.startswith("orders: 0 of 3 chunks read, 0 messages decided")
    assert "orders: 3 of 3 chunks read" in run("index", "build", "orders", "--here", "--full").out


def test_without_filters_there_is_nothing_to_build(run: Run) -> None:
    shown = run("index", "build", "--here")
    assert (shown.status, shown.out) == (0, "")
    assert "headgate index register" in shown.err


@pytest.mark.usefixtures("_registered")
def test_a_filter_that_is_removed_is_gone(run: Run) -> None:
    assert run("index", "rm", "orders", "amer").status == 0
    assert run("index", "ls", "--json").json == []
    shown = run("index", "rm", "orders", "amer")
    assert (shown.status, shown.err) == (1, "headgate: no filter amer is registered for orders\n")


@pytest.mark.usefixtures("_registered")
def test_an_older_version_changes_nothing_and_says_so(run: Run) -> None:
    shown = run("index", "register", "orders", "amer", "--filter", "region = 'APJ'", "--version", "1")
    assert (shown.status, shown.out) == (1, "")
    assert "amer has this version or a newer one already" in shown.err
    assert run("index", "register", "orders", "amer", "--filter", "region = 'APJ'").out == "amer: replaced\n"


def test_a_filter_that_depends_on_the_time_is_refused_with_a_caret(run: Run) -> None:
    shown = run("index", "register", "orders", "late", "--filter", "p.creation_time < UTC()")
    assert shown.status == 1
    assert "depends on more than the stored message" in shown.err
    assert shown.err.splitlines()[-1].strip() == "^^^^^"


def test_tags_can_be_registered_and_counted(run: Run) -> None:
    assert run("index", "register", "orders", "tags", "--filter", "TagA || TagB", "--tags").status == 0
    assert run("index", "ls", "--json").json[0]["dialect"] == "tags"
    run("index", "build", "--here")
    counted = run("index", "count", "orders", "--filter", "TagA || TagB", "--tags", "--json").json[0]
    assert (counted["matches"], counted["counters"]["messages_evaluated"]) == (0, 0)
    assert run("index", "count", "orders", "--filter", "*", "--tags", "--dialect", "amqp").status == 2


def test_settings_are_set_under_either_name_and_shown(run: Run) -> None:
    assert run("index", "configure", "orders", "--json").json == [{"calculate_filter_bitmap": False}]
    shown = run("index", "configure", "orders", "expectConsumerNumUseFilter=64", "enableCalcFilterBitMap=true")
    assert shown.out.split() == ["calculate_filter_bitmap", "true"]
    assert run("index", "configure", "orders", "--json").json == [{"calculate_filter_bitmap": True}]
    for wrong in ("calculate_filter_bitmap", "colour=red", "layout=bloom"):
        refused = run("index", "configure", "orders", wrong)
        assert refused.status == 2 and wrong.split("=")[0] in refused.err


@pytest.mark.usefixtures("_registered")
def test_a_damaged_sidecar_is_shown_and_mended_by_the_next_build(run: Run, tmp_path: Path) -> None:
    run("index", "build", "--here")
    (path,) = (tmp_path / "root" / "streams" / "orders").glob("*.match")
    path.write_bytes(path.read_bytes()[:30])
    shown = run("index", "ls", "--json")
    assert shown.json[0]["indexed"] == 0.0
    assert "the next build replaces it" in shown.err
    run("index", "build", "--here")
    assert run("index", "ls", "--json").json[0]["indexed"] == 1.0
    table = run("index", "ls").lines
    assert table[0] == "stream\tid\tstate\tdialect\tfilter\tversion\tborn\tindexed\tmissing"
    assert table[1].startswith("orders\tamer\tstanding\tamqp\tregion = 'AMER'\t")
    assert table[1].endswith("\t100 %\t0")


def test_a_list_of_no_filters_says_how_to_register_one(run: Run) -> None:
    shown = run("index", "ls")
    assert (shown.status, shown.out) == (0, "")
    assert "headgate index register STREAM ID --filter TEXT" in shown.err
    assert run("index", "ls", "--json").out == ""


def test_a_count_does_not_begin_behind_the_end(orders: Run) -> None:
    shown = orders("index", "count", "orders", "--filter", "price > 1", "--from", "31")
    assert shown.status == 2
    assert "--from: found 31, which lies behind the end: the stream has offsets 0 to 29" in shown.err
