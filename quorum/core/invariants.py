"""What must always hold in the state: every fact that is kept twice is compared.

Used by tests and simulations; it walks the whole tree and changes nothing.
Source: docs/internals/simulation.md, "What is checked".
"""

from __future__ import annotations

from collections.abc import Mapping

from quorum.core.paths import is_valid_path
from quorum.core.quotas import ROOT, STATS, Quota, nearest, read_limits
from quorum.core.records import ACL_MASK, HEADER, HEADER_BYTES, NULL_DATA, wrap_int32
from quorum.core.sessions import Session
from quorum.core.tree import Directory, Node, Tree, record_of, stat_of
from quorum.core.usage import limits_nodes


def verify(tree: Tree, sessions: Mapping[int, Session], zxid: int) -> None:
    """Check the tree against its counters, its ACL table and the sessions."""
    assert not tree.changes, "an entry is open, or left changes behind"
    node_count = data_bytes = 0
    acl_counts: dict[int, int] = {}
    ephemerals: dict[str, int] = {}
    expirable: dict[str, None] = {}
    limits = {path: read_limits(record[HEADER_BYTES:]) for path, record in limits_nodes(tree).items()}
    used = {path: Quota(0, 0, each) for path, each in limits.items()}
    pending: list[tuple[str, Node]] = [("/", tree.root)]
    while pending:
        path, node = pending.pop()
        _verify_node(path, node, zxid)
        record = record_of(node)
        node_count += 1
        data_bytes += len(path) + len(record) - HEADER_BYTES
        counted = nearest(used, path)
        if counted is not None:
            used[counted] = used[counted].plus(1, len(record) - HEADER_BYTES)
        fields = HEADER.unpack_from(record)
        owner, number = fields[7], fields[11] & ACL_MASK
        assert number in tree.acls, f"{path}: ACL {number} is not in the table"
        acl_counts[number] = acl_counts.get(number, 0) + 1
        if tree.acls.lifetime_of(number):
            expirable[path] = None
            assert not owner, f"{path}: an ephemeral with a lifetime of its own"
        if owner:
            assert isinstance(node, bytes), f"{path}: an ephemeral has children"
            ephemerals[path] = owner
        if isinstance(node, Directory):
            prefix = path if path != "/" else ""
            pending += [(f"{prefix}/{name}", child) for name, child in node.children.items()]
    assert tree.node_count == node_count, f"{node_count} nodes, counted {tree.node_count}"
    assert tree.data_bytes == data_bytes, f"{data_bytes} bytes, counted {tree.data_bytes}"
    stored = {number: count for number, _, count in tree.acls.stored()}
    acl_counts.pop(0, None)
    assert stored == acl_counts, f"ACLs in use {acl_counts}, counted {stored}"
    assert tree.expirable == expirable, f"containers and TTL nodes {expirable}, kept {tree.expirable}"
    _verify_quotas(tree, used)
    owned = {path: session_id for session_id, session in sessions.items() for path in session.ephemerals}
    assert owned == ephemerals, f"ephemerals {ephemerals}, owned by sessions {owned}"


def _verify_quotas(tree: Tree, used: dict[str, Quota]) -> None:
    assert tree.quotas == used, f"quotas {used}, counted {tree.quotas}"
    for path, quota in used.items():
        stats = tree.get(f"{ROOT}{path}/{STATS}")
        if stats is not None:
            text = record_of(stats)[HEADER_BYTES:]
            assert text == quota.text(), f"{path}: its stats say {text!r}, counted {quota}"


def _verify_node(path: str, node: Node, zxid: int) -> None:
    assert is_valid_path(path), f"{path!r} is no path"
    record = record_of(node)
    czxid, mzxid, _, _, _, _, _, _, data_length, _, _, field = HEADER.unpack_from(record)
    assert data_length == len(record) - HEADER_BYTES, (
        f"{path}: data length {data_length} of {len(record)} bytes"
    )
    assert not field & NULL_DATA or data_length == 0, f"{path}: null data of {data_length} bytes"
    stat = stat_of(node)
    cversion, children, pzxid = HEADER.unpack(stat + bytes(4))[5], *HEADER.unpack(stat + bytes(4))[9:11]
    assert czxid <= mzxid <= zxid, f"{path}: czxid {czxid}, mzxid {mzxid}, last zxid {zxid}"
    assert czxid <= pzxid <= zxid, f"{path}: czxid {czxid}, pzxid {pzxid}, last zxid {zxid}"
    if isinstance(node, bytes):
        assert (cversion, children, pzxid) == (0, 0, czxid), f"{path}: a leaf with children's counters"
    else:
        assert children == len(node.children), f"{path}: numChildren {children}"
        assert cversion == wrap_int32(2 * node.creates - children), f"{path}: cversion {cversion}"
        assert node.creates or node.children, f"{path}: a directory that never had a child"
