"""Changes of the members.

Decides which changes may be made, what configuration each one leads to, and when the leader makes a learner a
voter, whose incarnation that entry records. Does not know how entries are replicated or counted
(`leading.py`, `node.py`) nor where a change comes from. Configurations are hard state; what is known of the
peers is soft.

One change at a time, each of one voter at most, so that any majority before a change and any majority after
it have a node in common. Nothing is appended before the leader's no-op is committed: without that rule two
leaders could each change the same configuration, and their majorities be disjoint.

Source: dissertation §4.1 to §4.2, with the correction of 2015 (raft-dev, "bug in single-server membership
changes"); members known by incarnation are our own.
"""

from typing import Final, NamedTuple

from quorum.raft.core.configuration import MEMBERS_MAX, Configuration, quorum_size
from quorum.raft.core.entry import EntryKind
from quorum.raft.core.errors import InvariantError, MembershipBusyError, MembershipError
from quorum.raft.core.node import Node
from quorum.raft.core.progress import Leaver, Progress
from quorum.raft.core.roles import Leader

#: As in ZooKeeper, whose server ids are one byte. The doors of the node check both bounds for themselves
#: (quorum/config/node.py, admin/members.py, server/reconfig.py), because they may not import the core.
NODE_ID_MAX: Final = 255
ADDRESS_CHARS_MAX: Final = 300


class AddMember(NamedTuple):
    """Let a node join: it becomes a learner, which the leader makes a voter once it has caught up."""

    node_id: int  #: 1 to NODE_ID_MAX
    address: str  #: host:port of its peer listener


class ReplaceMember(NamedTuple):
    """A member's disk is lost: it becomes a learner without an incarnation; the old one is retired for
    good.

    A repetition that names the incarnation never retires the disk that came in its place.
    """

    node_id: int
    #: whose disk is lost, recorded or not; empty: the recorded one, which must not be in use
    incarnation: str = ""
    force: bool = False  #: also if that disk is in use, or if a single voter is left


class RemoveMember(NamedTuple):
    """Let a voter or learner go, the leader included: it leaves once that is committed."""

    node_id: int


#: a disk that was heard so recently, on the connection that is up, is in use
IN_USE_MS = 1000.0
#: of so many voters none is replaced unless it is forced
VOTERS_LEFT_MIN = 2

MembershipChange = AddMember | ReplaceMember | RemoveMember

# --- what is asked for


def change_members(node: Node, change: MembershipChange) -> int:
    """Append what was asked for, and return the index of the entry that makes it so once it is committed.

    What is so already is answered with a no-op, as by `confirm`.
    """
    leader = node.as_leader()
    latest = node.history.latest
    if latest is None:
        raise InvariantError("a leader has no configuration")
    if not 1 <= change.node_id <= NODE_ID_MAX:
        raise MembershipError("id_out_of_range", node_id=change.node_id, id_max=NODE_ID_MAX)
    if isinstance(change, AddMember):
        member = latest.member(change.node_id)
        if member is not None and member.address == change.address:
            return confirm(node, leader)
    _check_not_busy(node, leader)
    match change:
        case AddMember(node_id, address):
            _check_addition(latest, node_id, address)
            wanted = latest.with_learner(node_id, address)
        case ReplaceMember(node_id, incarnation, force):
            _check_replacement(node, leader, latest, node_id, incarnation, force=force)
            wanted = latest if incarnation in latest.retired else latest.replaced(node_id, incarnation)
            if wanted == latest:
                return confirm(node, leader)
            _check_majority(node, leader, latest, wanted, f"replace node {node_id}")
        case RemoveMember(node_id):
            _check_member(latest, node_id, "removed")
            wanted = latest.without(node_id)
            _check_majority(node, leader, latest, wanted, f"remove node {node_id}")
    return append_configuration(node, leader, EntryKind.MEMBERS, wanted, wanted.to_payload())


def confirm(node: Node, leader: Leader) -> int:
    """Append a no-op and return its index: once it is committed, the members in this node's log were so.

    Another leader may have changed them without this one knowing; then the no-op never commits. It does not
    prove which node leads: a later leader, too, may have found the no-op and committed it.
    """
    _check_no_hand_over(leader)
    return node.append_own(leader, EntryKind.NOOP, b"", 0).index


def _check_no_hand_over(leader: Leader) -> None:
    if leader.transfer_target:
        raise MembershipBusyError("handing_over", node_id=leader.transfer_target)


def _check_not_busy(node: Node, leader: Leader) -> None:
    _check_no_hand_over(leader)
    if node.commit_index < leader.term_start_index:
        raise MembershipBusyError("term_uncommitted", term=node.term, index=leader.term_start_index)
    if node.commit_index < node.history.latest_index:
        raise MembershipBusyError("change_uncommitted", index=node.history.latest_index)


def _check_addition(latest: Configuration, node_id: int, address: str) -> None:
    member = latest.member(node_id)
    if member is not None:
        raise MembershipError("other_address", node_id=node_id, present=member.address, address=address)
    host, _, port = address.rpartition(":")
    written = bool(host) and port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65535
    if not written or len(address) > ADDRESS_CHARS_MAX:
        raise MembershipError(
            "no_address",
            node_id=node_id,
            address=address[:40],
            chars=len(address),
            chars_max=ADDRESS_CHARS_MAX,
        )
    for other_id in (*latest.voters, *latest.learners):
        other = latest.member(other_id)
        if other is not None and other.address == address:
            raise MembershipError("address_taken", node_id=node_id, address=address, other_id=other_id)
    if len(latest.voters) + len(latest.learners) >= MEMBERS_MAX:
        raise MembershipError("too_many_members", node_id=node_id, members_max=MEMBERS_MAX)


def _check_member(latest: Configuration, node_id: int, done: str) -> None:
    if latest.member(node_id) is None:
        members = sorted((*latest.voters, *latest.learners))
        raise MembershipError("no_member", node_id=node_id, done=done, members=members)
    if set(latest.voters) == {node_id}:
        raise MembershipError("only_voter", node_id=node_id, done=done)


def _check_replacement(
    node: Node, leader: Leader, latest: Configuration, node_id: int, incarnation: str, *, force: bool
) -> None:
    member = latest.member(node_id)
    if member is not None and incarnation in latest.retired:
        # A repetition: what it asks for is so, whichever node leads and votes by now.
        return
    _check_member(latest, node_id, "replaced")
    if node_id == node.identity.node_id:
        raise MembershipError("leads", node_id=node_id)
    if not force and node_id in latest.voters and len(latest.voters) <= VOTERS_LEFT_MIN:
        raise MembershipError("last_good_disk", node_id=node_id, voters=sorted(latest.voters))
    if member is None or not member.incarnation:
        for other_id, voter in latest.voters.items():
            if voter.incarnation == incarnation:
                raise MembershipError(
                    "disk_of_other", node_id=node_id, incarnation=incarnation, other_id=other_id
                )
        return
    if incarnation and incarnation != member.incarnation:
        raise MembershipError(
            "other_incarnation", node_id=node_id, present=member.incarnation, incarnation=incarnation[:40]
        )
    peer = leader.progress.get(node_id)
    if peer is None or not peer.heard or peer.incarnation != member.incarnation:
        return
    silent_ms = node.now_ms - peer.contact_ms
    if silent_ms <= IN_USE_MS and not (force and incarnation):
        raise MembershipError(
            "disk_in_use", node_id=node_id, silent_ms=silent_ms, incarnation=member.incarnation
        )


def _check_majority(
    node: Node, leader: Leader, latest: Configuration, wanted: Configuration, what: str
) -> None:
    """Refuse a change that would leave the voters in contact without a majority: nothing would commit any
    more, not even the way back."""
    if set(wanted.voters) == set(latest.voters):
        return
    needed = quorum_size(len(wanted.voters))
    present = [node_id for node_id in wanted.voters if _is_present(node, leader, node_id, heard=True)]
    if len(present) >= needed:
        return
    if sum(_is_present(node, leader, node_id, heard=False) for node_id in wanted.voters) >= needed:
        raise MembershipBusyError(
            "majority_unheard",
            what=what,
            voters=sorted(wanted.voters),
            node_id=node.identity.node_id,
            present=present,
        )
    absent = sorted(set(wanted.voters) - set(present))
    heard = sum(_is_present(node, leader, node_id, heard=True) for node_id in latest.voters)
    otherwise = (
        "remove what is gone for good before this one"
        if heard >= quorum_size(len(latest.voters) - 1)
        else "see `quorate serve --force-new-cluster` if a majority is gone for good"
    )
    raise MembershipError(
        "majority_lost",
        what=what,
        voters=sorted(wanted.voters),
        present=present,
        needed=needed,
        absent=" or ".join(f"node {node_id}" for node_id in absent),
        otherwise=otherwise,
    )


def _is_present(node: Node, leader: Leader, node_id: int, heard: bool) -> bool:
    """Whether a voter was in contact within the longest election timeout: heard on the connection that is up,
    or at least not known to be gone."""
    own = node.identity
    if node_id == own.node_id:
        return node.vote_counts(node_id, own.incarnation)
    peer = leader.progress.get(node_id)
    return (
        peer is not None
        and (_speaks(node, peer) or (not heard and peer.connected and _is_recent(node, peer)))
        and node.vote_counts(node_id, peer.incarnation)
    )


def _speaks(node: Node, peer: Progress) -> bool:
    """Whether it was heard within the longest election timeout, on the connection that is up."""
    return peer.heard and _is_recent(node, peer)


def _is_recent(node: Node, peer: Progress) -> bool:
    return node.now_ms - peer.contact_ms <= node.options.election_timeout_max_ms


# --- what the leader appends by itself


def maintain(node: Node, leader: Leader) -> None:
    """Make the next learner that has caught up a voter, if it is time: one at a time, never before the no-op
    of the term is committed, never while leadership is handed over.

    Source: dissertation §4.2.1.
    """
    history = node.history
    latest = history.latest
    if latest is None or not latest.learners or leader.transfer_target:
        return
    if node.commit_index < max(leader.term_start_index, history.latest_index):
        return
    for node_id in latest.learners:
        if _has_caught_up(node, leader, node_id):
            promoted = latest.with_voter(node_id, leader.progress[node_id].incarnation)
            append_configuration(node, leader, EntryKind.MEMBERS, promoted, promoted.to_payload())
            return


def _has_caught_up(node: Node, leader: Leader, node_id: int) -> bool:
    """Whether a learner could vote without holding the others up: it is there, and holds what was committed
    one heartbeat ago, the entry that made it a learner included.

    As it holds that one durably it grants votes even before it learns of the promotion (`elections.py`).
    """
    peer = leader.progress.get(node_id)
    return (
        peer is not None
        and bool(peer.incarnation)
        and peer.caught_up
        and peer.match_index >= node.history.latest_index
        and node.now_ms - peer.contact_ms <= node.options.election_timeout_min_ms
    )


# --- appending


def append_configuration(
    node: Node, leader: Leader, kind: EntryKind, configuration: Configuration, payload: bytes
) -> int:
    """Append a configuration, which counts from here, and return its index.

    It is stamped with the wall clock of the last tick: `/zookeeper/config` shows when it changed.
    """
    entry = node.append_own(leader, kind, payload, 0 if kind is EntryKind.FOUND else node.wall_ms)
    node.history.append(entry.index, configuration)
    sync_progress(node, leader)
    return entry.index


def sync_progress(node: Node, leader: Leader) -> None:
    """Keep exactly one progress per peer of the latest configuration, and none of a retired incarnation."""
    latest = node.history.latest
    if latest is None:
        return
    peers = latest.peer_ids(node.identity.node_id)
    for node_id in list(leader.progress):
        peer = leader.progress[node_id]
        if node_id not in peers or peer.incarnation in latest.retired:
            del leader.progress[node_id]
            node.sending.release(peer.outgoing)
            leader.leaving[node_id] = Leaver(peer, node.history.latest_index)
    for node_id in peers:
        if node_id not in leader.progress:
            member = latest.member(node_id)
            incarnation = member.incarnation if member is not None else ""
            leader.progress[node_id] = Progress(incarnation, node.log.last_index, node.now_ms)
    leader.progress = dict(sorted(leader.progress.items()))


# --- which nodes have to be reachable


def linked_members(node: Node) -> dict[int, str]:
    """Return {node id: address} of the peers that this node must be able to talk to, ascending ids.

    These are the other members, those of the configuration before while the latest is not known to be
    committed, the leader, and on the leader the nodes that left a moment ago. An address is empty where it is
    not known any more: such a link is kept, not opened.
    """
    latest = node.history.latest
    links = dict(node.identity.founders) if latest is None else _addresses(latest)
    links.update(linked_beyond(node))
    links.pop(node.identity.node_id, None)
    return dict(sorted(links.items()))


def linked_beyond(node: Node) -> dict[int, str]:
    """Return those of `linked_members` that the latest configuration does not have."""
    latest = node.history.latest
    if latest is None:
        return {}
    before = node.history.before(node.commit_index)
    earlier = {} if before is None else _addresses(before)
    beyond = {key: text for key, text in earlier.items() if latest.member(key) is None}
    leaving = node.role.leaving if isinstance(node.role, Leader) else ()
    for node_id in (*leaving, node.role.leader_id):
        if node_id and latest.member(node_id) is None:
            beyond.setdefault(node_id, "")
    return beyond


def _addresses(configuration: Configuration) -> dict[int, str]:
    members = {**configuration.voters, **configuration.learners}
    return {node_id: member.address for node_id, member in members.items()}
