"""Reading transactional ids through a client: all at the begin of a term, one where a write went wrong.

Decides nothing. Hard state: the znodes.
Source: ARCHITECTURE.md, "Life of a transaction".
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from broker.core.transactions.inputs import StoredTransaction, TransactionsLoaded
from quorum.client import Client, NoNodeError, ReadOutcome, ServerError
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.transaction_records import TransactionRecord, decode_pending_offsets

#: Ids that are read, and taken in, at a time: some milliseconds of the loop.
_PAGE: Final = 250


class TransactionStore:
    """The transactional ids in a quorum."""

    def __init__(self, client: Client) -> None:
        """Read through a client."""
        self._client = client

    async def load(self) -> AsyncIterator[TransactionsLoaded]:
        """Read every id, page by page."""
        await self._client.sync(paths.TRANSACTIONS)
        names = [each for each in await self._client.get_children(paths.TRANSACTIONS) if each != paths.KEPT]
        for start in range(0, len(names), _PAGE):
            page = names[start : start + _PAGE]
            found: list[StoredTransaction] = []
            problems: dict[str, str] = {}
            read = await self._client.read_all([f"{paths.TRANSACTIONS}/{name}" for name in page])
            for name, outcome in zip(page, read, strict=True):
                transactional_id = paths.group_id_of(name)
                try:
                    if transactional_id is None:
                        problems[name] = f"{paths.TRANSACTIONS}/{name} is the path of no transactional id"
                    elif (stored := await self._stored(transactional_id, outcome)) is not None:
                        found.append(stored)
                except MetadataDecodeError as error:
                    problems[transactional_id or name] = error.message
            yield TransactionsLoaded(found, problems)

    async def read(self, transactional_id: str) -> StoredTransaction | None:
        """Read one id, behind all that this session has written; None: there is none."""
        await self._client.sync(paths.TRANSACTIONS)
        (outcome,) = await self._client.read_all([paths.transaction_path(transactional_id)])
        return await self._stored(transactional_id, outcome)

    async def _stored(self, transactional_id: str, outcome: ReadOutcome) -> StoredTransaction | None:
        if isinstance(outcome, NoNodeError):
            return None
        if isinstance(outcome, ServerError):
            path = paths.transaction_path(transactional_id)
            raise MetadataDecodeError(path, "", outcome.message, "a record that can be read")
        data, stat = outcome
        record = TransactionRecord.decode(transactional_id, data)
        stored = StoredTransaction(transactional_id, record, stat.version)
        if stat.children_count:
            names: list[str] = []
            path = paths.transaction_path(transactional_id)
            with contextlib.suppress(NoNodeError):
                names = await self._client.get_children(path)
            for name, child in zip(
                names, await self._client.read_all([f"{path}/{each}" for each in names]), strict=True
            ):
                group_id = paths.group_id_of(name)
                if group_id is None or isinstance(child, ServerError):
                    raise MetadataDecodeError(f"{path}/{name}", "", "nothing", "offsets of a group")
                stored.offsets[group_id] = decode_pending_offsets(f"{path}/{name}", child[0])
        return stored
