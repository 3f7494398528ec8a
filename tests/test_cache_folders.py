"""Where caches lie."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from headgate.cache_folders import CACHE_VARIABLE, cache_folders


def test_a_user_without_a_home_has_a_cache_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user has a number only."""

    def unknown(_: int) -> None:
        raise KeyError

    for name in (CACHE_VARIABLE, "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert list(cache_folders(CACHE_VARIABLE)) == [tmp_path / f"headgate-cache-{os.getuid()}"]
