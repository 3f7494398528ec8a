"""Derived files of segments in object storage: they move with them, and readers are given the same answers."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

import headgate
from derived_streams import CHUNK, KINDS, create, each_source_is_always_asked, known
from headgate.derived import COLUMN_FILES, LOOKUP_FILES, MATCH_INDEX
from headgate.derived.columns import column_files, declare_columns, drop_columns
from headgate.derived.columns import files as column_module
from headgate.log import GRACE_MS, Stream, Writer, derived_folder, move_segments, resolve_stream
from headgate.log.remote import cache, load_derived, partial_file, storage_at
from headgate.log.remote.mover import delete_remote
from headgate.log.remote.shadow import refresh_shadow
from headgate.log.remote.storage import ObjectStorage
from headgate.scan.answers import SourceKind

WRITTEN = [
    [row] * CHUNK
    for row in (("x", 0, 1), ("y", 1, 1), ("x", 1, 0), *[("y", 0, 0)] * 6, ("x", 1, 1), ("y", 1, 0), ("x", 1, 1))
]
LATER_MS = 1 << 41


@pytest.fixture(autouse=True)
def _each_source_is_always_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(partial_file, "BLOCK_BYTES", 64)
    # So small that all of a file would otherwise come with its footer.
    monkeypatch.setattr(column_module, "_MOST_CHECK_BYTES", 1 << 10)
    cache.cache_folder.cache_clear()
    with each_source_is_always_asked(), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    cache.cache_folder.cache_clear()


@pytest.fixture
def location(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


@pytest.fixture
def stream(tmp_path: Path, location: str) -> Stream:
    return create(tmp_path / "s", WRITTEN, remote=location)


def move(stream: Stream, *, now_ms: int = LATER_MS) -> None:
    """Move, and wait until nobody needs the files in the folder any more."""
    assert move_segments(stream, now_ms=now_ms) is not None
    with Writer.open(stream, now_ms=now_ms) as writer:
        writer.release_local()
    for later in (0, GRACE_MS):
        assert move_segments(stream, now_ms=now_ms + later) is not None


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.suffix in (".parquet", ".lookup", ".match")}


def forget_cache(tmp_path: Path) -> None:
    """As on another machine."""
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    cache.cache_folder.cache_clear()


def names_of(stream: Stream) -> dict[SourceKind, set[str]]:
    return {
        COLUMN_FILES: {path.name for found in COLUMN_FILES.names(stream).values() for path in found},
        LOOKUP_FILES: {path.name for found in LOOKUP_FILES.names(stream).values() for path in found},
    }


def test_answers_are_the_same_when_the_files_have_moved_and_without_the_folder(
    tmp_path: Path, stream: Stream, location: str
) -> None:
    before = [known(stream, kind) for kind in KINDS]
    assert all(len(found) > 4 for found, _, _ in before)
    here, names = files_in(stream.path), names_of(stream)
    report = move_segments(stream, now_ms=LATER_MS)
    # A file of each kind, and two declarations.
    assert report is not None and (report.moved, report.derived) == (1, 5)
    move(stream)
    open_one = f"{stream.segments()[-1].first_chunk_id:020d}.segment.match"
    assert files_in(stream.path) == {open_one} and files_in(tmp_path / "remote" / "s") == here - {open_one}
    assert names_of(stream) == names
    assert [known(stream, kind) for kind in KINDS] == before
    forget_cache(tmp_path)
    shutil.move(stream.path, tmp_path / "away")
    assert [known(resolve_stream("s", location), kind) for kind in KINDS] == before


def test_of_a_column_file_only_the_columns_are_fetched_that_are_read(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    move(stream)
    fetched: list[tuple[str, int, int]] = []
    fetch = partial_file.PartialFile._fetch_run

    def noted(self: partial_file.PartialFile, first: int, stop: int) -> None:
        fetched.append((self._source.name, first, stop))
        fetch(self, first, stop)

    monkeypatch.setattr(partial_file.PartialFile, "_fetch_run", noted)
    (file,) = column_files(stream)
    assert file.is_remote and {name for name, _, _ in fetched} == {file.path.name}
    fetched.clear()
    assert file.read(["a"], [0])["a"].to_pylist() == [0] * CHUNK + [1] * CHUNK
    start, size = column_module._place_of(file.metadata, 0, file.schema.names.index("a"))
    blocks = {block for _, first, stop in fetched for block in range(first, stop)}
    assert blocks <= set(range(start // 64, (start + size - 1) // 64 + 1))
    assert (file.content() == np.fromfile(storage_path(stream, file.path.name), dtype=np.uint8)).all()


def test_bytes_that_the_cache_lost_are_fetched_again(stream: Stream) -> None:
    move(stream)
    (file,) = column_files(stream)
    expected = file.read(["a"])
    assert cache.sweep_cache(cache.cache_folder(), most_bytes=0) > 0
    (again,) = column_files(stream)
    assert file.path == again.path and file is not again
    assert file.read(["a"]) == expected == again.read(["a"])


def test_tables_are_read_from_files_in_object_storage(stream: Stream, location: str) -> None:
    expected = headgate.read(stream.path, columns="offset, a bigint").to_arrow()
    move(stream)
    found = headgate.read("s", root=location, columns="offset, a bigint").to_arrow()
    sealed = stream.segments()[-1].first_chunk_id
    assert found == expected.slice(0, sealed) and len(found) == sealed
    assert not storage_segments_read(stream)


def storage_segments_read(stream: Stream) -> bool:
    """Whether messages of remote segments were fetched."""
    files = cache.cache_folder().glob("*/*/*.segment")
    return any(np.fromfile(path.parent / "blocks", dtype=np.uint8).any() for path in files)


def storage_path(stream: Stream, name: str) -> Path:
    assert stream.remote is not None
    return Path(stream.remote.removeprefix("file://")) / name


def test_builders_make_nothing_anew_and_a_newer_file_replaces_the_one_there(stream: Stream) -> None:
    move(stream)
    for kind in (COLUMN_FILES, LOOKUP_FILES):
        declared = kind.declared(stream)
        assert declared is not None and kind.missing(stream, declared) == []  # type: ignore[arg-type]
        assert [report.built for report in kind.build(stream, now_ms=LATER_MS)] == [0]
    (old,) = names_of(stream)[COLUMN_FILES]
    declare_columns(stream, "a bigint, b bigint, k string")
    assert [report.built for report in COLUMN_FILES.build(stream, now_ms=LATER_MS)] == [1]
    (new,) = names_of(stream)[COLUMN_FILES] - {old}
    (file,) = column_files(stream)
    assert file.path.name == new
    move(stream)
    COLUMN_FILES.sweep(stream, now_ms=LATER_MS)
    move(stream, now_ms=LATER_MS + GRACE_MS)
    assert names_of(stream)[COLUMN_FILES] == {new}
    assert {name for name in files_in(storage_path(stream, "").parent) if name.endswith("parquet")} == {new}
    (file,) = column_files(stream)
    assert file.is_remote and file.read(["k"])["k"].to_pylist()[:-1] == [row[0] for rows in WRITTEN for row in rows]


def test_dropped_files_go_there_as_well_and_do_not_come_back(stream: Stream) -> None:
    for _ in range(2):
        move(stream)
        drop_columns(stream)
        assert COLUMN_FILES.drop_files(stream) == 1
        assert names_of(stream)[COLUMN_FILES] == set() and column_files(stream) == []
        COLUMN_FILES.sweep(stream, now_ms=LATER_MS)
        move(stream)
        assert not any(name.endswith("parquet") for name in files_in(storage_path(stream, "")))
        declare_columns(stream, "a bigint, b bigint")
        assert [report.built for report in COLUMN_FILES.build(stream, now_ms=LATER_MS)] == [1]


def test_files_go_with_their_segment(stream: Stream) -> None:
    move(stream)
    with Writer.open(stream, now_ms=LATER_MS) as writer:
        writer.append([(b"x" * (1 << 20), None)], now_ms=LATER_MS)
        writer.append([(b"x", None)], now_ms=LATER_MS)
    for kind in KINDS:
        list(kind.build(stream, now_ms=LATER_MS))
    move(stream)
    first, second = (segment.first_chunk_id for segment in stream.segments()[:2])
    assert {int(name[:20]) for name in files_in(storage_path(stream, ""))} == {first, second}
    with Writer.open(stream, now_ms=LATER_MS) as writer:
        limits = msgspec.structs.replace(writer.settings.arguments, max_length_bytes=3 << 19)
        writer.change(now_ms=LATER_MS, arguments=limits)
    move(stream)
    assert {int(name[:20]) for name in files_in(storage_path(stream, ""))} == {second}
    listed = load_derived(stream.path)
    assert listed is not None and {first for first, _ in listed.ending_with("")} == {second}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_gone_or_damaged_there_costs_only_speed(
    stream: Stream, tmp_path: Path, kind: SourceKind
) -> None:
    before = known(stream, kind)
    move(stream)
    suffix = {MATCH_INDEX: ".match", LOOKUP_FILES: ".lookup", COLUMN_FILES: ".parquet"}[kind]
    (name,) = (name for name in files_in(storage_path(stream, "")) if name.endswith(suffix))
    path = storage_path(stream, name)
    whole = path.read_bytes()
    for content in (None, whole[: len(whole) // 2], bytes(len(whole))):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        forget_cache(tmp_path)
        with pytest.warns(RuntimeWarning, match="read without it|not used|results") as warned:
            ruled_out, may, certain = known(stream, kind)
        if content is None or len(content) < len(whole):
            assert f"file://{path}: cannot be read: " in str(warned[0].message)
        assert ruled_out <= before[0] and may >= before[1] and certain <= before[2]
    path.write_bytes(whole)
    forget_cache(tmp_path)
    assert known(stream, kind) == before


def test_what_is_kept_for_ever_stays_in_the_folder(stream: Stream) -> None:
    (file,) = column_files(stream)
    content = file.content()
    move(stream)
    declare_columns(stream, "a bigint, b bigint", keep="forever")
    assert [report.built for report in COLUMN_FILES.build(stream, now_ms=LATER_MS)] == [0]
    (kept,) = (derived_folder(stream) / "kept").iterdir()
    assert kept.read_bytes() == content.tobytes()
    move(stream)
    assert kept.exists() and column_files(stream)[0].path == kept


def test_the_list_comes_back_from_its_copy(stream: Stream) -> None:
    before = [known(stream, kind) for kind in KINDS]
    move(stream)
    path = stream.path / "remote.derived"
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], bytes(len(whole))):
        path.write_bytes(damaged)
        assert column_files(stream) == []
        move(stream)
        assert path.read_bytes() == whole
        assert [known(stream, kind) for kind in KINDS] == before
    assert stream.remote is not None and storage_at(stream.remote).read("derived") == whole


def test_what_is_dropped_and_made_again_before_a_move_is_sent_and_goes_here(stream: Stream) -> None:
    move(stream)
    assert COLUMN_FILES.drop_files(stream) == 1
    assert [report.built for report in COLUMN_FILES.build(stream, now_ms=LATER_MS)] == [1]
    move(stream)
    assert not (marks_of(stream) or any(derived_folder(stream).glob("*.parquet")))
    (file,) = column_files(stream)
    assert file.is_remote and storage_path(stream, file.path.name).exists()


def test_a_file_that_is_made_again_has_its_own_grace_time(stream: Stream) -> None:
    move(stream)
    for now_ms in (LATER_MS, LATER_MS + GRACE_MS):
        COLUMN_FILES.drop_files(stream)
        assert [report.built for report in COLUMN_FILES.build(stream, now_ms=now_ms)] == [1]
        assert move_segments(stream, now_ms=now_ms) is not None
        assert [path.suffix for path in derived_folder(stream).glob("*.parquet")] == [".parquet"]
    COLUMN_FILES.drop_files(stream)
    move(stream, now_ms=LATER_MS + 2 * GRACE_MS)
    assert not marks_of(stream)


def marks_of(stream: Stream) -> list[Path]:
    return [path for path in derived_folder(stream).iterdir() if path.suffix in (".moved", ".gone")]


def test_a_file_that_changes_while_it_is_sent_is_sent_again(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    send = ObjectStorage.write_file

    def grows(self: ObjectStorage, name: str, path: Path, *, goes_on: Callable[[], bool]) -> int:
        found = send(self, name, path, goes_on=goes_on)
        if name.endswith(".match"):
            with open(path, "ab") as file:
                file.write(b"more")
        return found

    assert move_segments(stream, now_ms=0) is not None
    monkeypatch.setattr(ObjectStorage, "write_file", grows)
    assert move_segments(stream, now_ms=LATER_MS) is not None
    monkeypatch.undo()
    listed = load_derived(stream.path)
    assert listed is not None and not listed.ending_with(".match")


def test_a_stream_that_is_made_again_has_nothing_of_the_one_before(
    tmp_path: Path, stream: Stream, location: str
) -> None:
    move(stream)
    shadow = resolve_stream("s", location)
    assert COLUMN_FILES.declared(shadow) is not None and column_files(shadow)
    shutil.move(stream.path, tmp_path / "deleted")
    delete_remote(Stream.open(tmp_path / "deleted"))
    again = create(tmp_path / "s", WRITTEN, remote=location)
    shutil.rmtree(derived_folder(again))
    for path in again.path.glob("*.match"):
        path.unlink()
    move(again)
    refresh_shadow(shadow.path, storage_at(str(again.remote)).location, at_once=True)
    found = Stream.open(shadow.path)
    assert found.identity == again.identity
    assert COLUMN_FILES.declared(found) is None and not any(
        segment.remote.derived for segment in found.segments() if segment.remote
    )


def test_nothing_of_a_deleted_stream_stays_where_its_list_was_lost(tmp_path: Path, stream: Stream) -> None:
    move(stream)
    (stream.path / "remote.derived").write_bytes(b"")
    delete_remote(stream)
    assert not list((tmp_path / "remote").rglob("*.*"))


def test_a_sweep_of_the_match_index_makes_no_file_for_what_is_in_object_storage(tmp_path: Path, stream: Stream) -> None:
    move(stream)
    forget_cache(tmp_path)
    MATCH_INDEX.sweep(stream, now_ms=LATER_MS)
    assert not list(tmp_path.glob("cache/*/*/*"))
