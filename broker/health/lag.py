"""How far groups lag: in records, in seconds, and whether that grows. Pure.

Decides what a lag is, from samples of where logs end and what groups have committed. Seconds count from the
first sample that showed a log's end behind the committed offset: the oldest record that is not committed
waits for at least so long. It waits longer by at most the time between two samples, or, for a record from
before the first sample, nobody here knows. What no sample says is unknown, and never a number. Soft state:
the samples, bounded for each partition.

Source: ARCHITECTURE.md, "Life of a consumer group".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from quorum.metadata.paths import PartitionKey

#: Samples that a trend looks at: the older half, and the newer one.
TREND_SAMPLES: Final = 6
#: Ends of one log that are remembered; the older ones lie farther apart.
ENDS_MAX: Final = 64


class Trend(StrEnum):
    """What becomes of a lag."""

    GROWING = "growing"
    SHRINKING = "shrinking"
    STEADY = "steady"


class PartitionLag(NamedTuple):
    """How far a group is behind in one partition.

    Attributes:
        records: at the log's end without those that are committed.
        seconds: for how long, at least, the oldest of them waits; 0: there is none.
    """

    records: int
    seconds: float


class GroupLag(NamedTuple):
    """How far a group is behind.

    Attributes:
        records: of all partitions that are known, together.
        seconds: the longest of them.
        trend: of the records; None: too few samples know all partitions.
        partitions: {partition: its lag}, without those that are unknown.
        unknown: partitions whose end is not known.
    """

    records: int
    seconds: float
    trend: Trend | None
    partitions: Mapping[PartitionKey, PartitionLag]
    unknown: int


def committed_in(row: Mapping[str, Any]) -> dict[PartitionKey, int]:
    """Return {partition: the offset that comes next} of a row of `/v1/groups`, where there is one."""
    return {
        PartitionKey(each["topic"], each["partition"]): each["offset"]
        for each in row["offsets"]
        if isinstance(each["offset"], int) and each["offset"] >= 0
    }


def known_offsets(found: Mapping[PartitionKey, Any]) -> dict[PartitionKey, int]:
    """Return {partition: offset} of what a Kafka client got, without the partitions that have an error."""
    return {key: each.offset for key, each in found.items() if each.error_code == 0 and each.offset >= 0}


def trend(lags: Sequence[int]) -> Trend | None:
    """Say what becomes of a lag; one that only wavers is steady.

    Args:
        lags: in records, the oldest first; the last TREND_SAMPLES count.

    Returns:
        growing: each of the newer half is above all of the older one; shrinking: below; None: there are too
        few.
    """
    if len(lags) < TREND_SAMPLES:
        return None
    newer = lags[-TREND_SAMPLES // 2 :]
    older = lags[-TREND_SAMPLES : -TREND_SAMPLES // 2]
    if min(newer) > max(older):
        return Trend.GROWING
    return Trend.SHRINKING if max(newer) < min(older) else Trend.STEADY


class LogEnds:
    """Where one log ended, and when that was seen first."""

    def __init__(self) -> None:
        """Have seen nothing."""
        #: Strictly rising, both; times in seconds.
        self._ends: list[int] = []
        self._seen_s: list[float] = []

    def see(self, now_s: float, log_end: int) -> None:
        """Take a sample; an end that is lower than before is that of another log."""
        if self._ends and log_end < self._ends[-1]:
            self._ends, self._seen_s = [], []
        if self._ends and log_end == self._ends[-1]:
            return
        self._ends.append(log_end)
        self._seen_s.append(now_s)
        if len(self._ends) > ENDS_MAX:
            # The first one is kept. What was dropped counts from the next one on: still "at least".
            del self._ends[1 : ENDS_MAX // 2 : 2]
            del self._seen_s[1 : ENDS_MAX // 2 : 2]

    def lag(self, committed: int, now_s: float) -> PartitionLag:
        """Return what lies between an offset (exclusive of what is committed) and the last end seen."""
        records = max(0, self._ends[-1] - committed)
        if not records:
            return PartitionLag(0, 0.0)
        first_behind = bisect_right(self._ends, committed)
        return PartitionLag(records, max(0.0, now_s - self._seen_s[first_behind]))


class LagHistory:
    """The lag of every group, from sample to sample."""

    def __init__(self) -> None:
        """Have seen nothing."""
        self._logs: dict[PartitionKey, LogEnds] = {}
        #: {group: its lags in records of the last samples}
        self._recent: dict[str, deque[int]] = {}

    def take(
        self,
        now_s: float,
        committed: Mapping[str, Mapping[PartitionKey, int]],
        log_ends: Mapping[PartitionKey, int],
    ) -> dict[str, GroupLag]:
        """Take a sample; what is not in it is forgotten.

        Args:
            now_s: of any clock that never goes back.
            committed: {group: {partition: the offset that comes next}}.
            log_ends: {partition: its end (exclusive)}, of those whose leader has said it.

        Returns:
            {group: its lag}.
        """
        wanted = {key for offsets in committed.values() for key in offsets}
        # A leader that is away for a while says nothing; what was seen before still counts.
        self._logs = {key: seen for key, seen in self._logs.items() if key in wanted}
        for key, log_end in log_ends.items():
            if key in wanted:
                self._logs.setdefault(key, LogEnds()).see(now_s, log_end)
        self._recent = {group: lags for group, lags in self._recent.items() if group in committed}
        return {group: self._group(group, now_s, offsets, log_ends) for group, offsets in committed.items()}

    def _group(
        self,
        group: str,
        now_s: float,
        offsets: Mapping[PartitionKey, int],
        log_ends: Mapping[PartitionKey, int],
    ) -> GroupLag:
        partitions = {
            key: self._logs[key].lag(offset, now_s) for key, offset in offsets.items() if key in log_ends
        }
        records = sum(each.records for each in partitions.values())
        unknown = len(offsets) - len(partitions)
        recent = self._recent.setdefault(group, deque(maxlen=TREND_SAMPLES))
        if unknown:
            # A sum that lacks a partition is no step down.
            recent.clear()
        else:
            recent.append(records)
        seconds = max((each.seconds for each in partitions.values()), default=0.0)
        return GroupLag(records, seconds, trend(list(recent)), partitions, unknown)
