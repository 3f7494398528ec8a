"""`headgate publish` from files of rows: once, whatever is repeated, into folders and to a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import Run
from headgate.cli.units import shown_count
from server.running import running_server

MAPPING = "n bigint, body as text"
ROWS = 10_000


@pytest.fixture(params=["folder", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """Options that say where streams are."""
    if request.param == "folder":
        yield []
        return
    from headgate.server.stream import StreamHandler

    with running_server(tmp_path, handlers={"stream": StreamHandler}) as running:
        yield ["--server", f"127.0.0.1:{running.ports['stream']}"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    numbers = list(range(ROWS))
    pq.write_table(pa.table({"n": numbers, "text": [f"row {each}" for each in numbers]}), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def test_a_file_is_published_once_however_often_it_is_repeated(
    run: Run, place: list[str], file: Path, tmp_path: Path
) -> None:
    assert run("stream", "create", "orders", *place).status == 0
    first = tmp_path / "first.parquet"
    pq.write_table(pq.read_table(file).slice(0, 5_000), first)
    for given, said in (
        (first, f"{shown_count(5_000)} messages published; next offset 5000\n"),
        (file, f"{shown_count(5_000)} messages published, {shown_count(5_000)} already there; next offset 10000\n"),
        (file, f"0 messages published, {shown_count(10_000)} already there; next offset 10000\n"),
    ):
        done = run("publish", "orders", "--from", given, "--map", MAPPING, "--publisher", "loader", *place)
        assert (done.status, done.err) == (0, said)
    exported = tmp_path / "again.parquet"
    assert run("export", "orders", "--to", exported, "--columns", "n bigint, body", *place).status == 0
    again = pq.read_table(exported)
    assert again["n"].to_pylist() == list(range(ROWS))
    assert again["body"][-1].as_py() == b"row 9999"


def test_publishing_to_a_stream_that_is_not_there_says_how_it_is_made(run: Run, place: list[str]) -> None:
    run("stream", "create", "orders", *place)
    shown = run("publish", "order", *place, stdin="{}")
    assert shown.status == 1
    assert "; did you mean 'orders'?" in shown.err and "headgate stream create --" in shown.err


@pytest.mark.parametrize("publisher", [(), ("--publisher", "loader")])
def test_rows_before_a_wrong_one_are_published_and_how_to_go_on_is_said(
    run: Run, place: list[str], tmp_path: Path, publisher: tuple[str, ...]
) -> None:
    assert run("stream", "create", "orders", *place).status == 0
    wrong = tmp_path / "rows.csv"
    wrong.write_text("n,more\n1,a\n2,b\nx,c\n")
    command = ("publish", "orders", wrong, "--map", "n int", *publisher, *place)
    done = run(*command)
    assert done.status == 1
    notes = done.err.splitlines()
    assert notes[:2] == ["columns that become nothing: more", "2 messages published; next offset 2"]
    before, how = notes[2].split(". ")
    assert before == "headgate: row 3: column 'n': found 'x', expected int32; the rows before it are published"
    assert ("run the same command again" in how) == bool(publisher)
    if publisher:
        wrong.write_text("n,more\n1,a\n2,b\n3,c\n")
        assert run(*command).err.splitlines()[1] == "1 message published, 2 already there; next offset 3"
    wrong.write_text("n,more\nx,c\n")
    assert run("publish", "orders", wrong, "--map", "n int", *place).err.endswith(
        "expected int32; nothing is published\n"
    )


def test_json_lines_with_a_mapping_come_from_standard_input(run: Run) -> None:
    run("stream", "create", "orders")
    done = run("publish", "orders", "--map", "region string, body as text", stdin='{"region": "EMEA", "text": "x"}\n')
    assert (done.status, done.err) == (0, "1 message published; next offset 1\n")
    (shown,) = run("tail", "orders", "--json").json
    assert shown["application_properties"] == {"region": "EMEA"} and shown["body"] == {"data": "x"}


def test_a_filter_value_without_room_is_refused_behind_the_rows_before_it(run: Run, tmp_path: Path) -> None:
    from headgate.server.stream import StreamHandler

    path = tmp_path / "rows.csv"
    path.write_text('v,n\n,1\n"a",2\n')
    with running_server(tmp_path, handlers={"stream": StreamHandler}) as running:
        place = ["--server", f"127.0.0.1:{running.ports['stream']}"]
        run("stream", "create", "orders", *place)
        done = run("publish", "orders", path, "--map", "n int, filter_value as v", "--compression", "lz4", *place)
    assert done.status == 1
    assert "1 message published; next offset 1" in done.err
    assert "row 2: found filter value 'a'; the stream protocol has no room" in done.err


def test_a_line_without_a_body_is_stored_with_an_empty_one_that_is_noted(run: Run, place: list[str]) -> None:
    run("stream", "create", "orders", *place)
    assert run("publish", "orders", *place, stdin='{"subject": "a"}\n{"subject": "a", "body": null}\n').status == 0
    for shown in run("tail", "orders", "--json", *place).json:
        assert (shown["message_annotations"], shown["body"]) == ({"x-headgate-no-body": True}, {"data": ""})
