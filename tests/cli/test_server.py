"""`--server`: the same commands on a server, with the output they have on files."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate
from command_line import Run
from headgate import Message
from headgate.client import Client
from headgate.clock import now_ms, shown_time
from headgate.errors import ResourceNotFoundError, StreamLockedError
from headgate.log import Stream, list_streams, resolve_stream, stream_folder
from headgate.log.format import ChunkType
from headgate.log.lock import LOCK_NAME
from headgate.log.root import lock_root, server_lock_folder, set_aside
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server

from ..client.fake_server import HEADGATE, RABBITMQ, FakeServer, FakeStream, fake_server


@pytest.fixture(params=[RABBITMQ, HEADGATE], ids=["rabbitmq", "headgate"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeServer]:
    with fake_server(request.param) as made:
        yield made


@pytest.fixture
def there(run: Run, server: FakeServer) -> Run:
    """Runs commands on the server, where `orders` has 30 messages in three chunks: AMER, EMEA, no filter value."""

    def on_server(*arguments: object, stdin: str = "") -> object:
        return run(*arguments, "--server", server.address, stdin=stdin)

    assert run("stream", "create", "orders", "--server", server.address).out == "orders\n"
    for region in ("AMER", "EMEA", None):
        lines = [
            json.dumps(
                {
                    "subject": "order.created" if number % 2 else "order.paid",
                    "application_properties": {"region": region, "price": number * 10},
                    "body": f"order {number}",
                    "filter_value": region,
                }
            )
            for number in range(10)
        ]
        published = run("publish", "orders", "--server", server.address, stdin="\n".join(lines) + "\n")
        assert published.status == 0
    assert published.err == "10 messages published; next offset 30\n"
    return on_server  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], range(30)),
        (["--from", "25"], range(25, 30)),
        (["--from", "last"], range(20, 30)),
        (["--from", "next"], range(0)),
        (["--from", "5", "--until", "8"], range(5, 8)),
        (["--until", "last"], range(20)),
        (["--until", "100"], range(30)),
        (["-n", "3"], range(3)),
        (["--until", "2001-01-01T00:00:00Z"], range(0)),
    ],
)
def test_tail_begins_and_ends_where_it_is_told_on_a_server(there: Run, options: list[str], expected: range) -> None:
    shown = there("tail", "orders", "--offsets", *options)
    assert shown.status == 0
    assert [int(line) for line in shown.lines] == list(expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--filter-value", "AMER"], range(10)),
        (["--filter-value", "AMER", "--filter-value", "EMEA"], range(20)),
        (["--filter-value", "EMEA", "--match-unfiltered"], range(10, 30)),
    ],
)
def test_tail_skips_chunks_on_a_server_and_still_ends(there: Run, options: list[str], expected: range) -> None:
    assert [int(line) for line in there("tail", "orders", "--offsets", *options).lines] == list(expected)


def test_tail_decides_here_where_the_server_cannot(run: Run) -> None:
    with fake_server(RABBITMQ) as server:
        assert run("stream", "create", "orders", "--server", server.address).status == 0
        lines = [json.dumps({"application_properties": {"price": number}}) for number in range(10)]
        assert run("publish", "orders", "--server", server.address, stdin="\n".join(lines)).status == 0
        shown = run("tail", "orders", "--filter", "price >= 7", "--counters", "--json", "--server", server.address)
    assert [message["offset"] for message in shown.json] == [7, 8, 9]
    assert json.loads(shown.err)["messages_evaluated"] == 10


def test_tail_says_what_it_received(there: Run) -> None:
    assert "received: 3 chunks" in there("tail", "orders", "--offsets", "--counters").err


def test_tail_shows_the_same_lines_as_on_files(there: Run, run: Run) -> None:
    assert run("stream", "create", "copy").status == 0
    shown = there("tail", "orders", "--json")
    assert run("publish", "copy", stdin=shown.out).status == 0
    strip = [{key: value for key, value in row.items() if key != "timestamp"} for row in shown.json]
    assert [
        {key: value for key, value in row.items() if key != "timestamp"} for row in run("tail", "copy", "--json").json
    ] == strip


def test_publish_with_a_name_leaves_out_what_is_there(there: Run) -> None:
    lines = [json.dumps({"body": f"{number}"}) for number in range(4)]
    first = there("publish", "orders", "--publisher", "import", stdin="\n".join(lines[:3]))
    assert first.err == "3 messages published; next offset 33\n"
    second = there("publish", "orders", "--publisher", "import", stdin="\n".join(lines))
    assert second.err == "1 message published, 3 already there; next offset 34\n"


def test_publish_names_the_line_that_is_wrong(there: Run) -> None:
    shown = there("publish", "orders", stdin='{"body": "one"}\n{"bdoy": "two"}\n')
    assert shown.status == 1
    assert "1 message published; next offset 31" in shown.err
    assert "line 2" in shown.err


def test_info_shows_what_the_server_says(there: Run, server: FakeServer) -> None:
    (facts,) = there("stream", "info", "orders", "--json").json
    assert (facts["messages"], facts["first_offset"], facts["next_offset"]) == (30, 0, 30)
    assert facts["product"] == ("RabbitMQ 4.3.6" if server.properties is RABBITMQ else "Headgate 0.1.0")
    assert "next_offset" in there("stream", "info", "orders").out


def test_info_of_a_server_that_has_no_lists_shows_what_its_chunks_say(there: Run, server: FakeServer) -> None:
    shown = there("stream", "info", "orders", "--json")
    (facts,) = shown.json
    headers = server.streams["orders"].headers
    assert (facts["first_time"], facts["last_time"]) == tuple(
        shown_time(header.timestamp_ms) for header in (headers[0], headers[-1])
    )
    assert facts["filter_size_bytes"] is None
    server.append("orders", [b"x"], [b"AMER"])
    assert there("stream", "info", "orders", "--json").json[0]["filter_size_bytes"] == 16
    assert ("only what the stream protocol says" in shown.err) == (server.properties is HEADGATE)
    assert "stored_offsets" not in facts


def test_verify_says_what_it_checked_of_a_server_and_what_not(there: Run, server: FakeServer) -> None:
    shown = there("stream", "verify", "orders")
    assert (shown.status, shown.out) == (0, "")
    first, second = shown.err.splitlines()
    assert first.startswith("3 chunks, 30 records, ") and first.endswith(" checked: all is well")
    assert second.startswith("not checked, ") and "Bloom filters" in second
    server.streams["orders"].append([b"tracking"], [], chunk_type=ChunkType.TRACKING_DELTA)
    server.append("orders", [b"behind"], [None])
    shown = there("stream", "verify", "orders")
    assert shown.status == 0
    assert "4 chunks, 31 records" in shown.err and "not delivered: 1 offset of 32" in shown.err
    (said,) = there("stream", "verify", "orders", "--json").json
    assert said["checked"].pop("size_bytes") > 0
    assert said == {
        "stream": "orders",
        "checked": {"chunks": 4, "records": 31},
        "damaged": [],
        "offsets_not_delivered": 1,
    }


def test_verify_names_each_damaged_chunk_of_a_server(there: Run, server: FakeServer) -> None:
    stream = server.streams["orders"]
    damage(stream, 0, 48 + stream.headers[0].bloom_length + 20)
    damage(stream, 2, 31)
    shown = there("stream", "verify", "orders", "--json")
    assert shown.status == 1
    (said,) = shown.json
    assert said["damaged"] == [
        {"path": "orders", "position": None, "reason": "data of chunk 0 fails its CRC"},
        {"path": "orders", "position": None, "reason": f"chunk id {20 ^ 0x1F}, expected 20 or more"},
    ]
    assert "3 chunks, 30 records" in shown.err and "2 damaged places" in shown.err


def test_verify_of_an_empty_stream_of_a_server_ends(run: Run, server: FakeServer) -> None:
    assert run("stream", "create", "empty", "--server", server.address).status == 0
    shown = run("stream", "verify", "empty", "--server", server.address)
    assert shown.status == 0 and "0 chunks" in shown.err
    assert run("stream", "dump", "empty", "--server", server.address, "--json").out == ""
    assert run("stream", "verify", "missing", "--server", server.address).status == 1


def test_dump_shows_the_chunks_that_a_server_delivers(there: Run, server: FakeServer) -> None:
    stream = server.streams["orders"]
    damage(stream, 1, 48 + stream.headers[1].bloom_length + 20)
    shown = there("stream", "dump", "orders", "--json")
    assert shown.status == 1
    assert [(row["chunk_id"], row["crc"], row["state"]) for row in shown.json] == [
        (0, "good", "delivered"),
        (10, "bad", "delivered"),
        (20, "good", "delivered"),
    ]
    assert {row["segment"] for row in shown.json} == {row["bloom_fill"] for row in shown.json} == {None}
    unchecked = there("stream", "dump", "orders", "--no-crc", "--json")
    assert unchecked.status == 0 and {row["crc"] for row in unchecked.json} == {"unchecked"}


def test_adopting_at_a_server_is_refused_with_what_to_do(there: Run) -> None:
    refused = there("stream", "adopt", "folder")
    assert refused.status == 2
    assert "without --server" in refused.err


def damage(stream: FakeStream, number: int, at: int) -> None:
    """Turn bits of one byte of a chunk."""
    chunk = bytearray(stream.chunks[number])
    chunk[at] ^= 0x1F
    stream.chunks[number] = bytes(chunk)


def test_a_stream_is_deleted_on_a_server(there: Run, server: FakeServer) -> None:
    if server.properties is HEADGATE:
        # It could say who uses the stream, but its HTTP is off.
        refused = there("stream", "rm", "orders")
        assert refused.status == 1 and "HTTP is off" in refused.err and "--force" in refused.err
        assert there("stream", "rm", "orders", "--force").status == 0
    else:
        assert there("stream", "rm", "orders").status == 0
    gone = there("stream", "info", "orders")
    assert gone.status == 1
    assert "stream does not exist" in gone.err


def test_a_stream_that_is_there_is_not_made_again(there: Run) -> None:
    again = there("stream", "create", "orders", "--max-age", "7d")
    assert again.status == 1
    assert "orders: a stream of that name is there already" in again.err


def test_streams_are_listed_where_the_server_tells_them(there: Run, server: FakeServer) -> None:
    shown = there("stream", "ls", "--json")
    if server.properties is RABBITMQ:
        assert shown.status == 1 and "lists no streams" in shown.err
    else:
        assert shown.json == [{"name": "orders", "first_offset": 0, "next_offset": 30, "messages": 30}]
        assert "only what the stream protocol says" in shown.err


def test_the_environment_names_a_server(run: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SERVER", f"headgate-stream://guest:guest@{server.address}")
    assert run("stream", "create", "orders").status == 0
    assert "orders" in server.streams


def test_user_and_password_of_a_server_may_stand_in_the_environment(
    run: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_SERVER", server.address)
    monkeypatch.setenv("HEADGATE_USER", "guest")
    monkeypatch.setenv("HEADGATE_PASSWORD", "secret")
    assert "authentication failure" in run("stream", "create", "orders").err
    assert run("stream", "create", "orders", "--password", "guest").status == 0
    assert "orders" in server.streams


def test_a_wrong_password_is_said_and_not_shown(run: Run, server: FakeServer) -> None:
    shown = run("stream", "info", "orders", "--server", server.address, "--user", "guest", "--password", "secret")
    assert shown.status == 1
    assert "authentication failure" in shown.err and "secret" not in shown.err


def test_a_stream_of_files_is_deleted_unless_somebody_writes_it(run: Run) -> None:
    assert run("stream", "create", "orders").status == 0
    assert run("stream", "rm", "orders").status == 0
    assert run("stream", "ls").out == ""
    assert run("stream", "rm", "orders").status == 1


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("real"), handlers={"stream": StreamHandler}) as running:
        yield running


@pytest.mark.parametrize("place", ["--root", "--server"])
def test_a_stream_that_a_client_uses_is_deleted_by_force_only_and_the_client_is_told(
    real: RunningServer, run: Run, place: str
) -> None:
    address = f"127.0.0.1:{real.ports['stream']}"
    root = real.context.settings.root
    where = (place, {"--root": root, "--server": address}[place])
    name = f"used{place}"
    assert run("stream", "create", name, "--server", address).status == 0
    assert run("publish", name, "--server", address, stdin='{"body": "m"}\n').status == 0
    # Kernels that are not compiled yet would take longer than a connection lasts whose client says nothing.
    assert run("tail", name, "--server", address).status == 0
    with Client.connect(address) as client, client.consumer(name, start="first", name="billing") as consumer:
        reading = iter(consumer)
        next(reading)
        refused = run("stream", "rm", name, *where)
        assert refused.status == 1
        assert f"stream '{name}' is in use by consumer 'billing' of user 'guest' (stream, 127.0.0.1:" in refused.err
        assert "--force" in refused.err
        assert client.has_stream(name)
        assert run("stream", "rm", name, *where, "--force").status == 0
        assert not client.has_stream(name)
        with pytest.raises(ResourceNotFoundError, match=name):
            next(reading)
    assert run("stream", "rm", name, *where).status == 1


def test_a_served_root_that_cannot_be_asked_names_its_server(real: RunningServer, run: Run) -> None:
    address = f"127.0.0.1:{real.ports['stream']}"
    root = real.context.settings.root
    assert run("stream", "create", "kept", "--server", address).status == 0
    refused = run("stream", "rm", "kept", "--root", root, "--password", "wrong")
    assert refused.status == 1
    assert f"http://127.0.0.1:{real.ports['http']}" in refused.err
    assert f"process {os.getpid()} on" in refused.err
    assert "headgate stream rm --server ADDRESS kept" in refused.err
    note = server_lock_folder(Path(root)) / LOCK_NAME
    before = note.read_bytes()
    note.write_bytes(before.replace(b'"http"', b'"off!"'))
    try:
        refused = run("stream", "rm", "kept", "--root", root)
    finally:
        note.write_bytes(before)
    assert refused.status == 1 and "headgate stream rm --server ADDRESS kept" in refused.err
    assert resolve_stream("kept", root).name == "kept"
    assert run("stream", "rm", "kept", "--root", root).status == 0


@pytest.mark.parametrize("place", ["--root", "--server"])
def test_a_stream_with_damaged_settings_is_deleted_by_force_only(real: RunningServer, run: Run, place: str) -> None:
    address = f"127.0.0.1:{real.ports['stream']}"
    root = real.context.settings.root
    where = (place, {"--root": root, "--server": address}[place])
    folder = stream_folder(root, "broken")
    # Made by somebody else, and so not open in the server.
    Stream.create(folder, name="broken", now_ms=0)
    (folder / "stream.json").write_bytes(b"{")
    refused = run("stream", "rm", "broken", *where)
    assert refused.status == 1
    assert "stream.json" in refused.err and "--force" in refused.err
    assert folder.exists()
    assert run("stream", "rm", "broken", *where, "--force").status == 0
    assert not folder.exists()
    assert run("stream", "create", "broken", "--server", address).status == 0
    assert run("stream", "rm", "broken", *where).status == 0


def test_no_server_takes_a_root_while_a_stream_of_it_is_deleted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    assert run("stream", "create", "orders", "--root", root).status == 0
    held: list[str] = []

    def set_aside_while_locked(root: Path, folder: Path) -> Path | None:
        with pytest.raises(StreamLockedError) as refused:
            lock_root(root, now_ms=0)
        held.append(str(refused.value))
        return set_aside(root, folder)

    monkeypatch.setattr("headgate.log.set_aside", set_aside_while_locked)
    assert run("stream", "rm", "orders", "--root", root).status == 0
    assert len(held) == 1
    lock_root(root, now_ms=0).release()
    assert list_streams(root) == [] and not list((root / ".headgate" / "deleted").iterdir())


def test_tail_with_a_filter_gives_what_it_gives_on_the_files_of_the_server(real: RunningServer, run: Run) -> None:
    address = f"127.0.0.1:{real.ports['stream']}"
    root = real.context.settings.root
    made = run("stream", "create", "orders", "--filter-source", "application_properties.region", "--server", address)
    assert made.status == 0
    lines = [
        json.dumps({"application_properties": {"region": ("AMER", "EMEA")[number // 5 % 2], "price": number}})
        for number in range(40)
    ]
    for first in range(0, 40, 5):
        assert run("publish", "orders", "--server", address, stdin="\n".join(lines[first : first + 5])).status == 0
    for options in (
        ["--filter", "price > 12 AND region = 'EMEA'"],
        ["--filter", "price > 100"],
        ["--filter-value", "EMEA", "--from", "7", "--until", "27"],
        ["--filter", "price % 2 = 0", "--filter-value", "AMER", "-n", "4"],
    ):
        on_files = run("tail", "orders", "--root", root, "--json", *options)
        on_server = run("tail", "orders", "--server", address, "--json", *options)
        assert on_server.json == on_files.json
        assert on_server.status == 0
    assert run("stream", "ls", "--server", address, "--json").json[0]["next_offset"] == 40


def test_a_stream_of_a_server_is_shown_as_its_files_are(real: RunningServer, run: Run) -> None:
    address = f"127.0.0.1:{real.ports['stream']}"
    root = real.context.settings.root
    made = run("stream", "create", "shown/it", "--filter-size", "32", "--max-age", "7d", "--server", address)
    assert made.status == 0
    for region in ("AMER", "EMEA", None):
        line = json.dumps({"body": "x", "filter_value": region})
        published = run("publish", "shown/it", "--publisher", f"shop {region}", "--server", address, stdin=line)
        assert published.status == 0
    with Client.connect(address) as client:
        client.store_offset("shown/it", "billing", 1)
        assert client.query_offset("shown/it", "billing") == 1
    (pending,) = run("stream", "info", "shown/it", "--server", address, "--json").json
    assert pending["stored_offsets"] == {"billing": 1}
    real.call(lambda: real.context.broker.catalogue.get("shown/it").flush_offsets(now_ms=now_ms()))

    (on_server,) = run("stream", "info", "shown/it", "--server", address, "--json").json
    (on_files,) = run("stream", "info", "shown/it", "--root", root, "--json").json
    del on_files["path"]
    assert {name: on_server[name] for name in on_files} == on_files
    assert on_files["publishers"] == {"shop AMER": 1, "shop EMEA": 1, "shop None": 1}
    assert (on_server["filter_size_bytes"], on_server["segments"], on_server["server"]) == (32, 1, address)
    assert on_server["arguments"] == {"stream-filter-size-bytes": 32, "max-age": "604800s"}
    assert on_server["product"] == f"Headgate {headgate.__version__}"
    (row,) = [row for row in run("stream", "ls", "--server", address, "--json").json if row["name"] == "shown/it"]
    assert (row["next_offset"], row["messages"], row["size_bytes"]) == (4, 3, on_files["size_bytes"])
    shown = run("stream", "info", "shown/it", "--server", address).out
    assert "{" not in shown
    assert "consumer billing" in shown and "publisher shop AMER" in shown and "argument max-age" in shown

    unknown = {"segment", "position", "bloom_fill", "state"}
    rows = [
        [{name: value for name, value in row.items() if name not in unknown} for row in shown.json]
        for shown in (
            run("stream", "dump", "shown/it", "--server", address, "--json"),
            run("stream", "dump", "shown/it", "--root", root, "--json"),
        )
    ]
    assert [row["type"] for row in rows[1]] == ["user", "user", "user", "tracking_delta"]
    assert rows[0] == rows[1][:3]
    verified = run("stream", "verify", "shown/it", "--server", address)
    assert verified.status == 0 and "3 chunks, 3 records" in verified.err
    assert run("stream", "create", "empty", "--server", address).status == 0
    assert "0 chunks" in run("stream", "verify", "empty", "--server", address).err
    assert run("tail", "empty", "--server", address).status == 0


def test_tail_follows_a_stream_of_a_server(real: RunningServer, run: Run) -> None:
    address = f"127.0.0.1:{real.ports['stream']}"
    assert run("stream", "create", "followed", "--server", address).status == 0
    with Client.connect(address) as client, client.publisher("followed") as publisher:
        writer = threading.Timer(0.3, lambda: (publisher.send(Message(b"one")), publisher.flush()))
        writer.start()
        shown = run("tail", "followed", "--follow", "-n", "1", "--offsets", "--server", address)
        writer.join()
    assert shown.out == "0\n"
    refused = run("tail", "followed", "--follow", "--until", "last", "--server", address)
    assert refused.status == 2
    assert "--until" in refused.err


def test_a_name_that_is_no_stream_brings_up_those_like_it_where_the_server_lists_them(
    there: Run, server: FakeServer
) -> None:
    for command in (
        ["tail", "ordesr"],
        ["publish", "ordesr"],
        ["stream", "info", "ordesr"],
        ["stream", "rm", "ordesr"],
    ):
        shown = there(*command, stdin='{"body": "x"}')
        assert shown.status == 1
        assert "ordesr: the server answers: stream does not exist" in shown.err
        assert ("; did you mean 'orders'?" in shown.err) is (server.properties is HEADGATE), command


def test_a_begin_behind_the_end_is_refused_on_a_server(there: Run) -> None:
    for options in (["--from", "31"], ["--from", "2999-01-01"], ["--from", "8", "--until", "5"]):
        shown = there("tail", "orders", "--offsets", *options)
        assert (shown.status, shown.out) == (2, "")
        assert "--from: found" in shown.err
    assert there("tail", "orders", "--offsets", "--from", "30").status == 0


def test_publish_compressed_sends_sub_batches_and_refuses_filter_values(there: Run, server: FakeServer) -> None:
    lines = [json.dumps({"body": f"{number}"}) for number in range(5)]
    given = "\n".join(lines) + "\n"
    sent = there("publish", "orders", "--publisher", "p", "--compression", "zstd", stdin=given)
    assert sent.err == "5 messages published; next offset 35\n"
    assert server.streams["orders"].headers[-1].num_entries == 1
    again = there("publish", "orders", "--publisher", "p", "--compression", "zstd", stdin=given)
    assert again.err == "0 messages published, 5 already there; next offset 35\n"
    assert [row["body"] for row in there("tail", "orders", "--from", "30", "--json").json] == [
        {"data": f"{number}"} for number in range(5)
    ]
    with_value = there("publish", "orders", "--compression", "gzip", stdin='{"body": "x"}\n{"filter_value": "EMEA"}')
    assert with_value.status == 1
    assert "line 2: found filter value 'EMEA'" in with_value.err
    assert "1 message published; next offset 36" in with_value.err
