"""A real S3 server that answers badly: readers try again, then name the object; nothing goes here that is not there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.errors import CorruptChunkError, OffsetOutOfRangeError, RemoteStorageError
from headgate.log import Writer
from headgate.log.remote import storage
from headgate.log.remote.catalogue import CATALOGUE_NAME, CATALOGUE_OBJECT
from headgate.log.remote.mover import move_segments, unmoved_bytes
from log_streams import read_messages
from remote_streams import LATER_MS, add_parts, check_places, move, new_stream
from s3_proxy import BUCKET_FULL, EXPIRED_TOKEN, SLOW_DOWN, Fault, S3Proxy, s3_proxy
from s3_server import SECRET_KEY, S3Server, s3_server

PARTS = 8

FAULTS = {
    "busy": Fault(SLOW_DOWN),
    "busy, in reads": Fault(SLOW_DOWN, methods=("GET",)),
    "silent": Fault(delay_s=4),
    "half a body": Fault(cut_after=100, methods=("GET",)),
    "expired": Fault(EXPIRED_TOKEN),
    "full": Fault(BUCKET_FULL, methods=("PUT", "POST")),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def proxy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """The environment leads to it; the library soon gives up."""
    monkeypatch.setattr(storage, "_ATTEMPTS", 2)
    monkeypatch.setattr(storage, "_SILENT_S", 1)
    with s3_proxy(server.endpoint) as running:
        for name, value in server.environment(running.endpoint).items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def bucket(server: S3Server) -> str:
    return server.new_bucket()


@pytest.fixture
def writer(proxy: S3Proxy, tmp_path: Path, bucket: str) -> Iterator[Writer]:
    with new_stream(tmp_path / "s", f"s3://{bucket}/x", parts=PARTS) as opened:
        yield opened


def forget(writer: Writer) -> None:
    """As if no segment was read yet."""
    for segment in writer.stream.segments()[:-1]:
        if segment.remote is not None:
            segment.remote.forget()


def secrets_in(*folders: Path) -> list[Path]:
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [path for path in files if SECRET_KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind != "full"])
def test_readers_try_again_and_then_name_the_object(writer: Writer, proxy: S3Proxy, bucket: str, kind: str) -> None:
    before = read_messages(writer.stream)
    move(writer)
    fault = FAULTS[kind]
    if kind != "expired":
        with proxy.fault(Fault(fault.answer, fault.delay_s, fault.cut_after, fault.methods, times=1)):
            assert read_messages(writer.stream) == before
    for part in ("summary", "segment"):
        forget(writer)
        again = Fault(fault.answer, fault.delay_s, fault.cut_after, fault.methods, path=f"0.{part}")
        with proxy.fault(again), pytest.raises(RemoteStorageError) as caught:
            read_messages(writer.stream)
        assert str(caught.value.args[1]) == f"s3://{bucket}/x/orders/{0:020d}.{part}"
        assert SECRET_KEY not in str(caught.value)
        # Which is no state that stays.
        assert read_messages(writer.stream) == before


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind not in ("half a body", "silent")])
def test_nothing_goes_here_that_is_not_whole_there(
    writer: Writer, proxy: S3Proxy, tmp_path: Path, own_cache: Path, kind: str
) -> None:
    """And the writer goes on."""
    assert move(writer, now_ms=1000) == 1
    waiting = unmoved_bytes(writer.stream)
    for path in ("", ".segment", ".summary", "catalogue", "stream.json"):
        fault = FAULTS[kind]
        with proxy.fault(Fault(fault.answer, fault.delay_s, methods=fault.methods, path=path)):
            if (kind, path) == ("busy, in reads", "catalogue"):
                # It is not read.
                continue
            with pytest.raises(RemoteStorageError) as caught:
                move_segments(writer.stream, now_ms=3000)
            assert "s3://" in str(caught.value) and SECRET_KEY not in str(caught.value)
            writer.release_local()
            writer.append([(b"x" * 300, None)], now_ms=LATER_MS)
            assert unmoved_bytes(writer.stream) >= waiting
        check_places(writer.stream)
    before = read_messages(writer.stream)
    assert move(writer) > 2
    assert read_messages(writer.stream) == before
    check_places(writer.stream)
    assert SECRET_KEY.encode() not in pickle.dumps([writer.stream, *writer.stream.segments()])
    assert not secrets_in(tmp_path / "s", own_cache)


def test_an_object_that_somebody_removed_is_named(writer: Writer, server: S3Server, bucket: str) -> None:
    move(writer)
    for part in ("segment", "summary"):
        forget(writer)
        path = server.objects / bucket / "x" / "orders" / f"{0:020d}.{part}"
        path.rename(path.with_name("kept"))
        with pytest.raises(OffsetOutOfRangeError, match=rf"s3://{bucket}/x/orders/0+\.{part}: .*(gone|deleted)"):
            read_messages(writer.stream)
        path.with_name("kept").rename(path)
    assert read_messages(writer.stream)


def test_an_old_catalogue_there_is_replaced(writer: Writer, server: S3Server, bucket: str, tmp_path: Path) -> None:
    there, here = server.objects / bucket / "x" / "orders" / CATALOGUE_OBJECT, tmp_path / "s" / CATALOGUE_NAME
    assert move(writer, now_ms=1000) == 1
    old = there.read_bytes()
    before = read_messages(writer.stream)
    assert move(writer, now_ms=3000) == 2
    there.write_bytes(old)
    assert read_messages(writer.stream) == before
    add_parts(writer, range(PARTS, PARTS + 2))
    assert move(writer) > 2
    assert there.read_bytes() == here.read_bytes() != old


def test_an_object_that_was_replaced_within_a_second_has_another_state(proxy: S3Proxy, bucket: str) -> None:
    there = storage.ObjectStorage(f"s3://{bucket}/x")
    states = set()
    for content in (b"abc", b"abd", b"abe"):
        there.write("a", content)
        states.add(there.state_of("a"))
    assert len(states) == 3


def test_an_object_of_another_length_is_no_segment(writer: Writer, server: S3Server, bucket: str) -> None:
    """Names are not used twice; whoever copies a bucket may still cut an object."""
    move(writer)
    segment = writer.stream.segments()[0]
    path = server.objects / bucket / "x" / "orders" / f"{0:020d}.segment"
    content = path.read_bytes()
    for wrong in (content[:-1000], content + b"?"):
        forget(writer)
        path.write_bytes(wrong)
        expected = rf"s3://{bucket}/x/orders/0+\.segment: {len(wrong)} bytes"
        with pytest.raises(CorruptChunkError, match=expected), segment.open() as reader:
            reader.read(8, reader.stop_position)
