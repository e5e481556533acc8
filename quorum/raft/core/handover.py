"""Leadership that goes to another node: by request, because the leader is no member any more, or because its
own disk makes nothing durable.

Decides who gets it and when that node is told to campaign. Does not know how it campaigns (`elections.py`).
Soft state of one leadership.

Source: dissertation §3.10 (transfer), §4.2.2 (a leader that removes itself).
"""

from quorum.raft.core.errors import TransferBusyError, TransferError
from quorum.raft.core.messages import Role, TimeoutNow
from quorum.raft.core.node import Node
from quorum.raft.core.progress import Flow


def begin_transfer(node: Node, target: int | None) -> None:
    """Stop proposing and hand leadership to ``target``, or to the voter that is furthest."""
    if node.role is not Role.LEADER:
        raise TransferError("not_leading", node_id=node.identity.node_id, leader=node.leader_id or "unknown")
    fit = _successors(node)
    if target is None and not fit:
        raise TransferError("no_successor")
    chosen = fit[0] if target is None else target
    if chosen not in fit:
        kind = TransferBusyError if _may_speak_soon(node, chosen) else TransferError
        raise kind("unfit_successor", node_id=chosen, obstacle=_obstacle(node, chosen), fit=sorted(fit))
    _begin(node, chosen)


def _successors(node: Node) -> list[int]:
    """Return the voters that could take over now, the one that is furthest first."""
    fit = [
        (-peer.match_index, node_id)
        for node_id, peer in node.progress.items()
        if not _obstacle(node, node_id)
    ]
    return [node_id for _, node_id in sorted(fit)]


def _obstacle(node: Node, node_id: int) -> str:
    """Return why this node cannot take over now, empty if it can.

    Nothing is proposed while leadership is handed over, so who is dead or far behind costs writes an election
    timeout. A new progress counts as contact for a while; whoever is to lead must have spoken. What is on its
    way to a peer that takes it is no lag.
    """
    latest = node.history.latest
    peer = node.progress.get(node_id)
    if peer is None or latest is None or node_id not in latest.voters:
        return "it is no other voter"
    if not peer.heard:
        return f"it was not heard since term {node.term} began, or since its connection closed"
    silent_ms = node.now_ms - peer.contact_ms
    if silent_ms > node.options.election_timeout_min_ms:
        return f"it has been silent for {silent_ms:.0f} ms"
    sent = peer.flow is Flow.REPLICATE and peer.next_index > node.commit_index
    if peer.match_index < node.commit_index and not sent:
        return f"it holds the log up to {peer.match_index}, and {node.commit_index} is committed"
    return ""


def _may_speak_soon(node: Node, node_id: int) -> bool:
    """Return whether this voter is unheard only because this leader is new."""
    peer = node.progress.get(node_id)
    return (
        peer is not None
        and peer.connected
        and not peer.heard
        and node.history.latest is not None
        and node_id in node.history.latest.voters
        and node.now_ms - peer.contact_ms <= node.options.election_timeout_min_ms
    )


def _begin(node: Node, target: int) -> None:
    node.transfer_target = target
    node.transfer_told = False
    node.transfer_until_ms = node.now_ms + node.options.election_timeout_max_ms


def give_up_transfer(node: Node) -> None:
    """Take proposals again: the target did not take over, or is gone before it was told to."""
    node.end_transfer()
    begin_departure(node)


def begin_departure(node: Node) -> None:
    """Hand over because the removal of this leader is committed; without a successor in contact it goes on
    until check-quorum ends it."""
    if _is_departing(node) and not node.transfer_target:
        fit = _successors(node)
        if fit:
            _begin(node, fit[0])


def leave_for_disk(node: Node) -> None:
    """Hand over because this leader's disk hangs: it answers nobody, and its clients would wait for it.

    Without a successor in contact it goes on: it still brings the others what they lack.
    """
    if not node.transfer_target:
        fit = _successors(node)
        if fit:
            _begin(node, fit[0])


def _is_departing(node: Node) -> bool:
    latest = node.history.latest
    return (
        latest is not None
        and node.role is Role.LEADER
        and node.identity.node_id not in latest.voters
        and node.commit_index >= max(node.term_start_index, node.history.latest_index)
    )


def hand_over(node: Node) -> None:
    """Tell the target to campaign once it has the whole log; it has all that will ever be in it.

    A leader that is no member any more steps down with that: nobody would tell it who leads next. It waits
    until all of its log is committed, so that it can answer for every proposal.
    """
    target = node.progress.get(node.transfer_target) if node.transfer_target else None
    if target is None or node.transfer_told or target.match_index != node.log.last_index:
        return
    departing = _is_departing(node)
    if departing and node.commit_index < node.log.last_index:
        return
    node.transfer_told = True
    node.send(TimeoutNow(node.term, node.identity.node_id, node.transfer_target))
    if departing:
        node.become_follower(node.term, 0, "it was removed, and its successor was told to campaign")
