"""Which part of the history a query reads, how it is shared among tasks, and what a task does.

A query that begins with the tree reads it as of the zxid before its first transaction. Where it may choose it
begins behind the oldest transaction that is retained. Where some were dropped before, it begins an eighth of
the history later, so that what it begins with is still there when it is read. Keeps no state.

Source: docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pipeline.changelog.options import ENDING_ZXID, STARTING_ZXID, ChangelogOptions
from pipeline.changelog.reading import ChangelogClient, Extent, HistoryLostError, read_records
from pipeline.changelog.rows import batches, tree_batches
from pipeline.errors import InputError, OptionError

#: that one task reads at least, while there are fewer than PARTITIONS_MAX tasks
TRANSACTIONS_MIN: Final = 10_000
PARTITIONS_MAX: Final = 64
#: Where history was dropped, a query without a starting point leaves out the oldest 1/MARGIN of what is left.
MARGIN: Final = 8


class StartPoint(NamedTuple):
    """Where a query begins.

    Attributes:
        from_zxid: the first transaction, inclusive.
        bootstrap: whether the tree before it comes first.
    """

    from_zxid: int
    bootstrap: bool


class ZxidRange(InputPartition):
    """What one task reads.

    Attributes:
        number: of the task; tasks begin with different nodes.
        from_zxid: the first transaction, inclusive.
        to_zxid: the last one, inclusive; before `from_zxid`: there is none.
        bootstrap: whether the task reads the tree as of the zxid before `from_zxid`, and no transaction.
    """

    def __init__(self, number: int, from_zxid: int, to_zxid: int, *, bootstrap: bool = False) -> None:
        super().__init__(number)
        self.number = number
        self.from_zxid = from_zxid
        self.to_zxid = to_zxid
        self.bootstrap = bootstrap


def batch_partitions(options: ChangelogOptions) -> list[ZxidRange]:
    """Return the tasks of a batch."""
    client = ChangelogClient(options.nodes, options.token, options.tls)
    extent = client.extent()
    last = options.ending_zxid
    if last is not None and last > extent.last_zxid:
        raise OptionError(ENDING_ZXID, last, *_not_committed(extent))
    start = starting_point(options, client, extent)
    to_zxid = extent.last_zxid if last is None else last
    if to_zxid < start.from_zxid - 1:
        problem = f"is before zxid {start.from_zxid}, where the query begins"
        raise OptionError(ENDING_ZXID, to_zxid, problem, f"give {STARTING_ZXID} as well")
    if start.bootstrap:
        check_start(options, client, start)
    return split(start.from_zxid, to_zxid, bootstrap=start.bootstrap)


def starting_point(options: ChangelogOptions, client: ChangelogClient, extent: Extent) -> StartPoint:
    """Return where a query begins that has no checkpoint.

    Args:
        options: of the query.
        client: to find a transaction with.
        extent: what is retained.
    """
    first = options.starting_zxid
    if first is None and not options.bootstrap:
        return StartPoint(extent.first_zxid, bootstrap=False)
    if first is None:
        if extent.last_zxid < extent.first_zxid:
            raise InputError("no node retains any transaction", "commit one, and read again")
        left_out = (extent.last_zxid - extent.first_zxid) // MARGIN if extent.first_zxid else 0
        return StartPoint(client.record(extent.first_zxid + left_out)["zxid"] + 1, bootstrap=True)
    if first > extent.last_zxid + 1:
        raise OptionError(STARTING_ZXID, first, *_not_committed(extent))
    if options.bootstrap and first > 0:
        return StartPoint(first, bootstrap=True)
    if first < extent.first_zxid:
        if options.fail_on_data_loss:
            raise HistoryLostError(first, extent.first_zxid)
        first = extent.first_zxid
    return StartPoint(first, bootstrap=False)


def _not_committed(extent: Extent) -> tuple[str, str]:
    return (
        f"the newest transaction is {extent.last_zxid}",
        f"give a zxid from {extent.first_zxid} to {extent.last_zxid}",
    )


def split(from_zxid: int, to_zxid: int, *, bootstrap: bool) -> list[ZxidRange]:
    """Share a range among tasks, at least one, each of them a run of transactions.

    Args:
        from_zxid: the first transaction, inclusive.
        to_zxid: the last one, inclusive.
        bootstrap: whether another task reads the tree before them.
    """
    count = to_zxid - from_zxid + 1
    tasks = max(1, min(PARTITIONS_MAX, count // TRANSACTIONS_MIN))
    bounds = [from_zxid + count * number // tasks for number in range(tasks)] + [to_zxid + 1]
    ranges = [ZxidRange(number, bounds[number], bounds[number + 1] - 1) for number in range(tasks)]
    if bootstrap:
        ranges.insert(0, ZxidRange(0, from_zxid, from_zxid - 1, bootstrap=True))
    return ranges


def check_start(options: ChangelogOptions, client: ChangelogClient, start: StartPoint) -> None:
    """See that a batch can still be read, before tasks fail at it again and again."""
    if start.bootstrap:
        client.record_of_tree(start.from_zxid - 1)
    elif options.fail_on_data_loss:
        client.record(start.from_zxid)


def read_range(options: ChangelogOptions, part: ZxidRange) -> Iterator[pa.RecordBatch]:
    """Read the rows of one task."""
    client = ChangelogClient(options.nodes, options.token, options.tls, first=part.number)
    if part.bootstrap:
        as_of_zxid = part.from_zxid - 1
        return tree_batches(as_of_zxid, client.record_of_tree(as_of_zxid), client.tree(as_of_zxid))
    loss = options.fail_on_data_loss
    return batches(read_records(client, part.from_zxid, part.to_zxid, fail_on_data_loss=loss))
