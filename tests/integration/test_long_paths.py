"""The longest paths that are accepted: the end of a session with many ephemerals below one stops nobody.

Three real nodes, a client that writes on each, and on each a recursive watch on the root. A session with
2,000 ephemerals at the greatest depth and length ends: every watcher hears of every node, no writer waits for
a second, and the leader stays.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.bench.machine import cpu_seconds
from tests.support.leader_changes import SteadyWriter
from tests.support.nodes import QUICK_SESSIONS, QuorateNodes, eventually
from tests.support.wire_load import CREATE, Connection, buffer, create_body, frame

pytestmark = pytest.mark.alone

DEADLINE_S = 30.0
EPHEMERALS = 2000
EPHEMERAL = 1
ADD_WATCH, RECURSIVE = 106, 1
DELETED = 2
PATH_BYTES_MAX, SEGMENTS_MAX = 8192, 256
RECEIVED_BYTES_MAX = 1 << 20
#: of the last segment, which has the number of the ephemeral
LEAF_BYTES = 8
#: what the end of the session may cost each node, and so everybody on it; by its own clock of CPU time, which
#: runs no faster on a busy machine
NODE_S_MAX = 1.0
#: by the clock on the wall, so that a node that froze is seen on any machine
GAP_S_MAX = 10.0
SETTINGS: dict[str, dict[str, object]] = {**QUICK_SESSIONS, "raft": {"election_timeout_ms": [3000, 5000]}}


@pytest.fixture(scope="module")
def nodes() -> Iterator[QuorateNodes]:
    with QuorateNodes(settings=SETTINGS) as running:
        running.wait_ready()
        yield running


def deepest() -> list[str]:
    """Return the paths of a chain of nodes, to whose last one every leaf has the longest path."""
    room = PATH_BYTES_MAX - LEAF_BYTES - 1
    each, more = divmod(room, SEGMENTS_MAX - 1)
    segments = ["/" + "d" * (each - 1 + (number < more)) for number in range(SEGMENTS_MAX - 1)]
    return ["".join(segments[: number + 1]) for number in range(len(segments))]


class Watcher:
    """A client with a recursive watch on the root, that takes what it is told and looks at it later."""

    def __init__(self, host: str, last: str) -> None:
        self._told = bytearray()
        self._last = last.encode()
        self._connection = Connection(host, timeout_s=DEADLINE_S)
        error, _, _ = self._connection.call(ADD_WATCH, buffer(b"/") + struct.pack(">i", RECURSIVE))
        assert error == 0
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while self._last not in self._told[-RECEIVED_BYTES_MAX - PATH_BYTES_MAX :]:
            self._told += self._connection.socket.recv(RECEIVED_BYTES_MAX)

    def end(self, leaves: list[str]) -> None:
        """Wait until it heard of the end of all nodes, in their order."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{len(self._told)} bytes of deletions were told"
        self._connection.close()
        position = 0
        for leaf in leaves:
            position = self._told.index(struct.pack(">ii", DELETED, 3) + buffer(leaf.encode()), position)


def test_the_end_of_a_session_with_the_longest_paths_stops_nobody(nodes: QuorateNodes) -> None:
    owner = Connection(nodes.host(2), timeout_s=DEADLINE_S)
    chain = deepest()
    creations = [frame(number + 1, CREATE, create_body(path, b"")) for number, path in enumerate(chain)]
    owner.pipelined(creations, 64)
    leaves = [f"{chain[-1]}/{number:0{LEAF_BYTES}d}" for number in range(EPHEMERALS)]
    assert {(len(leaf), leaf.count("/")) for leaf in leaves} == {(PATH_BYTES_MAX, SEGMENTS_MAX)}
    owned = [
        frame(number + 1, CREATE, create_body(leaf, b"", EPHEMERAL)) for number, leaf in enumerate(leaves)
    ]
    owner.pipelined(owned, 64)
    writers = [SteadyWriter(nodes.host(node_id), f"/writer-{node_id}") for node_id in nodes.node_ids]
    watchers = [Watcher(nodes.host(node_id), leaves[-1]) for node_id in nodes.node_ids]
    leader, term = nodes.leader(), nodes.status(1)["term"]
    begun = {writer.path: writer.acknowledged for writer in writers}
    since_s = time.monotonic()
    before_s = {node_id: cpu_seconds([nodes.pid(node_id)]) for node_id in nodes.node_ids}
    owner.close()
    for watcher in watchers:
        watcher.end(leaves)
    spent_s = {node_id: cpu_seconds([nodes.pid(node_id)]) - before_s[node_id] for node_id in nodes.node_ids}
    eventually(
        lambda: all(writer.error or writer.acknowledged > begun[writer.path] + 20 for writer in writers),
        DEADLINE_S,
        "every writer goes on",
    )
    assert [writer.error for writer in writers if writer.error] == []
    gaps_s = {writer.path: writer.gap_s(since_s) for writer in writers}
    assert (nodes.leader(), nodes.status(1)["term"]) == (leader, term)
    for writer in writers:
        writer.stop()
    assert max(gaps_s.values()) < GAP_S_MAX, gaps_s
    assert max(spent_s.values()) < NODE_S_MAX, spent_s
