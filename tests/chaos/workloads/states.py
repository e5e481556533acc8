"""What the real controller and the leaders publish, read again and again by an observer.

Reads the states of the topic of `records`, so it runs beside that workload. Judged for I18: epochs never
fall, a leader is in its ISR, a leader changes only with a new leader epoch.
"""

from __future__ import annotations

import json
import random
from typing import ClassVar, Final

from quorum.client import Client
from tests.chaos.recorder import Process
from tests.chaos.workloads.base import Answer, QuorumWorkload, record
from tests.chaos.workloads.records import PARTITIONS, TOPIC

PREFIX: Final = "published-"


class States(QuorumWorkload):
    """Three observers."""

    name: ClassVar[str] = "states"
    description: ClassVar[str] = "reads of the states that the controller and leaders publish"
    needs_brokers: ClassVar[bool] = True
    clients: ClassVar[int] = 3

    async def set_up(self) -> None:
        """The topic is made by `records`."""

    async def step(self, process: Process, client: Client, node: str, rng: random.Random) -> None:
        """Read one state."""
        partition = rng.randrange(PARTITIONS)

        async def read() -> Answer:
            data, stat = await client.get(f"/brokers/topics/{TOPIC}/partitions/{partition}/state")
            state = json.loads(data or b"{}")
            found = [state["controller_epoch"], state["leader"], state["leader_epoch"], state["isr"]]
            return [stat.version, found], stat.mzxid

        await record(process.invoke("state", f"{PREFIX}{partition}", None), read, node)
