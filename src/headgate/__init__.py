"""Headgate: a Spark data pipeline whose storage is a broker's log, with broker-grade message filters.

Importing the package is cheap: numpy, pyarrow, numba and pyspark are imported where they are used.
"""

from __future__ import annotations

__version__ = "0.1.0"
