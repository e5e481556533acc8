"""Which input a replica takes in which role, and which roles may follow.

Requests of others are legal in every role. A pair that is missing is the completion of an effect that no
replica in that role has asked for.
Source: control-plane design, "Leader and follower".
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

_I: Final = frozenset({IdleState})
_F: Final = frozenset({FollowerState})
_L: Final = frozenset({LeaderState})

#: {(role, input): roles that may follow}
MOVES: Final[Mapping[tuple[type[ReplicaState], type[ReplicaInput]], frozenset[type[ReplicaState]]]] = {
    (IdleState, Opened): _I,
    (IdleState, LeaderAndIsr): _I | _F | _L,
    (FollowerState, LeaderAndIsr): _I | _F | _L,
    (LeaderState, LeaderAndIsr): _I | _F | _L,
    (IdleState, StopReplica): _I,
    (FollowerState, StopReplica): _I | _F,
    (LeaderState, StopReplica): _I | _L,
    (IdleState, SessionLost): _I,
    (FollowerState, SessionLost): _F,
    (LeaderState, SessionLost): _I | _L,
    (IdleState, SessionBegun): _I,
    (FollowerState, SessionBegun): _F,
    (LeaderState, SessionBegun): _L,
    (LeaderState, LogGrew): _L,
    (IdleState, FollowerFetch): _I,
    (FollowerState, FollowerFetch): _F,
    (LeaderState, FollowerFetch): _L,
    (IdleState, ConsumerFetch): _I,
    (FollowerState, ConsumerFetch): _F,
    (LeaderState, ConsumerFetch): _L,
    (IdleState, LeaderAnswer): _I,
    (FollowerState, LeaderAnswer): _F,
    (LeaderState, LeaderAnswer): _L,
    (FollowerState, Copied): _F,
    (FollowerState, WriteFailed): _F,
    (FollowerState, Truncated): _F,
    (IdleState, IsrWritten): _I,
    (FollowerState, IsrWritten): _F,
    (LeaderState, IsrWritten): _L,
    (IdleState, IsrRefused): _I,
    (FollowerState, IsrRefused): _F,
    (LeaderState, IsrRefused): _L,
    (IdleState, IsrFound): _I,
    (FollowerState, IsrFound): _F,
    (LeaderState, IsrFound): _I | _L,
    (IdleState, SettingsChanged): _I,
    (FollowerState, SettingsChanged): _F,
    (LeaderState, SettingsChanged): _L,
    (IdleState, LogStartMoved): _I,
    (FollowerState, LogStartMoved): _F,
    (LeaderState, LogStartMoved): _L,
    (IdleState, DamageFound): _I,
    (FollowerState, DamageFound): _I,
    (LeaderState, DamageFound): _I | _L,
    (IdleState, LagTick): _I,
    (FollowerState, LagTick): _F,
    (LeaderState, LagTick): _L,
}


class IllegalMoveError(Exception):
    """A completion of an effect that the machine has not asked for, or a role that MOVES does not allow."""

    def __init__(self, role: ReplicaState, inputs: list[ReplicaInput]) -> None:
        """Name the role and the last inputs, the offending one last."""
        names = ", ".join(type(each).__name__ for each in inputs)
        super().__init__(f"a replica in {type(role).__name__} was given {names}: the last one is illegal")
        self.role = role
        self.inputs = tuple(inputs)
