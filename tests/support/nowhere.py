"""A network in which there is nobody."""

from __future__ import annotations

from collections.abc import Callable

from quorum.raft.core.messages import Append
from quorum.raft.peers.peers import PeerNode


class Nowhere:
    """A transport of a member without peers; messages of some are told by the test."""

    def __init__(self) -> None:
        self.added: list[int] = []
        self.deliver: Callable[[PeerNode, Append], None] | None = None

    def setOnMessageReceivedCallback(  # noqa: N802 - the contract's name
        self, callback: Callable[[PeerNode, Append], None] | None
    ) -> None:
        self.deliver = callback

    def addNode(self, node: PeerNode) -> None:  # noqa: N802 - the contract's name
        self.added.append(node.node_id)

    def __getattr__(self, name: str) -> object:
        return lambda *_arguments: None
