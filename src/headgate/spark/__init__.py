"""Headgate in Spark: streams as a data source and sink, and copies between streams that never enter the JVM.

Hides how partitions are planned (stage 1), read (stage 2) and staged, the exactly-once commit, where Java comes from,
and what a session has to be told. `session()` makes a session, `register` adds to one; from then on there is
`spark.read.format("headgate")`, and `headgate_match` in SQL. `column` makes a filter a Column of any DataFrame,
`last_scan` tells what a read did. Options are declared in `declarations`, columns of a stream in `schema`. No other
package imports pyspark.
"""

from headgate.spark.columns import column
from headgate.spark.copy import copy_stream
from headgate.spark.counters import counters, forget_counters
from headgate.spark.options import SinkOptions, SourceOptions
from headgate.spark.scans import LastScan, last_scan
from headgate.spark.schema import stream_schema
from headgate.spark.session import register, session
from headgate.spark.transfer import TransferResult

__all__ = [
    "LastScan",
    "SinkOptions",
    "SourceOptions",
    "TransferResult",
    "column",
    "copy_stream",
    "counters",
    "forget_counters",
    "last_scan",
    "register",
    "session",
    "stream_schema",
]
