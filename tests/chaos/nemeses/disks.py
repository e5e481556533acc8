"""Faults of disks: no room, fsyncs that take long, a disk that is lost, and a power cut.

A full disk proves itself by the node, which says that it acknowledges nothing, or by the end of the broker; a
slow one by the fsyncs that the node's process counted; a lost one by the bytes that were on it, and a power
cut by the writes that it undid.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import ClassVar, Final

from tests.chaos.nemeses.base import Nemesis
from tests.support import full_node, losing_disk, slow_disk
from tests.support.nodes import eventually

BITE_DEADLINE_S: Final = 20.0
#: A follower that is out of the ISR needs its fetches, and a machine that is busy its time.
IN_SYNC_DEADLINE_S: Final = 90.0


class FullDisk(Nemesis):
    """No room on the disk of a node, which lives on."""

    name: ClassVar[str] = "full-disk"
    description: ClassVar[str] = "the disk of a node takes no write; half of the time it is the leader's"

    def start(self) -> str:
        """Choose a node and fill its disk."""
        leader = self.cluster.nodes.leader()
        self.node = leader if self.rng.random() < 0.5 else self.rng.choice(self.cluster.node_ids)
        self.folder = self.cluster.nodes.nodes[self.node].folder
        full_node.fill(self.folder, copies=True)
        return f"node {self.node}{', the leader' if self.node == leader else ''}"

    def stop(self) -> None:
        """Wait until the node has noticed; make room."""
        self.noticed = ""
        with contextlib.suppress(AssertionError):
            self.noticed = eventually(self._reason, BITE_DEADLINE_S, "the node acknowledges nothing")
        full_node.make_room(self.folder)

    def _reason(self) -> str:
        with contextlib.suppress(OSError, http.client.HTTPException):
            code, body = self.cluster.nodes.get(self.node, "/readyz")
            reason = str(json.loads(body).get("reason", ""))
            return reason if code == 503 and reason.startswith("nothing is acknowledged") else ""
        return ""

    def bite(self) -> str:
        """Say what the node said."""
        return self.noticed


class FullBrokerDisk(Nemesis):
    """No room on the disk of a broker, which ends then, as it must."""

    name: ClassVar[str] = "full-broker-disk"
    description: ClassVar[str] = "the disk of a broker takes no write; the broker ends, and starts with room"
    needs_brokers: ClassVar[bool] = True
    holds_s: ClassVar[tuple[float, float]] = (0.5, 3.0)

    def start(self) -> str:
        """Choose a broker and fill its disk."""
        self.broker = self.rng.choice(self.cluster.broker_ids)
        self.folder = self.cluster.brokers.brokers[self.broker].folder
        full_node.fill(self.folder)
        return f"broker {self.broker}"

    def stop(self) -> None:
        """Wait until the broker has ended; make room and start it."""
        brokers = self.cluster.brokers
        with contextlib.suppress(AssertionError):
            eventually(lambda: not brokers.running(self.broker), BITE_DEADLINE_S, "the broker ended")
        full_node.make_room(self.folder)
        self.ended = not brokers.running(self.broker)
        if self.ended:
            brokers.start_broker(self.broker)

    def bite(self) -> str:
        """Say that it ended."""
        return "the broker ended" if self.ended else ""


class LostBrokerDisk(Nemesis):
    """SIGKILL for a broker, which starts with an empty disk."""

    name: ClassVar[str] = "lost-broker-disk"
    description: ClassVar[str] = "SIGKILL for a broker, which starts again with an empty disk"
    needs_brokers: ClassVar[bool] = True

    def start(self) -> str:
        """Wait until every record is on all of its disks; kill a broker and empty its disk.

        Without the wait, the disk that an earlier strike emptied and this one may be all that had a record.
        """
        self.lost = 0
        self.broker = self.rng.choice(self.cluster.broker_ids)
        eventually(self.cluster.in_sync, IN_SYNC_DEADLINE_S, "all replicas are in sync")
        brokers = self.cluster.brokers
        brokers.kill(self.broker)
        logs = brokers.brokers[self.broker].data_dir.rglob("*.log")
        self.lost = sum(each.stat().st_size for each in logs)
        brokers.empty(self.broker)
        return f"broker {self.broker}"

    def stop(self) -> None:
        """Start it once its session is over: until then, its id belongs to the disk that is lost."""
        if self.cluster.brokers.running(self.broker):
            return
        with contextlib.suppress(AssertionError):
            eventually(
                lambda: not self.cluster.registered(self.broker), BITE_DEADLINE_S, "its session is over"
            )
        self.cluster.brokers.start_broker(self.broker)

    def bite(self) -> str:
        """Count what was lost."""
        return f"{self.lost} bytes of records lost" if self.lost else ""


class SlowFsync(Nemesis):
    """Every fsync of a node takes long."""

    name: ClassVar[str] = "slow-fsync"
    description: ClassVar[str] = "every fsync of a node's journal takes 20 to 400 ms longer"

    def start(self) -> str:
        """Choose a node and slow its disk down."""
        leader = self.cluster.nodes.leader()
        self.node = leader if self.rng.random() < 0.5 else self.rng.choice(self.cluster.node_ids)
        self.folder = self.cluster.nodes.nodes[self.node].folder
        self.before = slow_disk.slowed(self.folder)
        took_ms = self.rng.randrange(20, 400)
        slow_disk.slow_down(self.folder, took_ms / 1000)
        return f"{took_ms} ms at node {self.node}{', the leader' if self.node == leader else ''}"

    def stop(self) -> None:
        """Wait until one was slow; let them be quick again."""
        with contextlib.suppress(AssertionError):
            eventually(self._slowed, BITE_DEADLINE_S, "an fsync was slow")
        slow_disk.speed_up(self.folder)

    def _slowed(self) -> int:
        return slow_disk.slowed(self.folder) - self.before

    def bite(self) -> str:
        """Count fsyncs."""
        return f"{self._slowed()} fsyncs slowed down" if self._slowed() else ""


class PowerCut(Nemesis):
    """The power of the whole quorum fails: what no fsync covered is gone."""

    name: ClassVar[str] = "power-cut"
    description: ClassVar[str] = "SIGKILL for all nodes at once; their journals lose what no fsync covered"
    holds_s: ClassVar[tuple[float, float]] = (0.2, 2.0)

    def start(self) -> str:
        """Catch the nodes in fsyncs that take long; kill them and undo what these would have covered."""
        nodes = self.cluster.nodes
        self.lost = 0
        self.dead: list[int] = []
        folders = [nodes.nodes[each].folder for each in self.cluster.node_ids]
        took_ms = self.rng.randrange(50, 300)
        try:
            for folder in folders:
                slow_disk.slow_down(folder, took_ms / 1000)
            with contextlib.suppress(AssertionError):
                eventually(
                    lambda: all(map(losing_disk.has_unsynced, folders)), BITE_DEADLINE_S, "all nodes write"
                )
            for node_id in self.cluster.node_ids:
                nodes.pause(node_id)
            for node_id in self.cluster.node_ids:
                nodes.kill(node_id)
                self.dead.append(node_id)
        finally:
            for folder in folders:
                slow_disk.speed_up(folder)
        self.lost = sum(map(losing_disk.cut_power, folders))
        return f"all nodes, fsyncs of {took_ms} ms"

    def stop(self) -> None:
        """Start them."""
        for node_id in self.dead:
            self.cluster.nodes.start_node(node_id)

    def bite(self) -> str:
        """Count the writes that were lost."""
        return f"{self.lost} writes lost" if self.lost else ""


DISKS: Final[tuple[type[Nemesis], ...]] = (FullDisk, FullBrokerDisk, LostBrokerDisk, SlowFsync, PowerCut)
