"""Which members this node keeps a link with, and which links are up.

The log asks for links, and until it knows the members, so does [members] of the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quorum.raft.engine.contracts import MemberTransport
from quorum.raft.peers.peers import PeerNode


class MemberLinks:
    """The transport's connections, as the log wants them."""

    def __init__(self, transport: MemberTransport, named: Iterable[int]) -> None:
        """Begin with the other members of the configuration, which the transport knows already."""
        self._transport = transport
        #: the other members in the latest configuration, ascending
        self.peers = tuple(sorted(named))
        #: {node id: node} of the links that are up
        self.connected: dict[int, PeerNode] = {}
        self._named = frozenset(self.peers)
        #: ids of the links that the log asks for
        self._linked: set[int] = set()

    def add(self, members: Mapping[int, str]) -> None:
        """Keep a link with each of {node id: address}; one without an address is known already."""
        for node_id, address in members.items():
            if address:
                self._transport.addNode(PeerNode(node_id, address))

    def drop_others(self, members: Mapping[int, str]) -> None:
        """Close links that neither the log nor [members] asks for; an old log may not know the leader."""
        kept = members.keys() | (self._named - self._linked)
        for node_id in sorted((self._linked | self.connected.keys()) - kept):
            self.connected.pop(node_id, None)
            self._transport.dropNode(PeerNode(node_id))
        self._linked = set(members)
