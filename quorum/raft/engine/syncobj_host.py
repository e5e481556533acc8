"""SyncObj with every way into its own replication closed.

`SyncObjHost` answers SyncObj's public names (status, readiness, membership, transfer, the proposal entry)
from our core and refuses those that would pickle. What decides and what runs is its subclass, the engine.
So a program that knows pysyncobj's interface finds it here, and none of its journal, serializer, pickles or
threads can be reached by accident. No state of its own.

Source: pysyncobj 0.3.17; raft, "Consensus".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import version

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj.node import Node

from quorum.errors import NotLeaderError, ProposalRefusedError, QuorateError
from quorum.platform.runtime import Runtime
from quorum.raft.core.configuration import Configuration, quorum_size
from quorum.raft.core.entry import EntryKind
from quorum.raft.core.errors import MembershipError, TransferError
from quorum.raft.core.errors import NotLeaderError as CoreNotLeaderError
from quorum.raft.core.membership import AddMember, MembershipChange, RemoveMember
from quorum.raft.core.messages import Heartbeat, HeartbeatReply, Message, SoftState, Transfer
from quorum.raft.core.raft import Raft
from quorum.raft.engine.contracts import ShellMessage
from quorum.raft.engine.undurable import Undurable
from quorum.raft.peers.peers import PeerNode

log = logging.getLogger("quorate.raft")

#: the release of pysyncobj whose inside this class was written against
PYSYNCOBJ_VERSION = "0.3.17"


def library_settings(election_timeout_ms: tuple[int, int], heartbeat_interval_ms: int) -> SyncObjConf:
    """Return settings with which SyncObj does nothing by itself.

    Its times decide nothing here; it only insists that each is above the one before.

    Args:
        election_timeout_ms: lower and upper bound, which may be equal.
        heartbeat_interval_ms: at most a third of the lower bound.
    """
    least_s, most_s = (election_timeout_ms[0] + 1) / 1000, (election_timeout_ms[1] + 2) / 1000
    return SyncObjConf(
        autoTick=False,
        journalFile=None,
        appendEntriesUseBatch=True,
        dynamicMembershipChange=False,
        raftMinTimeout=least_s,
        raftMaxTimeout=most_s,
        appendEntriesPeriod=heartbeat_interval_ms / 1000,
        leaderFallbackTimeout=most_s,
        connectionTimeout=most_s,
    )


class SyncObjHost(SyncObj):  # type: ignore[misc]  # pysyncobj is untyped
    """SyncObj's public face over our core; the subclass sets the attributes before SyncObj's constructor."""

    node_id: int
    soft_state: SoftState
    applied_index: int
    _core: Raft
    _runtime: Runtime
    _election_timeout_max_ms: int
    _undurable: Undurable
    #: ids of the other members, ascending
    _peers: tuple[int, ...]
    #: {node id: monotonic ms until when it is known to have heard this node in the current term}
    _contacts: dict[int, float]
    #: {node id: node} of the links that are up
    _connected: dict[int, PeerNode]
    #: {index: [(term, callback)]} of proposals that asked for their fate
    _waiting: dict[int, list[tuple[int, Callable[[int | None, int], None]]]]

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        """Append an entry to this leader's log and return its index."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop."""
        raise NotImplementedError

    def _schedule_pump(self) -> None:
        raise NotImplementedError

    def _applyCommand(  # noqa: N802 - SyncObj's name
        self,
        command: bytes,
        callback: Callable[[int | None, int], None] | None,
        commandType: int | None = None,  # noqa: N803
    ) -> None:
        """Propose an entry, SyncObj's way.

        Args:
            command: the payload.
            callback: called once with (log index, SUCCESS) when the entry was applied here, (None,
                DISCARDED) when another entry was committed in its place, or at once (None, NOT_LEADER) or
                (None, REQUEST_DENIED) for a command that is too large; never while the outcome is open.
            commandType: an EntryKind; CONTROL if None.
        """
        try:
            index = self.propose(
                EntryKind.CONTROL if commandType is None else EntryKind(commandType), command
            )
        except NotLeaderError:
            if callback is not None:
                callback(None, FAIL_REASON.NOT_LEADER)
            return
        except ProposalRefusedError as error:
            log.error("%s", error)
            if callback is not None:
                callback(None, FAIL_REASON.REQUEST_DENIED)
            return
        if callback is not None:
            self._wait_for(index, self.soft_state.term, callback)

    def getStatus(self) -> dict[str, object]:  # noqa: N802
        """Return SyncObj's status words, filled from the core."""
        status = self._core.status()
        return {
            "version": PYSYNCOBJ_VERSION,
            "self": self.selfNode,
            "state": status.role.value,
            "leader": PeerNode(status.leader_id) if status.leader_id else None,
            "has_quorum": self.hasQuorum,
            "partner_nodes_count": len(self._peers),
            "raft_term": status.term,
            "commit_idx": status.commit_index,
            "last_applied": self.applied_index,
            "log_len": status.last_index,
        }

    def _note_contact(self, message: Message | ShellMessage) -> None:
        """Note until when this node and the sender are known to have heard each other.

        A follower may hear a leader that does not hear it, and that lets sessions expire whose clients talk
        here; and what a node reads after a pause of its own may be old. So only what the other one echoes is
        contact: to a follower the clock of its last answer, to a leader the time of its heartbeat.
        """
        if self._isLeader():
            if isinstance(message, HeartbeatReply):
                self._hear(message.sender, message.sent_ms, float("-inf"))
        elif isinstance(message, Heartbeat):
            self._hear(message.sender, message.heard_ms, float("inf"))

    def _hear(self, sender: int, echoed_ms: float, otherwise_ms: float) -> None:
        heard_ms = min(echoed_ms, self._runtime.monotonic_ms())
        if heard_ms > self._contacts.get(sender, otherwise_ms):
            self._contacts[sender] = heard_ms

    @property
    def heard_by_leader_ms(self) -> float:
        """Until when, by this node's clock, the current leader is known to have heard it; -inf: no leader."""
        return self._contacts.get(self.soft_state.leader_id, float("-inf"))

    def contact_age_ms(self) -> float:
        """Milliseconds since a current leader was heard; on the leader, since it last heard a majority."""
        now_ms = self._runtime.monotonic_ms()
        if not self._isLeader():
            heard_ms = self._contacts.get(self.soft_state.leader_id)
            return float("inf") if heard_ms is None else now_ms - heard_ms
        voters = self._voter_ids()
        others = [self._contacts.get(peer, float("-inf")) for peer in voters if peer != self.node_id]
        needed = quorum_size(len(voters)) - len(voters) + len(others)
        return 0.0 if needed == 0 else now_ms - sorted(others, reverse=True)[needed - 1]

    def undurable_ms(self) -> float:
        """Milliseconds for which the oldest group waits for this node's disk; 0.0 if all is durable."""
        # A look at the clock costs more than the usual answer.
        return 0.0 if self._undurable.idle else self._undurable.age_ms(self._runtime.monotonic_ms())

    def known_index(self) -> int | None:
        """Return the highest commit index that this node heard of.

        None while it hears no leader, or installs a snapshot.
        """
        return self._core.known_index if self.isReady() else None

    def isReady(self) -> bool:  # noqa: N802
        """Tell whether a leader is known and was heard within the longest election timeout."""
        return self.contact_age_ms() <= self._election_timeout_max_ms

    def isNodeConnected(self, node: Node) -> bool:  # noqa: N802
        """Tell whether the link to a member is up."""
        return int(node.id) in self._connected

    @property
    def hasQuorum(self) -> bool:  # noqa: N802
        """Whether a majority of the voters is connected, or is this node itself."""
        voters = self._voter_ids()
        return sum(voter in self._connected or voter == self.node_id for voter in voters) > len(voters) // 2

    def _voter_ids(self) -> tuple[int, ...]:
        """The voters of the latest configuration; before there is one, everybody that is known."""
        configuration = self.configuration
        return (self.node_id, *self._peers) if configuration is None else tuple(configuration.voters)

    @property
    def otherNodes(self) -> set[Node]:  # noqa: N802
        """The other members."""
        return {PeerNode(peer) for peer in self._peers}

    @property
    def raftLastApplied(self) -> int:  # noqa: N802
        """Index of the last applied entry."""
        return int(self.applied_index)

    @property
    def raftCommitIndex(self) -> int:  # noqa: N802
        """Index of the last entry that is known to be committed."""
        return int(self._core.status().commit_index)

    @property
    def raftCurrentTerm(self) -> int:  # noqa: N802
        """The current term."""
        return int(self.soft_state.term)

    def _getLeader(self) -> Node | None:  # noqa: N802
        return PeerNode(self.soft_state.leader_id) if self.soft_state.leader_id else None

    def _isLeader(self) -> bool:  # noqa: N802
        return self.soft_state.leader_id == self.node_id

    def _getTerm(self) -> int:  # noqa: N802
        return int(self.soft_state.term)

    def transferLeadership(  # noqa: N802
        self, node: Node | None = None, callback: Callable[[None, int], None] | None = None
    ) -> None:
        """Hand leadership to a member (None: the furthest); the callback tells only that it was begun."""
        if not self._isLeader():
            reason = FAIL_REASON.NOT_LEADER
        elif node is not None and int(node.id) not in self._peers:
            reason = FAIL_REASON.REQUEST_DENIED
        else:
            begun = self.transfer(None if node is None else int(node.id))
            reason = FAIL_REASON.SUCCESS if begun else FAIL_REASON.REQUEST_DENIED
        if callback is not None:
            callback(None, reason)

    def transfer(self, node_id: int | None) -> bool:
        """Begin to hand leadership to a voter (None: the furthest in contact); tell whether it was begun."""
        try:
            self.begin_transfer(node_id)
        except TransferError as error:
            log.warning("leadership stays here: %s", error)
            return False
        return True

    def begin_transfer(self, node_id: int | None) -> None:
        """Begin to hand leadership to a voter (None: the furthest in contact).

        Raises:
            TransferError: it cannot go there; nothing changed.
        """
        self._core.step(Transfer(node_id), self._runtime.monotonic_ms())
        self._schedule_pump()

    def change_members(self, change: MembershipChange) -> int:
        """Append a change of members to this leader's log; returns its index.

        Raises:
            NotLeaderError, MembershipError, MembershipBusyError: the core's; definite, nothing changed.
        """
        index = self._core.change_members(change)
        self._schedule_pump()
        return index

    @property
    def configuration(self) -> Configuration | None:
        """The latest configuration in the log, committed or not; None before the founding."""
        return self._core.configuration

    @property
    def configuration_index(self) -> int:
        """Log index of the latest configuration, committed or not."""
        return self._core.status().configuration_index

    def is_connected(self, node_id: int) -> bool:
        """Tell whether the link to a member is up."""
        return node_id in self._connected

    def followers(self) -> tuple[int, int]:
        """Return how many other members are connected to this leader, and how many have all commits."""
        status = self._core.status()
        connected = [peer for peer in status.peers if peer.node_id in self._connected]
        return len(connected), sum(peer.match_index >= status.commit_index for peer in connected)

    def _wait_for(self, index: int, term: int, callback: Callable[[int | None, int], None]) -> None:
        self._waiting.setdefault(index, []).append((term, callback))

    def addNodeToCluster(  # noqa: N802
        self, node: object, callback: Callable[[int | None, int], None] | None = None
    ) -> None:
        """Let a PeerNode with an address join; the callback is told as that of `_applyCommand`.

        Raises:
            QuorateError: it is no such node; a bare address has no node id.
        """
        if not isinstance(node, PeerNode) or not node.address:
            raise QuorateError(f"cannot add {node!r} through pysyncobj", "give PeerNode(node_id, address)")
        self._change(AddMember(node.node_id, node.address), callback)

    def removeNodeFromCluster(  # noqa: N802
        self, node: object, callback: Callable[[int | None, int], None] | None = None
    ) -> None:
        """Let a member go; the callback is told as that of `_applyCommand`.

        Raises:
            QuorateError: it is no PeerNode; a bare address has no node id.
        """
        if not isinstance(node, PeerNode):
            raise QuorateError(f"cannot remove {node!r} through pysyncobj", "give PeerNode(node_id)")
        self._change(RemoveMember(node.node_id), callback)

    def _change(self, change: MembershipChange, callback: Callable[[int | None, int], None] | None) -> None:
        try:
            index = self.change_members(change)
        except (CoreNotLeaderError, MembershipError) as error:
            log.warning("the members stay as they are: %s", error)
            if callback is not None:
                refused = isinstance(error, MembershipError)
                callback(None, FAIL_REASON.REQUEST_DENIED if refused else FAIL_REASON.NOT_LEADER)
            return
        if callback is not None:
            self._wait_for(index, self.soft_state.term, callback)

    def setCodeVersion(self, newVersion: int, callback: object = None) -> None:  # noqa: ARG002, N802, N803
        """Refuse: SyncObj would pickle the version, and @replicated methods do not exist here."""
        raise QuorateError(f"cannot set code version {newVersion}", "entries carry their own format version")

    def destroy(self) -> None:
        """Stop; the transport and the journal are closed by who opened them."""
        self.stop()


def refuse_foreign_library(kind: type) -> None:
    """Check what the engine was written against: one release of pysyncobj, and no pickled methods.

    Raises:
        QuorateError: naming what was found.
    """
    found = version("pysyncobj")
    if found != PYSYNCOBJ_VERSION:
        raise QuorateError(f"pysyncobj {found} is installed", f"install pysyncobj=={PYSYNCOBJ_VERSION}")
    for name in dir(kind):
        if getattr(getattr(kind, name, None), "replicated", False):
            raise QuorateError(
                f"{kind.__name__}.{name} is a @replicated method, which pysyncobj would pickle",
                "propose an entry with a codec of its own",
            )
