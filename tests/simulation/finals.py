"""The final state of a member, as the checkers of histories want it."""

from __future__ import annotations

from quorum.core.machine import StateMachine
from tests.simulation.history import Final, FinalNode
from tests.support.zookeeper_frames import unpack_stat
from tests.unit.core.driver import dump_nodes

_OWN = ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")


def final_of(node_id: int, machine: StateMachine) -> Final:
    """Return what a member holds."""
    nodes = {
        path: FinalNode(record[3].decode(), unpack_stat(record[0]))
        for path, record in sorted(dump_nodes(machine).items())
        if path not in _OWN
    }
    sessions = {session_id: session.timeout_ms for session_id, session in sorted(machine.sessions.items())}
    return Final(node_id, machine.zxid, nodes, sessions)
