"""How large rows are, by a look at some of them: an offset says nothing about bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from pipeline.topics.options import Partition, TopicOptions
from pipeline.topics.ranges import OffsetRange, SeenOffset
from pipeline.topics.reading import RangeReader

#: How many rows of a partition, and how many partitions, are looked at.
ROWS_MAX: Final = 20
PARTITIONS_MAX: Final = 10
_SAMPLED: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def row_bytes(
    options: TopicOptions, start: Mapping[Partition, int], end: Mapping[Partition, SeenOffset]
) -> int:
    """Estimate the bytes of keys and values of a row, at least 1.

    Args:
        options: of the stream.
        start: {partition: the next offset to read}
        end: where the logs end.
    """
    rows = total_bytes = 0
    waiting = sorted(end, key=lambda partition: start[partition] - end[partition].offset)
    for partition in waiting[:PARTITIONS_MAX]:
        offsets = OffsetRange(
            *partition, start[partition], min(end[partition].offset, start[partition] + ROWS_MAX)
        )
        for batch in RangeReader(options, offsets, _SAMPLED):
            rows += batch.num_rows
            total_bytes += sum(len(cell) for column in batch.to_pydict().values() for cell in column if cell)
    return max(1, total_bytes // max(1, rows))
