"""What `stream dump`, `verify` and `info` see of a stream that a server delivers."""

from __future__ import annotations

import zlib

import pytest

from headgate.client import Client, Retry
from headgate.client.inspection import delivered_chunks, extent, header_at, verify_delivered
from headgate.log import OffsetSpecification
from headgate.log.entries import SubBatch
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType, Compression
from headgate.log.inspection import Damage

from .fake_server import HEADGATE, RABBITMQ, FakeServer, FakeStream, fake_server
from .test_consumer import body, fill


def damages(client: Client) -> list[str]:
    return [
        str(found)
        for found in verify_delivered(client, "orders", extent(client, "orders"))
        if isinstance(found, Damage)
    ]


def rewrite(server: FakeServer, number: int, data: bytes) -> None:
    """Give a chunk other data of the same length, with a checksum that fits."""
    stream = server.streams["orders"]
    header, chunk = stream.headers[number], stream.chunks[number]
    start = CHUNK_HEADER_BYTES + header.bloom_length
    header.crc = zlib.crc32(data)
    stream.chunks[number] = header.encode() + chunk[CHUNK_HEADER_BYTES:start] + data + chunk[start + len(data) :]


def data_of(server: FakeServer, number: int) -> bytearray:
    header, chunk = server.streams["orders"].headers[number], server.streams["orders"].chunks[number]
    start = CHUNK_HEADER_BYTES + header.bloom_length
    return bytearray(chunk[start : start + header.data_length])


@pytest.mark.parametrize("properties", [RABBITMQ, HEADGATE], ids=["rabbitmq", "headgate"])
def test_all_chunks_are_looked_at_and_no_later_ones(properties: dict[str, str]) -> None:
    with fake_server(properties) as server, Client.connect(server.address) as client:
        fill(server, 20)
        found = delivered_chunks(client, "orders", extent(client, "orders"), check_crc=True)
        first = next(found)
        fill(server, 20)
        headers = [each.header for each in (first, *found) if not isinstance(each, Damage)]
        assert headers == server.streams["orders"].headers[:20]
        assert damages(client) == []


def test_entries_that_do_not_fit_are_damage_although_their_checksum_does(client: Client, server: FakeServer) -> None:
    server.append("orders", [body("0"), SubBatch.of([body("1"), body("2")], Compression.GZIP)], [None])
    server.append("orders", [body("3"), body("4")], [None, None])
    batch, simple = data_of(server, 0), data_of(server, 1)
    batch[-1] ^= 0xFF
    simple[3] += 1
    rewrite(server, 0, bytes(batch))
    rewrite(server, 1, bytes(simple))
    compressed, entries = damages(client)
    assert compressed.startswith("orders: chunk 0, byte ") and "sub-batch" in compressed
    assert entries.startswith("orders: chunk 3, byte ")


def test_a_wrong_number_of_records_is_damage_and_chunks_may_not_overlap(client: Client, server: FakeServer) -> None:
    fill(server, 3)
    stream = server.streams["orders"]
    stream.headers[1].num_records += 1
    rewrite(server, 1, bytes(data_of(server, 1)))
    assert damages(client) == [
        "orders: chunk 3, byte 0: header says 4 records, found 3",
        "orders: chunk id 6, expected 7 or more",
    ]


def test_what_is_no_chunk_is_damage_and_the_next_one_is_looked_at(client: Client, server: FakeServer) -> None:
    fill(server, 3)
    chunk = bytearray(server.streams["orders"].chunks[1])
    chunk[1] = 9
    server.streams["orders"].chunks[1] = bytes(chunk)
    found = list(verify_delivered(client, "orders", extent(client, "orders")))
    assert [each.header.chunk_id for each in found if not isinstance(each, Damage)] == [0, 6]
    assert damages(client) == ["orders: unknown chunk type 9"]


def test_where_a_server_does_not_go_on_is_damage(server: FakeServer) -> None:
    fill(server, 3)
    server.streams["orders"].unreadable = 2
    with Client.connect(server.address, retry=Retry(0.001, 0.05, 0.1)) as client:
        (damage,) = damages(client)
    assert damage.startswith("orders: the server delivers nothing from offset 6 on: ")


def test_the_header_at_a_place_is_that_of_a_chunk_with_messages(client: Client, server: FakeServer) -> None:
    first, last = OffsetSpecification.first(), OffsetSpecification.last()
    server.streams["orders"] = stream = FakeStream()
    assert header_at(client, "orders", first) is None
    stream.append([b"tracking"], [], chunk_type=ChunkType.TRACKING_SNAPSHOT)
    assert header_at(client, "orders", first) is None
    fill(server, 2)
    headers: list[ChunkHeader] = stream.headers
    assert header_at(client, "orders", first) == headers[1]
    assert header_at(client, "orders", last) == headers[2]
