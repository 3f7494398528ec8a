"""`headgate stream` for streams whose segments lie in object storage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Run


def test_information_shows_where_and_when_segments_go_and_counts_bytes_as_the_list_does(
    run: Run, tmp_path: Path, remote_cache: Path
) -> None:
    remote = f"file://{tmp_path}/remote"
    run("stream", "create", "orders", "--remote", remote, "--max-segment-size", "1000")
    for _ in range(4):
        run("publish", "orders", stdin=json.dumps({"body": "x" * 900}))
    run("stream", "move", "orders")
    run("stream", "change", "orders", "--remote-after", "2h", "--local-bytes", "10MB")
    [info], [row] = run("stream", "info", "orders", "--json").json, run("stream", "ls", "--json").json
    assert info["arguments"] == {
        "stream-max-segment-size-bytes": 1000,
        "headgate-remote": remote,
        "headgate-remote-after": "7200s",
        "headgate-local-bytes": 10_000_000,
    }
    assert "argument headgate-remote-after" in run("stream", "info", "orders").out
    assert row.items() - {("kind", "own")} <= info.items()
    assert (info["messages"], info["chunks"]) == (4, None)


def test_a_changed_limit_holds_at_once_in_object_storage_or_the_command_says_when(
    run: Run, tmp_path: Path, remote_cache: Path
) -> None:
    remote = tmp_path / "remote"
    run("stream", "create", "orders", "--remote", f"file://{remote}", "--max-segment-size", "500")
    for _ in range(6):
        run("publish", "orders", stdin=json.dumps({"body": "x" * 900}))
    assert run("stream", "move", "orders", "--json").json[0]["moved_segments"] == 5
    remote.rename(tmp_path / "away")
    remote.write_text("not a folder")
    failed = run("stream", "change", "orders", "--max-length", "4kB")
    assert failed.status == 0 and "in object storage goes with the next move: file://" in failed.err
    assert run("stream", "info", "orders", "--json").json[0]["first_offset"] == 0
    remote.unlink()
    (tmp_path / "away").rename(remote)
    changed = run("stream", "change", "orders", "--max-length", "3kB")
    assert (changed.status, changed.err) == (0, "")
    assert run("stream", "info", "orders", "--json").json[0]["first_offset"] == 3
    assert sorted(path.name for path in remote.rglob("*.segment")) == [f"{first:020d}.segment" for first in (3, 4)]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("topic ls", "no topics under {}\n"),
        ("consumer ls", "no consumer stored an offset under {}\n"),
        ("user ls", "headgate: {}: a root in object storage is only read"),
        ("user add john", "headgate: {}: a root in object storage is only read"),
        ("key ls", "headgate: {}: a root in object storage is only read"),
        ("backup copy", "headgate: {}: a root in object storage is only read"),
        ("publish orders", "headgate: {}/orders: no stream 'orders'; headgate stream ls --root {} lists"),
    ],
)
def test_a_root_in_object_storage_keeps_its_slashes_and_makes_no_folder_here(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote_cache: Path, command: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    root = f"file://{tmp_path}/remote"
    shown = run(*command.split(), "--root", root, stdin="secret")
    assert shown.err.startswith(expected.format(root, root))
    assert not (tmp_path / "file:").exists()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("create new --remote-after 1h", "headgate: --remote-after is given without --remote, the place"),
        ("change orders --local-bytes 1GB", "headgate: orders: --local-bytes is given without --remote, the place"),
        ("create new --remote prefix", "headgate: --remote: remote is 'prefix'; expected a URI"),
        (
            "change orders --remote gopher://x",
            "headgate: --remote: orders: remote is no place that can be used: gopher",
        ),
        ("archive {foreign} --to gopher://x", "headgate: --to: remote is no place that can be used: gopher"),
        ("ls --root gopher://x", "headgate: gopher://x: Unrecognized"),
    ],
)
def test_errors_about_places_name_the_option(
    run: Run, tmp_path: Path, copy_of_stream: Path, command: str, expected: str
) -> None:
    run("stream", "create", "orders")
    shown = run("stream", *command.format(foreign=copy_of_stream).split())
    assert (shown.status, shown.err[: len(expected)]) == (2, expected)
    assert "_ms" not in shown.err and "_bytes" not in shown.err


def test_objects_that_a_deletion_could_not_reach_are_deleted_by_the_next_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "cache"))
    remote, away = tmp_path / "remote", tmp_path / "away"
    for name in ("one", "two"):
        run("stream", "create", name, "--remote", f"file://{remote}", "--max-segment-size", "1000")
        for _ in range(4):
            run("publish", name, stdin=json.dumps({"body": "x" * 900}))
        moved = run("stream", "move", name, "--json")
        assert moved.status == 0 and moved.json[0]["moved_segments"] > 0, moved.err
    assert run("stream", "ls", "--root", remote).err.endswith(f"--root file://{remote} reads them\n")
    remote.rename(away)
    remote.write_text("not a folder")
    failed = run("stream", "rm", "one")
    assert failed.status == 1 and "The stream is deleted, but not all of its objects" in failed.err
    remote.unlink()
    away.rename(remote)
    assert run("stream", "rm", "two").status == 0
    assert not [path for path in remote.rglob("*") if path.is_file()]
    assert run("stream", "ls", "--root", f"file://{remote}").err.startswith(f"no streams at file://{remote}")
