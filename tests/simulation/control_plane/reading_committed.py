"""What a client makes of what it fetches as a reader of committed records: by the shipped list and filter."""

from __future__ import annotations

from typing import Final

from broker.client.partitions import _for_users, batch_headers
from tests.simulation.control_plane.log import SimLog

_SEGMENT: Final = 0


def for_users(log: SimLog, offset: int, end: int) -> dict[int, int]:
    """Return {offset: value} of the records of transactions that a client sees.

    Args:
        log: of the replica that answers.
        offset: of the first record.
        end: exclusive; the last stable offset.
    """
    aborted = log.producers.aborted.between(_SEGMENT, offset, end, wait=True)
    # Records without a transaction are for every reader.
    left, _ = _for_users(b"".join(each.batch for each in log.records[offset:end]), aborted)
    return {each.base_offset: log.records[each.base_offset].value for each in batch_headers(left)}
