"""A pipeline: sources, Spark SQL steps, topics and sinks from a TOML file, run to the present end of its inputs.

`load` reads and checks a file without Spark; `run` starts the session, runs one query per sink and
per topic, each with its own checkpoint, and gives a report. A second run continues where the first stopped.
`sinks` has the guarantees of sinks.
"""

from headgate.spark.pipeline.configuration import Pipeline, load
from headgate.spark.pipeline.report import Failure, Report, SinkReport, TopicReport
from headgate.spark.pipeline.run import Watcher, run

__all__ = ["Failure", "Pipeline", "Report", "SinkReport", "TopicReport", "Watcher", "load", "run"]
