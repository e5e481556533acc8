"""The data source `quorate-changelog`: which reader serves which kind of query.

Source: Python data source API of Spark 4; docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.changelog.options import ENDING_ZXID, ChangelogOptions, read_options
from pipeline.changelog.ranges import ZxidRange, batch_partitions, read_range
from pipeline.changelog.rows import SCHEMA
from pipeline.changelog.stream import ChangelogStreamReader
from pipeline.errors import OptionError


class ChangelogDataSource(DataSource):
    """Committed transactions of a quorum."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Check the options.

        Raises:
            OptionError: one cannot be taken.
        """
        super().__init__(options)
        self._options = read_options(dict(options))

    @classmethod
    def name(cls) -> str:
        """Return the word that `format(…)` is given."""
        return "quorate-changelog"

    def schema(self) -> str:
        """Return the columns, as DDL."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark names it
        """Return the reader of a batch query."""
        return ChangelogReader(self._options)

    def streamReader(self, schema: StructType) -> ChangelogStreamReader:  # noqa: ARG002, N802 - Spark's names
        """Return the reader of a streaming query.

        Raises:
            OptionError: endingZxid is given.
        """
        ending = self._options.ending_zxid
        if ending is not None:
            raise OptionError(ENDING_ZXID, ending, "a stream has no end", "leave it out, or read a batch")
        return ChangelogStreamReader(self._options)


class ChangelogReader(DataSourceReader):
    """Reads what is committed when the query begins."""

    def __init__(self, options: ChangelogOptions) -> None:
        """Keep the options; Spark copies the reader to its workers."""
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return ranges of zxids; errors are those of `batch_partitions`."""
        return batch_partitions(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        assert isinstance(partition, ZxidRange)
        return read_range(self._options, partition)
