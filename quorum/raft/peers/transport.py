"""Messages between the members: pysyncobj's transport contract on asyncio.

Every node dials every other member and sends only on the connection that it dialled; what it receives comes
on those that the others dialled (links.py). Decides which node is dialled when, which connections count, and
what is dropped: a message that exceeds a peer's queue goes together with the connection, because Raft sends
again on the next one. If either direction of a member ends, both are ended and the member is reported as
disconnected at once, so that nobody waits for a dead leader. Knows no messages. Soft state only.

Source: pysyncobj.transport.Transport; Raft §5 needs neither order nor delivery.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pysyncobj.node import Node
from pysyncobj.transport import Transport, TransportNotReadyError

from quorum.errors import ProtocolError
from quorum.platform.accepting import Acceptor
from quorum.platform.listening import Listen, bind
from quorum.platform.runtime import Runtime
from quorum.raft.peers.admission import Admission
from quorum.raft.peers.codec import LENGTH_BYTES, Codec, PeerMessage
from quorum.raft.peers.dialling import dial
from quorum.raft.peers.hello import NONCE_BYTES, Callee, Dialler, HelloRefusedError, PeerIdentity, Refusal
from quorum.raft.peers.links import InboundLink, LinkContext, OutboundLink
from quorum.raft.peers.peer import STRANGER_MS, Peer, unfit
from quorum.raft.peers.peers import (
    PeerLinks,
    PeerNode,
    PeerTls,
    TransportCounters,
    TransportOptions,
    split_address,
)
from quorum.raft.peers.refusals import PeerRefusals

log = logging.getLogger("quorate.transport")

_ANYBODY: Final = range(1, 2**31)
#: Strangers are admitted up to so many peers.
_PEERS_MAX: Final = 256
#: How long stop() waits for queued messages to leave.
_STOP_TIMEOUT_S: Final = 0.5


class PeerTransport(Transport):  # type: ignore[misc]  # pysyncobj is untyped
    """The connections of one node with the other members.

    Callbacks come from the loop, never from inside `send`, `addNode` or `dropNode`; the latter two must not
    be called from a callback itself but in a later turn.
    """

    def __init__(
        self,
        runtime: Runtime,
        identity: Callable[[], PeerIdentity],
        secrets: Sequence[str],
        *,
        codec: Codec,
        listen: Listen,
        members: Mapping[int, str],
        options: TransportOptions | None = None,
        tls: PeerTls | None = None,
        admits_strangers: Callable[[], bool] = lambda: False,
        admission: Callable[[], Admission] = Admission,
        on_proven: Callable[[PeerIdentity], None] = lambda _: None,
    ) -> None:
        """Nothing is bound or dialled before `start`.

        Args:
            runtime: clock, loop and randomness; its random makes nonces and must not be predictable.
            identity: returns this node's identity as it is known now; its node id never changes.
            secrets: the cluster's peer secrets, none empty; read for each hello: the first one is proved, any
                is accepted.
            codec: knows every message that is sent; used by this transport alone.
            listen: (host, port), or a bound socket, whose ownership passes to the transport.
            members: {node id: host:port to dial}; these addresses win over those of `addNode`. This node's
                own entry is ignored.
            options: bounds and times.
            tls: how connections become TLS; None: they stay plain.
            admits_strangers: whether nodes of the cluster that are no peers may become peers now.
            admission: what is known now of the disks that may speak for a node id.
            on_proven: gets the node that a hello proved, refused or not, before any other call names it.
        """
        super().__init__(None, None, [])
        if not secrets or not all(secrets):
            raise ValueError("peer secret is empty: anybody could join the cluster")
        self._runtime = runtime
        self._identity = identity
        self._secrets = secrets
        self._codec = codec
        self._listen = listen
        self._options = options or TransportOptions()
        self._tls = tls or PeerTls()
        self._admits_strangers = admits_strangers
        self._admission = admission
        self._on_proven = on_proven
        if self._options.peer_queue_bytes_max < codec.frame_bytes_max + LENGTH_BYTES:
            limit = f"peer_queue_bytes_max = {self._options.peer_queue_bytes_max}"
            raise ValueError(f"{limit} does not hold a frame of {codec.frame_bytes_max} bytes")
        self._node_id = identity().node_id
        self._dial_addresses = dict(members)
        self._peers: dict[int, Peer] = {}
        self._context = LinkContext(self, runtime, codec, self._options, [])
        #: {accepted connections whose hello is not done: None}, oldest first
        self._handshakes: dict[InboundLink, None] = {}
        self.refusals = PeerRefusals(runtime, self._options.log_interval_ms)
        self._on_chunk: Callable[[], None] | None = None
        self._acceptor: Acceptor | None = None
        self._stopped = False
        self.counters = TransportCounters()
        for node_id in sorted(members):
            if node_id != self._node_id:
                self._add_peer(node_id, members[node_id])

    # --- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen and begin to dial."""
        listener = bind("listen.peer", self._listen)
        self._acceptor = Acceptor(listener, self._accept, lambda _: True, tls=self._tls.port)
        self._acceptor.start()
        for peer in self._peers.values():
            self._dial(peer)

    async def stop(self) -> None:
        """Send what is queued, for half a second at most, and close everything. Reports no disconnections."""
        finishing = [peer.outbound for peer in self._peers.values() if peer.outbound is not None]
        dialling = [peer.dialling for peer in self._peers.values() if peer.dialling is not None]
        gone = [link.finish() for link in finishing]
        self._close_all()
        if gone:
            await asyncio.wait(gone, timeout=_STOP_TIMEOUT_S)
        for link in finishing:
            link.abort()
        await asyncio.gather(*dialling, return_exceptions=True)

    def destroy(self) -> None:
        """Close everything at once; what was not sent is lost."""
        self.setOnMessageReceivedCallback(None)
        self.setOnNodeConnectedCallback(None)
        self.setOnNodeDisconnectedCallback(None)
        finishing = [peer.outbound for peer in self._peers.values() if peer.outbound is not None]
        self._close_all()
        for link in finishing:
            link.abort()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the transport listens on; only after `start`."""
        if self._acceptor is None:
            raise TransportNotReadyError("the transport is not started")
        return self._acceptor.address

    def links(self) -> dict[int, PeerLinks]:
        """Return {node id: state of its connections}, ascending."""
        return {node_id: peer.links() for node_id, peer in sorted(self._peers.items())}

    def recheck_identities(self) -> None:
        """Close connections with other clusters' nodes and with disks that may not speak for a member.

        To be called when the cluster id becomes known, and when the configuration changes.
        """
        mine, admission = self._identity(), self._admission()
        for peer in list(self._peers.values()):
            for link, reason in peer.unfit_links(mine, admission):
                self._runtime.call_soon(link.close, reason)

    # --- pysyncobj's contract -----------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the transport listens."""
        return self._acceptor is not None and not self._stopped

    def addNode(self, node: PeerNode) -> None:  # noqa: N802 - the contract's name
        """Begin to dial a member and accept its connections; its address in `members` wins over its own.

        One that is connected under another address is reported as disconnected.
        """
        node_id = int(node.id)
        address = self._dial_addresses.get(node_id) or getattr(node, "address", "")
        known = self._peers.get(node_id)
        if known is not None and (not address or known.address == address):
            known.stranger_until_ms = None
            return
        if node_id == self._node_id or not address:
            raise ValueError(
                f"node {node_id} at {address!r} cannot be added as a peer of node {self._node_id}"
            )
        if known is not None:
            if known.outbound is not None:
                # In a later turn: the caller must not hear of a disconnection while it adds the node.
                self._runtime.call_soon(self._onNodeDisconnected, self._node_of(known, known.outbound))
            self._drop_peer(known)
        peer = self._add_peer(node_id, address)
        if self.ready:
            self._dial(peer)

    def dropNode(self, node: Node) -> None:  # noqa: N802 - the contract's name
        """Close the connections with a member and accept none any more; an unknown one is ignored.

        What was sent to it still leaves, as far as its socket takes it. No disconnection is reported.
        """
        peer = self._peers.get(int(node.id))
        if peer is not None:
            self._drop_peer(peer)

    def send(self, node: PeerNode, message: PeerMessage) -> bool:
        """Queue a message for a member; it leaves with `flush`.

        Returns:
            Whether there is a connection to put it on. It may still be lost.
        """
        node_id = node.node_id
        if message.sender != self._node_id or message.receiver != node_id or node_id == self._node_id:
            route = f"from {message.sender} to {message.receiver}"
            raise ValueError(f"node {self._node_id} cannot send a message {route} to node {node_id}")
        peer = self._peers.get(node_id)
        link = peer.outbound if peer is not None else None
        if link is None:
            self.counters.messages_unsent += 1
            return False
        frame = self._codec.encode(message)
        frame_bytes = sum(map(len, frame))
        if link.queue.size_bytes + frame_bytes > self._options.peer_queue_bytes_max:
            self.counters.queue_overflows += 1
            limit = f"peer_queue_bytes_max = {self._options.peer_queue_bytes_max}"
            reason = f"{frame_bytes} more bytes than the {link.queue.size_bytes} that wait exceed {limit}"
            # In a later turn: the caller must not hear of a disconnection while it sends.
            self._runtime.call_soon(link.close, reason)
            return False
        link.send(frame, frame_bytes, bulk=type(message) in self._codec.bulk_types)
        self.counters.messages_sent += 1
        self.counters.bytes_sent += frame_bytes
        return True

    def setOnChunkReceivedCallback(self, callback: Callable[[], None] | None) -> None:  # noqa: N802
        """Set what is called after all messages that arrived together were handed on; None: nothing."""
        self._on_chunk = callback

    def flush(self) -> None:
        """Hand everything that was sent in this turn to the sockets."""
        due = self._context.due
        if due:
            links = due.copy()
            due.clear()
            for link in links:
                link.flush()
            self._codec.end_turn()

    # --- dialling -----------------------------------------------------------------------------------------

    def _add_peer(self, node_id: int, address: str) -> Peer:
        split_address(address)
        peer = self._peers[node_id] = Peer(node_id, address, self._options.backoff_min_ms)
        return peer

    def _drop_peer(self, peer: Peer) -> None:
        del self._peers[peer.node_id]
        outbound, inbound, greeting = peer.outbound, peer.inbound, peer.greeting
        peer.outbound = peer.inbound = peer.greeting = None
        self._stop_redial(peer)
        if peer.dialling is not None:
            peer.dialling.cancel()
        reason = "it is not a peer any more" if not self._stopped else "this node stops"
        if greeting is not None:
            greeting.close(reason)
        if outbound is not None and inbound is not None:
            # The peer ends what it still receives as soon as it cannot send any more.
            outbound.finish().add_done_callback(lambda _: inbound.close(reason))
        elif outbound is not None:
            outbound.finish()
        elif inbound is not None:
            inbound.close(reason)

    def _close_all(self) -> None:
        self._stopped = True
        if self._acceptor is not None:
            self._acceptor.stop()
        elif isinstance(self._listen, socket.socket):
            self._listen.close()
        for peer in list(self._peers.values()):
            self._drop_peer(peer)
        for link in list(self._handshakes):
            link.close("this node stops")

    def _dial(self, peer: Peer) -> None:
        """Open a connection to a member, unless there is one or one is under way."""
        self._stop_redial(peer)
        if peer.dialling is None and peer.greeting is None and peer.outbound is None:
            peer.dialling = asyncio.get_running_loop().create_task(self._connect(peer))

    async def _connect(self, peer: Peer) -> None:
        try:
            await dial(peer.address, partial(self._greet, peer), self._options, self._tls.dial)
        except (OSError, UnicodeError) as error:
            text = f"{peer.address}: node {peer.node_id} cannot be reached: {error}"
            self.refusals.warn(peer.address, "unreachable", text)
            # uvloop asks for the protocol before it connects.
            peer.greeting = None
            self._redial_later(peer)
        finally:
            peer.dialling = None

    def _greet(self, peer: Peer) -> OutboundLink:
        nonce = self._runtime.random.randbytes(NONCE_BYTES)
        hello = Dialler(self._identity(), peer.node_id, self._secrets[0].encode(), nonce, judge=self._judge)
        link = OutboundLink(self._context, hello, peer.address, peer.node_id)
        peer.greeting = link
        return link

    def _redial_later(self, peer: Peer) -> None:
        if self._stopped or self._peers.get(peer.node_id) is not peer or peer.redial is not None:
            return
        if peer.is_given_up(self._runtime.monotonic_ms()):
            log.info("node %d at %s is not a member and is given up", peer.node_id, peer.address)
            self._drop_peer(peer)
            return
        delay_ms = peer.next_delay_ms(self._options, self._runtime.random)
        peer.redial = self._runtime.call_later(delay_ms, self._dial, peer)

    def _stop_redial(self, peer: Peer) -> None:
        if peer.redial is not None:
            peer.redial.cancel()
            peer.redial = None

    def _accept(self) -> InboundLink:
        nonce = self._runtime.random.randbytes(NONCE_BYTES)
        admitted = _ANYBODY if self._admits_strangers() else self._peers
        secrets = [each.encode() for each in self._secrets]
        hello = Callee(self._identity(), admitted, secrets, nonce, judge=self._judge)
        link = InboundLink(self._context, hello)
        if len(self._handshakes) >= (most := self._options.pending_handshakes_max):
            # Connections that have proven the secret go last: strangers must not keep members out.
            spare = min(self._handshakes, key=lambda each: each.proven is not None)
            spare.close(f"newer connections exceed pending_handshakes_max = {most}")
        self._handshakes[link] = None
        return link

    def _judge(self, other: PeerIdentity) -> Refusal | None:
        """Say why a process may not speak for its node id, or not while another one does."""
        peer = self._peers.get(other.node_id)
        present = peer.inbound.identity if peer is not None and peer.inbound is not None else None
        return self._admission().refusal(other, present)

    # --- what links tell ----------------------------------------------------------------------------------

    def link_opened(self, link: InboundLink | OutboundLink) -> None:
        """A hello is done (called by links)."""
        assert link.identity is not None
        # It was judged when the hello began, seconds ago perhaps.
        if reason := unfit(link, self._identity(), self._admission()):
            link.close(reason)
            return
        self._on_proven(link.identity)
        peer = self._peers.get(link.identity.node_id)
        if isinstance(link, InboundLink):
            self._handshakes.pop(link, None)
            peer = peer or self._add_stranger(link.identity)
            if peer is not None:
                self._open_inbound(peer, link)
                return
        elif peer is not None and peer.greeting is link:
            self._open_outbound(peer, link)
            return
        link.close("it is not a peer any more")

    def _add_stranger(self, identity: PeerIdentity) -> Peer | None:
        try:
            admitted = not self._stopped and len(self._peers) < _PEERS_MAX and self._admits_strangers()
            peer = self._add_peer(identity.node_id, identity.address) if admitted else None
        except ValueError:
            return None
        if peer is not None:
            peer.stranger_until_ms = self._runtime.monotonic_ms() + STRANGER_MS
        return peer

    def _open_inbound(self, peer: Peer, link: InboundLink) -> None:
        if peer.inbound is not None:
            self._lose(peer, peer.inbound, "the peer opened a new connection")
        peer.inbound = link
        peer.inbound_node = self._node_of(peer, link)
        self.counters.connections_opened += 1
        log.info("accepted node %d from %s", peer.node_id, link.address)
        self._dial(peer)

    def _open_outbound(self, peer: Peer, link: OutboundLink) -> None:
        assert link.identity is not None
        if peer.inbound is not None and peer.inbound_node.incarnation != link.identity.incarnation:
            self._lose(peer, peer.inbound, "the peer is another process now")
        peer.greeting = None
        peer.outbound = link
        self._stop_redial(peer)
        self.refusals.forget(peer.node_id)
        self.counters.connections_opened += 1
        log.info("connected to node %d at %s", peer.node_id, link.address)
        self._onNodeConnected(self._node_of(peer, link))

    def link_message(self, link: InboundLink, message: PeerMessage) -> None:
        """A message arrived (called by links)."""
        assert link.identity is not None
        sender = link.identity.node_id
        if message.sender != sender or message.receiver != self._node_id:
            claim = f"{type(message).__name__} says from {message.sender} to {message.receiver}"
            raise ProtocolError(f"{claim} on a link from {sender} to {self._node_id}")
        peer = self._peers.get(sender)
        # The contract's own method would only ask the same.
        if peer is not None and peer.inbound is link and self._onMessageReceivedCallback is not None:
            self.counters.messages_received += 1
            self._onMessageReceivedCallback(peer.inbound_node, message)

    def link_chunk(self) -> None:
        """All messages of a received chunk were handed on (called by links)."""
        if self._on_chunk is not None:
            self._on_chunk()

    def link_closed(self, link: InboundLink | OutboundLink, reason: str, error: ProtocolError | None) -> None:
        """A link is gone (called by links)."""
        if isinstance(error, HelloRefusedError):
            self.counters.hellos_refused += 1
            self._warn(link, error.refusal.reason.name, reason)
            self.refusals.note(link.node_id, link.proven, error)
            if link.proven is not None:
                self._on_proven(link.proven)
        elif error is not None:
            self.counters.protocol_errors += 1
            self._warn(link, "protocol", reason)
        if isinstance(link, InboundLink) and link in self._handshakes:
            del self._handshakes[link]
            if error is None and not self._stopped:
                self._warn(link, "hello", f"closed before its hello was done: {reason}")
            return
        peer = self._peers.get(link.node_id)
        if peer is None:
            return
        if peer.greeting is link:
            peer.greeting = None
            if error is None:
                self._warn(link, "hello", f"node {peer.node_id} ended the hello: {reason}")
            self._redial_later(peer)
        elif link in (peer.outbound, peer.inbound):
            self._lose(peer, link, reason)

    def _lose(self, peer: Peer, link: InboundLink | OutboundLink, reason: str) -> None:
        """End both directions because `link` ended, and report the member as disconnected."""
        ended = (peer.outbound, peer.inbound)
        peer.outbound = peer.inbound = None
        for other in ended:
            if other is not None:
                other.close("the other direction ended")
        peer.link_lost(link.opened_at_ms, self._runtime.monotonic_ms(), self._options)
        self.counters.connections_lost += 1
        direction = "from" if isinstance(link, InboundLink) else "to"
        log.info("lost the connection %s node %d at %s: %s", direction, peer.node_id, link.address, reason)
        self._redial_later(peer)
        self._onNodeDisconnected(self._node_of(peer, link))

    def _node_of(self, peer: Peer, link: InboundLink | OutboundLink) -> PeerNode:
        assert link.identity is not None
        proven = link.identity
        return PeerNode(peer.node_id, peer.address, proven.incarnation, proven.feature_level)

    def _warn(self, link: InboundLink | OutboundLink, kind: str, text: str) -> None:
        """Write a line that names the peer's address, unless the same was said a moment ago."""
        # The port of an accepted connection is another one each time.
        place = link.address.rpartition(":")[0] if isinstance(link, InboundLink) else link.address
        self.refusals.warn(place, kind, f"{link.address}: {text}")
