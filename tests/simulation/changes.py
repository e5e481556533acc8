"""How a leader may change its members, whatever comes of it: what is broken here loses data only much later.

- One change at a time: of the configurations in a leader's log at most one is not committed.
- None before the first entry of its own term is committed.

Source: docs/internals/consensus.md, "Membership", "Rules of the core"; dissertation §4.1, with the
correction of 2015.
"""

from __future__ import annotations

from quorum.raft.core.node import Node
from quorum.raft.core.roles import Leader

INVARIANT = "members"


def judge_append(raft: Node) -> str:
    """Return what is wrong with the configuration that a node has come to, "" if nothing is."""
    history = raft.history
    index = history.latest_index
    if not isinstance(raft.role, Leader) or index <= 1 or raft.log.term_at(index) != raft.term:
        return ""
    open_ = [start for start, _ in history._items if start > raft.commit_index]
    if len(open_) > 1:
        return f"has the configurations of {open_} in its log, and committed only {raft.commit_index}"
    if raft.commit_index < raft.role.term_start_index:
        return (
            f"changed its members with entry {index} before {raft.role.term_start_index}, the first of its "
            "term, was committed"
        )
    return ""
