"""How a leader may change its members, whatever comes of it: what is broken here loses data only much later.

- One change at a time: of the configurations in a leader's log at most one is not committed.
- None before the first entry of its own term is committed.
- The entry that names an incarnation is on the disks of a majority without it; entry 1 excepted.

Source: raft (Rules of the core; Identity and membership); dissertation §4.1, with the correction of 2015.
"""

from __future__ import annotations

from collections.abc import Callable

from quorum.raft.core.configuration import Configuration
from quorum.raft.core.messages import Role
from quorum.raft.core.node import Node

INVARIANT = "members"

#: Tells whether the disk of (node id, incarnation) holds an entry (index, term).
Holds = Callable[[int, str, int, int], bool]


def judge_append(raft: Node) -> str:
    """Return what is wrong with the configuration that a node has come to, "" if nothing is."""
    history = raft.history
    index = history.latest_index
    if raft.role is not Role.LEADER or index <= 1 or raft.log.term_at(index) != raft.term:
        return ""
    open_ = [start for start, _ in history._items if start > raft.commit_index]
    if len(open_) > 1:
        return f"has the configurations of {open_} in its log, and committed only {raft.commit_index}"
    if raft.commit_index < raft.term_start_index:
        return (
            f"changed its members with entry {index} before {raft.term_start_index}, the first of its term, "
            "was committed"
        )
    return ""


def judge_commit(raft: Node, before: int, holds: Holds) -> str:
    """Return what is wrong with the records that a leader has just committed, "" if nothing is.

    Args:
        raft: the leader.
        before: its commit index at the last look.
        holds: asks the disks.
    """
    known: Configuration | None = None
    latest = raft.history.latest
    for index, configuration in raft.history._items:
        term = raft.log.term_at(index)
        # What a forced start found open in its log is committed by the operator's word.
        forced = latest is not None and configuration.cluster_id != latest.cluster_id
        now = before < index <= raft.commit_index and not forced
        if known is not None and term is not None and index > 1 and now:
            holders = [
                node_id
                for node_id, member in configuration.voters.items()
                if known.names(member.incarnation) and holds(node_id, member.incarnation, index, term)
            ]
            if 2 * len(holders) <= len(configuration.voters):
                return (
                    f"committed the configuration of entry {index}, which without those that it names only "
                    f"the disks of {holders} hold: {configuration.to_plain()}"
                )
        known = configuration
    return ""
