"""Files as the whole of Headgate writes them: which of them wait for the device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.log.files import remove_file, replace_file, sync_file, unflushed


def test_only_the_named_folder_goes_unflushed_and_only_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    inside, beside = tmp_path / "root" / "streams", tmp_path / "root-of-another"
    for folder in (inside, beside):
        folder.mkdir(parents=True)

    def write(folder: Path) -> int:
        flushed.clear()
        replace_file(folder / "file", b"x")
        sync_file(folder / "file")
        remove_file(folder / "file")
        assert all(path.startswith(str(folder)) for path in flushed)
        return len(flushed)

    monkeypatch.chdir(tmp_path)
    with unflushed(Path("root")), unflushed(Path("root")):
        assert (write(inside), write(beside)) == (0, 4)
    assert (write(inside), write(beside)) == (4, 4)
