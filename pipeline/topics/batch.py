"""A batch read of topics: which offsets, and one task for each range.

The driver resolves everything, so that an option which cannot be taken is an error before any task runs.
Source: Python data source API of Spark 4; the rules of Spark's Kafka connector for batch queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.topics.bounds import resolve
from pipeline.topics.cluster import Cluster
from pipeline.topics.options import TopicOptions
from pipeline.topics.ranges import OffsetRange, split
from pipeline.topics.reading import RangeReader
from pipeline.topics.rows import arrow_columns


class TopicBatchReader(DataSourceReader):
    """Reads what topics hold between two bounds."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        """Keep what to read; connects to nothing, as Spark copies readers to its workers."""
        self._options = options
        self._columns = arrow_columns(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve the bounds; returns at least one range."""
        options = self._options
        cluster = Cluster(options.client)
        partitions = cluster.partitions(options.selection)
        starts = resolve(cluster, options.start, partitions, options)
        ends = resolve(cluster, options.end, partitions, options)
        ranges = []
        for partition in partitions:
            start, end = starts[partition].offset, ends[partition].offset
            if start > end:
                problem = f"{partition.topic}-{partition.number} would end at {end}, before its start {start}"
                raise options.end.error(problem, "let it end later, or begin earlier")
            if start < end:
                ranges.append(OffsetRange(*partition, start, end))
        return split(ranges, options.partitions_min) or [OffsetRange("", 0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        assert isinstance(partition, OffsetRange)
        return iter(RangeReader(self._options, partition, self._columns))
