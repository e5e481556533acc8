"""Faults of the network: links that hold everything back, pass one direction, are slow, or break.

A held link proves itself by the bytes that toxiproxy took and never passed on.
"""

from __future__ import annotations

from typing import ClassVar

from tests.chaos.nemeses.base import Nemesis


class HeldLinks(Nemesis):
    """Nothing passes some links, in one or both directions, and nobody learns of it."""

    def start(self) -> str:
        """Choose links and hold them."""
        self.names: list[str] = []
        self.before = self.cluster.proxies.withheld()
        target, self.names, streams = self.choose()
        self.cluster.proxies.hold(self.names, streams)
        return target

    def choose(self) -> tuple[str, list[str], tuple[str, ...]]:
        """Return (who is hit, links, streams)."""
        raise NotImplementedError

    def stop(self) -> None:
        """Let everything pass; held connections end."""
        self.cluster.proxies.heal(self.names)

    def bite(self) -> str:
        """Count the bytes that were held."""
        after = self.cluster.proxies.withheld()
        held = sum(max(0, after[name] - self.before[name]) for name in self.names)
        return f"{held} bytes held on {len(self.names)} links" if held else ""


class IsolateLeader(HeldLinks):
    """The quorum's leader hears no other node; its clients still reach it."""

    name: ClassVar[str] = "isolate-leader"
    description: ClassVar[str] = "the quorum's leader hears no other node; clients still reach it"

    def choose(self) -> tuple[str, list[str], tuple[str, ...]]:
        """All links from and to the leader."""
        leader = self.cluster.nodes.leader()
        links = self.cluster.proxies.matching(rf"peer-{leader}-\d+", rf"peer-\d+-{leader}")
        return f"node {leader}, the leader", links, ("upstream", "downstream")


NETWORK: tuple[type[Nemesis], ...] = (IsolateLeader,)
