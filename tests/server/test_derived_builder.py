"""The server's process that builds derived files: what is missing, trouble once, and an end with the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.derived.columns import column_files, declare_columns
from headgate.derived.lookup import declare_lookup, lookup_fields, lookup_file_of
from headgate.log import Stream, derived_folder, stream_folder
from headgate.server import derived_builder
from headgate.server.derived_builder import DerivedBuilder
from headgate.server.derived_child import Builder
from match_indexes import Write, append, create
from server.running import running_server
from waiting import LIMIT_S, eventually

WRITES = [Write((("AMER", number % 7), (None, 2)), packed=False) for number in range(60)]
FIELD = "application_properties.region"
TEXT = "region string, price bigint"


def sealed(stream: Stream) -> int:
    return sum(segment.is_sealed for segment in stream.segments())


def test_a_step_builds_what_is_missing_of_all_streams(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    streams = [create(stream_folder(tmp_path, name), WRITES) for name in ("a", "b", "none")]
    for stream in streams[:2]:
        declare_columns(stream, TEXT)
    damaged = streams[0].segments()[0].segment_path
    raw = damaged.read_bytes()
    damaged.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    builder = Builder(tmp_path, ["columns", "lookup"])
    assert builder.step(1, is_over=lambda: True) == 0
    assert builder.step(1, is_over=lambda: False) == sealed(streams[0]) - 1 + sealed(streams[1])
    assert builder.step(1, is_over=lambda: False) == 0
    assert caplog.text.count("column files of stream 'a' are not built") == 1
    damaged.write_bytes(raw)
    assert builder.step(1, is_over=lambda: False) == 1
    append(streams[1], WRITES)
    assert builder.step(1, is_over=lambda: False) > 1
    declare_lookup(streams[2], [FIELD])
    assert Builder(tmp_path, ["columns"]).step(1, is_over=lambda: False) == 0
    assert builder.step(1, is_over=lambda: False) == sealed(streams[2])
    assert builder.step(1, is_over=lambda: False) == 0


def test_a_server_builds_as_segments_seal(tmp_path: Path) -> None:
    root = tmp_path / "data"
    stream = create(stream_folder(root, "a"), WRITES)
    declare_columns(stream, TEXT)
    declare_lookup(stream, [FIELD])
    with running_server(
        tmp_path,
        handlers={},
        columns={"build": True},
        lookup={"build": True},
        stream=[{"name": "b", "columns": TEXT, "lookup": [FIELD]}],
    ) as running:
        eventually(lambda: len(column_files(stream)) == sealed(stream))
        eventually(lambda: all(lookup_file_of(each, FIELD) for each in stream.segments() if each.is_sealed))
        defined = Stream.open(stream_folder(root, "b"))
        assert (derived_folder(defined) / "columns.json").exists()
        assert lookup_fields(defined) == (FIELD,)
        builder = running.server._derived_builder
        assert builder is not None
    assert builder._task is None


def test_a_process_that_cannot_be_run_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(derived_builder, "_AGAIN_AFTER_S", 0)

    async def run() -> None:
        tried = asyncio.Event()

        async def refuse(*_: object, **__: object) -> None:
            if caplog.text.count("no room for a process") >= 2:
                tried.set()
            raise OSError("no room for a process")

        monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
        builder = DerivedBuilder(tmp_path, ["columns"])
        builder.start()
        async with asyncio.timeout(LIMIT_S):
            await tried.wait()
        await builder.stop()

    asyncio.run(run())
