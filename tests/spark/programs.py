"""Programs of users: a process of their own, which shares nothing with the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_program(program: str, argument: str, *, folder: Path, **environment: str) -> list[str]:
    """The lines that a program prints; it is run in `folder` and must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", program, argument],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()
