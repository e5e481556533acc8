"""The change log as a stream: offsets, and how much one micro-batch takes.

An offset is the last zxid that was read, {"zxid": 41}; the first one of a stream that begins with the tree
says so as well, {"bootstrap": true, "zxid": 41}, and so pins the tree that is read however often the batch is
repeated. A batch ends with a whole transaction, because a zxid is one. Keeps the bound that a query with
the trigger AvailableNow ends at, and the end of the history as it was seen last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pipeline.changelog.options import ChangelogOptions
from pipeline.changelog.ranges import StartPoint, ZxidRange, check_start, read_range, split, starting_point
from pipeline.changelog.reading import PAGE_BYTES_MAX, PATIENCE_S, ChangelogClient, HistoryLostError

Offset = dict[str, object]
_ZXID = "zxid"
_BOOTSTRAP = "bootstrap"


class ChangelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads transactions as they are committed."""

    def __init__(self, options: ChangelogOptions) -> None:
        """Keep the options; Spark copies the reader to its workers."""
        self._options = options
        #: the last zxid that an AvailableNow query reads
        self._target: int | None = None
        #: the newest zxid when Spark asked last
        self._last: int | None = None

    def _client(self) -> ChangelogClient:
        return ChangelogClient(self._options.nodes, self._options.token, self._options.tls)

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark names it
        """Return where a query without a checkpoint begins."""
        client = self._client()
        start = starting_point(self._options, client, client.extent())
        offset: Offset = {_ZXID: start.from_zxid - 1}
        return {_BOOTSTRAP: True, **offset} if start.bootstrap else offset

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark names it
        """Return where the next micro-batch ends.

        Args:
            start: where it begins.
            limit: ReadAllAvailable: the options' limits do not count.
        """
        begin = _zxid_of(start)
        last = self._last = self._client().last_zxid(PATIENCE_S)
        if self._target is not None:
            last = min(last, self._target)
        if not isinstance(limit, ReadAllAvailable):
            last = self._limited(begin, last)
        if last > begin or _BOOTSTRAP in start:
            return {_ZXID: max(last, begin)}
        return start

    def _limited(self, begin: int, last: int) -> int:
        if self._options.transactions_max is not None:
            last = min(last, begin + self._options.transactions_max)
        if self._options.bytes_max is None or last <= begin:
            return last
        return self._within_bytes(begin, last, self._options.bytes_max)

    def _within_bytes(self, begin: int, last: int, bytes_max: int) -> int:
        """Return the last zxid before which there are no more bytes; at least one transaction is taken."""
        client, end = self._client(), begin
        while end < last and (bytes_max > 0 or end == begin):
            try:
                page = client.page(end + 1, max(1, min(bytes_max, PAGE_BYTES_MAX)))
            except HistoryLostError:
                # The task that reads it decides what becomes of that.
                return last
            if end > begin and page.size_bytes > bytes_max:
                break
            end = page.records[-1]["zxid"]
            bytes_max -= page.size_bytes
        return min(end, last)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark names it
        """Return a limit that stands for those of the options; Spark knows one alone."""
        if self._options.transactions_max is not None:
            return ReadMaxRows(self._options.transactions_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark names it
        """Fix what is available now."""
        self._target = self._client().last_zxid()

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark names it
        """Return the end of the history, for the lag that Spark shows."""
        return None if self._last is None else {_ZXID: self._last}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch, and the tree before them if it begins with that."""
        begin, last = StartPoint(_zxid_of(start) + 1, bootstrap=_BOOTSTRAP in start), _zxid_of(end)
        # Spark's first micro-batch may be empty.
        if begin.bootstrap or last >= begin.from_zxid:
            check_start(self._options, self._client(), begin)
        return split(begin.from_zxid, last, bootstrap=begin.bootstrap)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        assert isinstance(partition, ZxidRange)
        return read_range(self._options, partition)


def _zxid_of(offset: Offset) -> int:
    zxid = offset[_ZXID]
    assert isinstance(zxid, int)
    return zxid
