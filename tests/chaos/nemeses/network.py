"""Faults of the network: links that hold everything back, pass one direction, are slow, or break.

A held link proves itself by the bytes that toxiproxy took and never passed on, a broken one by connections
that ended, a slow one by operations that took longer than before.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import time
from typing import ClassVar, Final

from tests.chaos.nemeses.base import Nemesis
from tests.chaos.proxies import BOTH
from tests.support.nodes import eventually

Choice = tuple[str, list[str], tuple[str, ...]]
#: How long before a strike operations are looked at for comparison, second by second.
BEFORE_S: Final = 10
COUNTED_DEADLINE_S: Final = 10.0
SECOND_NS: Final = 1_000_000_000
UPSTREAM: Final = ("upstream",)
DOWNSTREAM: Final = ("downstream",)


class HeldLinks(Nemesis):
    """Nothing passes some links, in one or both directions, and nobody learns of it."""

    def start(self) -> str:
        """Choose links and hold them."""
        self.names: list[str] = []
        self.before = self.cluster.proxies.withheld()
        target, self.names, streams = self.choose()
        self.cluster.proxies.hold(self.names, streams)
        return target

    @abc.abstractmethod
    def choose(self) -> Choice:
        """Return (who is hit, links, streams)."""

    def stop(self) -> None:
        """Let everything pass; held connections end."""
        self.cluster.proxies.heal(self.names)

    def bite(self) -> str:
        """Count the bytes that were held, once toxiproxy has ended the connections: it counts them then."""
        with contextlib.suppress(AssertionError):
            held = eventually(self.held, COUNTED_DEADLINE_S, "toxiproxy counted what it held")
            return f"{held} bytes held on {len(self.names)} links"
        return ""

    def held(self) -> int:
        """Bytes that the links took since the start and never passed on; only ended connections count."""
        after = self.cluster.proxies.withheld()
        return sum(max(0, after[name] - self.before[name]) for name in self.names)

    def peers(self, *node_ids: int) -> list[str]:
        """Links between these nodes and the others."""
        return [
            f"peer-{one}-{other}"
            for one, other in itertools.permutations(self.cluster.node_ids, 2)
            if (one in node_ids) != (other in node_ids)
        ]


class IsolateLeader(HeldLinks):
    """The quorum's leader alone."""

    name: ClassVar[str] = "isolate-leader"
    description: ClassVar[str] = "the quorum's leader hears no other node; clients still reach it"

    def choose(self) -> Choice:
        """All links from and to the leader."""
        leader = self.cluster.nodes.leader()
        return f"node {leader}, the leader", self.peers(leader), BOTH


class IsolateFollower(HeldLinks):
    """A follower alone."""

    name: ClassVar[str] = "isolate-follower"
    description: ClassVar[str] = "a follower hears no other node; clients still reach it"

    def choose(self) -> Choice:
        """All links from and to a follower."""
        follower = self.rng.choice([*{*self.cluster.node_ids} - {self.cluster.nodes.leader()}])
        return f"node {follower}, a follower", self.peers(follower), BOTH


class Halves(HeldLinks):
    """A majority and a minority."""

    name: ClassVar[str] = "halves"
    description: ClassVar[str] = "the nodes fall into a majority and a minority, wherever the leader is"

    def choose(self) -> Choice:
        """The links between both parts."""
        nodes = self.cluster.node_ids
        minority = sorted(self.rng.sample(nodes, (len(nodes) - 1) // 2))
        return f"nodes {minority} against the others", self.peers(*minority), BOTH


class Bridge(HeldLinks):
    """Two nodes that do not hear each other, while a third hears both."""

    name: ClassVar[str] = "bridge"
    description: ClassVar[str] = "two nodes hear each other only through the others"

    def choose(self) -> Choice:
        """The links between the two."""
        leader = self.cluster.nodes.leader()
        other = self.rng.choice([each for each in self.cluster.node_ids if each != leader])
        return (
            f"between nodes {leader} and {other}",
            [f"peer-{leader}-{other}", f"peer-{other}-{leader}"],
            BOTH,
        )


class OneDirection(HeldLinks):
    """A node that hears and is not heard, or is heard and does not hear."""

    name: ClassVar[str] = "one-direction"
    description: ClassVar[str] = "a node hears the others and is not heard, or the other way round"

    def choose(self) -> Choice:
        """What one node sends: upstream on the links it dialled, downstream on those of the others."""
        node = self.rng.choice(self.cluster.node_ids)
        links = self.cluster.proxies
        if self.rng.random() < 0.5:
            return f"node {node} is not heard", links.matching(rf"peer-{node}-\d+"), UPSTREAM
        return f"node {node} does not hear", links.matching(rf"peer-\d+-{node}"), UPSTREAM


class IsolateClients(HeldLinks):
    """The clients of one node lose it, long enough for sessions to end."""

    name: ClassVar[str] = "isolate-clients"
    description: ClassVar[str] = "the clients of one node hear nothing from it, until sessions end"
    holds_s: ClassVar[tuple[float, float]] = (2.0, 12.0)

    def choose(self) -> Choice:
        """The link of the clients to one node."""
        node = self.rng.choice(self.cluster.node_ids)
        return f"the clients of node {node}", [f"client-{node}"], BOTH


class IsolateBroker(HeldLinks):
    """A broker alone."""

    name: ClassVar[str] = "isolate-broker"
    description: ClassVar[str] = "a broker reaches nobody and is reached by nobody"
    needs_brokers: ClassVar[bool] = True
    holds_s: ClassVar[tuple[float, float]] = (3.0, 12.0)

    def choose(self) -> Choice:
        """All links of one broker."""
        broker = self.pick()
        links = self.cluster.proxies.matching(*self.patterns(broker))
        return f"broker {broker}", links, BOTH

    def pick(self) -> int:
        """Any broker."""
        return self.rng.choice(self.cluster.broker_ids)

    def patterns(self, broker: int) -> list[str]:
        """All that it dials, and all that dials it."""
        return [
            rf"quorum-b{broker}-\d+",
            rf"broker-{broker}-\d+",
            rf"broker-\d+-{broker}",
            rf"client-b{broker}",
        ]


class IsolateController(IsolateBroker):
    """The controller alone."""

    name: ClassVar[str] = "isolate-controller"
    description: ClassVar[str] = "the controller's broker reaches nobody and is reached by nobody"

    def pick(self) -> int:
        """The controller."""
        return self.cluster.controller_now() or super().pick()


class BrokerFromQuorum(IsolateBroker):
    """A broker without the quorum, which clients and followers still reach."""

    name: ClassVar[str] = "broker-from-quorum"
    description: ClassVar[str] = "a broker does not reach the quorum; clients and followers still reach it"

    def patterns(self, broker: int) -> list[str]:
        """What it dials at the quorum."""
        return [rf"quorum-b{broker}-\d+"]


class BrokerFromBrokers(IsolateBroker):
    """A broker without the other brokers, which keeps its session."""

    name: ClassVar[str] = "broker-from-brokers"
    description: ClassVar[str] = "a broker and the other brokers do not hear each other; the quorum hears all"

    def patterns(self, broker: int) -> list[str]:
        """All links between brokers that begin or end here."""
        return [rf"broker-{broker}-\d+", rf"broker-\d+-{broker}"]


class ControllerFromBroker(HeldLinks):
    """The controller does not reach one of the brokers."""

    name: ClassVar[str] = "controller-from-broker"
    description: ClassVar[str] = (
        "the controller does not reach one broker, and that broker not the controller"
    )
    needs_brokers: ClassVar[bool] = True

    def choose(self) -> Choice:
        """Both links between the two."""
        controller = self.cluster.controller_now() or self.rng.choice(self.cluster.broker_ids)
        other = self.rng.choice([each for each in self.cluster.broker_ids if each != controller])
        links = [f"broker-{controller}-{other}", f"broker-{other}-{controller}"]
        return f"controller {controller} and broker {other}", links, BOTH


class SlowLinks(Nemesis):
    """Links that are slow: proven by operations that took longer than before."""

    def start(self) -> str:
        """Choose links and strengths."""
        self.names = self.cluster.proxies.matching(r"peer-\d+-\d+", r"broker-\d+-\d+", r"quorum-b\d+-\d+")
        self.started_ns = time.monotonic_ns()
        # The best of the last seconds: in others the fault before this one may still be felt.
        seconds = (self.started_ns - number * SECOND_NS for number in range(BEFORE_S))
        found = [self.recorder.latency_ms(second - SECOND_NS, second) for second in seconds]
        self.usual_ms = min((each for each in found if each is not None), default=None)
        return self.slow_down()

    @abc.abstractmethod
    def slow_down(self) -> str:
        """Lay the toxics; returns what they do, in words."""

    def stop(self) -> None:
        """Take the toxics away."""
        self.cluster.proxies.heal(self.names)
        self.stopped_ns = time.monotonic_ns()

    def bite(self) -> str:
        """Compare latencies."""
        found_ms = self.recorder.latency_ms(self.started_ns, self.stopped_ns)
        if found_ms is None:
            return "hardly any operation succeeded"
        if self.usual_ms is None or found_ms < 2 * self.usual_ms:
            return ""
        return f"a quarter of the operations took over {found_ms:.0f} ms instead of {self.usual_ms:.0f} ms"


class Latency(SlowLinks):
    """Every link is slow, by a varying amount."""

    name: ClassVar[str] = "latency"
    description: ClassVar[str] = "all links between servers are slow, with jitter"

    def slow_down(self) -> str:
        """20 to 150 ms a direction."""
        latency = self.rng.randrange(20, 150)
        self.cluster.proxies.add(self.names, "latency", latency=latency, jitter=latency // 2)
        return f"{latency} ms ± {latency // 2} ms on {len(self.names)} links"


class Bandwidth(SlowLinks):
    """The leader's links carry little."""

    name: ClassVar[str] = "bandwidth"
    description: ClassVar[str] = "the links of the quorum's leader carry a few KB/s"

    def slow_down(self) -> str:
        """1 to 4 KB/s."""
        leader, rate = self.cluster.nodes.leader(), self.rng.randrange(1, 5)
        self.names = self.cluster.proxies.matching(rf"peer-{leader}-\d+")
        self.cluster.proxies.add(self.names, "bandwidth", UPSTREAM, rate=rate)
        return f"{rate} KB/s from node {leader}, the leader"


class Slicer(SlowLinks):
    """Every message arrives in small pieces, with pauses between."""

    name: ClassVar[str] = "slicer"
    description: ClassVar[str] = "what servers send each other arrives in small pieces"

    def slow_down(self) -> str:
        """Pieces of about 64 bytes, 1 to 5 ms apart."""
        delay_us = self.rng.randrange(1000, 5000)
        self.cluster.proxies.add(self.names, "slicer", average_size=64, size_variation=32, delay=delay_us)
        return f"pieces of 64 bytes, {delay_us} µs apart, on {len(self.names)} links"


class Reset(Nemesis):
    """Connections are reset, again and again for a while."""

    name: ClassVar[str] = "reset"
    description: ClassVar[str] = "connections between servers and of clients are reset, new ones as well"
    holds_s: ClassVar[tuple[float, float]] = (0.2, 3.0)

    def start(self) -> str:
        """Choose a third of all links."""
        links = self.cluster.proxies
        self.names = sorted(self.rng.sample(links.names, max(1, len(links.names) // 3)))
        self.before = {each for each in links.connections() if each[0] in self.names}
        self.gone = 0
        links.add(self.names, "reset_peer", UPSTREAM, timeout=0)
        return f"{len(self.names)} links"

    def stop(self) -> None:
        """Let connections stand, once one was reset."""
        with contextlib.suppress(AssertionError):
            self.gone = eventually(
                lambda: len(self.before - self.cluster.proxies.connections()),
                COUNTED_DEADLINE_S,
                "toxiproxy reset a connection",
            )
        self.cluster.proxies.heal(self.names)

    def bite(self) -> str:
        """Count the connections that ended."""
        return f"{self.gone} connections reset" if self.gone else ""


NETWORK: Final[tuple[type[Nemesis], ...]] = (
    *(IsolateLeader, IsolateFollower, Halves, Bridge, OneDirection, IsolateClients),
    *(IsolateBroker, IsolateController, BrokerFromQuorum, BrokerFromBrokers, ControllerFromBroker),
    *(Latency, Bandwidth, Slicer, Reset),
)
