"""Offsets for the bounds of a query: earliest, latest, an offset or a time for each partition.

An offset that the log does not have is an error that names the option; with failOnDataLoss off the nearest
one is taken. Knows nothing of readers.
Source: the rules of Spark's Kafka connector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.topics.cluster import Cluster
from pipeline.topics.options import EARLIEST, LATEST, Bound, Partition, TopicOptions
from pipeline.topics.ranges import SeenOffset

#: How many partitions an error names.
NAMES_MAX: Final = 5


def resolve(
    cluster: Cluster, bound: Bound, partitions: Sequence[Partition], options: TopicOptions
) -> dict[Partition, SeenOffset]:
    """Find the offset of each partition at which a query begins or ends.

    Args:
        cluster: the brokers.
        bound: the start or the end of `options`.
        partitions: those that are read.
        options: whether a time without a record and a lost record are errors.
    """
    if bound.everywhere is None:
        _check_partitions(bound, partitions)
    ends = cluster.ends(partitions)
    if bound.by_time:
        must_exist = bound is options.start and not options.latest_if_no_match
        return _at_times(cluster, bound, ends, must_exist=must_exist)
    begins, fail = cluster.begins(partitions), options.fail_on_data_loss
    return {
        partition: _within(bound, partition, begins[partition].offset, ends[partition], fail=fail)
        for partition in partitions
    }


def _check_partitions(bound: Bound, partitions: Sequence[Partition]) -> None:
    missing, unknown = set(partitions) - set(bound.each), set(bound.each) - set(partitions)
    for wrong, problem in ((missing, "leaves out"), (unknown, "names what is not read:")):
        if wrong:
            names = ", ".join(f"{topic}-{number}" for topic, number in sorted(wrong)[:NAMES_MAX])
            raise bound.error(f"it {problem} {names}", "name each partition that is read, and no other")


def _within(bound: Bound, partition: Partition, begin: int, end: SeenOffset, *, fail: bool) -> SeenOffset:
    offset = {EARLIEST: begin, LATEST: end.offset}.get(bound.of(partition), bound.of(partition))
    nearest = max(begin, min(offset, end.offset))
    if nearest != offset and fail:
        problem = f"{partition.topic}-{partition.number} has offsets {begin} to {end.offset}, not {offset}"
        raise bound.error(problem, "name one of these; failOnDataLoss = false takes the nearest")
    return SeenOffset(nearest, end.leader_epoch)


def _at_times(
    cluster: Cluster, bound: Bound, ends: Mapping[Partition, SeenOffset], *, must_exist: bool
) -> dict[Partition, SeenOffset]:
    """Find the first record of each partition that is not older."""
    found = cluster.at_times({partition: bound.of(partition) for partition in ends})
    places = {}
    for partition, end in ends.items():
        offset = found[partition].offset
        if offset < 0 and must_exist:
            problem = f"{partition.topic}-{partition.number} has no record from {bound.of(partition)} ms on"
            remedy = "name an earlier time; startingOffsetsByTimestampStrategy = latest begins at the end"
            raise bound.error(problem, remedy)
        places[partition] = SeenOffset(offset, end.leader_epoch) if offset >= 0 else end
    return places
