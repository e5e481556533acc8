"""Reassignments under load: partitions move to other replicas, alone or while something else goes wrong.

Asked for by /admin/reassign_partitions, as Kafka's tools do in ZooKeeper mode. Every partition keeps at least
min.insync.replicas replicas. A strike ends when the controller or its successor has finished: exactly the
target, nothing that comes or goes. In `reassign+kill-controller` the other one strikes in the middle.
Source: docs/internals/requirements.md, [0.F]; docs/internals/reliability.md, "Workloads and what judges
them".
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from kazoo.exceptions import KazooException, NodeExistsError

from tests.chaos.nemeses.base import Nemesis
from tests.support.nodes import eventually

FINISH_DEADLINE_S: Final = 90.0
REQUEST: Final = "/admin/reassign_partitions"
#: min.insync.replicas of the workloads' topics
REPLICAS_MIN: Final = 2


class Reassign(Nemesis):
    """Every partition gets other replicas, or another order of them."""

    name: ClassVar[str] = "reassign"
    description: ClassVar[str] = "partitions move to other replicas, drawn at random"
    needs_brokers: ClassVar[bool] = True
    holds_s: ClassVar[tuple[float, float]] = (0.5, 3.0)

    def start(self) -> str:
        """Draw a target for every partition and ask for all of them."""
        self.before = self._replicas()
        self.targets = {key: self._draw(replicas) for key, replicas in self.before.items()}
        rows = [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for (topic, partition), replicas in self.targets.items()
        ]
        value = json.dumps({"version": 1, "partitions": rows}).encode()

        def asked() -> bool:
            try:
                self.cluster.brokers.zookeeper.create(REQUEST, value)
            except NodeExistsError:
                return True  # by a request whose answer was lost
            except KazooException:
                return False
            return True

        eventually(asked, FINISH_DEADLINE_S, "a reassignment can be asked for")
        return f"{len(self.targets)} partitions"

    def _draw(self, replicas: list[int]) -> list[int]:
        brokers = self.cluster.broker_ids
        count = self.rng.randint(min(REPLICAS_MIN, len(brokers)), len(brokers))
        while (target := self.rng.sample(brokers, count)) == replicas:
            pass
        return target

    def stop(self) -> None:
        """Wait until nothing comes or goes any more."""
        eventually(self._is_finished, FINISH_DEADLINE_S, "the reassignment ends with exactly its target")

    def bite(self) -> str:
        """Count the partitions that have other replicas now."""
        now = self._replicas()
        moved = sum(set(now.get(key, ())) != set(self.before[key]) for key in self.targets)
        ordered = sum(now.get(key) != self.before[key] for key in self.targets)
        return f"{moved} partitions on other brokers, {ordered} of {len(now)} in all" if moved else ""

    def _is_finished(self) -> bool:
        if self.cluster.brokers.read(REQUEST) is not None:
            return False
        moving = any(
            record["adding_replicas"] or record["removing_replicas"] for record in self._records().values()
        )
        return not moving and self._replicas() == self.targets

    def _records(self) -> dict[str, dict[str, Any]]:
        brokers = self.cluster.brokers
        names = brokers.zookeeper.retry(brokers.zookeeper.get_children, "/brokers/topics")
        records = {name: brokers.read(f"/brokers/topics/{name}") for name in names}
        return {name: record for name, record in records.items() if record is not None}

    def _replicas(self) -> dict[tuple[str, int], list[int]]:
        return {
            (topic, int(partition)): replicas
            for topic, record in self._records().items()
            for partition, replicas in record["partitions"].items()
        }


MOVES: Final[tuple[type[Nemesis], ...]] = (Reassign,)
