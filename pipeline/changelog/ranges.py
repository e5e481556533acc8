"""Which part of the history a query reads, and how it is shared among tasks.

Decides from the options and from what the nodes retain; asks nobody. Pure.
Source: pipeline, "What flows".
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import InputPartition

from pipeline.changelog.options import ENDING_ZXID, STARTING_ZXID, ChangelogOptions
from pipeline.changelog.reading import Extent, HistoryLostError
from pipeline.errors import OptionError

#: that one task reads at least, while there are fewer than PARTITIONS_MAX tasks
TRANSACTIONS_MIN: Final = 20_000
PARTITIONS_MAX: Final = 64


class ZxidRange(InputPartition):
    """What one task reads.

    Attributes:
        number: of the task; tasks begin with different nodes.
        from_zxid: the first transaction, inclusive.
        to_zxid: the last one, inclusive; before `from_zxid`: there is none.
    """

    def __init__(self, number: int, from_zxid: int, to_zxid: int) -> None:
        super().__init__(number)
        self.number = number
        self.from_zxid = from_zxid
        self.to_zxid = to_zxid


def batch_range(options: ChangelogOptions, extent: Extent) -> tuple[int, int]:
    """Return the first and the last zxid of a batch, both inclusive.

    Raises:
        OptionError: startingZxid or endingZxid is behind what was committed.
        HistoryLostError: startingZxid is gone, and failOnDataLoss is set.
    """
    last = options.ending_zxid
    if last is None:
        last = extent.last_zxid
    elif last > extent.last_zxid:
        raise OptionError(ENDING_ZXID, last, *_not_committed(extent))
    return first_zxid(options, extent), last


def first_zxid(options: ChangelogOptions, extent: Extent) -> int:
    """Return the first zxid that a query reads.

    Raises:
        OptionError: startingZxid is behind what was committed.
        HistoryLostError: startingZxid is gone, and failOnDataLoss is set.
    """
    first = options.starting_zxid
    if first is None:
        return extent.first_zxid
    if first > extent.last_zxid + 1:
        raise OptionError(STARTING_ZXID, first, *_not_committed(extent))
    if first < extent.first_zxid:
        if options.fail_on_data_loss:
            raise HistoryLostError(first, extent.first_zxid)
        return extent.first_zxid
    return first


def _not_committed(extent: Extent) -> tuple[str, str]:
    return (
        f"the newest transaction is {extent.last_zxid}",
        f"give a zxid from {extent.first_zxid} to {extent.last_zxid}",
    )


def split(from_zxid: int, to_zxid: int) -> list[ZxidRange]:
    """Share a range among tasks, at least one, each of them a run of transactions."""
    count = to_zxid - from_zxid + 1
    tasks = max(1, min(PARTITIONS_MAX, count // TRANSACTIONS_MIN))
    bounds = [from_zxid + count * number // tasks for number in range(tasks)] + [to_zxid + 1]
    return [ZxidRange(number, bounds[number], bounds[number + 1] - 1) for number in range(tasks)]
