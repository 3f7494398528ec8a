from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commits import DIED, NOW, Victims, flat, leftovers, logs, messages_of, new_root
from examples import examples
from headgate.errors import (
    ConfigError,
    CorruptChunkError,
    LogError,
    StorageFullError,
    StreamFullError,
    StreamLockedError,
    StreamNotFoundError,
    StreamReplacedError,
)
from headgate.log import commit as commit_module
from headgate.log import roll_forward
from headgate.log.chunk_builder import FilterValues
from headgate.log.commit import Committed, Helpers, PublishedBatch, abort_batch, commit_batch, output_of
from headgate.log.crash_points import CommitStep
from headgate.log.files import DiskFile
from headgate.log.format import FILE_HEAD_BYTES, ChunkHeader
from headgate.log.manifest import ONE_TIME_PREFIX, Commits, Manifest, Output, root_of
from headgate.log.pin import Pin, write_pin
from headgate.log.root import stream_folder
from headgate.log.settings import StreamArguments, load_settings
from headgate.log.staging import HEAD_BYTES, StagedChunks, StagedFile, staging_folder
from headgate.log.stream import Stream
from headgate.log.writer import Writer

TWO_OUTPUTS = {
    "a": [[f"red/a0-{n}" for n in range(7)], [], [f"blue/a2-{n}" for n in range(4)]],
    "b": [[f"green/b0-{n}" for n in range(5)]],
}


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    started = Victims()
    yield started
    started.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, victims: Victims) -> dict[str, bytes]:
    root = new_root(tmp_path_factory.mktemp("undisturbed") / "root")
    assert victims.commit(root, TWO_OUTPUTS) == 0
    assert [messages_of(root, name) for name in ("a", "b")] == [flat(parts) for parts in TWO_OUTPUTS.values()]
    assert len(list(stream_folder(root, "a").glob("*.segment"))) > 1
    assert leftovers(root) == []
    return logs(root)


STEPS = [
    *((f"{step}", ()) for step in CommitStep),
    *((f"{CommitStep.APPENDING}:{number}", ()) for number in (2, 3)),
    *((f"{step}:2", ()) for step in (CommitStep.APPENDED, CommitStep.RECORDED)),
    *(("", (write, kept)) for write in range(1, 9) for kept in (0, 1, 30, 1000)),
]


@pytest.mark.faults
@pytest.mark.parametrize(("crash_at", "tear"), STEPS)
@pytest.mark.parametrize("finisher", ["a second commit", "the next writer"])
@pytest.mark.parametrize("how", [{}, {"durable": True}, {"shared": True}], ids=["", "durable", "shared"])
def test_a_commit_killed_at_any_step_is_finished_as_if_undisturbed(
    tmp_path: Path,
    victims: Victims,
    undisturbed: dict[str, bytes],
    crash_at: str,
    tear: tuple[int, int],
    finisher: str,
    how: dict[str, bool],
) -> None:
    root = new_root(tmp_path / "root")
    assert victims.commit(root, TWO_OUTPUTS, crash_at=crash_at, tear=tear or (0, 0), **how) == DIED
    if finisher == "the next writer" and crash_at != CommitStep.STAGED:
        assert victims.open_writers(root) == 0
        assert logs(root) == undisturbed
        assert leftovers(root) == []
    for path in staging_folder(root).rglob("*.chunks"):
        # File times are coarse: two attempts must not fall into one tick.
        os.utime(path, (1, 1))
    # The driver that restarts stages the batch once more, whether or not it was finished meanwhile.
    assert victims.commit(root, TWO_OUTPUTS, **how) == 0
    assert logs(root) == undisturbed
    assert leftovers(root) == []


@pytest.mark.faults
@pytest.mark.parametrize(
    ("crash_at", "tear"),
    [step for step in STEPS if step[0] in ("appending:2", "appended", "recorded") or step[1][1:] == (30,)],
)
@pytest.mark.parametrize("durable", [False, True])
def test_a_share_of_a_published_batch_may_be_appended_by_a_process_that_dies(
    tmp_path: Path,
    victims: Victims,
    undisturbed: dict[str, bytes],
    crash_at: str,
    tear: tuple[int, int],
    durable: bool,
) -> None:
    root = new_root(tmp_path / "root")
    assert victims.commit(root, TWO_OUTPUTS, crash_at=CommitStep.PUBLISHED, durable=durable) == DIED
    assert victims.append(root, 0, crash_at=crash_at, tear=tear or (0, 0)) == DIED
    assert messages_of(root, "b") == []
    assert victims.append(root, 1) == victims.append(root, 0) == 0
    assert logs(root) == undisturbed
    assert leftovers(root) == ["0.json"]
    assert victims.append(root, 0) == 0
    assert victims.commit(root, TWO_OUTPUTS, durable=durable) == 0
    assert victims.append(root, 0) == 0
    assert logs(root) == undisturbed
    assert leftovers(root) == []


@pytest.mark.parametrize("appended", [[], [1], [0, 1]])
def test_a_commit_appends_what_its_helpers_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appended: list[int]
) -> None:
    monkeypatch.setattr(commit_module, "_SHARED_FROM", 2)
    root, finish = new_root(tmp_path / "root"), Writer.finish
    finished_here: list[str] = []

    def run(batch: PublishedBatch) -> int:
        assert batch.shares == 2
        return sum(batch.append(share) for share in appended)

    def noted(stream: Stream, *rest: Any, **more: Any) -> None:
        finished_here.append(stream.name)
        finish(stream, *rest, **more)

    monkeypatch.setattr(Writer, "finish", noted)
    bodies = {"a": [b"a0", b"a1", b"a2"], "b": [b"b0"]}
    commit(root, {name: [stage(root, own)] for name, own in bodies.items()}, helpers=Helpers(8, run))
    assert finished_here == {0: ["a", "b"], 1: ["b", "a", "b"], 2: ["a", "b"]}[len(appended)]
    assert {name: messages_of(root, name) for name in bodies} == {"a": ["a0", "a1", "a2"], "b": ["b0"]}
    assert leftovers(root) == []


def test_shares_are_neighbours_and_no_staged_file_has_chunks_for_two(tmp_path: Path) -> None:
    files = {"a": "1", "b": "12", "c": "3", "d": "24", "e": "5", "f": "6", "g": "67"}
    outputs = tuple(Output(name, "", tuple(StagedChunks(path, 1, 1, 1) for path in own)) for name, own in files.items())
    manifest = Manifest("q", 0, NOW, False, (*outputs, Output("empty", "", ())))
    assert commit_module._shares(manifest, 9) == [["a", "b", "c", "d"], ["e"], ["f", "g"]]
    assert commit_module._shares(manifest, 2) == [["a", "b", "c", "d"], ["e", "f", "g"]]
    assert commit_module._shares(manifest, 1) == [list(files)]


ONCE = f"{ONE_TIME_PREFIX}batch"


@pytest.mark.faults
@pytest.mark.parametrize(("crash_at", "tear"), [step for step in STEPS if step[0] != CommitStep.STAGED])
def test_a_batch_of_a_query_used_once_that_is_killed_at_any_step_is_finished_by_the_next_writers(
    tmp_path: Path, victims: Victims, crash_at: str, tear: tuple[int, int]
) -> None:
    undisturbed, root = new_root(tmp_path / "undisturbed"), new_root(tmp_path / "root")
    assert victims.commit(undisturbed, TWO_OUTPUTS, query=ONCE) == 0
    assert victims.commit(root, TWO_OUTPUTS, query=ONCE, crash_at=crash_at, tear=tear or (0, 0)) == DIED
    assert victims.open_writers(root) == 0
    assert logs(root) == logs(undisturbed)
    assert leftovers(root) == []
    assert victims.open_writers(root) == 0
    assert logs(root) == logs(undisturbed)


@pytest.mark.faults
@pytest.mark.parametrize("crash_at", ["appended", "recorded", "appending:3", "appended:2", "finished"])
@pytest.mark.parametrize("query", ["q", ONCE])
def test_who_writes_after_a_killed_batch_keeps_what_the_snapshot_forgets_of_it(
    tmp_path: Path, victims: Victims, query: str, crash_at: str
) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=4000)
    assert victims.commit(root, TWO_OUTPUTS, query=query, crash_at=crash_at) == DIED
    with Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW) as writer:
        for number in range(300):
            writer.append([(b"m", None)], now_ms=NOW, publisher=f"publisher-{number}", sequences=[1])
    assert victims.open_writers(root) == 0
    assert [message for message in messages_of(root, "a") if message != "m"] == flat(TWO_OUTPUTS["a"])
    assert messages_of(root, "b") == flat(TWO_OUTPUTS["b"])
    assert leftovers(root) == []


@pytest.mark.faults
@pytest.mark.parametrize(("query", "durable"), [("q", False), ("q", True), (ONCE, False), (ONCE, True)])
def test_a_batch_that_was_killed_when_all_was_appended_is_completed_by_the_first_writer_of_any_of_its_streams(
    tmp_path: Path, victims: Victims, query: str, durable: bool
) -> None:
    root = new_root(tmp_path / "root")
    assert victims.commit(root, TWO_OUTPUTS, query=query, durable=durable, crash_at="finished") == DIED
    Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW).close()
    assert not Commits(root).pending()
    assert leftovers(root) == []


@pytest.mark.parametrize("query", ["q", ONCE])
def test_a_batch_that_is_not_flushed_leaves_stream_json_as_it_is(tmp_path: Path, query: str) -> None:
    root = new_root(tmp_path / "root")
    path = stream_folder(root, "a") / "stream.json"
    before = path.stat()
    commit(root, {"a": [stage(root, [b"message"], query=query)]}, query=query)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    # What survives a power loss is said where a power loss does not take it.
    commit(root, {"a": [stage(root, [b"flushed"], query=query)]}, query=query, batch=1, durable=True)
    found = load_settings(stream_folder(root, "a"))
    assert found is not None and found.sequences == {query: 1 << 20}


@pytest.mark.faults
@pytest.mark.parametrize("crash_at", ["published", "appending:2"])
def test_a_full_stream_refuses_a_batch_that_is_not_decided_and_takes_one_that_is(
    tmp_path: Path, victims: Victims, crash_at: str
) -> None:
    root = new_root(tmp_path / "root")
    assert victims.commit(root, TWO_OUTPUTS, crash_at=crash_at) == DIED
    folder = stream_folder(root, "a")
    # A writer would finish the batch first.
    write_pin(folder, Pin(0, 1), flushed=False, open_file=DiskFile)
    assert victims.open_writers(root) == 0
    assert messages_of(root, "a") == flat(TWO_OUTPUTS["a"])
    staged = stage(root, [b"more"])
    with pytest.raises(StreamFullError):
        commit(root, {"a": [staged]}, batch=1)
    # What is there already is no reason to refuse, and an output without a chunk neither.
    assert commit(root, {"a": [stage(root, [b"again"])]}).repeated
    assert not commit(root, {"a": [None], "b": [stage(root, [b"b"])]}, batch=1).repeated
    with Writer.open(Stream.open(folder), now_ms=NOW) as writer:
        writer.pin(Pin(writer.next_offset, 1))
    assert not commit(root, {"a": [stage(root, [b"more"])]}, batch=2).repeated
    assert messages_of(root, "a") == [*flat(TWO_OUTPUTS["a"]), "more"]


def test_retention_in_a_commit_keeps_what_is_pinned(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    with Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW) as writer:
        writer.change(now_ms=NOW, arguments=StreamArguments(max_segment_size_bytes=300, max_length_bytes=1))
        writer.pin(Pin(3, 1 << 30))
    for batch in range(10):
        commit(root, {"a": [stage(root, [b"message %d" % batch + bytes(200)])]}, batch=batch)
    first, second, *_ = sorted(int(path.stem) for path in stream_folder(root, "a").glob("*.segment"))
    assert 0 < first <= 3 < second


def test_batches_that_are_not_flushed_follow_each_other_without_stream_json(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=4000)
    for batch in range(3):
        assert not commit(root, {"a": [stage(root, [b"batch %d" % batch])]}, batch=batch).repeated
        with Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW) as writer:
            for number in range(300):
                writer.append([(b"m", None)], now_ms=NOW, publisher=f"publisher-{number}", sequences=[batch])
            assert writer.last_sequence("q") is None
        assert commit(root, {"a": [stage(root, [b"batch %d" % batch])]}, batch=batch).repeated
    assert [message for message in messages_of(root, "a") if message != "m"] == ["batch 0", "batch 1", "batch 2"]


@pytest.mark.faults
@pytest.mark.parametrize(("query", "durable"), [("q", False), ("q", True), (ONCE, False)])
@pytest.mark.parametrize("crash_at", ["", "appending:40", "recorded:50"])
def test_outputs_that_are_many_each_get_their_messages_once(
    tmp_path: Path, victims: Victims, query: str, durable: bool, crash_at: str
) -> None:
    root = tmp_path / "root"
    outputs = {f"s{number}": [[f"x/{number}-0"], [f"x/{number}-1", f"x/{number}-2"]] for number in range(70)}
    for name in outputs:
        Stream.create(stream_folder(root, name), name=name, now_ms=NOW)
    ended = DIED if crash_at else 0
    assert victims.commit(root, outputs, query=query, crash_at=crash_at, durable=durable) == ended
    assert bool(Commits(root).pending()) == bool(crash_at)
    assert victims.open_writers(root) == 0
    assert {name: messages_of(root, name) for name in outputs} == {name: flat(rows) for name, rows in outputs.items()}
    assert leftovers(root) == []


@pytest.mark.faults
@pytest.mark.parametrize("query", ["q", ONCE])
@pytest.mark.parametrize("shared", [False, True])
def test_staged_files_stay_until_what_is_in_them_is_appended_and_no_longer(
    tmp_path: Path, victims: Victims, query: str, shared: bool
) -> None:
    root = new_root(tmp_path / "root")
    assert victims.commit(root, TWO_OUTPUTS, query=query, shared=shared, crash_at="appended:2") == DIED
    left = {path.name for path in staging_folder(root).rglob("*.chunks")}
    needed = [name for name in left if (name.partition("-")[2][0] == "0" if shared else name[0] == "b")]
    assert needed
    root = new_root(tmp_path / "other")
    assert victims.commit(root, TWO_OUTPUTS, query=query, shared=shared, crash_at="finished") == DIED
    assert list(staging_folder(root).rglob("*.chunks")) == []
    assert Commits(root).pending()


@pytest.mark.faults
def test_a_replay_with_other_messages_does_not_change_what_the_manifest_decided(
    tmp_path: Path, victims: Victims, undisturbed: dict[str, bytes]
) -> None:
    root = new_root(tmp_path / "root")
    assert victims.commit(root, TWO_OUTPUTS, crash_at="appending:2") == DIED
    assert victims.commit(root, {"a": [["other/1"]], "b": [["other/2"]]}) == 0
    assert logs(root) == undisturbed
    assert victims.commit(root, {"a": [["late/1"]]}) == 0
    assert logs(root) == undisturbed
    assert leftovers(root) == []


CRASH = st.one_of(
    st.tuples(st.sampled_from([f"{step}:{n}" for step in CommitStep for n in (1, 2, 3)]), st.just((0, 0))),
    st.tuples(st.just(""), st.tuples(st.integers(1, 12), st.integers(0, 400))),
)
PARTS = st.dictionaries(
    st.sampled_from("ab"), st.lists(st.integers(0, 8).map(range).map(list), max_size=3), min_size=1, max_size=2
)


@pytest.mark.faults
@settings(examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(
        st.tuples(st.sampled_from(["q1", "q2"]), PARTS, st.lists(CRASH, max_size=3), st.booleans()), max_size=5
    )
)
def test_after_any_crashes_each_query_is_in_each_stream_once_and_in_order(
    tmp_path: Path, victims: Victims, batches: list[Any]
) -> None:
    shutil.rmtree(tmp_path / "root", ignore_errors=True)
    root = new_root(tmp_path / "root")
    numbers = {"q1": 0, "q2": 0}
    expected: dict[tuple[str, str], list[str]] = {}
    for query, parts, crashes, give_up in batches:
        batch = numbers[query]
        outputs = {
            stream: [[f"{query}/{batch}-{stream}-{row}-{n}" for n in numbers_] for row, numbers_ in enumerate(rows)]
            for stream, rows in parts.items()
        }
        numbers[query] += 1
        for crash_at, tear in crashes:
            assert victims.commit(root, outputs, query=query, batch=batch, crash_at=crash_at, tear=tear) in (0, DIED)
        decided = Commits(root).find(query, batch) is not None or Commits(root).completed(query) >= batch
        # A decided batch may also be left to whoever writes next.
        if not (give_up and decided):
            assert victims.commit(root, outputs, query=query, batch=batch) == 0
        for stream, rows in outputs.items():
            expected.setdefault((stream, query), []).extend(flat(rows))
    assert victims.open_writers(root) == 0
    for stream in ("a", "b"):
        found = messages_of(root, stream)
        for query in ("q1", "q2"):
            mine = [message for message in found if message.startswith(query)]
            assert mine == expected.get((stream, query), [])
        assert len(found) == sum(len(rows) for (name, _query), rows in expected.items() if name == stream)
    assert not Commits(root).pending()
    Commits(root).clean_all(written_before_ns=time.time_ns() + 60 * 10**9)
    assert leftovers(root) == []


def stage(
    root: Path, messages: list[bytes], *, query: str = "q", name: str = "part", max_messages: int = 2
) -> StagedChunks | None:
    lengths = np.array([len(message) for message in messages], dtype=np.int64)
    file = StagedFile(root, query=query, name=name, filter_size_bytes=16, max_messages=max_messages)
    data = np.frombuffer(b"".join(messages), dtype=np.uint8)
    file.add(data, np.cumsum(lengths) - lengths, lengths, FilterValues.same(b"x", len(messages)))
    return next(iter(file.finish(durable=False)), None)


def make_again(root: Path, name: str) -> None:
    shutil.rmtree(stream_folder(root, name))
    Stream.create(stream_folder(root, name), name=name, now_ms=NOW)


def identity_of(root: Path, name: str) -> str:
    return Stream.open(stream_folder(root, name)).identity


def output_of_stream(
    root: Path, folder: Path, staged: list[StagedChunks | None], *, filter_source: str | None = None
) -> Output:
    return output_of(root, folder, staged, identity=Stream.open(folder).identity, filter_source=filter_source)


def commit(
    root: Path, streams: dict[str, list[StagedChunks | None]], *, query: str = "q", batch: int = 0, **more: Any
) -> Committed:
    outputs = [output_of_stream(root, stream_folder(root, name), staged) for name, staged in streams.items()]
    return commit_batch(root, query=query, batch=batch, outputs=outputs, **{"now_ms": NOW, "durable": False, **more})


def test_two_queries_that_both_start_at_batch_0_are_both_kept(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    for query in ("one", "two"):
        for batch in range(2):
            done = commit(
                root, {"a": [stage(root, [f"{query}{batch}".encode()], query=query)]}, query=query, batch=batch
            )
            assert done == Committed(False, 1, 1, done.size_bytes)
    assert messages_of(root, "a") == ["one0", "one1", "two0", "two1"]


def test_every_chunk_carries_query_and_sequence_and_stream_json_keeps_the_last_that_was_flushed(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=1 << 20)
    commit(root, {"a": [stage(root, [b"1", b"2", b"3"]), stage(root, [b"4"])]}, batch=5, durable=True)
    raw = next(stream_folder(root, "a").glob("*.segment")).read_bytes()
    position, sequences = FILE_HEAD_BYTES, []
    while position < len(raw):
        header = ChunkHeader.decode(raw[position : position + 48], path="a", position=position)
        assert (header.timestamp_ms, header.epoch) == (NOW, 1)
        position += header.size_bytes
        trailer = raw[position - header.trailer_length : position]
        assert trailer[:3] == b"\x00\x01q"
        sequences.append(int.from_bytes(trailer[3:], "big"))
    assert sequences == [5 << 20, (5 << 20) + 1, (5 << 20) + 2]
    found = load_settings(stream_folder(root, "a"))
    assert found is not None and found.sequences == {"q": (5 << 20) + 2}


def test_a_flushed_replay_is_recognised_after_many_other_publishers_pushed_the_query_out_of_the_snapshot(
    tmp_path: Path,
) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=4000)
    staged = stage(root, [b"once"])
    commit(root, {"a": [staged]}, durable=True)
    manifest = Commits(root)
    with Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW) as writer:
        for number in range(300):
            writer.append([(b"m", None)], now_ms=NOW, publisher=f"publisher-{number}", sequences=[1])
    # Even if the record of completed batches is lost, the stream itself knows.
    shutil.rmtree(manifest.folder)
    assert not commit(root, {"a": [stage(root, [b"once"])]}).repeated
    assert messages_of(root, "a").count("once") == 1
    assert leftovers(root) == []


def test_an_empty_batch_is_done_at_once_and_a_replay_of_it_appends_nothing(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    assert commit(root, {"a": [None, stage(root, [])]}) == Committed(False, 0, 0, 0)
    assert commit(root, {"a": [stage(root, [b"different"])]}).repeated
    assert messages_of(root, "a") == []
    assert leftovers(root) == []


def test_nothing_is_remembered_of_a_query_that_is_used_once(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    query = f"{ONE_TIME_PREFIX}1234"
    commit(root, {"a": [stage(root, [b"message"], query=query)]}, query=query, durable=True)
    assert commit(root, {"a": [None]}, query=query) == Committed(False, 0, 0, 0)
    assert messages_of(root, "a") == ["message"]
    assert sorted(path.name for path in (root / ".headgate").rglob("*")) == [".lock", "commits", "staging"]
    commit(root, {"a": [stage(root, [b"next"])]}, durable=True)
    found = load_settings(stream_folder(root, "a"))
    assert found is not None and found.sequences == {"q": 0}


def test_a_commit_removes_what_attempts_that_died_left_in_staging(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    for query, written_s in (("q", NOW // 1000), ("r", NOW // 1000), ("r", NOW // 1000 - 8 * 24 * 3600)):
        left = stage(root, [b"left"], query=query, name=f"{query}-{written_s}")
        assert left is not None
        os.utime(root / left.path, (written_s, written_s))
    staged = stage(root, [b"message"])
    commit(root, {"a": [staged]})
    assert [name.split("-")[0:2] for name in leftovers(root)] == [["r", str(NOW // 1000)]]
    # The same commit again, as after an error that came too late, finds nothing to do.
    assert commit(root, {"a": [staged]}).repeated
    assert messages_of(root, "a") == ["message"]


def test_a_replay_leaves_what_another_driver_staged_for_the_next_batch(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    commit(root, {"a": [stage(root, [b"0"])]})
    next_batch = stage(root, [b"1"], name="next")
    assert next_batch is not None
    os.utime(root / next_batch.path, (NOW // 1000, NOW // 1000))
    assert commit(root, {"a": [stage(root, [b"0"])]}).repeated
    commit(root, {"a": [next_batch]}, batch=1)
    assert messages_of(root, "a") == ["0", "1"]


def test_abort_removes_what_no_manifest_names(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    decided, other = stage(root, [b"decided"]), stage(root, [b"other"])
    assert decided is not None and other is not None
    manifest = Manifest("q", 0, NOW, False, (Output("streams/a", identity_of(root, "a"), (decided,)),))
    assert Commits(root).publish(manifest)
    abort_batch(root, query="q", staged=[decided, None, other])
    assert (root / decided.path).exists() and not (root / other.path).exists()
    Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW).close()
    abort_batch(root, query="q", staged=[decided])
    assert messages_of(root, "a") == ["decided"]


def test_cleaning_keeps_what_a_manifest_names_and_what_is_young(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    decided, old = stage(root, [b"decided"]), stage(root, [b"old"])
    foreign = stage(root, [b"foreign"], query="r")
    assert decided is not None and old is not None and foreign is not None
    commits = Commits(root)
    commits.publish(Manifest("q", 0, NOW, False, (Output("streams/a", identity_of(root, "a"), (decided,)),)))
    written_ns = (root / old.path).stat().st_mtime_ns
    later_ns = written_ns + 60 * 10**9
    assert commits.clean_all(written_before_ns=written_ns - 10**9) == 0
    assert commits.clean("q", written_before_ns=later_ns) == 1
    assert commits.clean("never-run", written_before_ns=later_ns) == 0
    assert (root / foreign.path).exists()
    assert commits.clean_all(written_before_ns=later_ns) == 1
    assert [path.resolve() for path in staging_folder(root).rglob("*.chunks")] == [(root / decided.path).resolve()]


@pytest.mark.faults
def test_many_processes_that_commit_the_same_batch_append_it_once(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    others = [Victims() for _ in range(3)]
    try:
        for batch in range(6):
            for number, other in enumerate(others):
                other.start(root, {"a": [[f"{number}/{batch}-{n}" for n in range(9)]], "b": []}, batch=batch)
            assert [other.status() for other in others] == [0, 0, 0]
    finally:
        for other in others:
            other.close()
    found = messages_of(root, "a")
    for batch in range(6):
        mine = found[9 * batch : 9 * batch + 9]
        assert {message.split("/")[0] for message in mine} in ({"0"}, {"1"}, {"2"})
        assert [message.split("/")[1] for message in mine] == [f"{batch}-{n}" for n in range(9)]
    assert len(found) == 54 and not Commits(root).pending()


@pytest.mark.faults
def test_queries_that_commit_to_the_same_streams_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    others = [Victims() for _ in range(3)]
    try:
        for batch in range(5):
            for number, other in enumerate(others):
                names = ["a", "b"] if number % 2 else ["b", "a"]
                outputs = {name: [[f"{number}/{batch}-{n}" for n in range(5)]] for name in names}
                other.start(root, outputs, query=f"query-{number}", batch=batch)
            assert [other.status() for other in others] == [0, 0, 0]
    finally:
        for other in others:
            other.close()
    for name in ("a", "b"):
        found = messages_of(root, name)
        for number in range(3):
            mine = [message for message in found if message.startswith(f"{number}/")]
            assert mine == [f"{number}/{batch}-{n}" for batch in range(5) for n in range(5)]
    assert leftovers(root) == []


def test_a_held_stream_fails_the_commit_which_is_finished_later(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    commit(root, {"a": [stage(root, [b"a0"])], "b": [stage(root, [b"b0"])]})
    staged = {"a": [stage(root, [b"a1"])], "b": [stage(root, [b"b1"])]}
    with Writer.open(Stream.open(stream_folder(root, "b")), now_ms=NOW) as holder:
        with pytest.raises(StreamLockedError, match="another writer"):
            commit(root, staged, batch=1)
        holder.append([(b"before", None)], now_ms=NOW)
    # A writer of the stream that has its part does not call the batch done for the other one.
    Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW).close()
    assert messages_of(root, "a") == ["a0", "a1"]
    assert [manifest.batch for manifest in Commits(root).pending()] == [1]
    with Writer.open(Stream.open(stream_folder(root, "b")), now_ms=NOW) as writer:
        writer.append([(b"after", None)], now_ms=NOW)
    assert messages_of(root, "b") == ["b0", "before", "b1", "after"]
    assert leftovers(root) == []


@pytest.mark.parametrize(("durable", "copying_from_bytes"), [(False, 1 << 20), (False, 1), (True, 1 << 20)])
def test_an_output_that_fails_keeps_none_of_the_others_from_being_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool, copying_from_bytes: int
) -> None:
    monkeypatch.setattr("headgate.log.commit._COPYING_FROM_BYTES", copying_from_bytes)
    root = new_root(tmp_path / "root")
    staged = {"a": [stage(root, [b"a"])], "b": [stage(root, [b"b"])]}
    with (
        Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW),
        pytest.raises(StreamLockedError, match="another writer"),
    ):
        commit(root, staged, durable=durable)
    assert messages_of(root, "a") == [] and messages_of(root, "b") == ["b"]
    assert commit(root, staged, durable=durable).repeated
    assert messages_of(root, "a") == ["a"] and messages_of(root, "b") == ["b"]
    assert leftovers(root) == []


def test_a_stream_that_was_deleted_holds_nothing_up(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    staged = {"a": [stage(root, [b"a"])], "b": [stage(root, [b"b"])]}
    with (
        Writer.open(Stream.open(stream_folder(root, "b")), now_ms=NOW),
        pytest.raises(StreamLockedError),
    ):
        commit(root, staged)
    shutil.rmtree(stream_folder(root, "b"))
    Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW).close()
    assert not Commits(root).pending() and leftovers(root) == []
    assert messages_of(root, "a") == ["a"]


@pytest.mark.parametrize("by_a_writer", [True, False])
def test_a_batch_decided_for_a_deleted_stream_is_not_appended_to_its_successor(
    tmp_path: Path, by_a_writer: bool
) -> None:
    root = new_root(tmp_path / "root")
    staged = {"a": [stage(root, [b"a"])], "b": [stage(root, [b"b"])]}
    with (
        Writer.open(Stream.open(stream_folder(root, "b")), now_ms=NOW),
        pytest.raises(StreamLockedError),
    ):
        commit(root, staged)
    make_again(root, "b")
    if by_a_writer:
        Writer.open(Stream.open(stream_folder(root, "b")), now_ms=NOW).close()
        assert not Commits(root).pending()
    # The batch again, now staged for the stream that is there.
    assert commit(root, {"a": [None], "b": [stage(root, [b"b"])]}).repeated
    assert not Commits(root).pending() and leftovers(root) == []
    assert (messages_of(root, "a"), messages_of(root, "b")) == (["a"], [])
    assert not commit(root, {"b": [stage(root, [b"next"])]}, batch=1).repeated
    assert messages_of(root, "b") == ["next"]


def test_what_was_staged_for_a_deleted_stream_is_refused(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    folder = stream_folder(root, "a")
    before = identity_of(root, "a")
    output = output_of_stream(root, folder, [stage(root, [b"a"])])
    make_again(root, "a")
    with pytest.raises(StreamReplacedError, match=f"identity {before} was deleted.*{identity_of(root, 'a')}") as caught:
        commit_batch(root, query="q", batch=0, outputs=[output], now_ms=NOW, durable=False)
    assert caught.value.path == folder
    assert not Commits(root).pending() and messages_of(root, "a") == []


def test_a_stream_that_was_made_again_gets_no_writer_of_the_old_one(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    before = Stream.open(stream_folder(root, "a"))
    make_again(root, "a")
    with pytest.raises(StreamReplacedError):
        Writer.open(before, now_ms=NOW)
    Writer.open(Stream.open(before.path), now_ms=NOW).close()


class FullDisk(DiskFile):
    """Refuses to grow a file beyond so many bytes."""

    limit = 0

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        import errno

        if position + len(data) > FullDisk.limit:
            super().write(memoryview(data)[: max(0, FullDisk.limit - position)], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(data, position)


def test_a_full_disk_stops_a_commit_which_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=1 << 20)
    monkeypatch.setattr(roll_forward, "BLOCK_BYTES", 300)
    messages = [b"message-%d" % number for number in range(20)]
    FullDisk.limit = 700
    with pytest.raises(StorageFullError):
        commit(root, {"a": [stage(root, messages)]}, open_file=FullDisk)
    written = messages_of(root, "a")
    assert 0 < len(written) < 20
    assert commit(root, {"a": [stage(root, messages)]}).repeated
    assert [message.encode() for message in messages_of(root, "a")] == messages
    assert leftovers(root) == []


def test_a_commit_goes_on_inside_files_that_make_a_block_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [b"message-%d" % number for number in range(9)]
    stopped_at = set()
    for limit in range(100, 800, 90):
        root = new_root(tmp_path / f"root-{limit}", max_segment_size_bytes=1 << 20)
        parts = [stage(root, messages[at : at + 3], name=f"part-{at}", max_messages=1) for at in (0, 3, 6)]
        with monkeypatch.context() as patch:
            patch.setattr(roll_forward, "BLOCK_BYTES", 130)
            FullDisk.limit = limit
            with pytest.raises(StorageFullError):
                commit(root, {"a": parts}, open_file=FullDisk)
        stopped_at.add(len(messages_of(root, "a")))
        assert commit(root, {"a": parts}).repeated
        assert [message.encode() for message in messages_of(root, "a")] == messages
    assert len(stopped_at & {1, 2, 4, 5, 7}) >= 3


def test_a_full_disk_while_staging_leaves_nothing_after_discard(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    FullDisk.limit = 10
    file = StagedFile(root, query="q", name="part", filter_size_bytes=16, open_file=FullDisk)
    file.add(np.zeros(4, np.uint8), np.array([0]), np.array([4]))
    with pytest.raises(StorageFullError):
        file.finish(durable=True)
    file.discard()
    assert list(staging_folder(root, "q").iterdir()) == []


def test_durable_commits_write_the_same_bytes(tmp_path: Path, victims: Victims, undisturbed: dict[str, bytes]) -> None:
    root = new_root(tmp_path / "root")
    assert victims.commit(root, TWO_OUTPUTS, durable=True) == 0
    assert logs(root) == undisturbed


def test_chunks_larger_than_a_block_are_appended_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=1 << 20)
    monkeypatch.setattr(roll_forward, "BLOCK_BYTES", 64)
    messages = [b"s", b"l" * 3000, b"s", b"m" * 100, b"", b"s"]
    commit(root, {"a": [stage(root, messages, max_messages=1)]})
    assert [message.encode() for message in messages_of(root, "a")] == messages


@pytest.mark.parametrize(
    ("damage", "error", "named"),
    [
        (lambda raw: raw[:HEAD_BYTES] + b"\x51" + raw[HEAD_BYTES + 1 :], CorruptChunkError, "0x51"),
        (lambda raw: raw[: HEAD_BYTES + 36] + b"\x7f" + raw[HEAD_BYTES + 37 :], CorruptChunkError, "longer than"),
        (lambda raw: raw[:-1], LogError, "bytes, expected"),
        (None, LogError, "is gone"),
    ],
)
def test_damaged_staging_is_an_error_that_names_the_file(
    tmp_path: Path, damage: Any, error: type[LogError], named: str
) -> None:
    root = new_root(tmp_path / "root")
    staged = stage(root, [b"one", b"two", b"three"])
    assert staged is not None
    Commits(root).publish(Manifest("q", 0, NOW, False, (Output("streams/a", identity_of(root, "a"), (staged,)),)))
    path = root / staged.path
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(error, match=named) as raised:
        Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW)
    assert raised.value.path.name == path.name
    # The lock is given back, and a commit of that batch says the same.
    with pytest.raises(error, match=named):
        commit(root, {"a": [None]})


def test_a_manifest_that_is_none_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    folder = Commits(root).folder / "q"
    folder.mkdir(parents=True)
    for content, named in ((b"{", "not a manifest"), (b'{"query": 1}', "not a manifest")):
        (folder / "0.json").write_bytes(content)
        with pytest.raises(LogError, match=named) as raised:
            Writer.open(Stream.open(stream_folder(root, "a")), now_ms=NOW)
        assert raised.value.path == (folder / "0.json").resolve()
    newer = b'{"query": "q", "batch": 0, "timestamp_ms": 1, "durable": false, "outputs": [], "format": 4}'
    (folder / "0.json").write_bytes(newer)
    with pytest.raises(LogError, match="format 4, expected 3"):
        Commits(root).pending()


def test_a_manifest_with_another_batch_is_refused_and_one_without_a_checksum_is_taken(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    commit(root, {"a": [None]}, batch=2)
    path = Commits(root).folder / "q" / "completed.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"batch": 2', b'"batch": 3'))
    with pytest.raises(LogError, match="their checksum is") as raised:
        Commits(root).completed("q")
    assert raised.value.path == path
    fields = json.loads(whole)
    assert fields.pop("crc")
    path.write_text(json.dumps(fields))
    assert Commits(root).completed("q") == 2


def test_a_manifest_cannot_name_files_outside_staging(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    for path in ("streams/a/stream.json", ".headgate/staging/q/../../../streams", "../x", ".headgate/staging/q"):
        with pytest.raises(LogError, match="lies under"):
            StagedChunks(path, 1, 1, 1).file(root)


def test_outputs_that_cannot_be_committed_are_refused_before_anything_is_decided(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    staged = stage(root, [b"kept"])
    assert staged is not None
    outside = Stream.create(tmp_path / "elsewhere", name="elsewhere", now_ms=NOW)
    with pytest.raises(ConfigError, match="outside the root"):
        output_of_stream(root, outside.path, [staged])
    with pytest.raises(StreamNotFoundError):
        commit(root, {"missing": [staged]})
    with pytest.raises(ConfigError, match="batch -1"):
        commit(root, {"a": [staged]}, batch=-1)
    twice = [output_of_stream(root, stream_folder(root, "a"), [staged]) for _ in range(2)]
    with pytest.raises(ConfigError, match="two outputs"):
        commit_batch(root, query="q", batch=0, outputs=twice, now_ms=NOW, durable=False)
    many = Output("streams/a", identity_of(root, "a"), (StagedChunks(staged.path, (1 << 20) + 1, 1, 1),))
    with pytest.raises(ConfigError, match="smaller batches"):
        commit_batch(root, query="q", batch=0, outputs=[many], now_ms=NOW, durable=False)
    for query in ("", "x" * 256, "é" * 100):
        with pytest.raises(ConfigError, match="cannot identify"):
            commit(root, {"a": [None]}, query=query)
    assert not Commits(root).pending() and messages_of(root, "a") == []


def test_a_stream_outside_a_streams_folder_has_the_folder_it_lies_in_as_root(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "alone", name="alone", now_ms=NOW)
    assert root_of(stream.path.resolve()) == tmp_path.resolve()
    staged = stage(tmp_path, [b"message"])
    commit_batch(
        tmp_path,
        query="q",
        batch=0,
        outputs=[output_of_stream(tmp_path, stream.path, [staged])],
        now_ms=NOW,
        durable=False,
    )
    assert stream.next_offset() == 1


def test_the_declaration_covers_committed_chunks_only_if_they_were_filled_under_it(tmp_path: Path) -> None:
    folder = stream_folder(tmp_path, "declared")
    Stream.create(folder, name="declared", now_ms=NOW, filter_source="application_properties.region")
    for batch, source in enumerate(["application_properties.region", None]):
        staged = stage(tmp_path, [b"1", b"2"])
        output = output_of_stream(tmp_path, folder, [staged], filter_source=source)
        commit_batch(tmp_path, query="q", batch=batch, outputs=[output], now_ms=NOW, durable=False)
    found = load_settings(folder)
    assert found is not None
    assert [(part.field, part.start, part.stop) for part in found.declared] == [("application_properties.region", 0, 2)]


def test_query_ids_of_any_spelling_have_folders_of_their_own(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    queries = ["..", ".", "a/b", "é%2F", "completed.json"]
    for query in queries:
        commit(root, {"a": [stage(root, [query.encode()], query=query)]}, query=query)
    assert messages_of(root, "a") == queries
    assert leftovers(root) == []
