"""Transfers between accounts, each a multi of two writes at expected versions; reads of all at once."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from pipeline.checks.suites import BANK_TOTAL
from quorum.client import Client, ServerError, Transaction
from tests.chaos.recorder import Process
from tests.chaos.workloads.base import Answer, QuorumWorkload, connected, record

ROOT: Final = "/chaos-bank"
KEY: Final = "bank"
ACCOUNTS: Final = tuple(f"account-{number}" for number in range(1, 6))
PATHS: Final = tuple(f"{ROOT}/{account}" for account in ACCOUNTS)
FIRST_BALANCE: Final = BANK_TOTAL // len(ACCOUNTS)


class Bank(QuorumWorkload):
    """Five accounts, six clients."""

    name: ClassVar[str] = "bank"
    description: ClassVar[str] = "transfers between five accounts as multis, and reads of all of them"

    async def set_up(self) -> None:
        """Open the accounts."""
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session before anything was wrong"
            await client.create(ROOT)
            for path in PATHS:
                await client.create(path, b"%d" % FIRST_BALANCE)

    async def step(self, process: Process, client: Client, node: str, rng: random.Random) -> None:
        """Read, and half of the time transfer something on the strength of what was read."""
        call = process.invoke("read", KEY, None)
        accounts = await record(call, lambda: self._read(client), node)
        if accounts is None or rng.random() < 0.5:
            return
        giver, taker = rng.sample(ACCOUNTS, 2)
        amount = rng.randrange(1, 1 + max(1, accounts[giver][0]))
        if accounts[giver][0] < amount:
            return
        call = process.invoke("transfer", KEY, [giver, taker, amount])
        await record(call, lambda: self._transfer(client, accounts, giver, taker, amount), node)

    @staticmethod
    async def _read(client: Client) -> Answer:
        accounts: dict[str, list[int]] = {}
        zxid = 0
        for account, outcome in zip(ACCOUNTS, await client.read_all(PATHS), strict=True):
            if isinstance(outcome, ServerError):
                raise outcome
            data, stat = outcome
            accounts[account] = [int(data or b"0"), stat.version]
            zxid = max(zxid, stat.mzxid)
        return accounts, zxid

    @staticmethod
    async def _transfer(
        client: Client, accounts: dict[str, list[int]], giver: str, taker: str, amount: int
    ) -> Answer:
        transaction = Transaction()
        for account, change in ((giver, -amount), (taker, amount)):
            balance, version = accounts[account]
            transaction.set(f"{ROOT}/{account}", b"%d" % (balance + change), version)
        results = await client.multi(transaction)
        return None, results[0].written_stat.mzxid

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """What the accounts hold."""
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session after all was healed"
            await client.sync(ROOT)
            accounts, _ = await self._read(client)
            return [{"key": KEY, "accounts": accounts}]
