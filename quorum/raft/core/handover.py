"""Leadership that goes to another node: by request, because the leader is no member any more, or because its
own disk makes nothing durable.

Decides who gets it and when that node is told to campaign. Does not know how it campaigns (`elections.py`).
Soft state of one leadership.

Source: dissertation §3.10 (transfer), §4.2.2 (a leader that removes itself).
"""

from quorum.raft.core.errors import TransferBusyError, TransferError
from quorum.raft.core.messages import TimeoutNow
from quorum.raft.core.node import Node
from quorum.raft.core.progress import Flow
from quorum.raft.core.roles import Leader


def begin_transfer(node: Node, target: int | None) -> None:
    """Stop proposing and hand leadership to ``target``, or to the voter that is furthest."""
    leader = node.role
    if not isinstance(leader, Leader):
        raise TransferError(
            "not_leading", node_id=node.identity.node_id, leader=node.role.leader_id or "unknown"
        )
    fit = _successors(node, leader)
    if target is None and not fit:
        raise TransferError("no_successor")
    chosen = fit[0] if target is None else target
    if chosen not in fit:
        kind = TransferBusyError if _may_speak_soon(node, leader, chosen) else TransferError
        able = ", ".join(map(str, sorted(fit))) or "none"
        raise kind("unfit_successor", node_id=chosen, obstacle=_obstacle(node, leader, chosen), able=able)
    _begin(node, leader, chosen)


def _successors(node: Node, leader: Leader) -> list[int]:
    """Return the voters that could take over now, the one that is furthest first."""
    fit = [
        (-peer.match_index, node_id)
        for node_id, peer in leader.progress.items()
        if not _obstacle(node, leader, node_id)
    ]
    return [node_id for _, node_id in sorted(fit)]


def _obstacle(node: Node, leader: Leader, node_id: int) -> str:
    """Return why this node cannot take over now, empty if it can.

    Nothing is proposed while leadership is handed over, so who is dead or far behind costs writes an election
    timeout. A new progress counts as contact for a while; whoever is to lead must have spoken. What is on its
    way to a peer that takes it is no lag.
    """
    latest = node.history.latest
    peer = leader.progress.get(node_id)
    if peer is None or latest is None or node_id not in latest.voters:
        return "it is not one of the other voters"
    if not peer.heard:
        return f"it was not heard since term {node.term} began, or since its connection closed"
    silent_ms = node.now_ms - peer.contact_ms
    if silent_ms > node.options.election_timeout_min_ms:
        return f"it has been silent for {silent_ms:.0f} ms"
    sent = peer.flow is Flow.REPLICATE and peer.next_index > node.commit_index
    if peer.match_index < node.commit_index and not sent:
        return f"it holds the log up to {peer.match_index}, and {node.commit_index} is committed"
    return ""


def _may_speak_soon(node: Node, leader: Leader, node_id: int) -> bool:
    """Return whether this voter is unheard only because this leader is new."""
    peer = leader.progress.get(node_id)
    return (
        peer is not None
        and peer.connected
        and not peer.heard
        and node.history.latest is not None
        and node_id in node.history.latest.voters
        and node.now_ms - peer.contact_ms <= node.options.election_timeout_min_ms
    )


def _begin(node: Node, leader: Leader, target: int) -> None:
    leader.transfer_target = target
    leader.transfer_told = False
    leader.transfer_until_ms = node.now_ms + node.options.election_timeout_max_ms


def give_up_transfer(node: Node, leader: Leader) -> None:
    """Take proposals again: the target did not take over, or is gone before it was told to."""
    leader.end_transfer()
    begin_departure(node, leader)


def begin_departure(node: Node, leader: Leader) -> None:
    """Hand over because the removal of this leader is committed; without a successor in contact it goes on
    until check-quorum ends it."""
    if _is_departing(node, leader) and not leader.transfer_target:
        fit = _successors(node, leader)
        if fit:
            _begin(node, leader, fit[0])


def leave_for_disk(node: Node, leader: Leader) -> None:
    """Hand over because this leader's disk hangs: it answers nobody, and its clients would wait for it.

    Without a successor in contact it goes on: it still brings the others what they lack.
    """
    fit = _successors(node, leader)
    if fit and not leader.transfer_target:
        _begin(node, leader, fit[0])


def _is_departing(node: Node, leader: Leader) -> bool:
    latest = node.history.latest
    return (
        latest is not None
        and node.identity.node_id not in latest.voters
        and node.commit_index >= max(leader.term_start_index, node.history.latest_index)
    )


def hand_over(node: Node, leader: Leader) -> None:
    """Tell the target to campaign once it has the whole log; it has all that will ever be in it.

    A leader that is no member any more steps down with that: nobody would tell it who leads next. It waits
    until all of its log is committed, so that it can answer for every proposal.
    """
    target = leader.progress.get(leader.transfer_target)
    if target is None or leader.transfer_told or target.match_index != node.log.last_index:
        return
    departing = _is_departing(node, leader)
    if departing and node.commit_index < node.log.last_index:
        return
    leader.transfer_told = True
    node.send(TimeoutNow(node.term, node.identity.node_id, leader.transfer_target))
    if departing:
        node.become_follower(node.term, 0, "it was removed, and its successor was told to campaign")
