"""Programs that are clients of Spark Connect: a process of their own, without a JVM, beside a local server."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

needs_connect = pytest.mark.skipif(
    importlib.util.find_spec("grpc_status") is None,
    reason="Spark Connect needs packages that are not installed: pip install 'pyspark[connect]'",
)


def run_client(program: str, argument: str, *, folder: Path) -> list[str]:
    """The lines that a program prints; it is run in `folder` and must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", program, argument],
        env={**os.environ, "SPARK_REMOTE": "local[2]", "PYSPARK_PYTHON": sys.executable},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()
