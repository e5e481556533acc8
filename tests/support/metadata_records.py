"""Records of `quorum.metadata` from literals: in tests the numbers that fence are plain ints."""

from __future__ import annotations

from controller.election.plans import Mandate
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch
from quorum.metadata.records import RECOVERED, PartitionStateRecord


def partition_state(
    controller_epoch: int,
    leader: int,
    leader_epoch: int,
    isr: tuple[int, ...],
    leader_recovery_state: int = RECOVERED,
) -> PartitionStateRecord:
    """A leaderAndISR record, its fields in their order."""
    return PartitionStateRecord(
        ControllerEpoch(controller_epoch), leader, LeaderEpoch(leader_epoch), isr, leader_recovery_state
    )


def mandate_of(
    broker_id: int, controller_epoch: int, controller_epoch_version: int
) -> Mandate[ControllerEpoch]:
    """The right of a broker to write in that epoch."""
    return Mandate(broker_id, ControllerEpoch(controller_epoch), controller_epoch_version)
