"""Clients of the stream protocol for Java, JavaScript and Go, as their users use them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from headgate import Message
from headgate.client import Client as HeadgateClient
from interop.programs import GO_STREAM, JAVA_STREAM, NODE_STREAM, Client, ClientError, Program, bodies, messages, start
from interop.servers import Served
from waiting import eventually

CLIENTS = (JAVA_STREAM, NODE_STREAM, GO_STREAM)
CODECS = {
    JAVA_STREAM: ("none", "gzip", "snappy", "lz4", "zstd"),
    NODE_STREAM: ("none", "gzip"),
    GO_STREAM: ("gzip", "snappy", "lz4", "zstd"),
}
"""What each client packs sub-batches with, without plug-ins."""
LONG_LITERALS_FAIL = {
    (GO_STREAM, "lz4"): "pierrec/lz4 2.6.1, which it reads lz4 with, fails on more than 2 048 bytes that do not repeat",
}
"""Clients that cannot read every valid sub-batch of a codec, and why; they fail in the same way on RabbitMQ's."""


@pytest.fixture(params=CLIENTS, ids=str)
def client(request: pytest.FixtureRequest, programs: Callable[..., Program]) -> Program:
    return programs(request.param, "stream")


@pytest.fixture
def super_stream(client: Program, name: str) -> Iterator[str]:
    yield name
    client.ask("delete_super", stream=name)


def test_messages_come_back_in_order_with_their_offsets_and_properties(client: Program, stream: str) -> None:
    given = [
        {"body": f"m{n}", "subject": "Order", "properties": {"region": "emea", "number": n + 1}} for n in range(50)
    ]
    assert client.ask("publish", stream=stream, messages=given)["confirmed"] == 50
    received = client.consume(stream=stream, until=["m49"])
    assert [message["offset"] for message in received] == list(range(50))
    assert bodies(received) == [f"m{n}" for n in range(50)]
    assert received[7]["properties"] == {"region": "emea", "number": 8}
    assert received[7]["subject"] == "Order"


def test_a_filter_value_skips_the_chunks_of_others(client: Program, stream: str) -> None:
    for value in ("emea", "amer", "apac"):
        client.ask("publish", stream=stream, messages=messages(f"{value}-1", f"{value}-2", filter_value=value))
    client.ask("publish", stream=stream, messages=messages("plain"))
    client.ask("publish", stream=stream, messages=messages("emea-3", filter_value="emea"))
    wanted = ["emea-1", "emea-2", "emea-3"]
    assert bodies(client.consume(stream=stream, filter_values=["emea"], until=wanted)) == wanted
    either = client.consume(stream=stream, filter_values=["emea", "apac"], until=wanted)
    assert bodies(either) == ["emea-1", "emea-2", "apac-1", "apac-2", "emea-3"]
    also_plain = client.consume(stream=stream, filter_values=["emea"], match_unfiltered=True, until=wanted)
    assert bodies(also_plain) == ["emea-1", "emea-2", "plain", "emea-3"]


def test_the_client_drops_what_shares_a_chunk_with_wanted_messages(client: Program, stream: str) -> None:
    mixed = [{"body": f"{r}-{n}", "filter_value": r, "properties": {"region": r}} for n in range(3) for r in ("a", "b")]
    client.ask("publish", stream=stream, messages=mixed)
    received = client.consume(
        stream=stream, filter_values=["a"], post_filter={"property": "region", "value": "a"}, until=["a-2"]
    )
    assert bodies(received) == ["a-0", "a-1", "a-2"]


def test_a_named_producer_repeats_itself_without_duplicates(client: Program, stream: str) -> None:
    first = [{"body": f"m{n}", "id": n} for n in range(1, 6)]
    again = [{"body": f"m{n}", "id": n} for n in range(4, 9)]
    for given in (first, again):
        assert client.ask("publish", stream=stream, name="producer", messages=given)["refused"] == []
    assert client.ask("last_id", stream=stream, name="producer") == 8
    assert bodies(client.consume(stream=stream, until=["m8"])) == [f"m{n}" for n in range(1, 9)]


def test_a_consumer_goes_on_where_its_name_was_stored(client: Program, stream: str) -> None:
    client.ask("publish", stream=stream, messages=messages(*(f"m{n}" for n in range(10))))
    client.ask("subscribe", id="named", stream=stream, name="reader", offset="first")
    client.ask("take", id="named", until=["m9"])
    client.ask("store", id="named", offset=6)
    assert client.ask("stored", id="named") == 6
    client.ask("unsubscribe", id="named")
    # A chunk is delivered whole; every client leaves out what lies below the offset that it asked for.
    assert bodies(client.consume(stream=stream, offset=7, until=["m9"])) == ["m7", "m8", "m9"]


def test_new_messages_are_pushed_to_a_consumer_at_the_end(client: Program, stream: str) -> None:
    client.ask("publish", stream=stream, messages=messages("before"))
    client.ask("subscribe", id="tail", stream=stream, offset="next")
    for n in range(5):
        client.ask("publish", stream=stream, messages=messages(f"m{n}"))
        assert bodies(client.ask("take", id="tail", until=[f"m{n}"])) == [f"m{n}"]
    client.ask("unsubscribe", id="tail")


@pytest.mark.parametrize(
    ("library", "compression"), [(library, codec) for library, codecs in CODECS.items() for codec in codecs], ids=str
)
def test_sub_batches_come_back_from_every_codec(
    programs: Callable[..., Program], stream: str, library: Client, compression: str
) -> None:
    client = programs(library, "stream")
    # Each body becomes shorter by packing it: the Java client refuses batches that become longer.
    packed = [f"m{n}" + "." * 200 for n in range(40)]
    given = [{"body": body, "properties": {"region": "emea"}} for body in packed]
    published = client.ask("publish", stream=stream, sub_batch=40, compression=compression, messages=given)
    assert published["refused"] == []
    received = client.consume(stream=stream, until=packed[-1:])
    assert bodies(received) == packed
    assert all(message["properties"] == {"region": "emea"} for message in received)


@pytest.mark.parametrize(
    ("library", "compression"),
    [(library, codec) for library, codecs in CODECS.items() for codec in codecs if codec != "none"],
    ids=str,
)
def test_sub_batches_of_our_client_come_back_from_every_codec(
    programs: Callable[..., Program], served: Served, stream: str, library: Client, compression: str, seed: int
) -> None:
    # More than one block of any codec, and a message that does not become smaller.
    packed = [f"m{number}" + "." * 200 for number in range(3000)]
    if (library, compression) not in LONG_LITERALS_FAIL:
        packed.append(random.Random(seed).randbytes(50_000).hex())
    address = f"{served.host}:{served.ports['stream']}"
    with HeadgateClient.connect(address) as client, client.publisher(stream, compression=compression) as publisher:
        publisher.send_many(Message(body.encode()) for body in packed)
    received = programs(library, "stream").consume(stream=stream, until=packed[-1:])
    assert bodies(received) == packed


def test_a_super_stream_takes_every_message_to_one_partition_by_hash(client: Program, super_stream: str) -> None:
    client.ask("create_super", stream=super_stream, partitions=3)
    given = [{"body": f"m{n}", "key": f"key-{n % 7}"} for n in range(21)]
    client.ask("publish_super", stream=super_stream, routing="hash", messages=given)
    received = client.consume(super_stream=super_stream, until=[f"m{n}" for n in range(21)])
    assert sorted(bodies(received)) == sorted(f"m{n}" for n in range(21))
    partitions_of: dict[int, set[str]] = {}
    for message in received:
        partitions_of.setdefault(int(message["body"][1:]) % 7, set()).add(message["stream"])
    assert all(len(partitions) == 1 for partitions in partitions_of.values())


def test_a_super_stream_routes_by_binding_key(client: Program, super_stream: str) -> None:
    client.ask("create_super", stream=super_stream, binding_keys=["emea", "amer"])
    given = [{"body": "one", "key": "amer"}, {"body": "two", "key": "emea"}, {"body": "three", "key": "amer"}]
    client.ask("publish_super", stream=super_stream, routing="key", messages=given)
    assert bodies(client.consume(stream=f"{super_stream}-amer", until=["three"])) == ["one", "three"]
    assert bodies(client.consume(stream=f"{super_stream}-emea", until=["two"])) == ["two"]


def test_of_consumers_with_one_name_one_is_active_and_the_next_takes_over(client: Program, stream: str) -> None:
    single = {"stream": stream, "name": "group", "single_active": True, "offset": "first"}
    client.ask("subscribe", id="one", **single)
    client.ask("subscribe", id="two", **single)
    client.ask("publish", stream=stream, messages=messages("m0", "m1"))
    assert bodies(client.ask("take", id="one", until=["m1"])) == ["m0", "m1"]
    assert client.ask("take", id="two", until=[]) == []
    client.ask("unsubscribe", id="one")
    client.ask("publish", stream=stream, messages=messages("m2"))
    assert bodies(client.ask("take", id="two", until=["m2"])) == ["m0", "m1", "m2"]
    client.ask("unsubscribe", id="two")


@pytest.mark.parametrize("library", [JAVA_STREAM, GO_STREAM], ids=str)
def test_members_of_a_group_share_the_partitions_of_a_super_stream(
    programs: Callable[..., Program], name: str, library: Client
) -> None:
    client = programs(library, "stream")
    client.ask("create_super", stream=name, partitions=3)
    single = {"super_stream": name, "name": "group", "single_active": True, "offset": "first"}
    partitions = [f"{name}-{n}" for n in range(3)]
    client.ask("subscribe", id="one", **single)
    _wait_for_active(client, {"one": partitions})
    client.ask("subscribe", id="two", **single)
    _wait_for_active(client, {"one": [partitions[0], partitions[2]], "two": [partitions[1]]})
    client.ask("unsubscribe", id="two")
    _wait_for_active(client, {"one": partitions})
    client.ask("unsubscribe", id="one")
    client.ask("delete_super", stream=name)


def _wait_for_active(client: Program, expected: dict[str, list[str]]) -> None:
    def active() -> dict[str, object]:
        return {member: client.ask("active", id=member) for member in expected}

    eventually(lambda: active() == expected, lambda: f"{active()}, expected {expected}")


def test_statistics_tell_the_first_and_the_committed_chunk(client: Program, stream: str) -> None:
    client.ask("publish", stream=stream, messages=messages("m0", "m1"))
    client.ask("publish", stream=stream, messages=messages("m2"))
    stats = client.ask("stats", stream=stream)
    assert (stats["firstChunkId"], stats["committedChunkId"]) == (0, 2)
    assert stats.get("committedOffset", 2) == 2


def test_what_is_not_there_is_refused(client: Program, name: str) -> None:
    for command in ({"do": "publish", "messages": messages("lost")}, {"do": "subscribe", "id": "none"}):
        with pytest.raises(ClientError):
            client.ask(**command, stream=name, offset="first")
    with pytest.raises(ClientError):
        client.ask("delete", stream=name)


def test_a_stream_is_declared_again_with_the_same_arguments_only(client: Program, name: str) -> None:
    client.ask("create", stream=name, arguments={"max-length-bytes": 1_000_000})
    client.ask("create", stream=name, arguments={"max-length-bytes": 1_000_000})
    with pytest.raises(ClientError, match=r"(?i)precondition|17"):
        client.ask("create", stream=name, arguments={"max-length-bytes": 2_000_000})
    client.ask("delete", stream=name)


@pytest.mark.parametrize("library", CLIENTS, ids=str)
def test_a_wrong_password_does_not_connect(served: Served, library: Client) -> None:
    program = start(library)
    try:
        with pytest.raises(ClientError, match=r"(?i)auth|code 8"):
            program.ask("connect", host=served.host, port=served.stream, password="wrong")
    finally:
        program.stop()


def test_a_deleted_stream_ends_its_consumer(programs: Callable[..., Program], served: Served, name: str) -> None:
    client = programs(GO_STREAM, "stream")
    served.declare(name)
    client.ask("subscribe", id="ended", stream=name, offset="first")
    served.delete(name)
    assert client.ask("end", id="ended")


def test_each_client_reads_what_the_others_published(programs: Callable[..., Program], stream: str) -> None:
    # The JavaScript client reads neither every form of numbers nor every form of the properties section.
    running = [programs(client, "stream") for client in CLIENTS]
    for program in running:
        program.ask("publish", stream=stream, messages=messages(str(program.client), properties={"region": "é"}))
    expected = [str(client) for client in CLIENTS]
    for program in running:
        received = program.consume(stream=stream, until=expected)
        assert bodies(received) == expected
        assert all(message["properties"] == {"region": "é"} for message in received)
