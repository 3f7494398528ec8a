"""What the tests of the server share."""

from __future__ import annotations

import pytest

from headgate import kernels


@pytest.fixture(scope="session", autouse=True)
def _compiled_kernels() -> None:
    """Compiled before the first server starts: in the thread of its loop that would take longer than clients wait."""
    for module in kernels.kernel_modules():
        kernels.load(module)
