"""Producer ids that no other broker gives out: blocks taken from the quorum by compare-and-set.

Hard state is /latest_producer_id_block. A block that was taken and not used up is lost with the process,
which costs numbers only; so is one whose taking lost the connection. Nobody has an id above all blocks.
Source: control-plane design, "Paths and values"; kafka.zk.ProducerIdBlockZNode (Kafka 3.9).
"""

from __future__ import annotations

import asyncio
from typing import Final

from quorum.client import BadVersionError, Client, NodeExistsError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError, NoSessionError
from quorum.metadata.protection import keep_node
from quorum.metadata.reading import read_node
from quorum.metadata.records import ProducerIdBlockRecord

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
        #: Above the last block that is known to be given out, to whichever broker.
        self.given_end = 0
        self._reading: asyncio.Task[None] | None = None

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

    async def was_given(self, producer_id: int) -> bool:
        """Whether a broker has given an id out; asks the quorum before it says no.

        Raises:
            NoSessionError, ClientError, ContendedError: the quorum cannot be asked.
        """
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
        client = self._attached()
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
            self.given_end = max(self.given_end, self._end)
            return
        raise ContendedError("a block of producer ids", ROUNDS_MAX)
