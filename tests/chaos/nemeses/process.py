"""Faults of processes: killed, frozen, restarted one after the other, or made to hand over leadership.

A kill proves itself by the connections that it cut, a freeze by a new leader, a new
controller, or operations that found no answer until it ended; a transfer by the term.
"""

from __future__ import annotations

import abc
import contextlib
import http.client
import time
from typing import ClassVar, Final

from tests.chaos.cluster import ChaosCluster
from tests.chaos.nemeses.base import Nemesis
from tests.support.nodes import eventually

#: The session timeout of a broker as shipped, which freezes are measured by.
SESSION_S: Final = 6.0
#: Longer than a strike.
LATE_MS: Final = 60_000
#: How often leadership is handed over in one strike.
TRANSFERS_MAX: Final = 8
#: How long a machine may take until something shows that it bit.
BITE_DEADLINE_S: Final = 15.0
#: An operation that waited so long was held up; clients give up soon after.
WAITED_S: Final = 4.0


def ended(cluster: ChaosCluster, before: set[tuple[str, int]]) -> int:
    """How many of these connections are no more; waits until toxiproxy has noticed the first."""
    with contextlib.suppress(AssertionError):
        return eventually(
            lambda: len(before - cluster.proxies.connections()), BITE_DEADLINE_S, "a connection ended"
        )
    return 0


class Kill(Nemesis):
    """SIGKILL, and a start some time later."""

    holds_s: ClassVar[tuple[float, float]] = (0.5, 5.0)

    def start(self) -> str:
        """Choose victims and kill them."""
        self.nodes, self.brokers = self.victims()
        self.under_way = self.recorder.under_way
        before = self.cluster.proxies.connections()
        for node_id in self.nodes:
            self.cluster.nodes.kill(node_id)
        self.cluster.brokers.kill(*self.brokers)
        self.before = before
        names = [f"node {each}" for each in self.nodes] + [f"broker {each}" for each in self.brokers]
        return ", ".join(names)

    @abc.abstractmethod
    def victims(self) -> tuple[list[int], list[int]]:
        """Return (nodes, brokers)."""

    def stop(self) -> None:
        """Start again what was killed."""
        for node_id in self.nodes:
            self.cluster.nodes.start_node(node_id)
        for broker_id in self.brokers:
            self.cluster.brokers.start_broker(broker_id)

    def bite(self) -> str:
        """Count what was under way at the kill, and the connections that it cut."""
        cut = ended(self.cluster, self.before)
        return f"{cut} connections cut, {self.under_way} operations under way" if cut else ""


class SlowClose(Kill):
    """A process dies, and the others learn late that its connections ended."""

    name: ClassVar[str] = "slow-close"
    description: ClassVar[str] = "SIGKILL for a node or broker; its connections end only when this is over"

    def start(self) -> str:
        """Let connections to and from the victim stay when it ends, then kill it."""
        nodes, brokers = self.victims()
        patterns = [rf"peer-{each}-\d+|(peer|quorum)-\w+-{each}|client-{each}" for each in nodes]
        patterns += [rf"(broker|quorum-b){each}-\d+|broker-\d+-{each}|client-b{each}" for each in brokers]
        self.names = self.cluster.proxies.matching(*patterns)
        self.cluster.proxies.add(self.names, "slow_close", delay=LATE_MS)
        target = super().start()
        now = self.cluster.proxies.connections()
        self.late = sum(each in now for each in self.before if each[0] in self.names)
        return target

    def victims(self) -> tuple[list[int], list[int]]:
        """One node, or one broker if there are any; drawn once."""
        if not hasattr(self, "_victims"):
            brokers = [self.rng.choice(self.cluster.broker_ids)] if self.cluster.broker_ids else []
            nodes = [self.rng.choice(self.cluster.node_ids)]
            self._victims = ([], brokers) if brokers and self.rng.random() < 0.5 else (nodes, [])
        return self._victims

    def stop(self) -> None:
        """Start it again, and let connections end."""
        self.cluster.proxies.heal(self.names)
        super().stop()

    def bite(self) -> str:
        """Count connections that stood after the process at one end was gone."""
        return f"{self.late} connections stood without their process" if self.late else ""


class KillNode(Kill):
    """Any node of the quorum."""

    name: ClassVar[str] = "kill-node"
    description: ClassVar[str] = "SIGKILL for a node of the quorum"

    def victims(self) -> tuple[list[int], list[int]]:
        """One node."""
        return [self.rng.choice(self.cluster.node_ids)], []


class KillLeader(Kill):
    """The quorum's leader."""

    name: ClassVar[str] = "kill-leader"
    description: ClassVar[str] = "SIGKILL for the quorum's leader"

    def victims(self) -> tuple[list[int], list[int]]:
        """The leader."""
        return [self.cluster.nodes.leader()], []


class KillAllNodes(Kill):
    """The whole quorum."""

    name: ClassVar[str] = "kill-all-nodes"
    description: ClassVar[str] = "SIGKILL for all nodes of the quorum at once"
    holds_s: ClassVar[tuple[float, float]] = (0.2, 2.0)

    def victims(self) -> tuple[list[int], list[int]]:
        """All of them."""
        return self.cluster.node_ids, []


class KillBroker(Kill):
    """Any broker."""

    name: ClassVar[str] = "kill-broker"
    description: ClassVar[str] = "SIGKILL for a broker"
    needs_brokers: ClassVar[bool] = True

    def victims(self) -> tuple[list[int], list[int]]:
        """One broker."""
        return [], [self.rng.choice(self.cluster.broker_ids)]


class KillController(Kill):
    """The controller."""

    name: ClassVar[str] = "kill-controller"
    description: ClassVar[str] = "SIGKILL for the controller's broker"
    needs_brokers: ClassVar[bool] = True

    def victims(self) -> tuple[list[int], list[int]]:
        """The controller."""
        return [], [self.cluster.controller_now() or self.rng.choice(self.cluster.broker_ids)]


class KillCoordinator(Kill):
    """The coordinator of groups and transactions."""

    name: ClassVar[str] = "kill-coordinator"
    description: ClassVar[str] = "SIGKILL for the coordinator's broker"
    needs_brokers: ClassVar[bool] = True

    def victims(self) -> tuple[list[int], list[int]]:
        """The coordinator."""
        return [], [self.cluster.coordinator_now() or self.rng.choice(self.cluster.broker_ids)]


class KillBrokers(Kill):
    """Two brokers at once, so that partitions fall below min.insync.replicas."""

    name: ClassVar[str] = "kill-two-brokers"
    description: ClassVar[str] = "SIGKILL for two brokers at once"
    needs_brokers: ClassVar[bool] = True

    def victims(self) -> tuple[list[int], list[int]]:
        """Two of them."""
        return [], sorted(self.rng.sample(self.cluster.broker_ids, 2))


class Pause(Nemesis):
    """SIGSTOP, and SIGCONT after 0.5 to 3 session timeouts."""

    holds_s: ClassVar[tuple[float, float]] = (0.5 * SESSION_S, 3.0 * SESSION_S)

    def start(self) -> str:
        """Choose a victim and freeze it."""
        self.term = self.cluster.term()
        self.controller = self.cluster.controller_now()
        self.node, self.broker = 0, 0
        node, broker = self.victim()
        self.started_ns = time.monotonic_ns()
        self.under_way = self.recorder.under_way
        if node:
            self.cluster.nodes.pause(node)
        else:
            self.cluster.brokers.pause(broker)
        self.node, self.broker = node, broker
        return f"node {node}" if node else f"broker {broker}"

    @abc.abstractmethod
    def victim(self) -> tuple[int, int]:
        """Return (node, 0) or (0, broker)."""

    def stop(self) -> None:
        """Look who took over, at a slow machine until somebody did, and let it run on."""
        self.changes: list[str] = []
        with contextlib.suppress(AssertionError):
            self.changes = eventually(self._look, BITE_DEADLINE_S, "somebody missed it")
        if self.node:
            self.cluster.nodes.resume(self.node)
        if self.broker:
            self.cluster.brokers.resume(self.broker)

    def _look(self) -> list[str]:
        changes = []
        if self.cluster.term(without=self.node) > self.term:
            changes.append("another node leads")
        if self.broker and self.cluster.controller_now() not in (0, self.controller):
            changes.append("another broker is the controller")
        waited_s = self.recorder.oldest_s()
        if waited_s > min(0.9 * (time.monotonic_ns() - self.started_ns) / 1e9, WAITED_S):
            changes.append(f"an operation waited for {waited_s:.1f} s")
        if self.broker:
            left = self.cluster.partitions_left_by(self.broker)
            if left:
                changes.append(f"{left} partitions left it")
        return changes

    def bite(self) -> str:
        """Say what changed meanwhile."""
        return ", ".join(self.changes)


class PauseLeader(Pause):
    """The quorum's leader."""

    name: ClassVar[str] = "pause-leader"
    description: ClassVar[str] = "SIGSTOP for the quorum's leader"
    holds_s: ClassVar[tuple[float, float]] = (1.5, 8.0)

    def victim(self) -> tuple[int, int]:
        """The leader."""
        return self.cluster.nodes.leader(), 0


class PauseController(Pause):
    """The controller."""

    name: ClassVar[str] = "pause-controller"
    description: ClassVar[str] = "SIGSTOP for the controller's broker"
    needs_brokers: ClassVar[bool] = True

    def victim(self) -> tuple[int, int]:
        """The controller."""
        return 0, self.cluster.controller_now() or self.rng.choice(self.cluster.broker_ids)


class PauseCoordinator(Pause):
    """The coordinator of groups and transactions."""

    name: ClassVar[str] = "pause-coordinator"
    description: ClassVar[str] = "SIGSTOP for the coordinator's broker"
    needs_brokers: ClassVar[bool] = True

    def victim(self) -> tuple[int, int]:
        """The coordinator."""
        return 0, self.cluster.coordinator_now() or self.rng.choice(self.cluster.broker_ids)


class PauseBroker(Pause):
    """Any broker."""

    name: ClassVar[str] = "pause-broker"
    description: ClassVar[str] = "SIGSTOP for a broker"
    needs_brokers: ClassVar[bool] = True

    def victim(self) -> tuple[int, int]:
        """One broker."""
        return 0, self.rng.choice(self.cluster.broker_ids)


class TransferLeadership(Nemesis):
    """The quorum's leader hands over to another node, which hands over, and so on."""

    name: ClassVar[str] = "transfer-leadership"
    description: ClassVar[str] = "the quorum's leader is asked to hand over, and its heirs are, up to 8 times"
    holds_s: ClassVar[tuple[float, float]] = (0.2, 1.0)

    def start(self) -> str:
        """Ask one leader after the other."""
        self.terms = 0
        asked = self.rng.randrange(1, TRANSFERS_MAX + 1)
        for _ in range(asked):
            term, leader = self.cluster.term(), self.cluster.nodes.leader()
            heir = self.rng.choice([each for each in self.cluster.node_ids if each != leader])
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.cluster.nodes.change(leader, "POST", "/v1/leader", {"node_id": heir})
            with contextlib.suppress(AssertionError):
                eventually(lambda term=term: self.cluster.term() > term, BITE_DEADLINE_S, "a term began")  # type: ignore[misc]
                self.terms += 1
        return f"{asked} times"

    def stop(self) -> None:
        """It is over by itself."""

    def bite(self) -> str:
        """Count the terms that began."""
        return f"{self.terms} terms began" if self.terms else ""


class RollingRestart(Nemesis):
    """Every process is stopped in order and started again."""

    name: ClassVar[str] = "rolling-restart"
    description: ClassVar[str] = "SIGTERM and start for one process after the other"
    holds_s: ClassVar[tuple[float, float]] = (0.2, 1.0)

    def start(self) -> str:
        """Restart all, each when the one before is ready."""
        self.under_way = self.recorder.under_way
        self.before = self.cluster.proxies.connections()
        nodes, brokers = self.cluster.nodes, self.cluster.brokers
        for node_id in self.cluster.node_ids:
            nodes.stop(node_id)
            nodes.start_node(node_id)
            nodes.wait_ready(node_id)
        for broker_id in self.cluster.broker_ids:
            brokers.stop(broker_id)
            brokers.start_broker(broker_id)
            brokers.wait_ready(broker_id)
        return "every process"

    def stop(self) -> None:
        """It is over by itself."""

    def bite(self) -> str:
        """Count the connections that ended, and what was under way at the beginning."""
        cut = ended(self.cluster, self.before)
        return f"{cut} connections cut, {self.under_way} operations under way" if cut else ""


PROCESS: Final[tuple[type[Nemesis], ...]] = (
    *(KillNode, KillLeader, KillAllNodes, PauseLeader, TransferLeadership, RollingRestart),
    *(SlowClose, KillBroker, KillController, KillCoordinator, KillBrokers),
    *(PauseController, PauseCoordinator, PauseBroker),
)
