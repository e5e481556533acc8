"""One connection of a simulated client with a node: bytes both ways, in order, delayed, breakable.

Decides when bytes arrive and when each end hears of the end of the connection. The server's end is an
asyncio transport as far as quorum.server uses one. Node id 0 stands for all clients in the network's cuts and
rates: a cut (0, n) holds what clients send to node n, (n, 0) what it answers; it arrives when the cut is
healed. A stream is cut into pieces at random places, because TCP promises no frames.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from quorum.server.stream import ClientStream

if TYPE_CHECKING:
    from tests.simulation.sim_node import SimNode

#: network address of every client
CLIENTS = 0
#: chance that a piece of a stream arrives in two
SPLIT_CHANCE = 0.05
#: how long a connection to a machine that does not answer is tried
CONNECT_TIMEOUT_MS = 1000.0


class ClientEnd(Protocol):
    """What a client is told of its connection; nothing after it closed it itself, or after `link_down`."""

    def link_up(self) -> None:
        """The connection is there."""

    def link_data(self, data: bytes) -> None:
        """Bytes arrived; frames may be cut anywhere."""

    def link_down(self) -> None:
        """It ended, or could not be made."""


class ClientLink:
    """The client's end.

    Attributes:
        is_up: the connection is made and neither end has closed it as far as the client knows.
    """

    def __init__(self, node: SimNode, end: ClientEnd, name: str) -> None:
        """Begin to connect; `end.link_up` or `end.link_down` follows."""
        self.is_up = False
        self.name = name
        self._node = node
        self._network = node.network
        self._scheduler = node.scheduler
        self._end: ClientEnd | None = end
        self._server: ServerEnd | None = None
        #: what is under way to the node and to the client arrives no earlier
        self._to_node_ms = 0.0
        self._to_client_ms = 0.0
        #: what cuts hold, in order: bytes, or None for the end of the connection
        self._held_for_node: list[bytes | None] = []
        self._held_for_client: list[bytes | None] = []
        self._scheduler.at(2 * self._network.delay_ms(), self._connect)

    # --- the client -------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send bytes to the node; they may never arrive."""
        if self._server is not None and data:
            self._to_node(data)

    def close(self) -> None:
        """Close; what was sent before still arrives. Nothing is told any more."""
        self._end = None
        self.is_up = False
        if self._server is not None:
            self._to_node(None)

    def break_(self) -> None:
        """Break it from outside: what is on its way is lost, both ends hear of it soon."""
        self._held_for_node.clear()
        self._held_for_client.clear()
        server, self._server = self._server, None
        if server is not None:
            self._scheduler.at(self._network.delay_ms(), server.enter, server.lost)
        self._scheduler.at(self._network.delay_ms(), self._down)

    # --- the server's end -------------------------------------------------------------------------

    def answer(self, data: bytes | None) -> None:
        """The node sends bytes, or (None) closes behind what it sent."""
        if data is not None:
            self._node.answers()
        if (self._node.node_id, CLIENTS) in self._network.cuts:
            self._held_for_client.append(data)
            return
        self._to_client_ms = max(self._to_client_ms, self._scheduler.now_ms + self._network.delay_ms())
        for piece in self._pieces(data):
            self._scheduler.when(self._to_client_ms, self._client_takes, piece)

    def process_ended(self, *, silently: bool) -> None:
        """The node's process is gone; its kernel says so, unless the power was cut."""
        self._server = None
        if silently:
            late_ms = self._network.rng.uniform(0.0, 3000.0)
            self._scheduler.at(late_ms, self._client_takes, None)
        else:
            self.answer(None)

    def held_bytes(self) -> int:
        """Bytes that the client has not been given because of a cut."""
        return sum(len(data) for data in self._held_for_client if data is not None)

    def release(self) -> None:
        """A cut was healed: send again what it held."""
        cuts = self._network.cuts
        if self._held_for_node and (CLIENTS, self._node.node_id) not in cuts:
            held, self._held_for_node = self._held_for_node, []
            for data in held:
                self._to_node(data)
        if self._held_for_client and (self._node.node_id, CLIENTS) not in cuts:
            held, self._held_for_client = self._held_for_client, []
            for data in held:
                self.answer(data)

    # --- inner parts ------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._end is None:
            return
        node, cuts = self._node, self._network.cuts
        if (CLIENTS, node.node_id) in cuts or (node.node_id, CLIENTS) in cuts or node.dark:
            self._scheduler.at(CONNECT_TIMEOUT_MS, self._down)
        elif node.member is None or node.runtime is None:
            self._scheduler.at(self._network.delay_ms(), self._down)
        else:
            # A stopped process is connected to all the same: its kernel accepts.
            self._server = ServerEnd(self, node)
            self.is_up = True
            self._end.link_up()

    def _to_node(self, data: bytes | None) -> None:
        if (CLIENTS, self._node.node_id) in self._network.cuts:
            self._held_for_node.append(data)
            return
        server = self._server
        if server is None:
            return
        self._to_node_ms = max(self._to_node_ms, self._scheduler.now_ms + self._network.delay_ms())
        for piece in self._pieces(data):
            if piece is None:
                self._scheduler.when(self._to_node_ms, server.enter, server.lost)
            else:
                self._scheduler.when(self._to_node_ms, server.enter, server.take, piece)

    def _pieces(self, data: bytes | None) -> tuple[bytes | None, ...]:
        rng = self._network.rng
        if data is None or len(data) < 2 or rng.random() >= SPLIT_CHANCE:
            return (data,)
        cut = rng.randrange(1, len(data))
        return data[:cut], data[cut:]

    def _client_takes(self, data: bytes | None) -> None:
        if self._end is None:
            return
        if data is None:
            self._down()
        else:
            self._end.link_data(data)

    def _down(self) -> None:
        end, self._end = self._end, None
        self.is_up = False
        if end is not None:
            end.link_down()


class ServerEnd(asyncio.Transport):
    """The node's end; belongs to one life."""

    def __init__(self, link: ClientLink, node: SimNode) -> None:
        super().__init__()
        assert node.runtime is not None
        self._link = link
        self._runtime = node.runtime
        self._closing = False
        self._paused = False
        self._high_bytes = 64 * 1024
        self._blocked = False
        #: bytes that the kernel keeps while the node does not read
        self._unread: list[bytes] = []
        self._ended = False
        self._protocol: ClientStream | None = None
        node.links[self] = link
        self._node = node
        self.enter(self._accept, node)

    def enter(self, callback: Any, *arguments: Any) -> None:
        """Run code of the node's life."""
        self._runtime.enter(callback, *arguments)

    def _accept(self, node: SimNode) -> None:
        assert node.member is not None
        self._protocol = node.member.frontend.new_connection().stream
        self._protocol.connection_made(self)

    def take(self, data: bytes) -> None:
        """Bytes of the client arrive."""
        if self._paused or self._unread:
            # What the kernel kept is read first, also in the turn in which reading goes on.
            self._unread.append(data)
        elif self._protocol is not None and not self._closing:
            self._protocol.data_received(data)

    def lost(self) -> None:
        """The connection is gone."""
        if self._ended:
            return
        self._ended = self._closing = True
        self._node.links.pop(self, None)
        if self._protocol is not None:
            self._protocol.connection_lost(None)

    # --- asyncio.Transport ------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the client's address."""
        return (self._link.name, 50_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        """Set what may wait before writing pauses."""
        self._high_bytes = high or 0

    def get_write_buffer_size(self) -> int:
        """Return what the client has not taken."""
        return self._link.held_bytes()

    def write(self, data: Any) -> None:
        """Send."""
        assert not self._ended
        self._link.answer(bytes(data))
        if not self._blocked and self._link.held_bytes() > self._high_bytes:
            self._blocked = True
            self._runtime.call_soon(self._block)

    def unblock(self) -> None:
        """The client took what waited."""
        if self._blocked and self._protocol is not None and not self._closing:
            self._blocked = False
            self._protocol.resume_writing()

    def _block(self) -> None:
        if self._protocol is not None and not self._closing:
            self._protocol.pause_writing()

    def pause_reading(self) -> None:
        """Leave what comes with the kernel."""
        self._paused = True

    def resume_reading(self) -> None:
        """Take what the kernel kept, in a later turn."""
        self._paused = False
        if self._unread:
            self._runtime.call_soon(self._take_unread)

    def _take_unread(self) -> None:
        unread, self._unread = self._unread, []
        for position, data in enumerate(unread):
            if self._paused:
                self._unread = unread[position:] + self._unread
                return
            self.take(data)

    def is_closing(self) -> bool:
        """Tell whether either end has closed."""
        return self._closing

    def close(self) -> None:
        """Close behind what was written."""
        if not self._closing:
            self._closing = True
            self._link.answer(None)
            self._runtime.call_soon(self.lost)

    def abort(self) -> None:
        """Close at once."""
        if not self._closing:
            self._closing = True
            self._link.answer(None)
            self._runtime.call_soon(self.lost)
