"""Producer ids that no other broker gives out: blocks taken from the quorum by compare-and-set.

Hard state is /latest_producer_id_block. A block that was taken and not used up is lost with the process,
which costs numbers only; so is one whose taking lost the connection.
Source: control-plane design, "Paths and values"; kafka.zk.ProducerIdBlockZNode (Kafka 3.9).
"""

from __future__ import annotations

import asyncio
from typing import Final

from quorum.client import BadVersionError, Client, NodeExistsError
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError
from quorum.metadata.protection import keep_node
from quorum.metadata.records import ProducerIdBlockRecord
from quorum.metadata.store import read_node

BLOCK_SIZE: Final = 1_000
ROUNDS_MAX: Final = 8


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, broker_id: int) -> None:
        """Hold no block yet."""
        self._broker_id = broker_id
        self._client: Client | None = None
        self._next = 0
        self._end = 0
        self._taking = asyncio.Lock()

    def attach(self, client: Client) -> None:
        """Take further blocks through a new session."""
        self._client = client

    async def next(self) -> int:
        """Return an id that nobody has.

        Raises:
            ContendedError: other brokers took blocks in each of ROUNDS_MAX rounds; ask again.
            ClientError: the quorum cannot be asked.
        """
        async with self._taking:
            if self._next == self._end:
                await self._take_block()
            self._next += 1
            return self._next - 1

    async def _take_block(self) -> None:
        client = self._client
        if client is None:
            raise QuorateError("this broker has no session with the quorum", "try again later")
        for _ in range(ROUNDS_MAX):
            node = await read_node(client, paths.LATEST_PRODUCER_ID_BLOCK)
            first = 0 if node is None else ProducerIdBlockRecord.decode(node.data).last + 1
            block = ProducerIdBlockRecord(self._broker_id, first, first + BLOCK_SIZE - 1)
            try:
                if node is None:
                    await client.create(paths.LATEST_PRODUCER_ID_BLOCK, block.encode())
                    if client.default_acl is not None:
                        await keep_node(client, paths.LATEST_PRODUCER_ID_BLOCK)
                else:
                    await client.set(paths.LATEST_PRODUCER_ID_BLOCK, block.encode(), node.stat.version)
            except (BadVersionError, NodeExistsError):
                continue
            self._next, self._end = block.first, block.last + 1
            return
        raise ContendedError("a block of producer ids", ROUNDS_MAX)
