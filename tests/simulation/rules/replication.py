"""Rules of replication and commit: what an append may change, what it proves, what may be counted."""

from __future__ import annotations

from typing import Final

from tests.simulation.rules.edits import Edit
from tests.simulation.rules.rule import Rule

_FOLLOWING = "quorum.raft.core.following"
_LEADING = "quorum.raft.core.leading"
_NODE = "quorum.raft.core.node:Node"
_RAFT = "quorum.raft.core.raft:Raft"

COMMIT_PROVEN = Edit(
    f"{_FOLLOWING}:handle_append",
    "node.commit_to(min(append.commit_index, proven_index))",
    "node.commit_to(min(append.commit_index, node.log.last_index))",
)
DELETE_ALWAYS = Edit(
    f"{_FOLLOWING}:_fresh_entries",
    "own_term == entry.term or (own_term is None and entry.index <= node.commit_index)",
    "entry.index <= node.commit_index",
)

RULES: Final = (
    Rule(
        "commit-only-what-an-append-proves",
        "consensus.md, D1; Raft §5.3",
        "a follower commits at most what this append proved of its log",
        (COMMIT_PROVEN,),
        guard="a leader's probe carries the first entry that may differ, so that no other tail outlives the "
        "append that proves what is before it",
        beside="a-probe-carries-entries",
    ),
    Rule(
        "a-probe-carries-entries",
        "leading._send_append; Raft §5.3",
        "the append that proves where the logs part carries what comes behind that",
        (
            Edit(
                f"{_LEADING}:_send_append",
                "if slices is not None and prev_index < node.log.last_index:",
                "if slices is not None and prev_index < node.log.last_index and peer.flow is not Flow.PROBE:",
            ),
        ),
        guard="a follower commits only what an append proves; alone it costs a round trip",
        beside="commit-only-what-an-append-proves",
    ),
    Rule(
        "commit-only-what-a-heartbeat-proves",
        "consensus.md, D1; Raft §5.3",
        "a heartbeat commits only what both ends know to match (both ends see to it; here neither does)",
        (
            Edit(
                f"{_FOLLOWING}:handle_heartbeat",
                "min(heartbeat.commit_index, node.matched_index)",
                "min(heartbeat.commit_index, node.log.last_index)",
            ),
            Edit(
                f"{_LEADING}:replicate",
                "commit = min(node.commit_index, peer.match_index)",
                "commit = node.commit_index",
            ),
        ),
    ),
    Rule(
        "delete-only-from-a-conflict",
        "consensus.md, D2; Raft §5.3",
        "a follower deletes only from the first entry whose term conflicts",
        (DELETE_ALWAYS,),
    ),
    Rule(
        "matched-is-not-taken-back",
        "consensus.md, D2",
        "an append that takes back what its own leader had matched stops the node",
        (
            Edit(
                f"{_FOLLOWING}:handle_append",
                "if first <= node.matched_index:",
                "if False:",
            ),
        ),
        guard="no leader takes back what it has matched; beside a follower that deletes too much it makes a "
        "stopped node of a lost entry",
        beside="delete-only-from-a-conflict",
        profile="partitions",
    ),
    Rule(
        "committed-is-not-replaced",
        "consensus.md, D2",
        "a conflict at or below the commit index stops the node",
        (
            Edit(
                f"{_FOLLOWING}:_fresh_entries",
                "if entry.index <= node.commit_index: raise",
                "if entry.index < 0: raise",
            ),
            Edit(
                f"{_FOLLOWING}:handle_append",
                "if append.prev_index <= node.commit_index and prev_term is not None: raise",
                "if append.prev_index < 0: raise",
            ),
        ),
        guard="nobody contradicts what is committed; beside a leader that lacks it, elected by voters that "
        "have it, a stopped node becomes a lost entry",
        beside="vote-only-for-current-logs",
    ),
    Rule(
        "next-stays-above-match",
        "consensus.md, D2",
        "next never falls to the match, whatever a late refusal hints",
        (
            Edit(
                f"{_LEADING}:_handle_reject",
                "late = reply.prev_index <= peer.match_index",
                "late = False",
            ),
            Edit(
                f"{_LEADING}:_handle_reject",
                "peer.next_index = max(peer.match_index + 1, hint + 1)",
                "peer.next_index = hint + 1",
            ),
        ),
        guard="entries that come again change nothing at a follower that deletes only from a conflict",
        beside="delete-only-from-a-conflict",
    ),
    Rule(
        "old-appends-are-refused",
        "consensus.md, D3; Raft §5.1",
        "messages of an older term change nothing",
        (
            Edit(
                f"{_RAFT}._receive_from_leader",
                "if message.term < node.term:",
                "if message.term < 0:",
            ),
        ),
    ),
    Rule(
        "answers-of-other-terms-are-ignored",
        "consensus.md, D3",
        "an acknowledgement counts only in the term that it answers",
        (
            Edit(
                f"{_RAFT}._receive_answer",
                "if message.term != node.term or not isinstance(leader, Leader):",
                "if not isinstance(leader, Leader):",
            ),
        ),
        profile="partitions",
    ),
    Rule(
        "a-stale-leader-is-told-the-term",
        "consensus.md, D13",
        "a deposed leader is answered with the higher term and steps down",
        (
            Edit(
                f"{_RAFT}._receive_from_leader",
                "self._refuse_stale(message)",
                "pass",
            ),
        ),
        guard="nobody follows it and check-quorum ends it within an election timeout",
        beside="check-quorum",
    ),
    Rule(
        "durable-before-acknowledged",
        "consensus.md, D4",
        "a follower acknowledges only what its journal holds durably",
        (
            Edit(
                f"{_FOLLOWING}:durable_match",
                "min(node.matched_index, node.log.durable_index)",
                "node.matched_index",
            ),
        ),
    ),
    Rule(
        "a-leader-counts-its-own-fsync",
        "consensus.md, D4",
        "the leader counts itself by its own durable index",
        (
            Edit(
                f"{_LEADING}:majority_match",
                "node.log.durable_index if",
                "node.log.last_index if",
            ),
        ),
    ),
    Rule(
        "commit-by-counting-only-the-own-term",
        "consensus.md, Rules of the core; Raft §5.4.2",
        "only entries of the leader's own term commit by counting",
        (
            Edit(
                f"{_LEADING}:advance_commit",
                "if index >= leader.term_start_index:",
                "if True:",
            ),
        ),
    ),
    Rule(
        "what-was-removed-is-not-durable",
        "consensus.md, D4",
        "entries that a conflict removed do not count as durable any more",
        (
            Edit(
                "quorum.raft.core.log:Log.truncate",
                "self._stored_index = min(self._stored_index, index - 1)",
                "pass",
            ),
        ),
    ),
    Rule(
        "a-group-under-way-proves-no-removed-entry",
        "consensus.md, D4",
        "an fsync that began before a conflict proves only what is before the conflict",
        (
            Edit(
                "quorum.raft.core.log:Log.truncate",
                "(seq, min(last, index - 1))",
                "(seq, last)",
            ),
        ),
    ),
    Rule(
        "apply-only-what-is-durable-here",
        "consensus.md, Rules of the core; node.take_committed",
        "nothing is applied beyond the own durable log, so that no snapshot reaches beyond it",
        (
            Edit(
                f"{_NODE}.take_committed",
                "last = min(self.commit_index, self.log.durable_index)",
                "last = self.commit_index",
            ),
        ),
    ),
    Rule(
        "apply-nothing-while-installing",
        "consensus.md, D14; Raft §7",
        "while a snapshot is being loaded nothing is appended, committed or applied",
        (
            Edit(f"{_NODE}.take_committed", "or self.receiving.installing", ""),
            Edit(
                f"{_FOLLOWING}:handle_append",
                "if node.halted or node.receiving.installing:",
                "if node.halted:",
            ),
            Edit(f"{_FOLLOWING}:handle_heartbeat", "if not node.receiving.installing:", "if True:"),
        ),
        profile="snapshots",
    ),
    Rule(
        "a-full-disk-steps-down",
        "consensus.md, Journal",
        "a node whose disk is full takes no term, vote or entry and does not lead",
        (
            Edit(
                "quorum.node.member:QuorumMember._on_disk_full",
                "self.engine.step(Halt(str(error)))",
                "pass",
            ),
        ),
        guard="without it the node waits for its own fsync, and so acknowledges nothing either; it leads in "
        "vain until there is room",
    ),
)
