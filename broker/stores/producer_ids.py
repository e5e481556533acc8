"""Producer ids that no other broker gives out: blocks taken from the quorum by compare-and-set.

Hard state is /latest_producer_id_block. A block that was taken and not used up is lost with the process,
which costs numbers only; so is one whose taking lost the connection. Nobody has an id above all blocks.
Source: kafka.zk.ProducerIdBlockZNode (Kafka 3.9).
"""

from __future__ import annotations

import asyncio
from typing import Final

from quorum.client import Client
from quorum.metadata import paths
from quorum.metadata.errors import NoSessionError
from quorum.metadata.protection import keep_node
from quorum.metadata.reading import read_node
from quorum.metadata.records import ProducerIdBlockRecord
from quorum.metadata.rewriting import rewrite

BLOCK_SIZE: Final = 1_000


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, broker_id: int) -> None:
        """Hold no block yet."""
        self._broker_id = broker_id
        self._client: Client | None = None
        self._next = 0
        self._end = 0
        self._taking = asyncio.Lock()
        #: Above the last block that is known to be given out, to whichever broker.
        self.given_end = 0
        self._reading: asyncio.Task[None] | None = None

    def attach(self, client: Client) -> None:
        """Take further blocks through a new session."""
        self._client = client

    async def next(self) -> int:
        """Return an id that nobody has."""
        async with self._taking:
            if self._next == self._end:
                await self._take_block()
            self._next += 1
            return self._next - 1

    async def was_given(self, producer_id: int) -> bool:
        """Whether a broker has given an id out; asks the quorum before it says no."""
        # A read that another caller has begun may be older than the block of this id; the next one is not.
        for _ in range(2):
            is_newer = self._reading is None
            if self._reading is None:
                self._reading = asyncio.create_task(self._read_end())
            await asyncio.shield(self._reading)
            if is_newer or producer_id < self.given_end:
                break
        return producer_id < self.given_end

    async def _read_end(self) -> None:
        try:
            client = self._attached()
            await client.sync(paths.LATEST_PRODUCER_ID_BLOCK)
            node = await read_node(client, paths.LATEST_PRODUCER_ID_BLOCK)
            if node is not None:
                self.given_end = max(self.given_end, ProducerIdBlockRecord.decode(node.data).last + 1)
        finally:
            self._reading = None

    def _attached(self) -> Client:
        if self._client is None:
            raise NoSessionError
        return self._client

    async def _take_block(self) -> None:
        def change(data: bytes | None) -> bytes:
            first = 0 if data is None else ProducerIdBlockRecord.decode(data).last + 1
            return ProducerIdBlockRecord(self._broker_id, first, first + BLOCK_SIZE - 1).encode()

        client, path = self._attached(), paths.LATEST_PRODUCER_ID_BLOCK
        block = ProducerIdBlockRecord.decode(await rewrite(client, path, change, "a block of producer ids"))
        if block.first == 0 and client.default_acl is not None:
            await keep_node(client, path)
        self._next, self._end = block.first, block.last + 1
        self.given_end = max(self.given_end, self._end)
