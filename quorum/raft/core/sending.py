"""The leader's end of snapshot transfers.

Decides which piece of a snapshot goes to which peer and when a transfer ends. Does not know what a snapshot
holds or where it lies: the shell picks the newest one at the first read of a transfer and keeps it until the
transfer is released. Soft state; a lost transfer begins again with a new number.

Source: Raft §7; one outstanding piece per peer (defect D18 of pysyncobj).
"""

from quorum.raft.core.errors import MessageError
from quorum.raft.core.messages import (
    ChunkRead,
    ChunkReadFailed,
    SnapshotChunk,
    SnapshotChunkReply,
    SnapshotRead,
)
from quorum.raft.core.node import Node
from quorum.raft.core.progress import Flow, Progress
from quorum.raft.core.roles import Leader
from quorum.raft.core.transfers import Outgoing

#: First patience with a silent receiver, in longest election timeouts. A piece is lost only with its
#: connection, which is noticed otherwise; a slow link must not be filled with repeats.
_PATIENCE_TIMEOUTS = 8


def begin_snapshot(node: Node, node_id: int, peer: Progress) -> None:
    """Start a transfer to a peer that needs entries which the log no longer has, if it is there to take
    it."""
    silent_ms = node.now_ms - peer.contact_ms
    if silent_ms > node.options.election_timeout_max_ms or node.now_ms < peer.retry_snapshot_ms:
        return
    node.sending.transfers += 1
    patience_ms = _PATIENCE_TIMEOUTS * node.options.election_timeout_max_ms
    peer.become_snapshot(Outgoing(node.sending.transfers, 0, 0, 0, True, node.now_ms, patience_ms))
    _read(node, node_id, peer, 0)


def _read(node: Node, node_id: int, peer: Progress, offset: int) -> None:
    if peer.outgoing is not None:
        peer.outgoing = peer.outgoing._replace(offset=offset, reading=True, asked_ms=node.now_ms)
        node.sending.reads.append(
            SnapshotRead(node_id, peer.outgoing.transfer, offset, node.options.snapshot_chunk_bytes_max)
        )


def finish_snapshot(node: Node, peer: Progress) -> None:
    """End a transfer and go on with the entries after the peer's match."""
    node.sending.release(peer.outgoing)
    peer.become_probe()


def _give_up(node: Node, peer: Progress) -> None:
    finish_snapshot(node, peer)
    peer.retry_snapshot_ms = node.now_ms + node.options.election_timeout_max_ms


def handle_chunk_read(node: Node, leader: Leader, chunk: ChunkRead) -> None:
    """Send the piece that was read, unless its transfer is over."""
    peer = leader.progress.get(chunk.receiver)
    outgoing = peer.outgoing if peer is not None else None
    if peer is None or outgoing is None or outgoing.transfer != chunk.transfer:
        return
    if not outgoing.reading or chunk.offset != outgoing.offset:
        return
    end = chunk.offset + len(chunk.data)
    if not chunk.data or end > chunk.total_bytes:
        _give_up(node, peer)
        return
    peer.outgoing = outgoing._replace(
        snapshot_index=chunk.snapshot_index,
        snapshot_term=chunk.snapshot_term,
        reading=False,
        asked_ms=node.now_ms,
    )
    node.send(
        SnapshotChunk(
            term=node.term,
            sender=node.identity.node_id,
            receiver=chunk.receiver,
            transfer=chunk.transfer,
            snapshot_index=chunk.snapshot_index,
            snapshot_term=chunk.snapshot_term,
            offset=chunk.offset,
            total_bytes=chunk.total_bytes,
            data=chunk.data,
        )
    )


def handle_chunk_read_failed(node: Node, leader: Leader, failed: ChunkReadFailed) -> None:
    """Give the transfer up; a later one may find another snapshot."""
    peer = leader.progress.get(failed.receiver)
    if peer is not None and peer.outgoing is not None and peer.outgoing.transfer == failed.transfer:
        _give_up(node, peer)


def handle_chunk_reply(node: Node, peer: Progress, reply: SnapshotChunkReply) -> None:
    """Go on with the next piece, begin again, or end the transfer.

    A reply that wants the piece which is already under way is ignored: answering repeats with repeats would
    never end.
    """
    outgoing = peer.outgoing
    if outgoing is None or reply.transfer != outgoing.transfer:
        return
    if reply.installed:
        if not 0 < reply.match_index <= node.log.last_index:
            raise MessageError(
                f"node {reply.sender} claims an installed snapshot of index {reply.match_index}; "
                f"our log ends at {node.log.last_index}"
            )
        peer.matched(reply.match_index, node.now_ms)
        finish_snapshot(node, peer)
    elif reply.rejected:
        _give_up(node, peer)
    elif not outgoing.reading and (reply.offset > outgoing.offset or reply.offset == 0 < outgoing.offset):
        patience_ms = _PATIENCE_TIMEOUTS * node.options.election_timeout_max_ms
        peer.outgoing = outgoing._replace(patience_ms=patience_ms)
        _read(node, reply.sender, peer, reply.offset)


def resume_snapshot(node: Node, node_id: int, peer: Progress) -> None:
    """Send the outstanding piece again: the connection that it was on is gone."""
    if peer.outgoing is not None and not peer.outgoing.reading:
        _read(node, node_id, peer, peer.outgoing.offset)


def tick_snapshots(node: Node, leader: Leader) -> None:
    """Repeat what a silent receiver seems to have lost, and give up a receiver that is gone."""
    for node_id, peer in leader.progress.items():
        outgoing = peer.outgoing
        if peer.flow is not Flow.SNAPSHOT or outgoing is None or outgoing.reading:
            continue
        if node.now_ms - outgoing.asked_ms < outgoing.patience_ms:
            continue
        if node.now_ms - peer.contact_ms > node.options.election_timeout_max_ms:
            _give_up(node, peer)
        else:
            peer.outgoing = outgoing._replace(patience_ms=outgoing.patience_ms * 2)
            _read(node, node_id, peer, outgoing.offset)
