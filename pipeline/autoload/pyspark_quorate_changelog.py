"""Where Spark finds `format("quorate-changelog")`: committed transactions of the quorum.

Spark looks for top-level modules named pyspark_* and takes their `DefaultSource`.
Source: Python data source API of Spark 4.
"""

from pipeline.changelog.source import ChangelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
