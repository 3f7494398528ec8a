"""Segments and Bloom filters of a stream over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.client import Management
from headgate.errors import AccessRefusedError, ResourceNotFoundError
from headgate.log import Stream, StreamArguments, Writer, stream_folder
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
