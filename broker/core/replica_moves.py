"""Which input a replica takes in which role, and which roles may follow.

Requests of others are legal in every role. A pair that is missing is the completion of an effect that no
replica in that role has asked for.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.core.partition import FollowerState, IdleState, LeaderState, ReplicaState
from broker.core.replica_inputs import (
    ConsumerFetch,
    Copied,
    DamageFound,
    FollowerFetch,
    IsrFound,
    IsrRefused,
    IsrWritten,
    LagTick,
    LeaderAndIsr,
    LeaderAnswer,
    LogGrew,
    LogStartMoved,
    Opened,
    ReplicaInput,
    SessionBegun,
    SessionLost,
    SettingsChanged,
    StopReplica,
    Truncated,
    WriteFailed,
)

_ROLES: Final = (IdleState, FollowerState, LeaderState)
_I: Final = frozenset({IdleState})
_F: Final = frozenset({FollowerState})
_L: Final = frozenset({LeaderState})
_ANY: Final = _I | _F | _L
_NO: Final[frozenset[type[ReplicaState]]] = frozenset()

#: {input: roles that may follow an idle replica, a follower, a leader}
_ROWS: Final[Mapping[type[ReplicaInput], tuple[frozenset[type[ReplicaState]], ...]]] = {
    Opened: (_I, _NO, _NO),
    LeaderAndIsr: (_ANY, _ANY, _ANY),
    StopReplica: (_I, _I | _F, _I | _L),
    SessionLost: (_I, _F, _I | _L),
    SessionBegun: (_I, _F, _L),
    LogGrew: (_NO, _NO, _L),
    FollowerFetch: (_I, _F, _L),
    ConsumerFetch: (_I, _F, _L),
    LeaderAnswer: (_I, _F, _L),
    Copied: (_NO, _F, _NO),
    WriteFailed: (_NO, _F, _NO),
    Truncated: (_NO, _F, _NO),
    IsrWritten: (_I, _F, _L),
    IsrRefused: (_I, _F, _L),
    IsrFound: (_I, _F, _I | _L),
    SettingsChanged: (_I, _F, _L),
    LogStartMoved: (_I, _F, _L),
    DamageFound: (_I, _I, _I | _L),
    LagTick: (_I, _F, _L),
}
#: {(role, input): roles that may follow}
MOVES: Final[Mapping[tuple[type[ReplicaState], type[ReplicaInput]], frozenset[type[ReplicaState]]]] = {
    (role, kind): after
    for kind, row in _ROWS.items()
    for role, after in zip(_ROLES, row, strict=True)
    if after
}


class IllegalMoveError(Exception):
    """A completion of an effect that the machine has not asked for, or a role that MOVES does not allow."""

    def __init__(self, role: ReplicaState, inputs: list[ReplicaInput]) -> None:
        """Name the role and the last inputs, the offending one last."""
        names = ", ".join(type(each).__name__ for each in inputs)
        super().__init__(f"a replica in {type(role).__name__} was given {names}: the last one is illegal")
        self.role = role
        self.inputs = tuple(inputs)
