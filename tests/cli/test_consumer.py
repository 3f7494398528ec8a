from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Run
from headgate.broker.consumers import ConsumerOptions
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, Writer, stream_folder
from remote_streams import move, new_stream
from server.running import RunningServer, running_server


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    streams = [{"name": "orders"}, {"name": "other"}]
    with running_server(tmp_path, listeners={"amqp": "off", "stomp": "off"}, stream=streams) as running:
        running.call(_consume, running)
        yield running


def _consume(running: RunningServer) -> None:
    session = running.context.broker.open_session("guest", protocol="AMQP 1.0", connection="127.0.0.1:1#1")
    options = ConsumerOptions(
        start=OffsetSpecification.first(),
        filter_values=(b"EMEA", b"AMER"),
        filter=Filter.parse("price > 10", "amqp"),
        name="app",
        tag="link-1",
    )
    session.message_consumer("orders", options)
    session.store_offset("orders", "app", 7)


@pytest.fixture(params=["http", "stream"])
def server(request: pytest.FixtureRequest, running: RunningServer) -> str:
    place = f"127.0.0.1:{running.ports[request.param]}"
    return f"http://{place}" if request.param == "http" else place


def test_connected_consumers_are_listed_with_the_filter_in_force(run: Run, server: str) -> None:
    shown = run("consumer", "ls", "--server", server)
    assert shown.status == 0, shown.err
    head, line = (row.split("\t") for row in shown.out.splitlines())
    row = dict(zip(head, line, strict=True))
    assert (row["stream"], row["name"], row["tag"], row["user"]) == ("orders", "app", "link-1", "guest")
    assert (row["filter_values"], row["dialect"], row["filter"]) == ("EMEA, AMER", "amqp", "price > 10")
    assert (row["examined"], row["matched"], row["cpu"]) == ("0", "0", "0.0 ms")
    assert run("consumer", "ls", "other", "--server", server).err == "no consumer is connected\n"
    (row,) = map(json.loads, run("consumer", "ls", "orders", "--json", "--server", server).out.splitlines())
    assert row["filter_values"] == ["EMEA", "AMER"] and row["counters"]["chunks_examined"] == 0


def test_lag_of_a_server_is_that_of_stored_offsets_and_of_connected_consumers(run: Run, server: str) -> None:
    shown = run("consumer", "lag", "orders", "--json", "--server", server)
    stored, connected = map(json.loads, shown.out.splitlines())
    assert (stored["name"], stored["tag"], stored["stored_offset"], stored["lag"]) == ("app", None, 7, 0)
    assert (connected["name"], connected["tag"], connected["stored_offset"], connected["lag"]) == (
        "app",
        "link-1",
        None,
        0,
    )
    assert (stored["filtered_lag"], connected["filtered_lag"]) == (None, 0)


def test_stored_offsets_of_a_folder_are_listed_with_their_lag(orders: Run, tmp_path: Path) -> None:
    with Writer.open(Stream.open(stream_folder(tmp_path / "root", "orders")), now_ms=1) as writer:
        writer.store_offset(b"app", 19)
        # The offset is written in a chunk of its own, which takes an offset, too.
        writer.flush_offsets(now_ms=2)
    orders("stream", "create", "empty")
    shown = orders("consumer", "lag")
    assert shown.out.splitlines() == [
        "stream\tname\ttag\tstored_offset\tnext_offset\tlag\tfiltered_lag",
        "orders\tapp\t\t19\t31\t10\t",
    ]
    assert orders("consumer", "ls", "orders").out == "stream\tname\tstored_offset\norders\tapp\t19\n"
    assert "no consumer stored an offset" in orders("consumer", "ls", "empty").err


def test_a_stream_that_a_server_has_not_is_named_with_one_like_it(run: Run, server: str) -> None:
    for verb in ("ls", "lag"):
        shown = run("consumer", verb, "ordesr", "--server", server)
        assert shown.status == 1
        assert "ordesr: no stream of that name; did you mean 'orders'" in shown.err


def test_lag_is_counted_without_asking_object_storage(run: Run, tmp_path: Path, remote_cache: Path) -> None:
    with new_stream(tmp_path / "root" / "streams" / "orders", f"file://{tmp_path}/remote") as writer:
        writer.store_offset("reader", 9)
        writer.append([(b"one more", None)], now_ms=99_000)
        before = run("consumer", "lag", "orders", "--json").json
        assert move(writer) > 5
    (tmp_path / "remote").rename(tmp_path / "away")
    assert run("consumer", "lag", "orders", "--json").json == before
