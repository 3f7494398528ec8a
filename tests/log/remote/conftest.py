"""A cache of remote segments for each test, whose blocks are so small that a segment has many."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.log.remote import partial_file


@pytest.fixture(autouse=True)
def own_cache(remote_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(partial_file, "BLOCK_BYTES", 1024)
    return remote_cache
