"""The leader's side: replication, commit, and staying leader.

Decides what each peer is sent, when an index is committed, and when to step down. Does not know how elections
are won (`elections.py`), how the membership changes (`membership.py`) nor how snapshots travel
(`sending.py`). Everything here is soft state of one leadership but the entries that it appends.

Source: Raft §5.3, §5.4.2 (only entries of the own term commit by counting); dissertation §6.2 (check-quorum).
"""

from quorum.raft.core.configuration import founding_configuration, majority_value, parse_configuration
from quorum.raft.core.entry import Entry, EntryKind, size_bytes
from quorum.raft.core.errors import ConfigurationError, InvariantError, MessageError
from quorum.raft.core.handover import begin_departure, give_up_transfer, hand_over, leave_for_disk
from quorum.raft.core.membership import append_configuration, maintain, sync_progress
from quorum.raft.core.messages import Append, AppendReply, Heartbeat, HeartbeatReply, Role
from quorum.raft.core.node import Node
from quorum.raft.core.progress import Flow, Progress
from quorum.raft.core.roles import NEVER, Leader, check_role_move
from quorum.raft.core.sending import begin_snapshot, finish_snapshot

#: a node hears itself at any time
ALWAYS = float("inf")
#: {first index: entries} that one ready() sends to peers, so that they are cut and encoded once
Slices = dict[int, tuple[Entry, ...]]

# --- becoming and staying


def become_leader(node: Node) -> None:
    """Lead the term that was won; its first entry is a no-op, or the founding of the cluster."""
    check_role_move(node.role.kind, Role.LEADER, f"elected in term {node.term}")
    node.role = leader = Leader(node.identity.node_id, node.log.last_index + 1, node.now_ms)
    if node.history.latest is None:
        _found(node, leader)
    else:
        node.append_own(leader, EntryKind.NOOP, b"", 0)
        sync_progress(node, leader)


def _found(node: Node, leader: Leader) -> None:
    configuration = founding_configuration(node.identity.founders, node.founding)
    payload = node.identity.found(configuration)
    try:
        founded = parse_configuration(payload)
    except ConfigurationError as error:
        raise InvariantError(f"the founding payload of this node cannot be read back: {error}") from error
    if founded.voters != configuration.voters:
        raise InvariantError(f"the founding payload names {founded.voters}, not {configuration.voters}")
    append_configuration(node, leader, EntryKind.FOUND, founded, payload)


def tick_leader(node: Node, leader: Leader, undurable_ms: float) -> None:
    """Let time work on the leadership: quorum contact, heartbeats, hand-over, stalled peers.

    Args:
        node: the leader.
        leader: what it knows as such.
        undurable_ms: for how long its oldest group waits for its own disk.
    """
    check_quorum(node, leader)
    if node.role is not leader:
        return
    if leader.transfer_target and node.now_ms >= leader.transfer_until_ms:
        give_up_transfer(node, leader)
        maintain(node, leader)
    begin_departure(node, leader)
    if undurable_ms >= node.options.undurable_ms_max:
        leave_for_disk(node, leader)
    if node.now_ms >= leader.heartbeat_ms:
        leader.heartbeat_ms = node.now_ms + node.options.heartbeat_interval_ms
        leader.heartbeat_due = True
    for peer in leader.progress.values():
        if peer.is_stalled(node.now_ms, node.options.election_timeout_max_ms):
            peer.become_probe()
    for node_id, leaver in list(leader.leaving.items()):
        sent_ms = leaver.sent_ms
        if sent_ms is not None and node.now_ms - sent_ms >= node.options.election_timeout_min_ms:
            del leader.leaving[node_id]


def forgive_pause(node: Node, leader: Leader) -> None:
    """Let a leader that stood still ask its voters anew, once, before it judges that they were silent.

    What arrives now may have been sent before the pause: only answers to what leaves from here on count.
    """
    contact_ms = quorum_contact_ms(node, leader, confirmed=False)
    if leader.resumed_ms == NEVER and node.now_ms - contact_ms > node.options.election_timeout_min_ms:
        leader.resumed_ms = node.now_ms
        leader.heartbeat_due = True
    check_quorum(node, leader)


def check_quorum(node: Node, leader: Leader) -> None:
    """Step down if no majority was heard within an election timeout: another leader may exist by now."""
    contact_ms = quorum_contact_ms(node, leader, confirmed=leader.resumed_ms != NEVER)
    if contact_ms >= leader.resumed_ms:
        leader.resumed_ms = NEVER
    else:
        contact_ms = leader.resumed_ms
    if node.now_ms - contact_ms > node.options.election_timeout_min_ms:
        node.become_follower(node.term, 0, f"no majority was heard since {contact_ms:.0f} ms")


def quorum_contact_ms(node: Node, leader: Leader, confirmed: bool) -> float:
    """Return when a leader last heard a majority: each voter of it was heard then or later; ALWAYS if it
    needs no other.

    Args:
        node: the leader.
        leader: what it knows as such.
        confirmed: count only answers to heartbeats, from when these were sent; else whatever was received.
    """
    latest = node.history.latest
    if latest is None:
        return NEVER
    contacts: list[float] = []
    for node_id in latest.voters:
        if node_id == node.identity.node_id:
            contacts.append(ALWAYS)
        else:
            peer = leader.progress[node_id]
            contacts.append(peer.confirmed_ms if confirmed else peer.contact_ms)
    contact_ms = majority_value(contacts, len(latest.voters))
    return NEVER if contact_ms is None else contact_ms


# --- which peers speak


def identify(node: Node, leader: Leader, sender: int, incarnation: str) -> Progress | None:
    """Return the progress of this very incarnation, or None if the sender is not a member or was refused.

    A learner is followed as it is heard; it counts once the entry that makes it a voter names it. What was
    retired, or is another member's, is never recorded.
    """
    peer, latest = leader.progress.get(sender), node.history.latest
    member = latest and (latest.voters.get(sender) or latest.learners.get(sender))
    if peer is None or latest is None or member is None:
        return None
    if member.incarnation != incarnation and (member.incarnation or latest.names(incarnation)):
        return None
    if peer.incarnation != incarnation:
        node.sending.release(peer.outgoing)
        peer = leader.progress[sender] = Progress(incarnation, node.log.last_index + 1, node.now_ms)
    peer.hear(node.now_ms)
    return peer


# --- answers


def handle_append_reply(node: Node, peer: Progress, reply: AppendReply) -> None:
    """Take over a proven match, or go back to where the logs can still be equal."""
    if reply.rejected:
        _handle_reject(node, peer, reply)
        return
    take_match(node, peer, reply.sender, reply.match_index)
    if peer.flow is Flow.PROBE and peer.match_index >= peer.next_index - 1:
        peer.become_replicate(node.now_ms)


def take_match(node: Node, peer: Progress, sender: int, match_index: int) -> None:
    """Note what the peer holds durably."""
    if match_index > node.log.last_index:
        raise MessageError(
            f"node {sender} claims to match up to {match_index}; our log ends at {node.log.last_index}"
        )
    peer.matched(match_index, node.now_ms)
    if peer.flow is Flow.SNAPSHOT and node.log.term_at(peer.match_index) is not None:
        finish_snapshot(node, peer)


def _handle_reject(node: Node, peer: Progress, reply: AppendReply) -> None:
    late = reply.prev_index <= peer.match_index
    if (
        peer.flow is Flow.SNAPSHOT
        or late
        or (peer.flow is Flow.PROBE and reply.prev_index != peer.next_index - 1)
    ):
        return
    if peer.flow is Flow.REPLICATE:
        if reply.prev_index >= peer.next_index:
            return
        peer.become_probe()
    hint = min(reply.hint_index, reply.prev_index - 1)
    if reply.hint_term and hint >= node.log.first_index - 1:
        hint = node.log.last_at_most(hint, reply.hint_term)
    peer.next_index = max(peer.match_index + 1, hint + 1)
    peer.probe_sent = False


def handle_heartbeat_reply(node: Node, peer: Progress, reply: HeartbeatReply) -> None:
    """Note that the peer follows; it heals lost acknowledgements and lost probes."""
    peer.confirmed_ms = max(peer.confirmed_ms, min(reply.sent_ms, node.now_ms))
    peer.clock_ms = reply.clock_ms
    take_match(node, peer, reply.sender, reply.match_index)
    if peer.flow is Flow.PROBE and peer.probe_sent and _probe_is_old(node, peer):
        peer.probe_sent = False
    peer.answered_heartbeat(node.commit_index)


def _probe_is_old(node: Node, peer: Progress) -> bool:
    return node.now_ms - peer.sent_ms >= node.options.election_timeout_min_ms


def advance_commit(node: Node, leader: Leader) -> None:
    """Commit what a majority holds durably, if it is of the own term."""
    if node.commit_index == node.log.last_index:
        return
    index = majority_match(node, leader)
    if index <= node.commit_index:
        return
    if index >= leader.term_start_index:
        node.commit_to(index)
        leader.uncommitted.settle(index)
    latest = node.history.latest
    if latest is not None and (latest.learners or node.identity.node_id not in latest.voters):
        begin_departure(node, leader)
        maintain(node, leader)


def majority_match(node: Node, leader: Leader) -> int:
    """Return the index that a majority of the voters holds durably, 0 if none does."""
    latest = node.history.latest
    if latest is None:
        return 0
    own, progress = node.identity.node_id, leader.progress
    matches = [
        node.log.durable_index if node_id == own else progress[node_id].match_index
        for node_id in latest.voters
    ]
    matches.sort()
    return matches[(len(matches) - 1) // 2]


# --- sending


def replicate(node: Node, leader: Leader) -> None:
    """Send every peer what it lacks and may be sent, the commit index at once, and the heartbeats that are
    due.

    A peer whose incarnation was not heard yet gets heartbeats only: the one that was retired may still be
    there, and must not learn of a change that is not committed.
    """
    heartbeats, leader.heartbeat_due = leader.heartbeat_due, False
    own = node.identity.node_id
    slices: Slices = {}
    for node_id, peer in leader.progress.items():
        if heartbeats:
            commit = min(node.commit_index, peer.match_index)
            clocks = node.now_ms, peer.clock_ms
            node.send(Heartbeat(node.term, own, node_id, commit, *clocks, node.commit_index))
        if not peer.incarnation:
            continue
        if peer.flow is Flow.PROBE and not peer.probe_sent:
            _send_append(node, node_id, peer, slices)
        elif peer.flow is Flow.REPLICATE and (
            peer.next_index <= node.log.last_index or peer.commit_sent < node.commit_index
        ):
            _send_ahead(node, node_id, peer, slices)
    if leader.leaving:
        _tell_leavers(node, leader, slices)
    if leader.transfer_target:
        hand_over(node, leader)


def _tell_leavers(node: Node, leader: Leader, slices: Slices) -> None:
    """Send a node that left the entry by which it did, once it is committed.

    One append, without repeat: a removed node that does not know it only campaigns in vain.

    No node hears of it before: a node that holds the entry refuses its vote to those that do not, and as long
    as it is not committed they may need that vote.
    """
    for node_id, leaver in leader.leaving.items():
        if leaver.sent_ms is None and node.commit_index >= leaver.left_index:
            leaver.sent_ms = node.now_ms
            silent_ms = node.now_ms - leaver.progress.contact_ms
            is_near = node.log.term_at(leaver.progress.next_index - 1) is not None
            if is_near and silent_ms <= node.options.election_timeout_max_ms:
                _send_append(node, node_id, leaver.progress, slices)


def _send_ahead(node: Node, node_id: int, peer: Progress, slices: Slices) -> None:
    while peer.next_index <= node.log.last_index and peer.inflight_bytes < node.options.inflight_bytes_max:
        if not _send_append(node, node_id, peer, slices):
            return
    if peer.commit_sent < node.commit_index:
        _send_append(node, node_id, peer, None)


def _send_append(node: Node, node_id: int, peer: Progress, slices: Slices | None) -> bool:
    """Send one append from the peer's next index; a snapshot instead if the log no longer reaches back to
    there.

    Args:
        node: the leader.
        node_id: the peer's id.
        peer: its progress.
        slices: what other peers were sent in this turn; None to send the commit index without entries.

    Returns:
        Whether an append left.
    """
    prev_index = peer.next_index - 1
    prev_term = node.log.term_at(prev_index)
    if prev_term is None:
        begin_snapshot(node, node_id, peer)
        return False
    entries: tuple[Entry, ...] = ()
    if slices is not None and prev_index < node.log.last_index:
        if peer.next_index not in slices:
            limit = node.options.append_bytes_max
            slices[peer.next_index] = node.log.slice(peer.next_index, node.log.last_index, limit)
        entries = slices[peer.next_index]
    own = node.identity.node_id
    probe = peer.flow is Flow.PROBE
    node.send(Append(node.term, own, node_id, prev_index, prev_term, node.commit_index, probe, entries))
    peer.commit_sent = node.commit_index
    if entries or probe:
        peer.sent(prev_index + len(entries), sum(map(size_bytes, entries)), node.now_ms)
    return True
