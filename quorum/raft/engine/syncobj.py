"""pysyncobj's SyncObj around our engine: its transport, its tick and its public names, with our core inside.

A node runs through it, and a program that knows pysyncobj's interface finds it here; the methods do what
SyncObj's do. None of SyncObj's journal, serializer, pickles or threads is ever reached. Decides nothing.

Source: pysyncobj 0.3.17; docs/internals/consensus.md.
"""
# ruff: noqa: D102, N802, N803 - the names are SyncObj's

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from quorum.errors import NotLeaderError, ProposalRefusedError, QuorateError
from quorum.raft.core.entry import EntryKind
from quorum.raft.core.errors import MembershipError
from quorum.raft.core.errors import NotLeaderError as CoreNotLeaderError
from quorum.raft.core.membership import AddMember, RemoveMember
from quorum.raft.engine.engine import Engine
from quorum.raft.peers.peers import PeerNode

log = logging.getLogger("quorate.raft")

#: the release of pysyncobj whose inside this class was written against
PYSYNCOBJ_VERSION = "0.3.17"
#: takes (log index or None, one of FAIL_REASON)
Callback = Callable[[int | None, int], None]


class QuorateSyncObj(SyncObj):  # type: ignore[misc]  # pysyncobj is untyped
    """SyncObj, replicated by our engine."""

    def __init__(self, engine: Engine, transport: Transport) -> None:
        """Let SyncObj take the transport, and have its callbacks go to the engine, which is attached.

        Raises:
            QuorateError: another release of pysyncobj is installed, or a subclass has a @replicated method.
        """
        refuse_foreign_library(type(self))
        self._engine = engine
        conf = SyncObjConf(autoTick=False, journalFile=None, appendEntriesUseBatch=True)
        super().__init__(PeerNode(engine.node_id), self.otherNodes, conf=conf, transport=transport)
        transport.setOnNodeConnectedCallback(engine.peer_connected)
        transport.setOnNodeDisconnectedCallback(engine.peer_disconnected)
        transport.setOnMessageReceivedCallback(engine.receive)
        transport.setOnChunkReceivedCallback(engine.chunk_received)

    def start(self) -> None:
        """Begin to tick, by the engine's timer in place of SyncObj's thread."""
        self._engine.start(self._onTick)

    def destroy(self) -> None:
        """Stop; the transport and the journal stay open, and their owner closes them."""
        self._engine.stop()

    def _onTick(self, timeToWait: float = 0.0) -> None:  # noqa: ARG002
        self._engine.tick()

    def _applyCommand(
        self, command: bytes, callback: Callback | None, commandType: int = EntryKind.CONTROL
    ) -> None:
        self._append(partial(self._engine.propose, EntryKind(commandType), command), callback)

    def addNodeToCluster(self, node: object, callback: Callback | None = None) -> None:
        if not isinstance(node, PeerNode) or not node.address:
            raise QuorateError(f"cannot add {node!r} through pysyncobj", "give PeerNode(node_id, address)")
        change = AddMember(node.node_id, node.address)
        self._append(partial(self._engine.change_members, change), callback)

    def removeNodeFromCluster(self, node: object, callback: Callback | None = None) -> None:
        if not isinstance(node, PeerNode):
            raise QuorateError(f"cannot remove {node!r} through pysyncobj", "give PeerNode(node_id)")
        self._append(partial(self._engine.change_members, RemoveMember(node.node_id)), callback)

    def _append(self, append: Callable[[], int], callback: Callback | None) -> None:
        """Append an entry, and call back once with its fate; never while that is open.

        (log index, SUCCESS): it was applied here. (None, DISCARDED): another one was committed in its place.
        (None, NOT_LEADER) or (None, REQUEST_DENIED), at once: nothing was appended.
        """
        callback = callback or (lambda *_: None)
        try:
            index = append()
        except (NotLeaderError, CoreNotLeaderError):
            callback(None, FAIL_REASON.NOT_LEADER)
        except (ProposalRefusedError, MembershipError) as error:
            log.warning("refused: %s", error)
            callback(None, FAIL_REASON.REQUEST_DENIED)
        else:
            fates = {True: (index, FAIL_REASON.SUCCESS), False: (None, FAIL_REASON.DISCARDED)}
            self._engine.when_applied(index, self._engine.term, lambda known: callback(*fates[known]))

    def setCodeVersion(self, newVersion: int, callback: object = None) -> None:  # noqa: ARG002
        raise QuorateError(f"cannot set code version {newVersion}", "entries carry their own format version")

    def transferLeadership(self, node: Node | None = None, callback: Callback | None = None) -> None:
        """Hand leadership to a member (None: the furthest); the callback says only that it was begun."""
        begun = self._engine.leads and self._engine.transfer(None if node is None else int(node.id))
        denied = FAIL_REASON.REQUEST_DENIED if self._engine.leads else FAIL_REASON.NOT_LEADER
        if callback is not None:
            callback(None, FAIL_REASON.SUCCESS if begun else denied)

    def getStatus(self) -> dict[str, object]:
        engine, status = self._engine, self._engine.status()
        return {
            "version": PYSYNCOBJ_VERSION,
            "self": self.selfNode,
            "state": status.role.value,
            "leader": self._getLeader(),
            "has_quorum": self.hasQuorum,
            "partner_nodes_count": len(self.otherNodes),
            "raft_term": engine.term,
            "commit_idx": status.commit_index,
            "last_applied": engine.applied_index,
            "log_len": status.last_index,
        }

    def isReady(self) -> bool:
        return self._engine.hears_leader()

    def isNodeConnected(self, node: Node) -> bool:
        return self._engine.is_connected(int(node.id))

    @property
    def hasQuorum(self) -> bool:
        engine, voters = self._engine, self._engine.voter_ids()
        return sum(each == engine.node_id or engine.is_connected(each) for each in voters) > len(voters) // 2

    @property
    def otherNodes(self) -> set[Node]:
        return {PeerNode(peer) for peer in self._engine.peer_ids()}

    @property
    def raftLastApplied(self) -> int:
        return self._engine.applied_index

    @property
    def raftCommitIndex(self) -> int:
        return self._engine.status().commit_index

    @property
    def raftCurrentTerm(self) -> int:
        return self._engine.term

    def _getLeader(self) -> Node | None:
        return PeerNode(self._engine.leader_id) if self._engine.leader_id else None

    def _isLeader(self) -> bool:
        return self._engine.leads

    def _getTerm(self) -> int:
        return self._engine.term


def refuse_foreign_library(kind: type) -> None:
    """Check what the wrapper was written against: one release of pysyncobj, and no pickled methods."""
    found = version("pysyncobj")
    if found != PYSYNCOBJ_VERSION:
        raise QuorateError(f"pysyncobj {found} is installed", f"install pysyncobj=={PYSYNCOBJ_VERSION}")
    for name in dir(kind):
        if getattr(getattr(kind, name, None), "replicated", False):
            raise QuorateError(
                f"{kind.__name__}.{name} is a @replicated method, which pysyncobj would pickle",
                "propose an entry with a codec of its own",
            )
