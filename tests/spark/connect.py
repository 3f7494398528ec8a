"""Programs that are clients of Spark Connect, without a JVM; the server is the session of the tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from .programs import run_program

needs_connect = pytest.mark.skipif(
    importlib.util.find_spec("grpc_status") is None,
    reason="Spark Connect needs packages that are not installed: pip install 'pyspark[connect]'",
)


def run_client(program: str, argument: str, *, address: str, folder: Path) -> list[str]:
    """The lines that a program prints; it is run in `folder` and must succeed."""
    return run_program(program, argument, folder=folder, SPARK_REMOTE=address)
