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
        self._on_chunk: Callable[[], None] = lambda: None

    def setOnMessageReceivedCallback(  # noqa: N802 - the contract's name
        self, callback: Callable[[PeerNode, Append], None] | None
    ) -> None:
        def deliver(node: PeerNode, message: Append) -> None:
            assert callback is not None
            callback(node, message)
            self._on_chunk()

        self.deliver = deliver

    def setOnChunkReceivedCallback(self, callback: Callable[[], None]) -> None:  # noqa: N802
        self._on_chunk = callback

    def addNode(self, node: PeerNode) -> None:  # noqa: N802 - the contract's name
        self.added.append(node.node_id)

    def __getattr__(self, name: str) -> object:
        return lambda *_arguments: None
