"""Rules of membership and identity: whose votes and matches count, and how the members change."""

from __future__ import annotations

from typing import Final

from tests.simulation.rules.edits import Edit
from tests.simulation.rules.rule import Rule

_ELECTIONS = "quorum.raft.core.elections"
_MEMBERSHIP = "quorum.raft.core.membership"
_NODE = "quorum.raft.core.node:Node"
_RIVALS = "quorum.raft.core.rivals"

RULES: Final = (
    Rule(
        "a-configuration-falls-with-its-entry",
        "raft.md, Rules of the core; dissertation §4.1",
        "a configuration counts from its append and is reverted with its truncation",
        (Edit("quorum.raft.core.following:handle_append", "node.history.truncate(first)", "pass"),),
    ),
    Rule(
        "one-change-at-a-time",
        "raft.md, Rules of the core; dissertation §4.1",
        "no change of the members before the one before is committed",
        (
            Edit(
                f"{_MEMBERSHIP}:_check_not_busy",
                "if node.commit_index < node.history.latest_index: raise",
                "if node.commit_index < 0: raise",
            ),
            Edit(
                f"{_MEMBERSHIP}:maintain",
                "max(node.term_start_index, history.latest_index)",
                "node.term_start_index",
            ),
        ),
    ),
    Rule(
        "no-change-before-the-no-op",
        "raft.md, Rules of the core; raft-dev 2015",
        "no change of the members before the first entry of the leader's term is committed",
        (
            Edit(
                f"{_MEMBERSHIP}:_check_not_busy",
                "if node.commit_index < node.term_start_index: raise",
                "if node.commit_index < 0: raise",
            ),
            Edit(
                f"{_MEMBERSHIP}:maintain",
                "max(node.term_start_index, history.latest_index)",
                "history.latest_index",
            ),
        ),
    ),
    Rule(
        "learners-do-not-count",
        "raft.md, Identity and membership",
        "what a learner holds commits nothing",
        (
            Edit(
                f"{_NODE}.majority_match",
                "latest.voters.items()",
                "{**latest.voters, **latest.learners}.items()",
            ),
        ),
    ),
    Rule(
        "a-removed-leader-does-not-count-itself",
        "dissertation §4.2.2",
        "a leader that is no voter any more does not count its own copy",
        (
            Edit(
                f"{_NODE}.majority_match",
                "matches: list[float] = []",
                "matches = [] if own.node_id in latest.voters else [self.log.durable_index]",
            ),
        ),
    ),
    Rule(
        "a-record-commits-without-its-node",
        "raft.md, Identity and membership",
        "the entry that names an incarnation is committed without it",
        (
            Edit(
                f"{_NODE}._is_recorded",
                "return recorded is not None and recorded.incarnation == member.incarnation",
                "return True",
            ),
            Edit(f"{_NODE}._is_recorded", "if proven is None: return False", "if True: return True"),
        ),
    ),
    Rule(
        "votes-by-incarnation",
        "raft.md, Identity and membership",
        "votes count only from incarnations in the own log or snapshot",
        (
            Edit(
                f"{_NODE}.vote_counts",
                "member is not None and bool(incarnation) and member.incarnation == incarnation",
                "member is not None",
            ),
        ),
    ),
    Rule(
        "matches-by-incarnation",
        "raft.md, Identity and membership",
        "acknowledgements count only from recorded incarnations; a new one starts at match 0",
        (
            Edit(
                "quorum.raft.core.leading:identify",
                "if member.incarnation != incarnation and (member.incarnation or latest.names(incarnation)):",
                "if False:",
            ),
            Edit(
                "quorum.raft.core.leading:identify",
                "if peer.incarnation != incarnation:",
                "if not peer.incarnation:",
            ),
        ),
    ),
    Rule(
        "retired-incarnations-are-refused",
        "raft.md, Identity and membership",
        "a retired incarnation gets no vote and is never recorded again",
        (
            Edit(
                f"{_ELECTIONS}:handle_vote",
                "retired = latest is not None and incarnation in latest.retired",
                "retired = False",
            ),
            Edit(
                "quorum.raft.core.configuration:Configuration.names",
                "return incarnation in self.retired or any",
                "return any",
            ),
        ),
    ),
    Rule(
        "who-joins-never-votes-before-it-is-named",
        "raft.md, Identity and membership",
        "a node that joins neither votes nor campaigns until the log makes it a voter",
        (
            Edit(
                "quorum.node.member:QuorumMember._build_core",
                "founders if identity.founder else {}",
                "founders",
            ),
        ),
        guard="its incarnation is not recorded, so its vote does not count",
        beside="votes-by-incarnation",
    ),
    Rule(
        "who-met-a-cluster-founds-none",
        "guarantees.md, Members; consensus.md, Why a founder that lost its disk founds nothing",
        "an empty founder that met a cluster neither campaigns nor votes for anybody outside it",
        (
            Edit(
                f"{_RIVALS}:_known_rival",
                'next((met for met in node.met.values() if met not in ("", own)), "")',
                '""',
            ),
        ),
        profile="founders",
    ),
    Rule(
        "a-founding-in-a-log-is-a-cluster",
        "guarantees.md, Members; consensus.md, Why a founder that lost its disk founds nothing",
        "an empty founder founds nothing beside a founding that it was told to stand in another node's log",
        (Edit(f"{_RIVALS}:take_claim", "if claim.cluster_id:", "if False:"),),
        profile="founders",
    ),
    Rule(
        "a-met-cluster-is-remembered",
        "guarantees.md, Members; identity.store_met_cluster",
        "a founder that met a cluster founds none after a restart either",
        (Edit("quorum.node.member:QuorumMember.attach", "if met_cluster_id:", "if False:"),),
        profile="founders",
    ),
    Rule(
        "promotion-of-who-has-caught-up",
        "raft.md, Rules of the core; dissertation §4.2.1",
        "a learner becomes a voter only when it has caught up",
        (
            Edit(
                f"{_MEMBERSHIP}:_has_caught_up",
                "and peer.caught_up and peer.match_index >= node.history.latest_index",
                "",
            ),
        ),
        guard="a voter that lags holds up commits, and loses none",
    ),
)
