"""Ranges of offsets: how far a micro-batch goes, and how ranges become tasks. Pure.

A place in a log is an offset with the leader epoch under which it was seen. As the offset of a stream it is
`{"topic":{"0":[offset, leader_epoch],"id":"topic id"}}` with its keys in order, since Spark compares offsets
as text.
Source: SPARK-17346 (a limit is shared in proportion to what waits).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from pipeline.topics.options import Partition

#: {topic: {partition: [offset, leader epoch], "id": the topic's id}}
StreamOffset = dict[str, dict[str, Any]]
_ID: Final = "id"


class SeenOffset(NamedTuple):
    """An offset, and the leader epoch under which it was seen; -1 if none is known.

    Attributes:
        topic_id: of the topic, which is another one once it is recreated; "": unknown.
    """

    offset: int
    leader_epoch: int
    topic_id: str = ""


Places = Mapping[Partition, SeenOffset]


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """The records of one task: start inclusive, end exclusive.

    Attributes:
        start_epoch: the leader epoch under which the start was seen, to notice a log that
            diverged from it; -1: unknown.
    """

    topic: str
    partition: int
    start: int
    end: int
    start_epoch: int = -1


def to_stream_offset(places: Places) -> StreamOffset:
    """Write places as the offset of a stream."""
    found: StreamOffset = {}
    for partition in sorted(places):
        place = places[partition]
        found.setdefault(partition.topic, {})[str(partition.number)] = [place.offset, place.leader_epoch]
    for partition, place in places.items():
        if place.topic_id:
            found[partition.topic][_ID] = place.topic_id
    return found


def from_stream_offset(stream_offset: StreamOffset) -> dict[Partition, SeenOffset]:
    """Read what `to_stream_offset` wrote."""
    return {
        Partition(topic, int(number)): SeenOffset(place[0], place[1], places.get(_ID, ""))
        for topic, places in stream_offset.items()
        for number, place in places.items()
        if number != _ID
    }


def limited(start: Mapping[Partition, int], end: Places, rows_max: int) -> dict[Partition, SeenOffset]:
    """Shorten what waits to about `rows_max` rows, each partition in proportion to its size.

    No partition starves: one with anything waiting gives at least one row.

    Args:
        start: {partition: the next offset to read}, for each partition of `end`.
        end: where the logs end.
    """
    sizes = {partition: max(0, place.offset - start[partition]) for partition, place in end.items()}
    total = sum(sizes.values())
    if total <= rows_max:
        return dict(end)
    shares = {partition: rows_max * (size / total) for partition, size in sizes.items()}
    return {
        partition: place._replace(offset=min(place.offset, start[partition] + _whole(shares[partition])))
        if sizes[partition]
        else place
        for partition, place in end.items()
    }


def _whole(share: float) -> int:
    return math.ceil(share) if share < 1 else math.floor(share)


def split(ranges: Sequence[OffsetRange], partitions_min: int | None) -> list[OffsetRange]:
    """Cut the larger ranges into about equal pieces, until there are at least `partitions_min`."""
    total = sum(found.end - found.start for found in ranges)
    if partitions_min is None or len(ranges) >= partitions_min or total == 0:
        return list(ranges)
    pieces: list[OffsetRange] = []
    for found in ranges:
        size = found.end - found.start
        count = min(size, math.ceil(partitions_min * size / total))
        cuts = [found.start + size * number // count for number in range(count + 1)]
        pieces += [
            replace(
                found, start=start, end=end, start_epoch=found.start_epoch if start == found.start else -1
            )
            for start, end in itertools.pairwise(cuts)
        ]
    return pieces
