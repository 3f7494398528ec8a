"""A filter over the rows of any DataFrame: as a Column, and as the function `headgate_match` of SQL.

Hides how the fields of a filter find their columns (`layout`), how the needed cells become AMQP messages for the only
evaluator (`rows`), and which part of a filter Catalyst can decide beforehand (`prefilter`). A row gets the verdict of
the message that the sink would make of it.

Rows of column files get the verdict of the message they were made from: `decided`, `matching`.
"""

from headgate.spark.columns.column import column
from headgate.spark.columns.decided import decided, matching
from headgate.spark.columns.match import register_match

__all__ = ["column", "decided", "matching", "register_match"]
