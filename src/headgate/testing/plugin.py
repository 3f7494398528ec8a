"""The fixture `headgate_server` for pytest, which loads this module by its entry point.

Every run of pytest in an environment with Headgate imports this, so it imports nothing else until the fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headgate.testing import HeadgateServer

_MARKER = "headgate_entities"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(*files, **tables): entities of `headgate_server`: files of its configuration (.toml) or of the "
        "Service Bus emulator (.json) beside the test, and tables such as queue=[{'name': 'jobs'}]",
    )


@pytest.fixture
def headgate_server(request: pytest.FixtureRequest) -> Iterator[HeadgateServer]:
    """A server for this test alone, with the entities that the markers of test, class and module name."""
    from headgate.testing import running_server

    entities = [
        given
        for marker in request.node.iter_markers(_MARKER)
        for given in (*(Path(request.path.parent, file) for file in marker.args), marker.kwargs)
    ]
    with running_server(*entities) as server:
        yield server
