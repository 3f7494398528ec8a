"""`headgate columns`: declare, infer, build, list, drop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import Run
from headgate import Message
from headgate.log import Stream, StreamArguments, Writer, derived_folder, stream_folder


@pytest.fixture
def stream(run: Run, tmp_path: Path) -> Stream:
    """A stream `sales` of some sealed segments; every tenth price is a float."""
    root = Path(run("stream", "create", "other").out.strip()).parent.parent
    limits = StreamArguments(max_segment_size_bytes=2000)
    made = Stream.create(stream_folder(root, "sales"), name="sales", now_ms=0, arguments=limits)
    with Writer.open(made, now_ms=0) as writer:
        for number in range(50):
            price: object = float(number) if number % 10 else number
            properties = {"region": ("AMER", "EMEA")[number % 2], "price": price, "map": {"a": 1}}
            message = Message(b"x", application_properties=properties, subject="sold", priority=5)
            writer.append([(message.encode(), None)] * 3, now_ms=number)
    return made


@pytest.mark.usefixtures("stream")
def test_a_sample_says_which_columns_there_could_be(run: Run) -> None:
    rows = {row["column"]: row for row in run("columns", "infer", "sales", "--json").json}
    assert rows["region string"] == {"column": "region string", "present": 1.0, "other": 0.0, "distinct": 2}
    assert rows["price double"]["other"] == pytest.approx(0.1)
    assert {"h.priority", "p.subject"} <= set(rows)
    assert not any("map" in name for name in rows)
    shown = run("columns", "infer", "sales", "--messages", "20")
    assert "20 messages looked at" in shown.err
    assert run("columns", "infer", "other").err.startswith("no message has a field")


def test_columns_are_declared_built_listed_and_dropped(run: Run, stream: Stream) -> None:
    assert run("columns", "declare", "sales", "region string, price double, p.subject").out == (
        "1: region string\n2: price double\n3: p.subject\n"
    )
    sealed = len(stream.segments()) - 1
    built = run("columns", "build", "--local")
    assert re.fullmatch(rf"sales: {sealed} of {sealed} files built, \d+ messages \(.*\)\n", built.out)
    again = run("columns", "build", "sales", "--local", "--check", "--json").json[0]
    assert (again["segments"], again["built"]) == (sealed, 0)
    rows = run("columns", "ls", "--json").json
    assert [(row["stream"], row["id"], row["column"], row["segments"]) for row in rows] == [
        ("sales", 1, "region string", sealed),
        ("sales", 2, "price double", sealed),
        ("sales", 3, "p.subject", sealed),
    ]
    assert f"{sealed} of {sealed}" in run("columns", "ls", "sales").out
    assert run("stream", "info", "sales", "--json").json[0]["derived_bytes"] > 1000
    assert run("columns", "drop", "sales", "price").out == "1: region string\n3: p.subject\n"
    assert run("columns", "drop", "sales").out == f"sales: no columns; {sealed} files deleted\n"
    assert not list(derived_folder(stream).glob("*.parquet"))
    assert run("columns", "ls").err.startswith("no columns are declared")


@pytest.mark.usefixtures("stream")
def test_what_cannot_be_done_is_an_error_that_names_it(run: Run) -> None:
    assert "'prise' is declared 'text'" in run("columns", "declare", "sales", "prise text").err
    assert "sales: it has no declared columns" in run("columns", "build", "sales", "--local").err
    assert "'x' is not declared" in run("columns", "drop", "sales", "x").err
    assert "--check reads files in this process" in run("columns", "build", "sales", "--check").err
    assert "expected 1 or more" in run("columns", "infer", "sales", "--messages", "0").err
