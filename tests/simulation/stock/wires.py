"""TCP between stock nodes, and the transport that stands for the library's own.

Decides when a message arrives and what each side knows of a connection. It follows the library's transport:
of two nodes the higher one dials the lower; one connection carries both directions, in order; a side that has
read nothing for `timeout_ms` closes when it next sends or is about to read; the dialling side tries again
`retry_ms` after its last attempt; the other side may still hear an old connection after the new one is up.
Nothing is lost, repeated or reordered within a connection: a cut direction holds what is sent until it is
healed, as TCP's repetition does, or until a side gives the connection up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tests.simulation.scheduler import Scheduler

DELAY_MS = (0.2, 3.0)
#: a healed direction sends again what was held within this time
RETRANSMIT_MS = (1.0, 250.0)
#: a dial into a cut is repeated after this
DIAL_AGAIN_MS = (400.0, 3000.0)


class Letter(NamedTuple):
    """What travels: a message, or None for the end of the connection.

    Attributes:
        message: the library's message.
        term: of the sender as it was sent; the library's own messages do not all say it.
        remark: what the simulation noted about it.
    """

    message: Any
    term: int = 0
    remark: str = ""


END = Letter(None)
HELLO = Letter(None, 0, "hello")


class Wire:
    """One TCP connection between a dialling and an accepting node."""

    def __init__(self, number: int, low: int, high: int, now_ms: float) -> None:
        self.number = number
        self.low = low
        self.high = high
        self.open = {low: True, high: True}
        self.read_ms = {low: now_ms, high: now_ms}
        self.due_ms = {low: 0.0, high: 0.0}
        #: {receiver: letters that wait for a cut direction}
        self.held: dict[int, list[Letter]] = {low: [], high: []}

    def other(self, node_id: int) -> int:
        """Return the node at the other end."""
        return self.low + self.high - node_id


class Endpoint(Protocol):
    """A node as the network sees it."""

    id: int
    transport: StockTransport | None

    @property
    def ended(self) -> bool:
        """Whether the process ended within the event that runs."""

    def run(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run code of the node."""


class StockNetwork:
    """All connections of a world.

    Attributes:
        slow: {(sender, receiver): (least, most)}, delays in ms in place of the ordinary ones.
        bits: {what a fault did: how often}, for the proof that faults had an effect.
    """

    def __init__(self, scheduler: Scheduler, *, timeout_ms: float, retry_ms: float) -> None:
        self.scheduler = scheduler
        self.timeout_ms = timeout_ms
        self.retry_ms = retry_ms
        self.slow: dict[tuple[int, int], tuple[float, float]] = {}
        self.bits = {"held": 0, "broken": 0, "connected": 0, "stalled": 0, "late": 0, "old connection": 0}
        self._rng = scheduler.rng("network")
        self._cuts: dict[tuple[int, int], int] = {}
        self._endpoints: dict[int, Endpoint] = {}
        self._wires: list[Wire] = []
        self._numbers = 0

    def join(self, endpoint: Endpoint) -> None:
        """Make a node known."""
        self._endpoints[endpoint.id] = endpoint

    # --- faults

    def cut(self, source: int, target: int) -> None:
        """Let nothing more through in one direction."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: int, target: int) -> None:
        """Take one cut of a direction back; what was held follows in order."""
        left = self._cuts[source, target] - 1
        if left:
            self._cuts[source, target] = left
            return
        del self._cuts[source, target]
        for wire in self._wires:
            if {wire.low, wire.high} != {source, target}:
                continue
            held, wire.held[target] = wire.held[target], []
            extra_ms = self._rng.uniform(*RETRANSMIT_MS)
            for letter in held:
                self._post(wire, target, letter, extra_ms)

    def stall(self, source: int, target: int, ms: float) -> Wire | None:
        """Have what one side sends on its connection arrive late, as after much loss; not on a new one."""
        wire = self.wire(source, target)
        if wire is not None:
            wire.due_ms[target] = max(wire.due_ms[target], self.scheduler.now_ms + ms)
            self.bits["stalled"] += 1
        return wire

    def break_wire(self, source: int, target: int) -> None:
        """Have one side's system report its connection as broken; the other side hears of it."""
        endpoint = self._endpoints[source]
        wire = self.wire(source, target)
        if endpoint.transport is not None and wire is not None:
            endpoint.run(endpoint.transport.close, wire)

    def wire(self, source: int, target: int) -> Wire | None:
        """Return the connection on which one node sends to another."""
        transport = self._endpoints[source].transport
        return None if transport is None else transport.wire(target)

    # --- for transports

    def send(self, wire: Wire, source: int, letter: Letter) -> None:
        """Send a letter over a connection that the sender holds for open."""
        target = wire.other(source)
        if (source, target) in self._cuts:
            self.bits["held"] += 1
            wire.held[target].append(letter)
        else:
            self._post(wire, target, letter, 0.0)

    def dial(self, high: int, low: int) -> None:
        """Try to connect; the dialling side hears of the outcome."""
        self.scheduler.at(self._delay_ms(high, low), self._answer, high, low, self._endpoints[high].transport)

    # --- within

    def _delay_ms(self, source: int, target: int) -> float:
        slow = self.slow.get((source, target))
        if slow is None:
            return self._rng.uniform(*DELAY_MS)
        self.bits["late"] += 1
        return self._rng.uniform(*slow)

    def _post(self, wire: Wire, target: int, letter: Letter, extra_ms: float) -> None:
        delay_ms = extra_ms + self._delay_ms(wire.other(target), target)
        due_ms = max(wire.due_ms[target], self.scheduler.now_ms + delay_ms)
        wire.due_ms[target] = due_ms
        self.scheduler.when(due_ms, self._arrive, wire, target, letter)

    def _arrive(self, wire: Wire, target: int, letter: Letter) -> None:
        if not wire.open[target]:
            return
        if (wire.other(target), target) in self._cuts:
            self.bits["held"] += 1
            wire.held[target].append(letter)
            return
        endpoint = self._endpoints[target]
        transport = endpoint.transport
        assert transport is not None, "a dead life has no open connection"
        if letter is not END and transport.wire(wire.other(target)) is not wire:
            self.bits["old connection"] += 1
        endpoint.run(transport.arrived, wire, letter)

    def _answer(self, high: int, low: int, dialler: StockTransport | None) -> None:
        """Decide what becomes of a dial, at the dialling side."""
        if dialler is None or self._endpoints[high].transport is not dialler:
            return
        if (high, low) in self._cuts or (low, high) in self._cuts:
            self.scheduler.at(self._rng.uniform(*DIAL_AGAIN_MS), self._answer, high, low, dialler)
            return
        accepting = self._endpoints[low].transport
        if accepting is None:
            dialler.dialling.discard(low)
            return
        self._numbers += 1
        wire = Wire(self._numbers, low, high, self.scheduler.now_ms)
        self._wires = [each for each in self._wires if each.open[each.low] or each.open[each.high]]
        self._wires.append(wire)
        accepting.accepted(wire)
        self.bits["connected"] += 1
        self._endpoints[high].run(dialler.connected, wire)


class StockTransport:
    """The connections of one life of a node.

    Attributes:
        library: what the library takes for its transport.
        dialling: peers that are being dialled.
    """

    def __init__(
        self,
        node: Endpoint,
        peers: dict[int, Any],
        network: StockNetwork,
        library: Any,
        note: Callable[[Any], tuple[int, str]],
        received: Callable[[int, Letter], object],
    ) -> None:
        """Make the transport of a life that begins.

        Args:
            node: the node.
            peers: {id: the library's node}.
            network: carries the letters.
            library: an instance of the library's bare Transport; its `send` becomes ours.
            note: called with each message that is sent; returns term and remark of the letter.
            received: called before the library gets a message.
        """
        self.library = library
        self.dialling: set[int] = set()
        self._node = node
        self._peers = peers
        self._network = network
        self._note = note
        self._received = received
        #: on which messages leave
        self._wires: dict[int, Wire] = {}
        #: all that are open at this side, by number
        self._open: dict[int, Wire] = {}
        #: accepted ones whose first message is still to come, by number
        self._unknown: dict[int, Wire] = {}
        self._attempt_ms: dict[int, float] = {}
        library.send = self._send

    def wire(self, peer: int) -> Wire | None:
        """Return the connection on which messages to a peer leave."""
        return self._wires.get(peer)

    def on_tick(self) -> None:
        """Dial the lower peers that are not connected."""
        now_ms = self._network.scheduler.now_ms
        for peer in self._peers:
            if peer > self._node.id or peer in self._wires or peer in self.dialling:
                continue
            if now_ms - self._attempt_ms.get(peer, -self._network.retry_ms) >= self._network.retry_ms:
                self._attempt_ms[peer] = now_ms
                self.dialling.add(peer)
                self._network.dial(self._node.id, peer)

    def connected(self, wire: Wire) -> None:
        """A dial of ours was accepted."""
        self.dialling.discard(wire.low)
        self._open[wire.number] = self._wires[wire.low] = wire
        self._network.send(wire, self._node.id, HELLO)
        self.library._onNodeConnected(self._peers[wire.low])

    def accepted(self, wire: Wire) -> None:
        """Someone dialled; who, says the first message."""
        self._open[wire.number] = self._unknown[wire.number] = wire

    def arrived(self, wire: Wire, letter: Letter) -> None:
        """A letter of a connection that is open at this side is there."""
        if self._closed_by_silence(wire):
            return
        peer = wire.other(self._node.id)
        wire.read_ms[self._node.id] = self._network.scheduler.now_ms
        if letter is END:
            self._drop(wire)
        elif letter is HELLO:
            del self._unknown[wire.number]
            self._wires[peer] = wire
            self.library._onNodeConnected(self._peers[peer])
        else:
            self._received(peer, letter)
            self.library._onMessageReceived(self._peers[peer], letter.message)

    def close(self, wire: Wire) -> None:
        """Give a connection up; the other side hears of it."""
        self._network.bits["broken"] += 1
        self._network.send(wire, self._node.id, END)
        self._drop(wire)

    def end(self) -> None:
        """The process ended: its system closes all connections."""
        for wire in self._open.values():
            wire.open[self._node.id] = False
            self._network.send(wire, self._node.id, END)
        self._open.clear()

    def _send(self, node: Any, message: Any) -> bool:
        """Send a message, as the library asks; returns False if there is no connection."""
        wire = None if self._node.ended else self._wires.get(node.id)
        if wire is None or self._closed_by_silence(wire):
            return False
        self._network.send(wire, self._node.id, Letter(message, *self._note(message)))
        return True

    def _closed_by_silence(self, wire: Wire) -> bool:
        silent_ms = self._network.scheduler.now_ms - wire.read_ms[self._node.id]
        if silent_ms <= self._network.timeout_ms:
            return False
        self.close(wire)
        return True

    def _drop(self, wire: Wire) -> None:
        wire.open[self._node.id] = False
        del self._open[wire.number]
        self._unknown.pop(wire.number, None)
        peer = wire.other(self._node.id)
        if self._wires.get(peer) is wire:
            del self._wires[peer]
            self.library._onNodeDisconnected(self._peers[peer])
            self.on_tick()
