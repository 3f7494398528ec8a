"""Headgate in Spark: streams as a data source and sink, and copies between streams that never enter the JVM.

Hides how partitions are planned (stage 1), read (stage 2) and staged, the exactly-once commit, where Java comes from,
and what a session has to be told. `session()` makes a session, `register` adds to one; from then on there is
`spark.read.format("headgate")`. Options are in `options`, columns in `schema`. Nothing else here imports pyspark.
"""

from headgate.spark.copy import CopyResult, copy_stream
from headgate.spark.counters import counters, forget_counters
from headgate.spark.options import SinkOptions, SourceOptions
from headgate.spark.schema import stream_schema
from headgate.spark.session import register, session

__all__ = [
    "CopyResult",
    "SinkOptions",
    "SourceOptions",
    "copy_stream",
    "counters",
    "forget_counters",
    "register",
    "session",
    "stream_schema",
]
