"""The follower's end of snapshot transfers.

Decides which piece is written next, what repeats and strangers are answered, and what an installed snapshot
does to log and configuration. Does not know the bytes: the shell writes them aside, verifies and loads them.
Nothing of a snapshot counts before the shell says that it is installed (defect D14 of pysyncobj); a failure
is a refusal.

While the shell installs, nothing is appended, committed or handed out, so that the state cannot be changed
from two sides.

Source: Raft §7.
"""

from quorum.raft.core.errors import InvariantError, MessageError
from quorum.raft.core.following import durable_match
from quorum.raft.core.messages import (
    ChunkWritten,
    SnapshotChunk,
    SnapshotChunkReply,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotWrite,
)
from quorum.raft.core.node import Node
from quorum.raft.core.transfers import Incoming


def handle_chunk(node: Node, chunk: SnapshotChunk) -> None:
    """Write the piece if it is the next of the transfer under way or the first of a new one."""
    end = chunk.offset + len(chunk.data)
    if not 0 <= chunk.offset < end <= chunk.total_bytes or not 0 < chunk.snapshot_term <= chunk.term:
        raise MessageError(
            f"snapshot piece of node {chunk.sender}: bytes {chunk.offset}..{end} of {chunk.total_bytes}, "
            f"term {chunk.snapshot_term} in term {chunk.term}"
        )
    if node.halted or node.receiving.installing:
        return
    if chunk.snapshot_index <= node.commit_index:
        # All of it is here already: the log agrees with the leader's as far as it is committed.
        node.matched_index = max(node.matched_index, node.commit_index)
        if durable_match(node) >= chunk.snapshot_index:
            _reply(node, chunk.sender, chunk.transfer, installed=True, match_index=durable_match(node))
        return
    incoming = node.receiving.incoming
    if incoming is None or not _belongs(chunk, incoming):
        if chunk.offset != 0:
            _reply(node, chunk.sender, chunk.transfer)
            return
        node.receiving.installs += 1
        incoming = Incoming(
            install=node.receiving.installs,
            term=chunk.term,
            transfer=chunk.transfer,
            sender=chunk.sender,
            snapshot_index=chunk.snapshot_index,
            snapshot_term=chunk.snapshot_term,
            total_bytes=chunk.total_bytes,
            offset=0,
            writing=False,
        )
    elif incoming.writing:
        return
    elif chunk.offset != incoming.offset:
        _reply(node, chunk.sender, chunk.transfer, offset=incoming.offset)
        return
    _write(node, incoming, chunk.data)


def _belongs(chunk: SnapshotChunk, incoming: Incoming) -> bool:
    return (
        (chunk.term, chunk.transfer, chunk.sender) == (incoming.term, incoming.transfer, incoming.sender)
        and (chunk.snapshot_index, chunk.snapshot_term) == (incoming.snapshot_index, incoming.snapshot_term)
        and chunk.total_bytes == incoming.total_bytes
    )


def _write(node: Node, incoming: Incoming, data: bytes) -> None:
    node.receiving.incoming = incoming._replace(writing=True)
    node.receiving.installing = incoming.offset + len(data) == incoming.total_bytes
    node.receiving.writes.append(
        SnapshotWrite(
            install=incoming.install,
            snapshot_index=incoming.snapshot_index,
            snapshot_term=incoming.snapshot_term,
            offset=incoming.offset,
            total_bytes=incoming.total_bytes,
            data=data,
            last=node.receiving.installing,
        )
    )


def handle_chunk_written(node: Node, written: ChunkWritten) -> None:
    """Ask for the next piece."""
    incoming = node.receiving.incoming
    if (
        incoming is None
        or incoming.install != written.install
        or not incoming.writing
        or node.receiving.installing
    ):
        return
    node.receiving.incoming = incoming._replace(offset=written.offset, writing=False)
    if _leads_still(node, incoming):
        _reply(node, incoming.sender, incoming.transfer, offset=written.offset)


def handle_installed(node: Node, installed: SnapshotInstalled) -> None:
    """Continue log and configuration from the snapshot, and acknowledge it with its own index."""
    incoming = node.receiving.incoming
    if incoming is None or not node.receiving.installing or incoming.install != installed.install:
        raise InvariantError(f"installed snapshot {installed.install} is not the one under way ({incoming})")
    index, term = installed.snapshot_index, installed.snapshot_term
    if (index, term) != (incoming.snapshot_index, incoming.snapshot_term) or index <= node.commit_index:
        raise InvariantError(
            f"installed ({index}, {term}) instead of ({incoming.snapshot_index}, {incoming.snapshot_term}) "
            f"over commit index {node.commit_index}"
        )
    keep_beyond = node.log.term_at(index) == term
    if not keep_beyond and index <= node.matched_index:
        raise InvariantError(f"the snapshot ({index}, {term}) contradicts the log that its own leader sent")
    node.log.install(index, term, installed.stamp_ms)
    node.history.install(index, installed.configuration, keep_beyond)
    node.commit_index = index
    node.handed_index = index
    node.receiving.end()
    if _leads_still(node, incoming) and not node.halted:
        node.matched_index = max(node.matched_index, index)
        _reply(node, incoming.sender, incoming.transfer, installed=True, match_index=index)


def handle_failed(node: Node, failed: SnapshotFailed) -> None:
    """Refuse the snapshot: nothing of it counts."""
    incoming = node.receiving.incoming
    if incoming is None or incoming.install != failed.install:
        return
    node.receiving.end()
    if _leads_still(node, incoming):
        _reply(node, incoming.sender, incoming.transfer, rejected=True)


def _leads_still(node: Node, incoming: Incoming) -> bool:
    return node.term == incoming.term and node.role.leader_id == incoming.sender


def _reply(
    node: Node,
    receiver: int,
    transfer: int,
    *,
    offset: int = 0,
    installed: bool = False,
    rejected: bool = False,
    match_index: int = 0,
) -> None:
    own = node.identity.node_id
    node.send(
        SnapshotChunkReply(node.term, own, receiver, transfer, offset, installed, rejected, match_index)
    )


def refuse_stale(node: Node, chunk: SnapshotChunk) -> None:
    """Answer a deposed leader with the higher term (defect D13 of pysyncobj)."""
    _reply(node, chunk.sender, chunk.transfer)
