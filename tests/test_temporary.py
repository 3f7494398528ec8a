from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headgate.temporary import Purpose, TemporaryFolder

PREFIX = Purpose.SCANS.prefix
MAKE_AND_WAIT = """
import sys
from headgate.temporary import Purpose, TemporaryFolder
made = TemporaryFolder(Purpose.SCANS)
(made.path / "file").touch()
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_of_a_killed_process_is_removed_by_the_next_of_any_purpose_and_one_in_use_never(place: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE_AND_WAIT],
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        with TemporaryFolder(Purpose.SERVER) as mine, TemporaryFolder(Purpose.SCANS) as second:
            assert (other / "file").exists() and mine.is_dir() and second.is_dir()
        process.kill()
        process.wait()
        assert (other / "file").exists()
    TemporaryFolder(Purpose.SERVER).remove()
    assert list(place.iterdir()) == []


def test_what_is_not_a_folder_of_ours_stays_and_one_without_a_lock_goes_if_it_is_empty(place: Path) -> None:
    (place / f"{PREFIX}empty").mkdir()
    (place / f"{PREFIX}other" / "kept").mkdir(parents=True)
    (place / f"{PREFIX}file").touch()
    (place / f"{PREFIX}link").symlink_to(place / f"{PREFIX}other")
    TemporaryFolder(Purpose.SCANS).remove()
    assert sorted(path.name.removeprefix(PREFIX) for path in place.iterdir()) == ["file", "link", "other"]
