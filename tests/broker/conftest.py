from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import SetClock, open_broker
from headgate.broker.broker import Broker


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def broker(tmp_path: Path, clock: SetClock) -> Iterator[Broker]:
    opened = open_broker(tmp_path, clock=clock)
    yield opened
    opened.close()
