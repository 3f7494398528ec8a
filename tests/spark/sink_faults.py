"""Pipelines whose sinks are cut off in the middle of a batch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.errors import PipelineError
from headgate.log.crash_points import VARIABLE, CommitStep
from headgate.spark.pipeline import run
from headgate.spark.pipeline.configuration import check

COUNT = 600
DRIVER = Path(__file__).with_name("sink_driver.py")
EXPECTED = [(n, ("AMER", "EMEA", "APJ")[n % 3]) for n in range(COUNT)]


def pipeline(folder: Path, *sinks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A pipeline of these sinks over the numbers and regions of stream `in`, in batches of two hundred messages."""
    return {
        "name": "sinks",
        "root": str(folder / "root"),
        "source": [
            {
                "name": "orders",
                "stream": "in",
                "properties": "number long, region string",
                "options": {"max_messages_per_batch": 200, "partitions": 1},
            }
        ],
        "step": [
            {
                "name": "lines",
                "inputs": ["orders"],
                "sql": "SELECT application_properties.number AS number, application_properties.region AS region"
                " FROM orders",
            }
        ],
        "sink": [{"input": "lines", **sink} for sink in sinks],
        **more,
    }


@contextlib.contextmanager
def driving(content: dict[str, Any], folder: Path, crash_at: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that runs a pipeline; leader of a process group that its JVM belongs to."""
    (folder / "pipeline.json").write_text(json.dumps(content))
    with (
        (folder / "errors").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, str(DRIVER), str(folder / "pipeline.json")],
            env={**os.environ, VARIABLE: crash_at},
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        ) as driver,
    ):
        yield driver


def kill_at(step: str, content: dict[str, Any], folder: Path) -> None:
    """Run a pipeline in a process of its own that dies at a step as `kill -9` would end it."""
    with driving(content, folder, step) as driver:
        assert driver.wait(timeout=900) == -signal.SIGKILL, (folder / "errors").read_text()


def kill_when(happened: Callable[[], bool], content: dict[str, Any], folder: Path) -> None:
    """Run a pipeline in a process of its own, and kill it with its JVM as soon as something has happened."""
    with driving(content, folder) as driver:
        deadline = time.monotonic() + 900
        while not happened() and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(timeout=0.002)
                break
        assert driver.poll() is None, (folder / "errors").read_text()
        os.killpg(driver.pid, signal.SIGKILL)


class CutOffError(Exception):
    """Ends a batch at a step; sinks tidy nothing up behind it."""


class Faults:
    """Runs pipelines that are cut off at a step of a batch, which `foreachBatch` reaches in the driver."""

    def __init__(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, kills: bool) -> None:
        self._spark = spark
        self._monkeypatch = monkeypatch
        self.kills = kills

    def die_at(self, where: str, content: dict[str, Any], folder: Path, sink: ModuleType) -> None:
        """Die at `<step>:<n>`, in a process of its own or, with the same left behind, by an exception in this one."""
        if self.kills:
            kill_at(where, content, folder)
            return
        wanted, _, number = where.partition(":")
        steps: Counter[str] = Counter()

        def reached(step: CommitStep) -> None:
            steps[step] += 1
            if step == wanted and steps[step] == int(number):
                raise CutOffError

        with self._monkeypatch.context() as patched:
            patched.setattr(sink, "reached", reached)
            with pytest.raises(PipelineError, match="CutOffError"):
                self.run(content)

    def run(self, content: dict[str, Any]) -> None:
        run(check(content), spark=self._spark)
