"""What a seed found, and the names of the checks that find it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Check(Enum):
    """The invariants; none of them knows a defect."""

    COMMIT_PROVEN = "commit covers only what a majority holds"
    MATCH_TRUE = "an acknowledgement is counted only for what its sender holds of this log"
    COMMITTED_STAYS = "no committed entry leaves a log"
    COMMITTED_SAME = "a committed entry never changes"
    RESTART_KEEPS = "what a node acknowledged or committed is there after its restart"
    APPLIED_ONCE = "an entry is applied once per life, and its callback is called once"
    SUCCESS_TRUE = "success is reported only for what is committed"
    SUCCESS_KEPT = "an acknowledged command is in every later state"
    STATES_EQUAL = "states are equal at an equal applied index"
    APPLIED_RISES = "commit and applied index never go back within a life"
    ONE_LEADER = "a term has at most one leader"
    TOTAL = "no step of a node ends in an error"


@dataclass(frozen=True)
class Finding:
    """A violation.

    Attributes:
        defect: the row of the table that it shows, "" for a consequence that cannot be told apart.
        check: the invariant that was violated.
        seed: the seed of the world.
        at_ms: when, in virtual time.
        node: where.
        seen: the evidence.
    """

    defect: str
    check: Check
    seed: int
    at_ms: float
    node: int
    seen: str

    def __str__(self) -> str:
        return f"{self.at_ms / 1000:.2f} s, node {self.node}: {self.seen} [{self.check.value}]"


def spans(numbers: list[int]) -> str:
    """Write rising numbers shortly: 3..5, 8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in parts)
