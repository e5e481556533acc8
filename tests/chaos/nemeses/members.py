"""Changes of members under load, by `quorate members`: a node that comes and goes, a disk that is given up.

Each proves itself by the members that the leader names: voters that were not there before, or whose disk was
another one. A command whose outcome is unknown, or that found no leader, is given again.
Source: docs/operate/members.md.
"""

from __future__ import annotations

import contextlib
import http.client
import shutil
import subprocess
import sys
from typing import Any, ClassVar, Final

from tests.chaos.nemeses.base import Nemesis
from tests.support.nodes import NodeError, clean_environment, eventually

CHANGE_DEADLINE_S: Final = 60.0
COMMAND_TIMEOUT_S: Final = 40.0


class ChangeMembers(Nemesis):
    """What both changes need."""

    holds_s: ClassVar[tuple[float, float]] = (0.2, 3.0)

    def members(self) -> dict[int, dict[str, Any]]:
        """{node id: member} as the leader tells; {} while none leads."""
        nodes = self.cluster.nodes
        with contextlib.suppress(OSError, http.client.HTTPException, NodeError):
            leader = nodes.leader_now()
            if leader:
                return {int(each["node_id"]): each for each in nodes.status(leader)["members"]}
        return {}

    def change(self, action: str, node_id: int, *words: str) -> None:
        """Run `quorate members add` or `remove` until the leader names the node, or does not."""

        def done() -> bool:
            members = self.members()
            return bool(members) and (node_id in members) == (action == "add")

        def asked() -> bool:
            if done():
                return True
            leader = self.cluster.nodes.leader()
            command = [sys.executable, "-P", "-m", "quorum", "members", action, str(node_id), *words]
            subprocess.run(
                [*command, "--admin", self.cluster.nodes.admin_url(leader)],
                capture_output=True,
                env=clean_environment(),
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
            return done()

        eventually(asked, CHANGE_DEADLINE_S, f"quorate members {action} {node_id}")

    def wait_voter(self, node_id: int) -> None:
        """Wait until a node votes."""
        eventually(
            lambda: self.members().get(node_id, {}).get("voter"), CHANGE_DEADLINE_S, f"node {node_id} votes"
        )


class AddMember(ChangeMembers):
    """One more node, for a while."""

    name: ClassVar[str] = "add-member"
    description: ClassVar[str] = "a new node joins, votes, and is removed again"

    def start(self) -> str:
        """Add it, start it, and wait until it votes."""
        self.voted = False
        self.node = max(self.cluster.node_ids) + 1
        address = self.cluster.nodes.add(self.node)
        self.change("add", self.node, address)
        self.cluster.nodes.start_node(self.node, "--join")
        self.wait_voter(self.node)
        self.voted = True
        return f"node {self.node}"

    def stop(self) -> None:
        """Remove and end it."""
        self.change("remove", self.node)
        self.cluster.nodes.forget(self.node)

    def bite(self) -> str:
        """Say that it voted."""
        return f"node {self.node} voted and left" if self.voted else ""


class ReplaceMember(ChangeMembers):
    """A follower is removed, loses its disk, and joins again."""

    name: ClassVar[str] = "replace-member"
    description: ClassVar[str] = "a node is removed; it joins again with an empty disk, and votes"

    def start(self) -> str:
        """Remove and end it."""
        self.voted = False
        self.node = self.rng.choice(self.cluster.node_ids)
        self.address = self.cluster.nodes.peer_address(self.node)
        self.change("remove", self.node)
        self.cluster.nodes.stop(self.node)
        return f"node {self.node}"

    def stop(self) -> None:
        """Let it join, and wait until it votes."""
        nodes = self.cluster.nodes
        shutil.rmtree(nodes.nodes[self.node].data_dir)
        self.change("add", self.node, self.address)
        nodes.start_node(self.node, "--join")
        self.wait_voter(self.node)
        self.voted = True

    def bite(self) -> str:
        """Say that it voted."""
        return f"node {self.node} left and voted again" if self.voted else ""


MEMBERS: Final[tuple[type[Nemesis], ...]] = (AddMember, ReplaceMember)
