"""How long one piece of work holds a node's loop: the longest turns of three nodes beside something large.

Each node notes its own turns (turning_node.py). What counts is CPU time of the loop's thread: a core that
others use makes every turn longer, and is not the node's work. Knows no peers; times are never asserted.
Source: DIVERGENCES.md, docs/internals/benchmarks.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.machine import READY_DEADLINE_S, seconds_until
from tests.bench.turning_node import TURNS
from tests.bench.watchers import allow_descriptors
from tests.support.nodes import QuorateNodes, eventually
from tests.support.wire_load import (
    CREATE,
    EXISTS,
    GET_DATA,
    MULTI,
    SET_DATA,
    Connection,
    create_body,
    frame,
    multi_body,
    node_path,
    read_body,
    set_body,
)

EPHEMERAL: Final = 1
GET_CHILDREN: Final = 8
NO_NODE: Final = -101
IN_FLIGHT: Final = 256
SPARE_DESCRIPTORS: Final = 200
#: as a node's loop, which has nothing left to do after it: its turns are noted
SETTLED_S: Final = 1.0
DEADLINE_S: Final = 300.0
VALUE: Final = bytes(100)
#: 10,000 of them fit into a frame
SHORT_VALUE: Final = bytes(16)


class Sizes(NamedTuple):
    """How much each piece of work is."""

    ephemerals: int = 20_000
    sessions: int = 5000
    #: of each of these sessions
    owned: int = 4
    in_multi: int = 10_000
    children: int = 300_000
    #: restart with so many, of 100 bytes
    restart_sets: int = 200_000
    #: longer than these sessions are opened
    session_timeout_ms: int = 40_000


FULL: Final = Sizes()
TINY: Final = Sizes(20, 5, 2, 20, 200, 100, 4000)


class Bench:
    """Three nodes, and what their turns were."""

    def __init__(self, nodes: QuorateNodes, sizes: Sizes) -> None:
        """Measure running nodes."""
        self._nodes = nodes
        self.sizes = sizes
        self.lines: list[str] = []
        self._leader = nodes.leader()
        self._read: dict[int, int] = dict.fromkeys(nodes.node_ids, 0)

    @property
    def leader_host(self) -> str:
        """Client address of the node that leads."""
        return self._nodes.host(self._leader)

    @property
    def follower_host(self) -> str:
        """That of another one."""
        return self._nodes.host(next(each for each in self._nodes.node_ids if each != self._leader))

    def measure(self, name: str, work: Callable[[], object]) -> None:
        """Do something, and note the longest turns meanwhile."""
        self._leader = self._nodes.leader()
        self._turns()
        work()
        self._rest()
        found = self._turns()
        leaders = found.pop(self._leader)
        others = [max(kind) for kind in zip(*found.values(), strict=True)]
        cells = [f"{ms:,.0f}" for ms in (leaders[1], others[1], leaders[0], others[0])]
        self.lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(self.lines[-1], file=sys.stderr, flush=True)

    def _rest(self) -> None:
        ends_s = time.monotonic() + SETTLED_S
        eventually(lambda: time.monotonic() >= ends_s, DEADLINE_S, "the nodes are done")

    def _turns(self) -> dict[int, tuple[float, float]]:
        """Return {node: the longest turn since the last call, in ms of the clock and of CPU time}."""
        found = {}
        for node_id, node in self._nodes.nodes.items():
            text = (node.folder / TURNS).read_text()
            turns = [tuple(map(float, line.split())) for line in text[self._read[node_id] :].splitlines()]
            self._read[node_id] = len(text)
            found[node_id] = (
                max((t[0] for t in turns), default=0.0),
                max((t[1] for t in turns), default=0.0),
            )
        return found

    # --- what is done -----------------------------------------------------------------------------

    def run(self) -> None:
        """Do everything, one after the other."""
        sizes = self.sizes
        self.measure(f"a session ends with {sizes.ephemerals:,} ephemerals, each watched", self.end_session)
        with Connection(self.leader_host) as client, Connection(self.follower_host) as watcher:
            client.ensure("/multi")
            paths = [node_path("/multi", number) for number in range(sizes.in_multi)]
            operations = [(CREATE, create_body(path, SHORT_VALUE)) for path in paths]
            self.watch(watcher, EXISTS, paths)
            self.measure(f"a multi of {len(paths):,} creates, watched", lambda: multi(client, operations))
            operations = [(SET_DATA, set_body(path, SHORT_VALUE)) for path in paths]
            self.watch(watcher, GET_DATA, paths)
            self.measure(
                f"a multi of {sizes.in_multi:,} sets, each watched", lambda: multi(client, operations)
            )
        with Connection(self.leader_host, timeout_s=DEADLINE_S) as client:
            self.fill(client, "/many", sizes.children)
            with Connection(self.follower_host, timeout_s=DEADLINE_S) as other:

                def list_children() -> None:
                    for each in (client, other):
                        assert each.call(GET_CHILDREN, read_body("/many"))[0] == 0

                self.measure(f"a list of {sizes.children:,} children", list_children)
        self.measure(
            f"{sizes.sessions:,} sessions expire, with {sizes.owned} ephemerals each", self.expire_sessions
        )
        self.measure("a snapshot of all", self.take_snapshots)
        self.restart()

    def fill(self, client: Connection, folder: str, count: int, flags: int = 0) -> None:
        """Create a folder with so many nodes."""
        client.ensure(folder)
        bodies = (create_body(node_path(folder, number), VALUE, flags) for number in range(count))
        client.pipelined([frame(xid, CREATE, body) for xid, body in enumerate(bodies, 1)], IN_FLIGHT)

    def watch(self, client: Connection, opcode: int, paths: list[str]) -> None:
        """Leave a watch on each path."""
        client.sync()
        frames = [frame(xid, opcode, read_body(path, watch=True)) for xid, path in enumerate(paths, 1)]
        client.pipelined(frames, IN_FLIGHT, allowed_errors=(0, NO_NODE))

    def end_session(self) -> None:
        """End a session with ephemerals that others watch."""
        count = self.sizes.ephemerals
        owner = Connection(self.leader_host)
        with Connection(self.follower_host) as watcher:
            watcher.ensure("/owned")
            self.fill(owner, "/owned", count, EPHEMERAL)
            self.watch(watcher, GET_DATA, [node_path("/owned", number) for number in range(count)])
            self._turns()
            owner.close()
            for _ in range(count):
                watcher.next_event()

    def expire_sessions(self) -> None:
        """Leave sessions behind, with ephemerals, and wait for their end."""
        sizes = self.sizes
        allow_descriptors(sizes.sessions + SPARE_DESCRIPTORS)
        with ExitStack() as open_ones:
            with Connection(self.leader_host) as client:
                client.ensure("/left")
            for number in range(sizes.sessions):
                owner = Connection(self.leader_host, session_timeout_ms=sizes.session_timeout_ms)
                open_ones.callback(owner.socket.close)
                self.fill_own(owner, number)
        self._turns()
        with Connection(self.leader_host) as client:
            eventually(lambda: children(client, "/left") == 0, DEADLINE_S, "all sessions have ended")

    def fill_own(self, owner: Connection, number: int) -> None:
        """Create the ephemerals of a session."""
        frames = [
            frame(each + 1, CREATE, create_body(f"/left/{number}-{each}", b"", EPHEMERAL))
            for each in range(self.sizes.owned)
        ]
        owner.pipelined(frames, IN_FLIGHT)

    def take_snapshots(self) -> None:
        """Have every node write one."""
        for node_id in self._nodes.node_ids:
            self._nodes.take_snapshot(node_id)

    def restart(self) -> None:
        """Kill all with a log to replay, and start them together."""
        count = self.sizes.restart_sets
        with Connection(self.leader_host) as client:
            body = set_body("/many", VALUE)
            client.pipelined([frame(xid, SET_DATA, body) for xid in range(1, count + 1)], IN_FLIGHT)
        node_ids = list(self._nodes.node_ids)
        term = int(self._nodes.status(self._leader)["term"])
        ready: list[float] = []

        def all_again() -> None:
            for node_id in node_ids:
                self._nodes.kill(node_id)
            for node_id in node_ids:
                self._nodes.start_node(node_id)
            ready.extend(
                seconds_until([lambda n=node_id: self._nodes.ready(n) for node_id in node_ids])  # type: ignore[misc]
            )

        self.measure(f"all three are killed after {count:,} sets, and start", all_again)
        terms = int(self._nodes.status(self._nodes.leader())["term"]) - term
        seconds = ", ".join(f"{each:.1f}" for each in ready)
        self.lines.append("")
        self.lines.append(f"After the kill each was ready after {seconds} s; terms since: {terms}.")


def multi(client: Connection, operations: list[tuple[int, bytes]]) -> None:
    """Do one transaction."""
    error, _, _ = client.call(MULTI, multi_body(operations))
    assert error == 0


def children(client: Connection, path: str) -> int:
    """Return how many children a node has."""
    error, _, body = client.call(GET_CHILDREN, read_body(path))
    assert error == 0
    return int.from_bytes(body[:4])


def run(folder: Path, sizes: Sizes = FULL) -> list[str]:
    """Measure everything; returns the lines of the report."""
    with QuorateNodes(
        folder=folder, cluster="bench", settings={}, arguments=("-m", "tests.bench.turning_node", "serve")
    ) as nodes:
        nodes.wait_ready(deadline_s=READY_DEADLINE_S)
        bench = Bench(nodes, sizes)
        bench.run()
    head = ["", "The longest turn of a loop in ms: CPU time of its thread, and of the clock.", ""]
    head += ["| while | leader, CPU | followers, CPU | leader, clock | followers, clock |"]
    return [*head, "| --- | --- | --- | --- | --- |", *bench.lines]
