"""What a term of a coordinator holds, and what has happened in it, for status and metrics. Shapes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class GroupCounters:
    """What has happened in a term."""

    rebalances: int = 0
    #: deadlines of members and phases that have passed
    deadlines: int = 0
    #: writes that the quorum did not take; their groups were left as they were
    writes_failed: int = 0


class GroupStatus(NamedTuple):
    """What a term holds."""

    #: {state: number of groups}
    groups: Mapping[str, int]
    members: int
    #: Groups whose records are malformed.
    left_alone: tuple[str, ...]
    #: {group: why its last write was given up}
    unwritten: Mapping[str, str]
    counters: GroupCounters
    #: Bytes that groups hold in the quorum, roughly, and requests for which there was no room.
    held_bytes: int
    refused: int
