"""Elections: when to campaign, whom to vote for, when one is won.

Decides pre-votes, votes and their refusal while a leader is heard. Does not know what a leader does
(`leading.py` takes over through ``become_leader``). Votes and terms are hard state: a request or an answer
leaves only once they are durable, and the own vote is counted only then (Raft §5.2, §5.4.1; dissertation §9.6
for pre-votes, §3.10 for hand-overs).
"""

from quorum.raft.core.founding import founders_of, may_found
from quorum.raft.core.leading import become_leader
from quorum.raft.core.messages import Role, TimeoutNow, Vote, VoteReply
from quorum.raft.core.node import NEVER, Node

#: pre-votes in a row that are tried again at once; each one after them waits twice as long as the one before
QUICK_ATTEMPTS = 4


def tick_election(node: Node) -> None:
    """Campaign if no leader was heard for the drawn time."""
    if node.role is Role.LEADER or node.now_ms < node.campaign_ms:
        return
    if may_campaign(node):
        pre_campaign(node)
    else:
        node.campaign_ms = node.now_ms + node.span_ms


def forgive_pause(node: Node) -> None:
    """Put a campaign off, once, because this node itself was paused: the leader's messages may wait in its
    buffers."""
    if node.role is not Role.LEADER and node.campaign_ms <= node.now_ms and not node.pause_forgiven:
        node.pause_forgiven = True
        node.campaign_ms = node.now_ms + node.options.heartbeat_interval_ms


def hurry(node: Node) -> None:
    """Campaign soon, because there is a fresh reason: a connection came or went."""
    if node.role is not Role.LEADER and node.leader_id == 0:
        node.campaign_ms = min(node.campaign_ms, node.now_ms + node.draw_prompt() * _patience(node))


def forget_leader(node: Node) -> None:
    """Stop believing in the leader: its connection closed, so it is probably gone."""
    node.leader_id = 0
    node.heard_ms = NEVER
    node.forget_reports()
    hurry(node)


def may_campaign(node: Node) -> bool:
    """Return whether this node could win and may try: a voter whose own vote counts, or one whose removal is
    not known to be committed, which asks the others without a vote of its own; with an empty log a founder
    that has heard of all others."""
    if node.halted or node.installing or (node.history.latest is None and not may_found(node)):
        return False
    return node.vote_counts(node.identity.node_id, node.identity.incarnation) or node.may_be_needed


def pre_campaign(node: Node) -> None:
    """Ask whether an election would be won, without raising the term."""
    node.become_candidate(pre=True, voters=node.history.latest, story="no leader was heard")
    _request_votes(node, pre=True, transfer=False)
    _count(node, node.identity.node_id, node.identity.incarnation, granted=True)


def campaign(node: Node, transfer: bool) -> None:
    """Begin a new term and ask for votes; requests and the own vote wait for the hard state."""
    story = "the leader hands over" if transfer else "the pre-vote was won"
    node.become_candidate(pre=False, voters=node.history.latest, story=story)
    _request_votes(node, pre=False, transfer=transfer)


def count_own_vote(node: Node) -> None:
    """Count the own vote once it is durable (defect D4 of pysyncobj: a vote that a crash forgets)."""
    if node.role is Role.CANDIDATE and node.hard_state_is_durable:
        _count(node, node.identity.node_id, node.identity.incarnation, granted=True)


def _voter_ids(node: Node) -> tuple[int, ...]:
    latest = node.history.latest
    return tuple(sorted(latest.voters if latest is not None else node.identity.founders))


def _request_votes(node: Node, pre: bool, transfer: bool) -> None:
    own = node.identity.node_id
    term = node.term + 1 if pre else node.term
    last_index, last_term = node.log.last_index, node.log.last_term
    founders = founders_of(node)
    for peer in _voter_ids(node):
        if peer != own:
            node.send(Vote(term, own, peer, pre, transfer, last_index, last_term, founders))


def handle_vote(node: Node, vote: Vote, incarnation: str) -> None:
    """Answer a request; a term that comes with it is taken only if no leader is heard.

    Who asks need not be a voter by this node's log, which may be behind; a retired incarnation gets nothing.

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
            and node.role in (Role.FOLLOWER, Role.PRE_CANDIDATE)
            and node.voted_for in (0, vote.sender)
            and (node.leader_id == 0 or node.voted_for == vote.sender)
            and _would_vote(node, vote)
        )
        if granted:
            node.become_follower(node.term, node.leader_id, f"votes for node {vote.sender}")
            node.hard_dirty = node.hard_dirty or node.voted_for != vote.sender
            node.voted_for = vote.sender
            node.campaign_ms = node.now_ms + node.span_ms
        elif not deaf:
            # Whoever asks with an older log cannot win here; do not wait for it.
            hurry(node)
    node.send(VoteReply(node.term, node.identity.node_id, vote.sender, vote.pre, granted, vote.term))


def _hears_leader(node: Node) -> bool:
    if node.role is Role.LEADER:
        return True
    return node.leader_id != 0 and node.now_ms - node.heard_ms < node.options.election_timeout_min_ms


def _would_vote(node: Node, vote: Vote) -> bool:
    current = (vote.last_term, vote.last_index) >= (node.log.last_term, node.log.last_index)
    return current and _has_a_vote(node, vote)


def _has_a_vote(node: Node, vote: Vote) -> bool:
    """A founder votes before the founding; then a member does, unless the log names another incarnation of
    it.

    Whether a vote counts is decided by who asked: a cluster that exists may have named this founder, and a
    founding is one of the same founders. A learner votes too: it may have been promoted by an entry that it
    does not have yet, and be needed (etcd-io/raft); and a removed voter does as long as that is not known to
    be committed.
    """
    own = node.identity
    latest = node.history.latest
    if latest is None:
        founds = vote.last_index > 0 or (may_found(node) and vote.founders == founders_of(node))
        return founds and own.node_id in own.founders
    return latest.has(own.node_id, own.incarnation) or node.may_be_needed


def handle_vote_reply(node: Node, reply: VoteReply, incarnation: str) -> None:
    """Count an answer to the attempt under way; anything else is late and ignored."""
    if reply.term > node.term:
        if not node.halted:
            campaigning = node.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
            node.become_follower(reply.term, 0, f"voter {reply.sender} is in term {reply.term}")
            if campaigning:
                _retry_soon(node)
        return
    if reply.pre:
        asked = node.role is Role.PRE_CANDIDATE and reply.asked_term == node.term + 1
    else:
        asked = node.role is Role.CANDIDATE and reply.asked_term == node.term
    if asked:
        _count(node, reply.sender, incarnation, reply.granted)


def _count(node: Node, sender: int, incarnation: str, granted: bool) -> None:
    tally = node.tally
    if tally is None:
        return
    if not node.vote_counts(sender, incarnation):
        if sender in _voter_ids(node):
            node.note_refused(sender, incarnation)
        return
    if granted:
        tally.grant(sender)
    else:
        tally.refuse(sender)
    if tally.won:
        if node.role is Role.PRE_CANDIDATE:
            campaign(node, transfer=False)
        else:
            become_leader(node)
    elif tally.lost and node.role is Role.CANDIDATE:
        node.become_follower(node.term, 0, f"the election of term {node.term} is lost")
        _retry_soon(node)
    elif not granted and node.role is Role.PRE_CANDIDATE:
        _retry_soon(node)


def _retry_soon(node: Node) -> None:
    """Try again at once, because whoever refused may hear of the leader's end any moment."""
    node.campaign_ms = min(node.campaign_ms, node.now_ms + node.draw_retry() * _patience(node))


def _patience(node: Node) -> int:
    """Return how many times longer than a first one this attempt waits; election timeouts bound it.

    A node that goes on being refused, as one that was removed without being told, comes to their pace. And
    from the second election in a row on each doubles it: where a vote takes longer than the delays, rivals
    would give up their elections before the votes arrive, for ever.
    """
    doublings = max(0, node.attempts - QUICK_ATTEMPTS) + max(0, node.elections - 2)
    return 1 << min(doublings, 10)


def handle_timeout_now(node: Node, message: TimeoutNow) -> None:
    """Campaign at once for the leader that asks for it, without a pre-vote."""
    if (
        message.term == node.term
        and node.role is Role.FOLLOWER
        and node.leader_id == message.sender
        and may_campaign(node)
    ):
        campaign(node, transfer=True)
