"""A cache of remote segments for each test, whose blocks are so small that a segment has many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.log.remote import cache, partial_file


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(partial_file, "BLOCK_BYTES", 1024)
    cache.cache_folder.cache_clear()
    yield cache.cache_folder()
    cache.cache_folder.cache_clear()
