"""A leader among members whom a test plays, and what it says and holds."""

from __future__ import annotations

from quorum.raft.core.configuration import Configuration
from quorum.raft.core.membership import (
    AddMember,
    MembershipChange,
)
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    HeartbeatReply,
    Message,
    Role,
    VoteReply,
)
from quorum.raft.core.options import Options
from quorum.raft.core.status import PeerStatus
from tests.unit.raft_core.solo import Solo

OPTIONS = Options()
TIMEOUT_MIN_MS = OPTIONS.election_timeout_min_ms
TIMEOUT_MAX_MS = OPTIONS.election_timeout_max_ms
ADD_4 = AddMember(4, "h:4")
OTHER = "f" * 32


def ack(sender: int, match_index: int, term: int = 2) -> AppendReply:
    return AppendReply(term, sender, 1, False, 0, match_index, 0, 0)


def acked(solo: Solo, *peers: int, term: int = 2) -> list[Message]:
    """Make the whole log durable here and acknowledged by these peers."""
    messages = solo.sync()
    for peer in peers:
        messages += solo.hear(ack(peer, solo.raft.status().last_index, term))
    return messages


def beat(solo: Solo, peer: int, match_index: int | None = None, incarnation: str | None = None) -> None:
    """Answer a heartbeat that left now."""
    match = solo.raft.status().last_index if match_index is None else match_index
    solo.hear(HeartbeatReply(solo.raft.status().term, peer, 1, solo.now_ms, match), incarnation)


def leader(nodes: int = 3, silent: tuple[int, ...] = ()) -> Solo:
    """Node 1 leads term 2; its no-op (entry 2) is committed by everybody but the silent ones."""
    solo = Solo([1], nodes=nodes)
    solo.campaign()
    for pre in (True, False):
        for peer in range(2, nodes + 1):
            solo.hear(VoteReply(1 if pre else 2, peer, 1, pre, True, 2))
        solo.sync()
    assert solo.role() is Role.LEADER
    acked(solo, *(peer for peer in range(2, nodes + 1) if peer not in silent))
    assert solo.raft.status().commit_index == 2
    return solo


def change(solo: Solo, wanted: MembershipChange) -> list[Message]:
    index = solo.raft.change_members(wanted)
    assert index == solo.raft.status().last_index
    return solo.drain()


def latest(solo: Solo) -> Configuration:
    configuration = solo.raft.configuration_at(solo.raft.status().last_index)
    assert configuration is not None
    return configuration


def peer_of(solo: Solo, node_id: int) -> PeerStatus:
    (peer,) = [peer for peer in solo.raft.status().peers if peer.node_id == node_id]
    return peer


def appends(messages: list[Message], receiver: int) -> list[Append]:
    return [message for message in messages if isinstance(message, Append) and message.receiver == receiver]
