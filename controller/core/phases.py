"""The phases of a partition, as the controller sees it, and which may follow which.

A partition is NEW until it has a state. It is ONLINE or OFFLINE by its leader, MOVING while it is reassigned,
DELETING once its topic is to go, and LEFT_ALONE while its topic or a state of it cannot be read or written.
What is deleted never comes back: a topic of the same name is another one, whose partitions begin as NEW.
Source: Kafka's PartitionStateMachine (3.9), the idea; ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from controller.core.model import ClusterModel
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import NO_LEADER


class PartitionPhase(Enum):
    """Where a partition is in its life."""

    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    MOVING = "moving"
    DELETING = "deleting"
    LEFT_ALONE = "left alone"


_DECIDED: Final = frozenset((PartitionPhase.ONLINE, PartitionPhase.OFFLINE, PartitionPhase.MOVING))
_ENDED: Final = frozenset((PartitionPhase.DELETING, PartitionPhase.LEFT_ALONE))

#: {phase: those that may follow it}; a partition may be gone after any.
PHASE_MOVES: Final[Mapping[PartitionPhase, frozenset[PartitionPhase]]] = {
    # Its first state has a leader; one that a new controller finds may have none.
    PartitionPhase.NEW: _DECIDED | _ENDED,
    # A state never goes: where one is missing, the topic is left alone.
    PartitionPhase.ONLINE: (_DECIDED - {PartitionPhase.ONLINE}) | _ENDED,
    PartitionPhase.OFFLINE: (_DECIDED - {PartitionPhase.OFFLINE}) | _ENDED,
    PartitionPhase.MOVING: (_DECIDED - {PartitionPhase.MOVING}) | _ENDED,
    PartitionPhase.DELETING: frozenset(),
    # Its states may never have been read.
    PartitionPhase.LEFT_ALONE: _DECIDED | {PartitionPhase.NEW, PartitionPhase.DELETING},
}


def phase_of(model: ClusterModel, key: PartitionKey) -> PartitionPhase | None:
    """Return the phase of a partition; None: there is none."""
    if not model.replicas(key):
        return None
    if key.topic in model.deleting:
        return PartitionPhase.DELETING
    if key.topic in model.left_alone:
        return PartitionPhase.LEFT_ALONE
    known = model.states.get(key)
    if known is None:
        return PartitionPhase.NEW
    if known.state.leader == NO_LEADER:
        return PartitionPhase.OFFLINE
    return PartitionPhase.ONLINE if model.move(key) is None else PartitionPhase.MOVING
