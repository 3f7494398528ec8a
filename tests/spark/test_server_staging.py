"""Rows that wait for a server: decided once, published under the same ids by whoever goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from headgate.errors import ConfigError, ConnectionLostError, LogError, SinkError
from headgate.log.chunk_builder import FilterValues
from headgate.message import EncodedMessages, Message
from headgate.spark.server_sink import ServerSink
from headgate.spark.server_staging import (
    Decision,
    MessageFile,
    StagedMessages,
    complete,
    decide,
    query_folder,
    read_messages,
    undecided,
)
from headgate.spark.sink import sink_for
from headgate.spark.target import StagedRows

from ..client.fake_server import FakeServer, fake_server


def staged(
    folder: Path, texts: list[bytes], values: list[bytes | None] | None = None, *, query: str = "q", partition: int = 0
) -> StagedMessages:
    file = MessageFile(folder, query=query, partition=partition)
    file.add(EncodedMessages.of(texts), FilterValues.of(values or [None] * len(texts)))
    found = file.finish()
    assert found is not None
    return found


def wanted(*parts: StagedMessages, batch: int = 0, query: str = "q", stream: str = "orders") -> Decision:
    return Decision(query, batch, "here:5552", stream, parts)


def names_in(folder: Path, query: str = "q") -> set[str]:
    return {path.name for path in query_folder(folder, query).iterdir()}


@given(rows=st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=5)), min_size=1, max_size=30))
def test_messages_come_back_from_their_file(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[bytes, bytes | None]]
) -> None:
    folder = tmp_path_factory.mktemp("staging")
    file = MessageFile(folder, query="q", partition=0)
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        texts, values = [text for text, _ in part], [value for _, value in part]
        file.add(EncodedMessages.of(texts), FilterValues.of(values))
    found = file.finish()
    assert found is not None and found.messages == len(rows)
    read = [
        (messages.message(row), values.value(row))
        for messages, values in read_messages(query_folder(folder, "q") / found.name)
        for row in range(len(messages))
    ]
    assert read == [(text, value or None) for text, value in rows]


def test_a_task_without_messages_leaves_no_file(tmp_path: Path) -> None:
    file = MessageFile(tmp_path, query="q", partition=0)
    file.add(EncodedMessages.of([]), FilterValues.of([]))
    assert file.finish() is None
    assert not query_folder(tmp_path, "q").exists()


def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    found = staged(tmp_path, [b"one"])
    path = query_folder(tmp_path, "q") / found.name
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(LogError, match=found.name):
        list(read_messages(path))


def test_the_first_decision_counts(tmp_path: Path) -> None:
    first, second = staged(tmp_path, [b"one"]), staged(tmp_path, [b"two"])
    assert decide(tmp_path, wanted(first)) == (wanted(first), True)
    assert decide(tmp_path, wanted(second)) == (wanted(first), False)
    assert names_in(tmp_path) == {first.name, "0.json"}
    complete(tmp_path, wanted(first))
    assert names_in(tmp_path) == {"completed.json"}
    third = staged(tmp_path, [b"three"])
    assert decide(tmp_path, wanted(third)) == (None, False)
    assert names_in(tmp_path) == {"completed.json"}
    complete(tmp_path, wanted(first))
    assert decide(tmp_path, wanted(batch=1)) == (wanted(batch=1), True)


def test_a_batch_goes_where_it_was_decided_for(tmp_path: Path) -> None:
    decide(tmp_path, wanted(staged(tmp_path, [b"one"])))
    with pytest.raises(ConfigError, match="was decided for stream 'orders'"):
        decide(tmp_path, wanted(stream="others"))


@pytest.mark.parametrize("batch", [-1, 2**31])
def test_a_batch_that_cannot_be_numbered_is_refused(tmp_path: Path, batch: int) -> None:
    with pytest.raises(ConfigError, match="expected 0 to"):
        decide(tmp_path, wanted(batch=batch))


def test_giving_up_removes_only_what_is_not_decided(tmp_path: Path) -> None:
    first, second = staged(tmp_path, [b"one"]), staged(tmp_path, [b"two"])
    decide(tmp_path, wanted(first))
    undecided(tmp_path, "q", [first, second])
    assert names_in(tmp_path) == {first.name, "0.json"}


def test_a_write_that_is_never_repeated_leaves_nothing(tmp_path: Path) -> None:
    part = staged(tmp_path, [b"one"], query="once-1")
    decision, _ = decide(tmp_path, wanted(part, query="once-1"))
    assert decision is not None
    complete(tmp_path, decision)
    assert not query_folder(tmp_path, "once-1").exists()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as made:
        yield made


def sink(server: FakeServer, staging: Path) -> ServerSink:
    made = sink_for(
        StructType().add("body", "binary").add("filter_value", "string"),
        {"server": server.address, "stream": "orders", "staging": str(staging)},
        overwrite=False,
    )
    assert isinstance(made, ServerSink)
    return made


def rows(*texts: str, value: str | None = "EMEA") -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict(
        {"body": [text.encode() for text in texts], "filter_value": [value] * len(texts)},
        schema=pa.schema([("body", pa.binary()), ("filter_value", pa.string())]),
    )


def bodies(server: FakeServer) -> list[str]:
    """The bodies in the stream, in order."""
    from headgate.log.entries import SimpleEntry, entries_of

    found = []
    stream = server.streams["orders"]
    for chunk, header in zip(stream.chunks, stream.headers, strict=True):
        data = chunk[48 + header.bloom_length : 48 + header.bloom_length + header.data_length]
        for entry in entries_of(data, header.num_entries, path="", position=0):
            assert isinstance(entry, SimpleEntry)
            body = Message.decode(entry.body).body
            assert body is not None
            found.append(body.parts[0].decode())
    return found


def test_a_batch_is_published_in_the_order_of_partitions(server: FakeServer, tmp_path: Path) -> None:
    writing = sink(server, tmp_path)
    parts = [writing.stage(rows(f"{number}a", f"{number}b"), query="q", partition=number) for number in (2, 0, 1)]
    writing.commit(parts, query="q", batch=3)
    assert bodies(server) == ["0a", "0b", "1a", "1b", "2a", "2b"]
    assert server.streams["orders"].sequences == {"q": (3 << 32) + 6}
    assert all(header.bloom_length for header in server.streams["orders"].headers)


def test_a_repeated_batch_adds_nothing_although_its_rows_come_in_another_order(
    server: FakeServer, tmp_path: Path
) -> None:
    writing = sink(server, tmp_path)
    for texts in (("a", "b"), ("b", "c", "a")):
        writing.commit([writing.stage(rows(*texts), query="q", partition=0)], query="q", batch=0)
    assert bodies(server) == ["a", "b"]
    assert names_in(tmp_path) == {"completed.json"}
    writing.commit([writing.stage(rows("d"), query="q", partition=0)], query="q", batch=1)
    assert bodies(server) == ["a", "b", "d"]


def test_a_commit_that_died_half_way_goes_on_where_it_was(server: FakeServer, tmp_path: Path) -> None:
    writing = sink(server, tmp_path)
    parts = [writing.stage(rows(*"abcd"), query="q", partition=0), writing.stage(rows(*"ef"), query="q", partition=1)]
    decision, _ = decide(
        tmp_path,
        Decision(
            "q", 0, server.address, "orders", tuple(p.staged for p in parts if isinstance(p.staged, StagedMessages))
        ),
    )
    assert decision is not None
    # The first attempt got so far, and died.
    from headgate.client import Client

    with Client.connect(server.address) as client, client.publisher("orders", name="q") as publisher:
        part = EncodedMessages.of(Message(text.encode()).encode() for text in "abc")
        publisher.send_encoded(part, ids=np.arange(1, 4, dtype=np.uint64))
    # The second one has other rows, which count no more.
    writing.commit([writing.stage(rows(*"fedcba"), query="q", partition=0)], query="q", batch=0)
    assert bodies(server) == list("abcdef")
    assert names_in(tmp_path) == {"completed.json"}


def test_a_commit_that_loses_its_server_is_made_again(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = sink(server, tmp_path)
    part = writing.stage(rows(*"abc"), query="q", partition=0)

    def fail(*_: object, **__: object) -> None:
        raise ConnectionLostError("gone", server=server.address)

    with monkeypatch.context() as patched:
        patched.setattr(ServerSink, "_publish", fail)
        with pytest.raises(ConnectionLostError):
            writing.commit([part], query="q", batch=0)
    writing.abort([part])
    writing.commit([part], query="q", batch=0)
    assert bodies(server) == list("abc")


def test_a_batch_whose_decision_is_lost_is_an_error(server: FakeServer, tmp_path: Path) -> None:
    writing = sink(server, tmp_path / "one")
    writing.commit([writing.stage(rows("a"), query="q", partition=0)], query="q", batch=0)
    elsewhere = sink(server, tmp_path / "two")
    with pytest.raises(SinkError, match="staging folder knows nothing of it"):
        elsewhere.commit([elsewhere.stage(rows("a"), query="q", partition=0)], query="q", batch=0)
    assert bodies(server) == ["a"]


def test_an_empty_batch_is_done(server: FakeServer, tmp_path: Path) -> None:
    writing = sink(server, tmp_path)
    empty = writing.stage(iter(()), query="q", partition=0)
    assert empty == StagedRows(0, "q", None, 0)
    writing.commit([empty], query="q", batch=0)
    assert names_in(tmp_path) == {"completed.json"}


def test_a_task_that_fails_leaves_nothing(server: FakeServer, tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sink(server, tmp_path).stage(failing(), query="q", partition=0)
    assert names_in(tmp_path) == set()
