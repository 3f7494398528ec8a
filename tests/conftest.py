"""What several folders of tests share: the real stream folders, unpacked once per run."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def rabbitmq_streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds `__customer-events_…` and `__regional-events_…` as RabbitMQ wrote them. Do not change it."""
    folder = tmp_path_factory.mktemp("rabbitmq-streams")
    with tarfile.open(DATA / "rabbitmq-streams.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def copy_of_stream(rabbitmq_streams: Path, tmp_path: Path) -> Path:
    """A copy of the regional-events folder, to be changed."""
    source = next(rabbitmq_streams.glob("__regional-events_*"))
    return Path(shutil.copytree(source, tmp_path / source.name))
