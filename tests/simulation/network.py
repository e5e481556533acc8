"""The network between the nodes: connections like TCP's, one for each direction, with faults.

Decides when a message arrives and whether. What one connection carries arrives in order, each chunk after a
drawn delay, as long as the connection lives. It follows the shipped transport
(quorum/raft/peers/transport.py): every node dials every other one and sends only on what it
dialled; if either direction ends both do, and the member is reported
as disconnected; small messages overtake bulk; what a turn sent leaves as one chunk.

A cut of a direction holds what is sent, as TCP does: it arrives in order when the cut is healed in time, else
the sender gives the connection up. The world is more hostile than TCP in three ways, each by chance: a chunk
may come twice, a chunk of an old connection may come after the new one is up, and a break may swallow the
last chunks that were on their way. Node id 0 stands for all clients.

Every connection begins with the shipped hello (quorum/raft/peers/hello.py), judged as the shipped transport
judges it (quorum/raft/peers/admission.py); it needs both directions. Its ways are one instant here: the
dialler learns at once what was proved, the acceptor when the connection, or the refusal, reaches it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pysyncobj.transport import Transport

from quorum.node.node import MESSAGE_TYPES
from quorum.raft.core.messages import Append, SnapshotChunk
from quorum.raft.peers.admission import Admission
from quorum.raft.peers.codec import Codec
from quorum.raft.peers.hello import (
    NONCE_BYTES,
    Callee,
    Dialler,
    HelloRefusedError,
    PeerIdentity,
    Refusal,
    conflict,
)
from quorum.raft.peers.peers import PeerNode
from quorum.raft.requests.origins import Forward
from tests.simulation.scheduler import Handle, Scheduler
from tests.simulation.sim_runtime import SimRuntime

UNACKNOWLEDGED_TIMEOUT_MS = 5000.0
CONNECT_TIMEOUT_MS = 1000.0
BACKOFF_MIN_MS = 20.0
BACKOFF_MAX_MS = 500.0
STABLE_MS = 1000.0
#: a healed direction sends again what was held within this time
RETRANSMIT_MS_MAX = 400.0
#: a hello that reaches a stopped process is looked at again after this
STOPPED_PEER_MS = 50.0
MESSAGE_HEAD_BYTES = 64
#: every so many messages one is packed and unpacked by the shipped codec
CODEC_EVERY = 50
FRAME_BYTES_MAX = 64 * 1024 * 1024
BULK = (Append, SnapshotChunk, Forward)
SECRET = b"what all nodes of the world share"
ANYBODY = range(1, 2**31)


class MessageChangedError(AssertionError):
    """A message came out of the codec as another one."""


@dataclass(slots=True)
class Weather:
    """How the network behaves while nothing is cut; chances are per chunk.

    Attributes:
        delay_ms: least and most of a chunk's ordinary delay.
        late_chance, late_ms: some chunks take up to so much longer.
        twice_chance: comes again, somewhat later.
        stale_chance: comes although its connection is gone, or has been replaced.
        break_chance: the connection breaks.
        split_chance: its messages arrive in two pieces.
    """

    delay_ms: tuple[float, float] = (0.1, 0.8)
    late_chance: float = 0.01
    late_ms: float = 20.0
    twice_chance: float = 0.0
    stale_chance: float = 0.0
    break_chance: float = 0.0
    split_chance: float = 0.05


@dataclass(slots=True)
class NetworkCounters:
    """What the network did to its users; only ever added to."""

    chunks: int = 0
    held: int = 0
    lost: int = 0
    twice: int = 0
    stale: int = 0
    late: int = 0
    broken: int = 0
    given_up: int = 0
    slowed_bytes: int = 0
    snapshot_chunks: int = 0
    through_codec: int = 0
    hellos_refused: int = 0


class Connection:
    """One direction between two lives; `sender` dialled it, as `dialler`, and found `acceptor` there."""

    __slots__ = (
        "acceptor",
        "arrive_ms",
        "broken",
        "bulk",
        "dialler",
        "held",
        "key",
        "lost_after_ms",
        "node",
        "opened_ms",
        "receiver",
        "sender",
        "serving",
        "unacknowledged",
        "urgent",
    )

    def __init__(
        self,
        sender: SimTransport,
        receiver: SimTransport,
        dialler: PeerIdentity,
        acceptor: PeerIdentity,
        now_ms: float,
    ) -> None:
        self.sender = sender
        self.receiver = receiver
        self.dialler = dialler
        self.acceptor = acceptor
        self.key = (sender.node_id, receiver.node_id)
        #: the sender, as the receiver's callbacks are given it
        self.node = PeerNode(sender.node_id, "", dialler.incarnation, dialler.feature_level)
        self.opened_ms = now_ms
        self.arrive_ms = 0.0
        self.broken = False
        self.lost_after_ms = float("inf")
        #: sent in this turn, or waiting for a slow line
        self.urgent: list[Any] = []
        self.bulk: list[Any] = []
        self.serving = False
        #: chunks that a cut holds
        self.held: list[tuple[Any, ...] | None] = []
        self.unacknowledged: Handle | None = None

    def beyond(self, end: SimTransport) -> PeerIdentity:
        """Return what the hello proved to one end of the other."""
        return self.acceptor if end is self.sender else self.dialler


class Network:
    """All links of a world."""

    def __init__(self, scheduler: Scheduler, weather: Weather | None = None) -> None:
        self.scheduler = scheduler
        self.weather = weather or Weather()
        self.counters = NetworkCounters()
        #: {node id: the transport of its present life}
        self.transports: dict[int, SimTransport] = {}
        #: directions that let nothing through: (from, to)
        self.cuts: set[tuple[int, int]] = set()
        #: {(from, to): bytes per ms}
        self.rates: dict[tuple[int, int], float] = {}
        #: {(from, to): the newest connection}
        self.connections: dict[tuple[int, int], Connection] = {}
        #: told when directions are healed
        self.on_heal: list[Callable[[], object]] = []
        self.rng = scheduler.rng("network")
        self._codec = Codec(MESSAGE_TYPES, frame_bytes_max=FRAME_BYTES_MAX)
        self._until_codec = CODEC_EVERY

    # --- faults -----------------------------------------------------------------------------------

    def cut(self, sender: int, receiver: int) -> None:
        """Let nothing through in one direction."""
        self.cuts.add((sender, receiver))

    def cut_pair(self, one: int, other: int) -> None:
        """Let nothing through in both directions."""
        self.cuts |= {(one, other), (other, one)}

    def part(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Let nothing through between two groups."""
        others = list(others)
        for one in some:
            for other in others:
                self.cut_pair(one, other)

    def heal(self, sender: int, receiver: int) -> None:
        """Let one direction through again: what it held arrives, if nobody has given up."""
        if (sender, receiver) not in self.cuts:
            return
        self.cuts.discard((sender, receiver))
        connection = self.connections.get((sender, receiver))
        if connection is not None:
            self._release(connection)
        for told in self.on_heal:
            told()

    def heal_all(self) -> None:
        """Let everything through, at full speed."""
        self.rates.clear()
        for sender, receiver in sorted(self.cuts):
            self.heal(sender, receiver)
        for connection in list(self.connections.values()):
            self._serve_rest(connection)

    def slow(self, sender: int, receiver: int, bytes_per_s: float) -> None:
        """Let one direction carry only so much."""
        self.rates[sender, receiver] = bytes_per_s / 1000

    def unslow(self, sender: int, receiver: int) -> None:
        """Let one direction carry as much as it is given."""
        self.rates.pop((sender, receiver), None)
        connection = self.connections.get((sender, receiver))
        if connection is not None:
            self._serve_rest(connection)

    def break_connection(self, sender: int, receiver: int) -> bool:
        """Break the connection of one direction; tell whether there was one."""
        connection = self.connections.get((sender, receiver))
        if connection is None or connection.broken:
            return False
        self._break(connection)
        return True

    # --- for transports ---------------------------------------------------------------------------

    def delay_ms(self) -> float:
        """Draw the time that something is on its way."""
        weather, random = self.weather, self.rng.random
        low_ms, high_ms = weather.delay_ms
        drawn_ms = low_ms + (high_ms - low_ms) * random()
        if weather.late_chance and random() < weather.late_chance:
            self.counters.late += 1
            drawn_ms += weather.late_ms * random()
        return drawn_ms

    def transmit(self, connection: Connection, chunk: tuple[Any, ...] | None) -> None:
        """Put a chunk on its way; None opens the connection at the receiver."""
        if connection.broken:
            self.counters.lost += 1
            return
        if connection.key in self.cuts:
            self._hold(connection, chunk)
            return
        now_ms = self.scheduler.now_ms
        weather, random = self.weather, self.rng.random
        self.counters.chunks += 1
        arrive_ms = max(connection.arrive_ms, now_ms + self.delay_ms())
        if chunk is not None and len(chunk) > 1 and random() < weather.split_chance:
            cut = self.rng.randrange(1, len(chunk))
            self.scheduler.when(arrive_ms, self._arrive, connection, chunk[:cut], arrive_ms)
            chunk = chunk[cut:]
            arrive_ms += self.delay_ms()
        connection.arrive_ms = arrive_ms
        self.scheduler.when(arrive_ms, self._arrive, connection, chunk, arrive_ms)
        if chunk is not None and weather.twice_chance and random() < weather.twice_chance:
            self.counters.twice += 1
            again_ms = arrive_ms + random() * 50 * self.delay_ms()
            self.scheduler.when(again_ms, self._arrive, connection, chunk, again_ms)
        if weather.break_chance and random() < weather.break_chance:
            self._break(connection)

    def send_slowly(self, connection: Connection) -> bool:
        """Begin to send what waits on a slow line; False if the line is not slow."""
        if connection.key not in self.rates:
            return False
        if not connection.serving:
            self._serve(connection)
        return True

    def close(self, connection: Connection, by: SimTransport) -> None:
        """One end closed the connection, or its process died: the other end hears of it, now or late."""
        if connection.broken:
            return
        self._swallow(connection)
        other = connection.receiver if by is connection.sender else connection.sender
        self._tell(connection, other, (by.node_id, other.node_id))

    def abandon(self, connection: Connection) -> None:
        """An end is gone without a word (power cut): the other one hears of it late."""
        if not connection.broken:
            self._swallow(connection)
            late_ms = self.rng.uniform(0.0, UNACKNOWLEDGED_TIMEOUT_MS)
            for end in (connection.sender, connection.receiver):
                self.scheduler.at(late_ms, end.runtime.enter, end.lost, connection)

    def connections_of(self, transport: SimTransport) -> list[Connection]:
        """Return what a life has at either end and nobody ended, also what was not accepted yet."""
        return [
            connection
            for connection in self.connections.values()
            if not connection.broken and transport in (connection.sender, connection.receiver)
        ]

    def through_codec(self, message: Any) -> Any:
        """Return the message as the shipped codec carries it, once in a while."""
        self._until_codec -= 1
        if self._until_codec:
            return message
        self._until_codec = CODEC_EVERY
        self.counters.through_codec += 1
        frame = b"".join(self._codec.encode(message))
        self._codec.end_turn()
        size = self._codec.frame_bytes(frame, 0)
        decoded = self._codec.decode(frame[-size:])
        if decoded != message:
            raise MessageChangedError(f"{message} came out of the codec as {decoded}")
        return decoded

    # --- inner parts ------------------------------------------------------------------------------

    def _arrive(self, connection: Connection, chunk: tuple[Any, ...] | None, arrive_ms: float) -> None:
        if arrive_ms > connection.lost_after_ms:
            self.counters.lost += 1
            return
        receiver = connection.receiver
        receiver.runtime.enter(receiver.arrive, connection, chunk)

    def _hold(self, connection: Connection, chunk: tuple[Any, ...] | None) -> None:
        self.counters.held += 1
        connection.held.append(chunk)
        if connection.unacknowledged is None:
            connection.unacknowledged = self.scheduler.at(
                UNACKNOWLEDGED_TIMEOUT_MS, self._give_up, connection
            )

    def _give_up(self, connection: Connection) -> None:
        connection.unacknowledged = None
        if connection.held and not connection.broken:
            self.counters.given_up += 1
            sender = connection.sender
            sender.runtime.enter(sender.lost, connection)

    def _release(self, connection: Connection) -> None:
        if connection.unacknowledged is not None:
            connection.unacknowledged.cancel()
            connection.unacknowledged = None
        held, connection.held = connection.held, []
        if held:
            again_ms = self.scheduler.now_ms + self.rng.random() * RETRANSMIT_MS_MAX
            connection.arrive_ms = max(connection.arrive_ms, again_ms)
            for chunk in held:
                self.transmit(connection, chunk)

    def _break(self, connection: Connection) -> None:
        """Break it from outside: both ends hear of it, each at its own time."""
        self.counters.broken += 1
        self._swallow(connection)
        sender, receiver = connection.key
        self._tell(connection, connection.sender, (receiver, sender))
        self._tell(connection, connection.receiver, (sender, receiver))

    def _swallow(self, connection: Connection) -> None:
        """Let a drawn part of what is on its way still arrive."""
        connection.broken = True
        connection.held.clear()
        if self.weather.stale_chance and self.rng.random() < self.weather.stale_chance:
            return
        now_ms = self.scheduler.now_ms
        connection.lost_after_ms = now_ms + self.rng.random() * max(0.0, connection.arrive_ms - now_ms)

    def _tell(self, connection: Connection, end: SimTransport, way: tuple[int, int]) -> None:
        if way in self.cuts or self.rng.random() < 0.05:
            delay_ms = self.rng.uniform(0.0, UNACKNOWLEDGED_TIMEOUT_MS)
        else:
            delay_ms = self.delay_ms()
        self.scheduler.at(delay_ms, end.runtime.enter, end.lost, connection)

    def _serve(self, connection: Connection) -> None:
        """Send the next message over a slow line: the line is busy for as long as its bytes take."""
        connection.serving = False
        rate = self.rates.get(connection.key)
        if rate is None:
            self._serve_rest(connection)
            return
        queue = connection.urgent or connection.bulk
        if not queue or connection.broken:
            return
        message = queue.pop(0)
        size = size_of(message)
        self.counters.slowed_bytes += size
        connection.serving = True
        self.scheduler.at(size / rate, self._served, connection, message)

    def _served(self, connection: Connection, message: Any) -> None:
        self.transmit(connection, (message,))
        self._serve(connection)

    def _serve_rest(self, connection: Connection) -> None:
        chunk = (*connection.urgent, *connection.bulk)
        connection.urgent.clear()
        connection.bulk.clear()
        if chunk:
            self.transmit(connection, chunk)


def size_of(message: Any) -> int:
    """Return about how many bytes a message takes on a line."""
    if isinstance(message, Append):
        return MESSAGE_HEAD_BYTES + sum(len(entry.payload) + 20 for entry in message.entries)
    if isinstance(message, SnapshotChunk):
        return MESSAGE_HEAD_BYTES + len(message.data)
    if isinstance(message, Forward):
        return MESSAGE_HEAD_BYTES + len(message.payload)
    return MESSAGE_HEAD_BYTES


def greet(dialler: Dialler, acceptor: Callee) -> HelloRefusedError | None:
    """Run a hello to its end; return who refused whom first, if it was refused."""
    refused: HelloRefusedError | None = None
    sides = itertools.cycle((acceptor, dialler))
    record = dialler.begin()
    while record:
        try:
            record = next(sides).feed(record)
        except HelloRefusedError as error:
            refused = refused or error
            record = error.reply
    return refused


class _Peer:
    """What a transport keeps of one member."""

    __slots__ = ("address", "backoff_ms", "dialling", "inbound", "node_id", "outbound")

    def __init__(self, node_id: int, address: str) -> None:
        self.node_id = node_id
        self.address = address
        self.backoff_ms = BACKOFF_MIN_MS
        #: the attempt or the wait for the next one
        self.dialling: Handle | None = None
        self.outbound: Connection | None = None
        self.inbound: Connection | None = None


class SimTransport(Transport):  # type: ignore[misc]  # pysyncobj is untyped
    """The member transport of one life."""

    def __init__(
        self,
        network: Network,
        runtime: SimRuntime,
        node_id: int,
        identity: Callable[[], PeerIdentity],
        members: Iterable[int],
        admits_strangers: Callable[[], bool] = lambda: False,
        admission: Callable[[], Admission] = Admission,
        on_proven: Callable[[PeerIdentity], None] = lambda _: None,
    ) -> None:
        super().__init__(None, None, [])
        self.network = network
        self.runtime = runtime
        self.node_id = node_id
        self.identity = identity
        self._admits_strangers = admits_strangers
        self._admission = admission
        self._on_proven = on_proven
        self._peers = {member: _Peer(member, "") for member in sorted(members) if member != node_id}
        self._on_chunk: Callable[[], None] | None = None
        self._started = False
        self._stopped = False
        #: connections on which something was sent in this turn
        self._dirty: list[Connection] = []

    def start(self) -> None:
        """Listen and begin to dial."""
        self._started = True
        self.network.transports[self.node_id] = self
        for peer in self._peers.values():
            self._dial(peer)

    def vanish(self, *, silently: bool) -> None:
        """The process is gone: its kernel closes what it had, or nobody does."""
        self._stopped = True
        if self.network.transports.get(self.node_id) is self:
            del self.network.transports[self.node_id]
        # Those that were opened but not accepted yet, too: nobody else would tell their other end.
        for connection in self.network.connections_of(self):
            if silently:
                self.network.abandon(connection)
            else:
                self.network.close(connection, self)

    # --- MemberTransport --------------------------------------------------------------------------

    def addNode(self, node: PeerNode) -> None:  # noqa: N802
        """Begin to keep a connection with a member."""
        known = self._peers.get(node.node_id)
        if known is not None or node.node_id == self.node_id:
            return
        peer = self._peers[node.node_id] = _Peer(node.node_id, node.address)
        if self._started:
            self._dial(peer)

    def dropNode(self, node: PeerNode) -> None:  # noqa: N802
        """Close the connections with a member; what was sent still arrives, and nothing is reported."""
        peer = self._peers.pop(node.node_id, None)
        if peer is None:
            return
        if peer.dialling is not None:
            peer.dialling.cancel()
        if peer.outbound is not None:
            self._leave(peer.outbound)
        for connection in (peer.outbound, peer.inbound):
            if connection is not None:
                arrive_ms = connection.arrive_ms
                self.network.close(connection, self)
                if connection.sender is self:
                    connection.lost_after_ms = arrive_ms

    def send(self, node: PeerNode, message: Any) -> bool:
        """Queue a message; it leaves at the end of this turn."""
        peer = self._peers.get(node.node_id)
        connection = None if peer is None else peer.outbound
        if connection is None:
            return False
        if not connection.urgent and not connection.bulk:
            if not self._dirty:
                self.runtime.at_turn_end.append(self.flush)
            self._dirty.append(connection)
        message = self.network.through_codec(message)
        if isinstance(message, BULK):
            connection.bulk.append(message)
            if isinstance(message, SnapshotChunk):
                self.network.counters.snapshot_chunks += 1
        else:
            connection.urgent.append(message)
        return True

    def flush(self) -> None:
        """Let everything that was sent in this turn leave."""
        if self._dirty:
            dirty, self._dirty = self._dirty, []
            for connection in dirty:
                self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        network = self.network
        if network.rates and network.send_slowly(connection):
            return
        chunk = (*connection.urgent, *connection.bulk)
        if chunk:
            connection.urgent.clear()
            connection.bulk.clear()
            network.transmit(connection, chunk)

    def destroy(self) -> None:
        """Close everything; nothing is sent or received any more."""
        self._onMessageReceivedCallback = self._onNodeConnectedCallback = None
        self._onNodeDisconnectedCallback = self._on_chunk = None
        self.vanish(silently=False)
        self._peers.clear()

    def recheck_identities(self) -> None:
        """Close connections with other clusters' nodes and with disks that may not speak for a member."""
        mine, admission = self.identity(), self._admission()
        for peer in list(self._peers.values()):
            for connection in (peer.outbound, peer.inbound):
                if connection is None:
                    continue
                proven = connection.beyond(self)
                if conflict(mine, proven) or admission.refusal(proven):
                    self.runtime.call_soon(self.lost, connection)

    def setOnChunkReceivedCallback(self, callback: Callable[[], None] | None) -> None:  # noqa: N802
        """Set who is told that a chunk was handed on."""
        self._on_chunk = callback

    # --- connections ------------------------------------------------------------------------------

    def _dial(self, peer: _Peer) -> None:
        """Open a connection, unless there is one or an attempt is under way; a wait is cut short."""
        if self._stopped or peer.outbound is not None:
            return
        if peer.dialling is not None:
            peer.dialling.cancel()
        # Two round trips of a hello.
        delay_ms = 4 * self.network.delay_ms()
        peer.dialling = self.network.scheduler.at(delay_ms, self.runtime.enter, self._greet, peer)

    def _redial_later(self, peer: _Peer, extra_ms: float = 0.0) -> None:
        if self._stopped or self._peers.get(peer.node_id) is not peer:
            return
        if peer.dialling is not None:
            peer.dialling.cancel()
        network = self.network
        delay_ms = extra_ms + peer.backoff_ms * (1 + network.rng.random() / 2)
        peer.backoff_ms = min(2 * peer.backoff_ms, BACKOFF_MAX_MS)
        peer.dialling = network.scheduler.at(delay_ms, self.runtime.enter, self._greet, peer)

    def _greet(self, peer: _Peer) -> None:
        """The hello would be done now, if both ends could hear each other."""
        peer.dialling = None
        network = self.network
        if self._stopped or peer.outbound is not None or self._peers.get(peer.node_id) is not peer:
            return
        other = network.transports.get(peer.node_id)
        if not network.cuts.isdisjoint({(self.node_id, peer.node_id), (peer.node_id, self.node_id)}):
            self._redial_later(peer, CONNECT_TIMEOUT_MS)
        elif other is None:
            self._redial_later(peer)
        elif other.runtime.paused:
            peer.dialling = network.scheduler.at(STOPPED_PEER_MS, self.runtime.enter, self._greet, peer)
        else:
            self._hello(peer, other)

    def _hello(self, peer: _Peer, other: SimTransport) -> None:
        network = self.network
        nonce = network.rng.randbytes(NONCE_BYTES)
        dialler = Dialler(self.identity(), peer.node_id, SECRET, nonce, judge=self._judge)
        acceptor = other.acceptor()
        refused = greet(dialler, acceptor)
        assert dialler.proven is not None
        assert acceptor.proven is not None
        if refused is not None:
            network.counters.hellos_refused += 1
            network.scheduler.at(network.delay_ms(), other.runtime.enter, other.refused, acceptor.proven)
        self._on_proven(dialler.proven)
        if refused is not None:
            self._redial_later(peer)
        elif not self._stopped:
            self._open(
                peer, Connection(self, other, acceptor.proven, dialler.proven, network.scheduler.now_ms)
            )

    def acceptor(self) -> Callee:
        """Return this side of a hello that somebody begins now."""
        admitted = ANYBODY if self._admits_strangers() else self._peers
        nonce = self.network.rng.randbytes(NONCE_BYTES)
        return Callee(self.identity(), admitted, [SECRET], nonce, judge=self._judge)

    def _judge(self, other: PeerIdentity) -> Refusal | None:
        """Say why a process may not speak for its node id, or not while another one does."""
        peer = self._peers.get(other.node_id)
        present = None if peer is None or peer.inbound is None else peer.inbound.dialler
        return self._admission().refusal(other, present)

    def refused(self, other: PeerIdentity) -> None:
        """A hello that somebody else began ended in a refusal, by whichever side."""
        if not self._stopped:
            self._on_proven(other)

    def _open(self, peer: _Peer, connection: Connection) -> None:
        network = self.network
        incarnation = connection.acceptor.incarnation
        if peer.inbound is not None and peer.inbound.node.incarnation != incarnation:
            self._lose(peer, peer.inbound)
        peer.outbound = connection
        network.connections[connection.key] = connection
        network.transmit(connection, None)
        if peer.dialling is not None:
            peer.dialling.cancel()
            peer.dialling = None
        proven = connection.acceptor
        self._onNodeConnected(PeerNode(peer.node_id, peer.address, incarnation, proven.feature_level))

    def arrive(self, connection: Connection, chunk: tuple[Any, ...] | None) -> None:
        """Take a chunk, or the opening of a connection."""
        if chunk is None and not self._stopped and not connection.broken:
            self._on_proven(connection.dialler)
        if self._stopped:
            return
        peer = self._peers.get(connection.sender.node_id)
        if peer is None and chunk is None and self._admits_strangers():
            stranger = connection.dialler
            peer = self._peers[stranger.node_id] = _Peer(stranger.node_id, stranger.address)
        if peer is None:
            self.network.close(connection, self)
            return
        if chunk is None:
            if connection.broken:
                return
            if peer.inbound is not None:
                self._lose(peer, peer.inbound)
            peer.inbound = connection
            self._dial(peer)
            return
        if peer.inbound is not connection:
            network = self.network
            # As TCP answers with a reset; nothing happens if this end has closed it itself.
            network.close(connection, self)
            if not network.weather.stale_chance or network.rng.random() >= network.weather.stale_chance:
                return
            network.counters.stale += 1
        for message in chunk:
            self._onMessageReceived(connection.node, message)
        if self._on_chunk is not None:
            self._on_chunk()

    def lost(self, connection: Connection) -> None:
        """This end hears that a connection is gone."""
        end = connection.receiver if connection.sender is self else connection.sender
        peer = self._peers.get(end.node_id)
        if peer is not None and connection in (peer.outbound, peer.inbound):
            self._lose(peer, connection)

    def _lose(self, peer: _Peer, connection: Connection) -> None:
        """End both directions because one ended, and report the member as disconnected."""
        network = self.network
        ended = (peer.outbound, peer.inbound)
        peer.outbound = peer.inbound = None
        for each in ended:
            if each is not None:
                network.close(each, self)
        if network.scheduler.now_ms - connection.opened_ms >= STABLE_MS:
            peer.backoff_ms = BACKOFF_MIN_MS
        self._redial_later(peer)
        incarnation = connection.beyond(self).incarnation
        self._onNodeDisconnected(PeerNode(peer.node_id, peer.address, incarnation))
