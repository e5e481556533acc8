"""Elections: when to campaign, whom to vote for, when one is won.

Decides pre-votes, votes and their refusal while a leader is heard. Does not know what a leader does
(`leading.py` takes over through ``become_leader``). Votes and terms are hard state: a request or an answer
leaves only once they are durable, and the own vote is counted only then (Raft §5.2, §5.4.1; dissertation §9.6
for pre-votes, §3.10 for hand-overs).
"""

from quorum.raft.core.founding import founders_of, may_found
from quorum.raft.core.leading import become_leader
from quorum.raft.core.messages import Role, TimeoutNow, Vote, VoteReply
from quorum.raft.core.node import Node
from quorum.raft.core.roles import Candidate, Follower, Leader


def tick_election(node: Node) -> None:
    """Campaign if no leader was heard for the drawn time."""
    if node.now_ms < node.timer.campaign_ms:
        return
    if may_campaign(node):
        pre_campaign(node)
    else:
        node.timer.put_off(node.now_ms)


def hurry(node: Node) -> None:
    """Campaign soon, because there is a fresh reason: a connection came or went."""
    if node.role.leader_id == 0:
        node.timer.hurry(node.now_ms)


def forget_leader(node: Node) -> None:
    """Stop believing in the leader: its connection closed, so it is probably gone."""
    node.role = Follower()
    hurry(node)


def may_campaign(node: Node) -> bool:
    """Return whether this node could win and may try: a voter whose own vote counts, or one whose removal is
    not known to be committed, which asks the others without a vote of its own; with an empty log a founder
    that has heard of all others."""
    if node.halted or node.receiving.installing or (node.history.latest is None and not may_found(node)):
        return False
    return node.vote_counts(node.identity.node_id, node.identity.incarnation) or node.may_be_needed


def pre_campaign(node: Node) -> None:
    """Ask whether an election would be won, without raising the term."""
    attempt = node.become_candidate(pre=True, story="no leader was heard")
    _request_votes(node, pre=True, transfer=False)
    _count_own(node, attempt)


def campaign(node: Node, transfer: bool) -> None:
    """Begin a new term and ask for votes; requests and the own vote wait for the hard state."""
    node.become_candidate(pre=False, story="the leader hands over" if transfer else "the pre-vote was won")
    _request_votes(node, pre=False, transfer=transfer)


def count_own_vote(node: Node, attempt: Candidate) -> None:
    """Count the own vote once it is durable (defect D4 of pysyncobj: a vote that a crash forgets)."""
    if attempt.kind is Role.CANDIDATE and node.outbox.hard_state_is_durable:
        _count_own(node, attempt)


def _request_votes(node: Node, pre: bool, transfer: bool) -> None:
    own = node.identity.node_id
    term = node.term + 1 if pre else node.term
    last_index, last_term = node.log.last_index, node.log.last_term
    founders = founders_of(node)
    for peer in node.voter_ids():
        if peer != own:
            node.send(Vote(term, own, peer, pre, transfer, last_index, last_term, founders))


def handle_vote(node: Node, vote: Vote, incarnation: str) -> None:
    """Answer a request; a term that comes with it is taken only if no leader is heard.

    The candidate need not be a voter by this node's log, which may lag; a retired incarnation gets nothing.

    Source: dissertation §4.2.3: otherwise a removed or cut-off node could depose a working leader.
    """
    latest = node.history.latest
    retired = latest is not None and incarnation in latest.retired
    deaf = bool(node.halted) or retired or (_hears_leader(node) and not vote.transfer)
    if vote.pre:
        granted = not deaf and vote.term > node.term and _would_vote(node, vote)
    else:
        if vote.term > node.term and not deaf:
            node.become_follower(vote.term, 0, f"node {vote.sender} campaigns in term {vote.term}")
        granted = (
            not node.halted
            and not retired
            and vote.term == node.term
            and node.role.kind in (Role.FOLLOWER, Role.PRE_CANDIDATE)
            and node.voted_for in (0, vote.sender)
            and (node.role.leader_id == 0 or node.voted_for == vote.sender)
            and _would_vote(node, vote)
        )
        if granted:
            node.become_follower(node.term, node.role.leader_id, f"votes for node {vote.sender}")
            node.outbox.hard_dirty |= node.voted_for != vote.sender
            node.voted_for = vote.sender
            node.timer.put_off(node.now_ms)
        elif not deaf:
            # A candidate with an older log cannot win here; do not wait for it.
            hurry(node)
    node.send(VoteReply(node.term, node.identity.node_id, vote.sender, vote.pre, granted, vote.term))


def _hears_leader(node: Node) -> bool:
    role = node.role
    if isinstance(role, Follower):
        return node.now_ms - role.heard_ms < node.options.election_timeout_min_ms
    return isinstance(role, Leader)


def _would_vote(node: Node, vote: Vote) -> bool:
    current = (vote.last_term, vote.last_index) >= (node.log.last_term, node.log.last_index)
    return current and _has_a_vote(node, vote)


def _has_a_vote(node: Node, vote: Vote) -> bool:
    """A founder votes before the founding; then a member does, unless the log names another incarnation of
    it.

    The candidate decides whether a vote counts: a cluster that exists may have named this founder, and a
    founding is one of the same founders. A learner votes too: it may have been promoted by an entry that it
    does not have yet, and be needed (etcd-io/raft); and a removed voter does as long as that is not known to
    be committed.
    """
    own = node.identity
    latest = node.history.latest
    if latest is None:
        has_founding = vote.last_index > 0 and not vote.founders
        founds = has_founding or (may_found(node) and vote.founders == founders_of(node))
        return founds and own.node_id in own.founders
    return latest.has(own.node_id, own.incarnation) or node.may_be_needed


def handle_vote_reply(node: Node, reply: VoteReply, incarnation: str) -> None:
    """Count an answer to the attempt under way; anything else is late and ignored."""
    attempt = node.role
    if reply.term > node.term:
        if not node.halted:
            node.become_follower(reply.term, 0, f"voter {reply.sender} is in term {reply.term}")
            if isinstance(attempt, Candidate):
                node.timer.retry_soon(node.now_ms)
        return
    if not isinstance(attempt, Candidate):
        return
    if reply.pre:
        asked = attempt.kind is Role.PRE_CANDIDATE and reply.asked_term == node.term + 1
    else:
        asked = attempt.kind is Role.CANDIDATE and reply.asked_term == node.term
    if asked:
        _count(node, attempt, reply.sender, incarnation, reply.granted)


def _count_own(node: Node, attempt: Candidate) -> None:
    _count(node, attempt, node.identity.node_id, node.identity.incarnation, granted=True)


def _count(node: Node, attempt: Candidate, sender: int, incarnation: str, granted: bool) -> None:
    if not node.vote_counts(sender, incarnation):
        return
    attempt.count(sender, granted)
    pre = attempt.kind is Role.PRE_CANDIDATE
    if attempt.won:
        if pre:
            campaign(node, transfer=False)
        else:
            become_leader(node)
    elif attempt.lost and not pre:
        node.become_follower(node.term, 0, f"the election of term {node.term} is lost")
        node.timer.retry_soon(node.now_ms)
    elif not granted and pre:
        node.timer.retry_soon(node.now_ms)


def handle_timeout_now(node: Node, message: TimeoutNow) -> None:
    """Campaign at once for the leader that asks for it, without a pre-vote."""
    if (
        message.term == node.term
        and isinstance(node.role, Follower)
        and node.role.leader_id == message.sender
        and may_campaign(node)
    ):
        campaign(node, transfer=True)
