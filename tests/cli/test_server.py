"""`--server`: the same commands on a server, with the output they have on files."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from command_line import Run
from headgate import Message
from headgate.cli.units import shown_time
from headgate.client import Client
from headgate.clock import now_ms
from headgate.log.format import ChunkType
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
    assert shown.status == 2
    assert "1 message published; next offset 31" in shown.err
    assert "line 2" in shown.err


def test_info_shows_what_the_server_says(there: Run) -> None:
    (facts,) = there("stream", "info", "orders", "--json").json
    assert (facts["messages"], facts["first_offset"], facts["next_offset"]) == (30, 0, 30)
    assert facts["product"] == "RabbitMQ 4.3.6"
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


def test_verify_names_each_damaged_chunk_of_a_server(there: Run, server: FakeServer) -> None:
    stream = server.streams["orders"]
    damage(stream, 0, 48 + stream.headers[0].bloom_length + 20)
    damage(stream, 2, 31)
    shown = there("stream", "verify", "orders", "--json")
    assert shown.status == 1
    assert shown.json == [
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


def test_a_stream_is_deleted_on_a_server(there: Run) -> None:
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
    shown = run("stream", "info", "shown/it", "--server", address).out
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
