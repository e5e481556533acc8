"""The data source `quorate`: which reader or writer serves which kind of query.

Spark asks for the columns first, before it says whether the query is a batch or a stream.
Source: Python data source API of Spark 4; the row schema is that of Spark's Kafka connector.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pipeline.topics.batch import TopicBatchReader
from pipeline.topics.options import Query, read_options
from pipeline.topics.rows import columns
from pipeline.topics.stream import TopicStreamReader


class TopicsDataSource(DataSource):
    """Topics of a cluster."""

    @classmethod
    def name(cls) -> str:
        """Return the word that `format(…)` is given."""
        return "quorate"

    def schema(self) -> str:
        """Return the columns, as DDL.

        Raises:
            OptionError: an option of the read cannot be taken.
        """
        return columns(include_headers=read_options(self.options, Query.UNKNOWN).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        return TopicBatchReader(read_options(self.options, Query.BATCH), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        return TopicStreamReader(read_options(self.options, Query.STREAM), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what appends the rows of a batch query."""
        from pipeline.sink.writer import TopicBatchWriter  # noqa: PLC0415 - readers need none of it

        return TopicBatchWriter(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return what appends the rows of a stream."""
        from pipeline.sink.writer import TopicStreamWriter  # noqa: PLC0415 - readers need none of it

        return TopicStreamWriter(self.options, schema, overwrite)
