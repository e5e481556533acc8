"""The columns of a topic's rows: those of Spark's Kafka connector, and the leader epoch.

Source: Structured Streaming + Kafka Integration Guide, "schema".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_FIRST: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT"
)
_HEADERS: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_LAST: Final = "leaderEpoch INT"


def columns(*, include_headers: bool) -> str:
    """Return the columns as DDL."""
    return ", ".join([_FIRST, *([_HEADERS] if include_headers else []), _LAST])


def arrow_columns(schema: StructType) -> pa.Schema:
    """Return the columns as Spark expects them in batches."""
    return to_arrow_schema(schema, timezone="UTC")
