"""Rules of elections: who may vote for whom, when a term may begin, and when leading ends."""

from __future__ import annotations

from typing import Final

from tests.simulation.rules.edits import Edit
from tests.simulation.rules.rule import Rule

_ELECTIONS = "quorum.raft.core.elections"
_LEADING = "quorum.raft.core.leading"
_OUTBOX = "quorum.raft.core.outbox:Outbox"
_TIMER = "quorum.raft.core.timing:ElectionTimer"

RULES: Final = (
    Rule(
        "one-vote-per-term",
        "Raft §5.2",
        "a node votes for one candidate in a term",
        (Edit(f"{_ELECTIONS}:handle_vote", "and node.voted_for in (0, vote.sender)", ""),),
    ),
    Rule(
        "vote-only-for-current-logs",
        "Raft §5.4.1",
        "a vote is given only to a log that is at least as current",
        (
            Edit(
                f"{_ELECTIONS}:_would_vote",
                "current = (vote.last_term, vote.last_index) >= (node.log.last_term, node.log.last_index)",
                "current = True",
            ),
        ),
    ),
    Rule(
        "elections-in-a-row-wait-longer",
        "guarantees.md, Availability; ElectionTimer._patience",
        "rivals wait longer from election to election, so that one of them is left time to win",
        (Edit(f"{_TIMER}._patience", "+ max(0, self.elections - 2)", ""),),
        profile="distant",
    ),
    Rule(
        "terms-and-votes-before-messages",
        "consensus.md, D4; Raft, figure 2",
        "nothing of a term leaves before term and vote are durable",
        (Edit(f"{_OUTBOX}.take_messages", "or not self.hard_state_is_durable", ""),),
    ),
    Rule(
        "acknowledge-behind-the-hard-state",
        "consensus.md, D4",
        "an acknowledgement waits for the hard state",
        (
            Edit(
                "quorum.raft.core.following:acknowledge",
                "or not node.outbox.hard_state_is_durable",
                "",
            ),
        ),
        guard="every message waits for the hard state (terms-and-votes-before-messages)",
        beside="terms-and-votes-before-messages",
    ),
    Rule(
        "the-own-vote-when-durable",
        "consensus.md, D4",
        "a candidate counts its own vote only when it is durable",
        (
            Edit(
                f"{_ELECTIONS}:campaign",
                "_request_votes(node, pre=False, transfer=transfer)",
                "_request_votes(node, pre=False, transfer=transfer)\n_count_own(node, node.role)",
            ),
        ),
        guard="with three voters a vote of another one is needed, and its request leaves behind the fsync; "
        "it matters to a cluster of one",
    ),
    Rule(
        "a-pre-vote-is-no-vote",
        "consensus.md, D3",
        "an answer counts only for what was asked: a pre-vote elects nobody",
        (
            Edit(
                f"{_ELECTIONS}:handle_vote_reply",
                "if asked:",
                "if asked or (\n"
                "    reply.pre and attempt.kind is Role.CANDIDATE and reply.asked_term == node.term\n"
                "):",
            ),
        ),
    ),
    Rule(
        "a-vote-counts-in-its-term",
        "consensus.md, D3",
        "an answer counts only for the term that was asked",
        (
            Edit(
                f"{_ELECTIONS}:handle_vote_reply",
                "attempt.kind is Role.CANDIDATE and reply.asked_term == node.term",
                "attempt.kind is Role.CANDIDATE",
            ),
        ),
        profile="pauses",
    ),
    Rule(
        "pre-vote",
        "consensus.md, D8; dissertation §9.6",
        "a node begins a term only when a majority would elect it",
        (
            Edit(
                f"{_ELECTIONS}:tick_election",
                "pre_campaign(node)",
                'node.become_follower(node.term, 0, "tries again")\ncampaign(node, transfer=False)',
            ),
        ),
    ),
    Rule(
        "no-vote-while-a-leader-is-heard",
        "consensus.md, D8; dissertation §4.2.3",
        "a node that hears a leader refuses its vote and keeps its term",
        (
            Edit(
                f"{_ELECTIONS}:handle_vote",
                "deaf = bool(node.halted) or retired or (_hears_leader(node) and not vote.transfer)",
                "deaf = bool(node.halted) or retired",
            ),
        ),
    ),
    Rule(
        "check-quorum",
        "consensus.md, D8; dissertation §6.2",
        "a leader that hears no majority steps down within an election timeout",
        (
            Edit(
                f"{_LEADING}:check_quorum",
                "if node.now_ms - contact_ms > node.options.election_timeout_min_ms:",
                "if False:",
            ),
        ),
    ),
    Rule(
        "no-vote-in-a-term-that-has-a-leader",
        "elections.handle_vote",
        "once a term has a leader nobody else gets a vote in it",
        (
            Edit(
                f"{_ELECTIONS}:handle_vote",
                "and (node.role.leader_id == 0 or node.voted_for == vote.sender)",
                "",
            ),
        ),
        guard="a majority has voted in this term already; one vote more elects nobody",
        beside="one-vote-per-term",
    ),
    Rule(
        "proposals-stop-during-a-hand-over",
        "consensus.md, Rules of the core; dissertation §3.10",
        "a leader that hands over takes no proposals",
        (
            Edit(
                "quorum.raft.core.raft:Raft.propose",
                "if leader.transfer_target: raise",
                "if leader.transfer_target < 0: raise",
            ),
            Edit(
                "quorum.node.replica:NodeReplica.leadership_changed",
                "self._engine.accepts_proposals = not soft_state.transfer_target",
                "self._engine.accepts_proposals = True",
            ),
        ),
        guard="what is proposed behind the hand-over commits or does not, as at any end of a leadership; its "
        "origin sends it again under its number",
    ),
    Rule(
        "hand-over-to-a-full-log",
        "consensus.md, Rules of the core; dissertation §3.10",
        "the successor is told to campaign only when it has the whole log",
        (
            Edit(
                "quorum.raft.core.handover:hand_over",
                "target.match_index != node.log.last_index",
                "False",
            ),
        ),
        guard="a successor with an older log is elected by nobody; the hand-over only fails",
        beside="vote-only-for-current-logs",
    ),
)
