"""A Spark driver for the tests of sinks: runs the pipeline of a JSON file once; killed by them in the middle of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headgate.spark.pipeline import run
from headgate.spark.pipeline.configuration import check

if __name__ == "__main__":
    run(check(json.loads(Path(sys.argv[1]).read_text())))
