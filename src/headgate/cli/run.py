"""`headgate run`: a pipeline on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def run(pipeline: Annotated[Path, Parameter(help="The pipeline, a TOML file.")], /) -> int:
    """Run a pipeline: progress while it runs, at the end what each stage examined, skipped and kept.

    A second run continues where the first stopped.
    """
    from headgate.spark.pipeline import run as run_pipeline

    run_pipeline(pipeline)
    return 0
