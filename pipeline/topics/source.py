"""The data source `quorate`: which reader or writer serves which kind of query.

Source: Python data source API of Spark 4; the row schema is that of Spark's Kafka connector.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class TopicsDataSource(DataSource):
    """Topics of a cluster."""

    @classmethod
    def name(cls) -> str:
        """Return the word that `format(…)` is given."""
        return "quorate"

    def schema(self) -> str:
        """Return the columns, as DDL."""
        return (
            "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
            "timestampType INT, leaderEpoch INT"
        )
