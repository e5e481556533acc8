"""The data source `quorate-changelog`: which reader serves which kind of query.

Source: Python data source API of Spark 4; pipeline, "What flows".
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class ChangelogDataSource(DataSource):
    """Committed transactions of a quorum."""

    @classmethod
    def name(cls) -> str:
        """Return the word that `format(…)` is given."""
        return "quorate-changelog"

    def schema(self) -> str:
        """Return the columns, as DDL."""
        return (
            "zxid BIGINT, txn_index INT, txn_size INT, term BIGINT, ts TIMESTAMP, op STRING, path STRING, "
            "before BINARY, after BINARY, version INT, session_id BIGINT, controller_epoch INT, "
            "cluster_id STRING"
        )
