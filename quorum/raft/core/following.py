"""The follower's side of replication.

Decides what of a leader's append is taken, what it proves, and when it is acknowledged. Does not know which
node leads or why. The log is hard state: an acknowledgement names only what is durable, and it is made from
what is durable at that time, so several appends share one.

Source: Raft §5.3, figure 2 (AppendEntries); the rules against defects D1, D2 and D4 of pysyncobj.
"""

from quorum.raft.core.entry import Entry
from quorum.raft.core.errors import InvariantError, MessageError
from quorum.raft.core.history import read_configurations
from quorum.raft.core.messages import Append, AppendReply, Heartbeat, HeartbeatReply
from quorum.raft.core.node import Node
from quorum.raft.core.roles import Follower


def handle_append(node: Node, follower: Follower, append: Append) -> None:
    """Take the entries that follow on the own log, remove the first that conflicts and all after it."""
    _check_form(append)
    node.known_index = max(node.known_index, append.commit_index)
    if node.halted or node.receiving.installing:
        return
    prev_term = node.log.term_at(append.prev_index)
    if prev_term != append.prev_term:
        if append.prev_index <= node.commit_index and prev_term is not None:
            raise InvariantError(
                f"leader {append.sender} of term {append.term} has term {append.prev_term} at index "
                f"{append.prev_index}, but term {prev_term} is committed there"
            )
        if append.prev_index > node.commit_index:
            _reject(node, append, node.log.last_at_most(append.prev_index, append.prev_term))
            return
        # The prefix was compacted here: it is committed, so the leader has it too.
    fresh = _fresh_entries(node, append) if append.entries else ()
    if fresh:
        first = fresh[0].index
        configurations = read_configurations(fresh, founded=node.history.first_index < first)
        if first <= node.matched_index:
            raise InvariantError(
                f"leader {append.sender} of term {append.term} takes entry {first} back, which it had matched"
            )
        if first <= node.log.last_index:
            node.log.truncate(first)
            node.history.truncate(first)
        node.log.append(fresh)
        for index, configuration in configurations:
            node.history.append(index, configuration)
    proven_index = append.prev_index + len(append.entries)
    node.matched_index = max(node.matched_index, proven_index)
    node.commit_to(min(append.commit_index, proven_index))
    if append.probe or (append.entries and not fresh):
        follower.answer_at = proven_index


def _check_form(append: Append) -> None:
    term = append.prev_term
    if append.prev_index < 0 or (append.prev_index == 0) != (term == 0):
        raise MessageError(
            f"append of node {append.sender} after an impossible ({append.prev_index}, {term})"
        )
    for offset, entry in enumerate(append.entries, 1):
        if (
            entry.index != append.prev_index + offset
            or not term <= entry.term <= append.term
            or entry.term < 1
        ):
            raise MessageError(
                f"append of node {append.sender} in term {append.term}: entry ({entry.index}, {entry.term}) "
                f"cannot be number {offset} after ({append.prev_index}, {append.prev_term})"
            )
        term = entry.term


def _fresh_entries(node: Node, append: Append) -> tuple[Entry, ...]:
    """Return the entries from the first that the own log lacks or contradicts."""
    for offset, entry in enumerate(append.entries):
        own_term = node.log.term_at(entry.index)
        if own_term == entry.term or (own_term is None and entry.index <= node.commit_index):
            continue
        if entry.index <= node.commit_index:
            raise InvariantError(
                f"leader {append.sender} of term {append.term} has term {entry.term} at index {entry.index}, "
                f"but term {own_term} is committed there"
            )
        return append.entries[offset:]
    return ()


def _reject(node: Node, append: Append, hint: int) -> None:
    hint = max(hint, node.commit_index)
    node.send(
        AppendReply(
            term=node.term,
            sender=node.identity.node_id,
            receiver=append.sender,
            rejected=True,
            prev_index=append.prev_index,
            match_index=0,
            hint_index=hint,
            hint_term=node.log.term_at(hint) or 0,
        )
    )


def durable_match(node: Node) -> int:
    """Return what this term's leader may count: proven equal to its log, and durable."""
    return min(node.matched_index, node.log.durable_index)


def acknowledge(node: Node, follower: Follower) -> None:
    """Tell the leader what became durable since the last time, or what a probe waits for."""
    match_index = durable_match(node)
    at = follower.answer_at
    if match_index <= follower.reported_index and at is None:
        return
    if node.halted or follower.leader_id == 0 or not node.outbox.hard_state_is_durable:
        return
    owes = at is not None and node.log.durable_index >= min(at, node.log.last_index)
    if match_index > follower.reported_index or owes:
        follower.reported_index = max(follower.reported_index, match_index)
        if owes:
            follower.answer_at = None
        own = node.identity.node_id
        node.send(AppendReply(node.term, own, follower.leader_id, False, 0, match_index, 0, 0))


def handle_heartbeat(node: Node, heartbeat: Heartbeat) -> None:
    """Commit what both sides know to match, and answer."""
    node.known_index = max(node.known_index, heartbeat.known_index)
    node.timer.echoed_ms = max(node.timer.echoed_ms, min(heartbeat.heard_ms, node.now_ms))
    if not node.receiving.installing:
        node.commit_to(min(heartbeat.commit_index, node.matched_index))
    if not node.halted:
        own = node.identity.node_id
        match_index = durable_match(node)
        node.send(
            HeartbeatReply(node.term, own, heartbeat.sender, heartbeat.sent_ms, match_index, node.now_ms)
        )


def refuse_stale(node: Node, message: Append | Heartbeat) -> None:
    """Answer a deposed leader with the higher term, so that it steps down (defect D13 of pysyncobj)."""
    own = node.identity.node_id
    if isinstance(message, Append):
        node.send(AppendReply(node.term, own, message.sender, True, message.prev_index, 0, 0, 0))
    else:
        node.send(HeartbeatReply(node.term, own, message.sender, message.sent_ms, 0))
