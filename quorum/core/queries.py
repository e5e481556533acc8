"""Reads of one node's state: what a client sees at the node's own applied zxid.

Each takes the caller's identities and returns the answer or an error code (an int below zero). A path that
cannot exist simply does not, as in ZooKeeper; the empty path is the root. Reads change nothing and register
no watch (the front end does, before or after, as each operation asks). No state.

Source: ZooKeeper 3.9 FinalRequestProcessor.
"""

from __future__ import annotations

from quorum.core.acl import Acl, redact
from quorum.core.codes import BAD_ARGUMENTS, NO_AUTH, NO_NODE, PERM_ADMIN, PERM_READ, PERM_WRITE
from quorum.core.machine import CONFIG_PATH, StateMachine
from quorum.core.members import described_version
from quorum.core.records import ACL_MASK, HEADER_BYTES, STAT_BYTES, acl_field_of, data_of
from quorum.core.tree import Directory, Node, record_of, stat_of


def _readable(machine: StateMachine, path: str, identities: object) -> Node | int:
    tree = machine.tree
    node = tree.get(path)
    if node is None:
        return NO_NODE
    number = acl_field_of(node if isinstance(node, bytes) else node.record) & ACL_MASK
    if number and not tree.acls.permits(number, PERM_READ, identities):
        return NO_AUTH
    return node


def config_version(machine: StateMachine) -> int:
    """Return the zxid since which the members are as `/zookeeper/config` says."""
    node = machine.tree.get(CONFIG_PATH)
    return 0 if node is None else described_version(record_of(node)[HEADER_BYTES:])


def may_write(machine: StateMachine, path: str, identities: object) -> bool:
    """Tell whether the ACL of a node lets a caller write; False where there is no node."""
    node = machine.tree.get(path)
    if node is None:
        return False
    number = acl_field_of(record_of(node)) & ACL_MASK
    return not number or machine.tree.acls.permits(number, PERM_WRITE, identities)


def get_data(machine: StateMachine, path: str, identities: object = None) -> tuple[bytes | None, bytes] | int:
    """Return (data, Stat) of a node; null data is None, the Stat 68 bytes in jute layout.

    Args:
        machine: the state to read.
        path: any string.
        identities: the caller's [[scheme, id], …] or None.

    Returns:
        The answer, or NO_NODE or NO_AUTH.
    """
    node = _readable(machine, path, identities)
    if isinstance(node, bytes):
        return data_of(node), node[:STAT_BYTES]
    return node if isinstance(node, int) else (data_of(node.record), node.stat())


def exists(machine: StateMachine, path: str, identities: object = None) -> bytes | int:
    """Return the Stat of a node, or NO_NODE, NO_AUTH (it needs READ) or BAD_ARGUMENTS (a NUL in the path)."""
    if "\0" in path:
        return BAD_ARGUMENTS
    node = _readable(machine, path, identities)
    return node if isinstance(node, int) else stat_of(node)


def get_children(machine: StateMachine, path: str, identities: object = None) -> list[str] | int:
    """Return the names of a node's children in any order, or NO_NODE or NO_AUTH."""
    node = _readable(machine, path, identities)
    if isinstance(node, int):
        return node
    return list(node.children) if isinstance(node, Directory) else []


def get_children2(
    machine: StateMachine, path: str, identities: object = None
) -> tuple[list[str], bytes] | int:
    """Return (names of the children, Stat) of a node, or NO_NODE or NO_AUTH."""
    node = _readable(machine, path, identities)
    if isinstance(node, int):
        return node
    return list(node.children) if isinstance(node, Directory) else [], stat_of(node)


def get_acl(machine: StateMachine, path: str, identities: object = None) -> tuple[Acl, bytes] | int:
    """Return (ACL, Stat) of a node; a caller that may not administer it sees no digests.

    Returns:
        The answer, or NO_NODE or NO_AUTH (it needs READ or ADMIN).
    """
    tree = machine.tree
    node = tree.get(path)
    if node is None:
        return NO_NODE
    number = acl_field_of(record_of(node)) & ACL_MASK
    acl, grants = tree.acls[number], tree.acls.grants(number)
    if grants.permit(PERM_ADMIN, identities):
        return acl, stat_of(node)
    return (redact(acl), stat_of(node)) if grants.permit(PERM_READ, identities) else NO_AUTH


def count_descendants(machine: StateMachine, path: str, identities: object = None) -> int:
    """Return how many nodes stand below a node, or NO_NODE or NO_AUTH.

    As in ZooKeeper the root itself counts if it is named by the empty path.
    """
    node = _readable(machine, path, identities)
    if isinstance(node, int):
        return node
    if node is machine.tree.root:
        return machine.tree.node_count - (path == "/")
    count = 0
    pending = [node] if isinstance(node, Directory) else []
    while pending:
        children = pending.pop().children
        count += len(children)
        pending += [child for child in children.values() if isinstance(child, Directory)]
    return count


def ephemerals_of(machine: StateMachine, session_id: int, prefix: str) -> list[str]:
    """Return the paths of a session's ephemerals that begin with a prefix, in any order.

    Args:
        machine: the state to read.
        session_id: any number.
        prefix: a string, not a path; white space or "/" alone means all.
    """
    session = machine.sessions.get(session_id)
    if session is None:
        return []
    if prefix.strip() in ("", "/"):
        return list(session.ephemerals)
    return [path for path in session.ephemerals if path.startswith(prefix)]
