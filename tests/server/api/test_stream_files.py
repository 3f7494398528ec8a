"""Segments and Bloom filters of a stream over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.client import Client, Management
from headgate.errors import AccessRefusedError, ResourceNotFoundError
from headgate.log import Stream, StreamArguments, Writer, stream_folder
from headgate.message import Message
from server.running import running_server


def test_segments_and_filters_are_those_of_the_files(tmp_path: Path) -> None:
    arguments = StreamArguments(max_segment_chunks=4, max_length_bytes=10_000_000)
    stream = Stream.create(stream_folder(tmp_path / "data", "orders"), name="orders", now_ms=0, arguments=arguments)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(10):
            writer.append([(b"x" * 300, b"a"), (b"x" * 300, b"b")], now_ms=1000 + number)
    users = [{"name": "anna", "password": "secret", "permissions": {"read": "^order"}}]
    with running_server(tmp_path, handlers={}, user=users, stream=[{"name": "hidden"}]) as running:
        url = f"http://127.0.0.1:{running.ports['http']}"
        anna = Management.of(url, user="anna", password="secret")
        found = anna.segments("orders")
        segments = found["segments"]
        assert [row["first_offset"] for row in segments] == [each.first_chunk_id for each in stream.segments()]
        assert sum(row["messages"] for row in segments) == 20
        assert sum(row["chunks"] for row in segments) == 10
        assert sum(row["size_bytes"] for row in segments) == stream.segments().size_bytes()
        assert [row["is_open"] for row in segments] == [False] * (len(segments) - 1) + [True]
        assert (segments[0]["first_timestamp_ms"], segments[-1]["last_timestamp_ms"]) == (1000, 1009)
        assert found["retention"]["max-length-bytes"] == 10_000_000
        bloom = anna.bloom("orders")
        assert (bloom["chunks"], bloom["measured_false_positives"]) == (10, None)
        assert bloom["values_per_chunk"] == pytest.approx(2, rel=0.1)
        with pytest.raises(AccessRefusedError):
            anna.segments("hidden")
        with pytest.raises(ResourceNotFoundError, match="orders"):
            anna.bloom("orderz")


def test_only_who_skips_chunks_and_looks_at_messages_measures_the_filters(tmp_path: Path) -> None:
    """A consumer with an expression alone reads chunks without a match, too, and that says nothing of Bloom filters."""
    user = {"name": "anna", "password": "secret", "permissions": {"configure": ".*", "write": ".*", "read": ".*"}}
    with running_server(tmp_path, user=[user], stream=[{"name": "orders"}]) as running:
        anna = Management(f"http://127.0.0.1:{running.ports['http']}", "anna", "secret")
        address = f"127.0.0.1:{running.ports['stream']}"
        with Client.connect(address, user="anna", password="secret") as client:
            with client.publisher("orders", filter_value=_subject) as publisher:
                for value in (b"a", b"b", b"a", b"b"):
                    publisher.send_many([Message(value, subject=value.decode())])
                    publisher.flush()
            with client.consumer("orders", start="first", filter="p.subject = 'b'", dialect="amqp") as consumer:
                assert consumer.next(10) is not None
                assert anna.bloom("orders")["measured_false_positives"] is None
            with client.consumer(
                "orders", start="first", filter_values=["a"], filter="p.subject = 'a'", dialect="amqp"
            ) as consumer:
                assert consumer.next(10) is not None
                assert consumer.next(10) is not None
                assert anna.bloom("orders")["measured_false_positives"] == 0


def _subject(message: Message) -> bytes:
    return str((message.properties or {})["subject"].value).encode()
