"""Topics as a stream: where it starts, how far each micro-batch goes, and what was lost meanwhile.

The offset of a partition carries the leader epoch under which it was seen, and that of a topic its id. A log
that ends before an offset that was read is data loss, as are a topic that was recreated, records that
retention removed, and partitions that vanished. Hard state is Spark's checkpoint alone.
Source: Python data source API of Spark 4; the rules of Spark's Kafka connector for streams.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pipeline.topics.bounds import resolve
from pipeline.topics.cluster import Cluster
from pipeline.topics.committing import commit_offsets
from pipeline.topics.options import Partition, TopicOptions
from pipeline.topics.ranges import (
    OffsetRange,
    SeenOffset,
    StreamOffset,
    from_stream_offset,
    limited,
    split,
    to_stream_offset,
)
from pipeline.topics.reading import RangeReader, report_loss
from pipeline.topics.rows import arrow_columns
from pipeline.topics.sampling import row_bytes


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what topics hold and what is appended to them."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        """Keep what to read; connects to nothing, as Spark copies readers to its workers."""
        self._options = options
        self._columns = arrow_columns(schema)
        #: Where the logs ended at the last look.
        self._newest: dict[Partition, SeenOffset] = {}
        #: Where a query that reads what is available ends.
        self._target: dict[Partition, SeenOffset] | None = None

    @functools.cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._options.client)

    def __getstate__(self) -> dict[str, object]:
        """Leave the connection behind; only the driver asks the cluster."""
        return {name: value for name, value in vars(self).items() if name != "_cluster"}

    def initialOffset(self) -> StreamOffset:  # noqa: N802 - Spark's name
        """Resolve where a new query starts."""
        partitions = self._cluster.partitions(self._options.selection)
        ids = self._cluster.topic_ids(partitions)
        places = resolve(self._cluster, self._options.start, partitions, self._options)
        return to_stream_offset(_identified(places, ids))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return one limit of a micro-batch; Spark takes no more, so `latestOffset` applies both."""
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix where the query ends."""
        self._target = self._look()

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802 - Spark's name
        """Decide where the next micro-batch ends.

        Args:
            start: where it starts.
            limit: ReadAllAvailable lifts the limits of the options.
        """
        begin = from_stream_offset(start)
        end = self._target if self._target is not None else self._look()
        self._check_gone(begin, end)
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(begin, end)
        # A leader change alone makes no micro-batch.
        return to_stream_offset(
            {
                partition: begin[partition] if _is_unchanged(begin.get(partition), place) else place
                for partition, place in end.items()
            }
        )

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802 - Spark's name
        """Return where the logs ended at the last look, so that progress shows the lag."""
        return to_stream_offset(self._newest) if self._newest else None

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """Plan a micro-batch; the same offsets give the same ranges, as long as the records are there."""
        ends = from_stream_offset(end)
        existing = self._existing(ends)
        begin = from_stream_offset(start)
        starts = self._starts(begin, ends, existing)
        fresh = {each for each in starts if _is_fresh(begin.get(each), ends[each])}
        waiting = [partition for partition in starts if starts[partition] < ends[partition].offset]
        log_ends, log_starts = self._cluster.ends(waiting), self._cluster.begins(waiting)
        ranges = []
        for partition in waiting:
            first, last = starts[partition], ends[partition].offset
            here, there = max(first, log_starts[partition].offset), min(last, log_ends[partition].offset)
            if (here, there) != (first, last):
                kept = f"the log has {log_starts[partition].offset} to {log_ends[partition].offset}"
                self._lose(f"{_name(partition)}: offsets {first} to {last} were to be read, {kept}")
            if here < there:
                epoch = begin[partition].leader_epoch if here == first and partition not in fresh else -1
                ranges.append(OffsetRange(*partition, here, there, epoch))
        return split(ranges, self._options.partitions_min) or [OffsetRange("", 0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        assert isinstance(partition, OffsetRange)
        return iter(RangeReader(self._options, partition, self._columns))

    def commit(self, end: StreamOffset) -> None:
        """Let the group of the options show how far the stream is."""
        if self._options.commit_group is not None:
            offsets = {partition: place.offset for partition, place in from_stream_offset(end).items()}
            commit_offsets(self._options.client, self._options.commit_group, offsets)

    def _look(self) -> dict[Partition, SeenOffset]:
        partitions = self._cluster.partitions(self._options.selection)
        # Ids first: so a topic that is recreated meanwhile is noticed, if not in this round.
        ids = self._cluster.topic_ids(partitions)
        self._newest = _identified(self._cluster.ends(partitions), ids)
        return self._newest

    def _existing(self, ends: Mapping[Partition, SeenOffset]) -> set[Partition]:
        """Return the partitions that exist, without those of topics that were recreated since."""
        partitions = self._cluster.partitions(self._options.selection)
        ids = self._cluster.topic_ids(partitions)
        return {
            partition
            for partition in partitions
            if partition in ends and ends[partition].topic_id in ("", ids.get(partition.topic))
        }

    def _lose(self, problem: str) -> None:
        report_loss(problem, fail=self._options.fail_on_data_loss)

    def _check_gone(self, begin: Mapping[Partition, SeenOffset], end: Mapping[Partition, SeenOffset]) -> None:
        for partition, place in sorted(begin.items()):
            now = end.get(partition)
            if now is None:
                self._lose(f"{_name(partition)} does not exist any more")
            elif _is_other(place, now):
                self._lose(f"{_name(partition)} is not what was read: the topic was recreated")
            elif now.leader_epoch < place.leader_epoch:
                epochs = f"from {place.leader_epoch} to {now.leader_epoch}"
                self._lose(f"{_name(partition)}: its leader epoch went back {epochs}")
            elif now.offset < place.offset:
                self._lose(f"{_name(partition)}: its end went back from {place.offset} to {now.offset}")

    def _starts(
        self,
        begin: Mapping[Partition, SeenOffset],
        end: Mapping[Partition, SeenOffset],
        existing: set[Partition],
    ) -> dict[Partition, int]:
        """Where each partition is read from: a new or recreated one from its first record."""
        known = [partition for partition in end if partition in existing]
        fresh = [partition for partition in known if _is_fresh(begin.get(partition), end[partition])]
        firsts = self._cluster.begins(fresh)
        for partition in end:
            if partition not in existing:
                self._lose(f"{_name(partition)} does not exist any more")
        return {
            partition: firsts[partition].offset if partition in firsts else begin[partition].offset
            for partition in known
        }

    def _limited(
        self, begin: Mapping[Partition, SeenOffset], end: Mapping[Partition, SeenOffset]
    ) -> dict[Partition, SeenOffset]:
        starts = self._starts(begin, end, set(end))
        found = dict(end)
        if self._options.offsets_per_trigger_max is not None:
            found = limited(starts, found, self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            rows_max = self._options.bytes_per_trigger_max // row_bytes(self._options, starts, found)
            found = limited(starts, found, max(1, rows_max))
        return found


def _identified(
    places: Mapping[Partition, SeenOffset], ids: Mapping[str, str]
) -> dict[Partition, SeenOffset]:
    return {
        partition: place._replace(topic_id=ids.get(partition.topic, ""))
        for partition, place in places.items()
    }


def _is_other(begin: SeenOffset, end: SeenOffset) -> bool:
    """Whether the places are known to be in different topics."""
    return bool(begin.topic_id and end.topic_id) and begin.topic_id != end.topic_id


def _is_fresh(begin: SeenOffset | None, end: SeenOffset) -> bool:
    return begin is None or _is_other(begin, end) or end.leader_epoch < begin.leader_epoch


def _is_unchanged(begin: SeenOffset | None, end: SeenOffset) -> bool:
    return begin is not None and begin.offset == end.offset and not _is_fresh(begin, end)


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.number}"
