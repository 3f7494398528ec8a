"""`headgate lookup`: declare, build, list, drop."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Run
from headgate import Message
from headgate.log import Stream, StreamArguments, Writer, derived_folder, stream_folder


@pytest.fixture
def stream(run: Run) -> Stream:
    """A stream `sales` of some sealed segments."""
    root = Path(run("stream", "create", "other").out.strip()).parent.parent
    limits = StreamArguments(max_segment_size_bytes=2000)
    made = Stream.create(stream_folder(root, "sales"), name="sales", now_ms=0, arguments=limits)
    with Writer.open(made, now_ms=0) as writer:
        for number in range(50):
            message = Message(b"x", application_properties={"customer": f"c{number}"}, subject="sold")
            writer.append([(message.encode(), None)] * 3, now_ms=number)
    return made


def test_fields_are_declared_built_listed_and_dropped(run: Run, stream: Stream) -> None:
    customer, subject = "application_properties.customer", "properties.subject"
    assert run("lookup", "declare", "sales", customer, subject).out == f"{customer}\n{subject}\n"
    sealed = len(stream.segments()) - 1
    first_open = stream.segments()[-1].first_chunk_id
    assert run("lookup", "build").out.startswith(
        f"sales: {2 * sealed} files built for {sealed} sealed segments, {first_open} messages read ("
    )
    again = run("lookup", "build", "sales", "--check", "--json").json[0]
    assert again == {"stream": "sales", "segments": sealed, "built": 0, "messages": 0, "bytes": 0}
    rows = run("lookup", "ls", "--json").json
    assert [(row["field"], row["segments"]) for row in rows] == [(customer, sealed), (subject, sealed)]
    assert f"{sealed} of {sealed}" in run("lookup", "ls", "sales").out
    derived = run("stream", "info", "sales", "--json").json[0]["derived_bytes"]
    assert derived > sum(path.stat().st_size for path in derived_folder(stream).glob("*.lookup")) > 0
    read = run("tail", "sales", "--from", "first", "--filter", "customer = 'c7'", "--json")
    assert len(read.json) == 3
    assert run("lookup", "drop", "sales", customer).out == f"{subject}\n"
    assert run("lookup", "drop", "sales").out == f"sales: no lookup fields; {2 * sealed} files deleted\n"
    assert not list(derived_folder(stream).glob("*.lookup"))
    assert run("lookup", "ls").err.startswith("no fields are looked up")


def test_a_damaged_segment_and_what_cannot_be_done_are_named(run: Run, stream: Stream) -> None:
    assert "sales: it has no lookup fields" in run("lookup", "build", "sales").err
    assert "no field is given" in run("lookup", "declare", "sales").err
    assert "names no field" in run("lookup", "declare", "sales", "customer").err
    assert "is not declared" in run("lookup", "drop", "sales", "properties.to").err
    run("lookup", "declare", "sales", "application_properties.customer")
    damaged = stream.segments()[0].segment_path
    raw = damaged.read_bytes()
    damaged.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    built = run("lookup", "build", "sales")
    assert built.status == 1
    assert "no file of a damaged segment" in built.err
