"""Where Spark finds `format("quorate")`: topics, read and written.

Spark looks for top-level modules named pyspark_* and takes their `DefaultSource`.
Source: Python data source API of Spark 4.
"""

from pipeline.topics.source import TopicsDataSource as DefaultSource

__all__ = ["DefaultSource"]
