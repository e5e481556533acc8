"""Rules of membership and identity: whose votes and matches count, and how the members change."""

from __future__ import annotations

from typing import Final

from tests.simulation.rules.edits import Edit
from tests.simulation.rules.rule import Rule

_ELECTIONS = "quorum.raft.core.elections"
_FOUNDING = "quorum.raft.core.founding"
_LEADING = "quorum.raft.core.leading"
_MEMBERSHIP = "quorum.raft.core.membership"
_NODE = "quorum.raft.core.node:Node"
_REFUSAL = "quorum.raft.peers.admission:Admission.refusal"

RULES: Final = (
    Rule(
        "a-configuration-falls-with-its-entry",
        "consensus.md, Rules of the core; dissertation §4.1",
        "a configuration counts from its append and is reverted with its truncation",
        (Edit("quorum.raft.core.following:handle_append", "node.history.truncate(first)", "pass"),),
        guard="it takes a leader that is deposed between a change and its commit, and a vote or a count by "
        "that change. That is one seed of a hundred thousand; "
        "tests/unit/raft_core/test_raft_membership.py has one",
    ),
    Rule(
        "one-change-at-a-time",
        "consensus.md, Rules of the core; dissertation §4.1",
        "no change of the members before the one before is committed",
        (
            Edit(
                f"{_MEMBERSHIP}:_check_not_busy",
                "if node.commit_index < node.history.latest_index: raise",
                "if node.commit_index < 0: raise",
            ),
            Edit(
                f"{_MEMBERSHIP}:maintain",
                "max(leader.term_start_index, history.latest_index)",
                "leader.term_start_index",
            ),
        ),
        guard="the operator of this world waits for a change before it asks for the next; "
        "tests/unit/raft_core/test_raft_membership.py does not",
    ),
    Rule(
        "no-change-before-the-no-op",
        "consensus.md, Rules of the core; raft-dev 2015",
        "no change of the members before the first entry of the leader's term is committed",
        (
            Edit(
                f"{_MEMBERSHIP}:_check_not_busy",
                "if node.commit_index < leader.term_start_index: raise",
                "if node.commit_index < 0: raise",
            ),
            Edit(
                f"{_MEMBERSHIP}:maintain",
                "max(leader.term_start_index, history.latest_index)",
                "history.latest_index",
            ),
        ),
        guard="it takes an operator's request, or a learner that has caught up, between an election and the "
        "commit of its no-op; tests/unit/raft_core/test_raft_membership.py has both",
    ),
    Rule(
        "learners-do-not-count",
        "consensus.md, Membership",
        "what a learner holds commits nothing",
        (
            Edit(
                f"{_LEADING}:majority_match",
                "for node_id in latest.voters",
                "for node_id in (*latest.voters, *latest.learners)",
            ),
        ),
        profile="members",
    ),
    Rule(
        "a-removed-leader-does-not-count-itself",
        "dissertation §4.2.2",
        "a leader that is no voter any more does not count its own copy",
        (
            Edit(
                f"{_LEADING}:majority_match",
                "for node_id in latest.voters",
                "for node_id in {*latest.voters, own}",
            ),
        ),
        profile="members",
    ),
    Rule(
        "votes-by-incarnation",
        "consensus.md, Membership",
        "votes count only from incarnations in the own log or snapshot",
        (
            Edit(
                f"{_NODE}.vote_counts",
                "member is not None and member.incarnation == incarnation",
                "member is not None",
            ),
        ),
    ),
    Rule(
        "matches-by-incarnation",
        "consensus.md, Membership",
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
        guard="such a disk is not let in",
        beside="a-retired-disk-is-not-let-in",
        profile="members",
    ),
    Rule(
        "retired-incarnations-are-refused",
        "consensus.md, Membership",
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
        guard="such a disk is not let in",
        beside="a-retired-disk-is-not-let-in",
        profile="members",
    ),
    Rule(
        "a-retired-disk-is-not-let-in",
        "consensus.md, Membership",
        "nobody talks with a retired disk, nor with another one than the voter's",
        (
            Edit(_REFUSAL, "self.applied is not None and disk in self.applied.retired", "False"),
            Edit(_REFUSAL, "if disk in self.latest.retired:", "if False:"),
            Edit(_REFUSAL, "voter is not None and voter.incarnation != disk", "False"),
        ),
        guard="its answers and votes do not count",
        beside="matches-by-incarnation",
        profile="members",
    ),
    Rule(
        "who-joins-never-votes-before-it-is-named",
        "consensus.md, Membership",
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
        "a-cluster-is-founded-by-all",
        "consensus.md, Membership; guarantees.md, Membership",
        "a founder founds only with the word of every other one that its log is empty",
        (
            Edit(f"{_FOUNDING}:may_found", "and not missing_founders(node)", ""),
            Edit(
                "quorum.raft.core.leading:_found",
                "node.founding",
                '{**dict.fromkeys(node.identity.founders, "0" * 32), **node.founding}',
            ),
        ),
        profile="founders",
    ),
    Rule(
        "nobody-founds-beside-a-log",
        "consensus.md, Membership; guarantees.md, Membership",
        "a founder founds nothing beside one that belongs to a cluster, or whose log is not empty",
        (
            Edit("quorum.raft.core.raft:Raft.founding_term", "and node.history.latest is None", ""),
            Edit(f"{_FOUNDING}:meet", "if met.cluster_id and term is None:", "if False:"),
        ),
        profile="founders",
    ),
    Rule(
        "a-level-rises-once-all-support-it",
        "upgrade.md, The feature level",
        "no feature level is proposed that a member, a learner too, has not said that it supports",
        (Edit("quorum.node.levels:Levels.maybe_raise", "self.of_member(each) or 0", "self.supported_level"),),
        profile="updates",
    ),
    Rule(
        "promotion-of-who-has-caught-up",
        "consensus.md, Rules of the core; dissertation §4.2.1",
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
