"""Headgate in Spark: streams as a data source and sink, and copies between streams that never enter the JVM.

Hides how partitions are planned (stage 1), read (stage 2) and staged, the exactly-once commit, where Java comes from,
and the settings of a session. `session()` makes a session, `register` adds to one; both give it
`spark.read.format("headgate")`, and `headgate_match` in SQL. `column` makes a filter a Column of any DataFrame,
`last_scan` has the counts of a read. `read` and `create_view` take sealed segments from their column files.
`copy_stream`, `build_match_index`, `build_column_files` and `back_test` are jobs of their own; pipelines are in
`headgate.spark.pipeline`. `report_to` shows the streaming queries of a session in the console of a server. Options are
declared in `option_declarations`, columns of a stream in `schema`. No other package imports pyspark.
"""

import importlib.util
from typing import TYPE_CHECKING

from headgate.errors import SparkSetupError, how_to_install

if importlib.util.find_spec("pyspark") is None:
    raise SparkSetupError(f"this needs the package pyspark, which is not installed: {how_to_install('spark')}")

from headgate.spark.columns import column
from headgate.spark.copy import copy_stream
from headgate.spark.counters import counters, forget_counters
from headgate.spark.options import SinkOptions, SourceOptions
from headgate.spark.scans import LastScan, last_scan
from headgate.spark.schema import stream_schema
from headgate.spark.session import register, session
from headgate.spark.transfer import TransferResult

if TYPE_CHECKING:
    from headgate.spark.backtest import back_test
    from headgate.spark.derived import build_column_files, build_match_index
    from headgate.spark.option_declarations import time_ms
    from headgate.spark.reporting import PipelineReporter, report_to
    from headgate.spark.source import HeadgateSource
    from headgate.spark.table import create_view, read
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
