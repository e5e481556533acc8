"""One client must not stop, fill or blind a node: attacks with plain sockets and default permissions.

Beside each attack a well-behaved client reads and writes at every node; it must not notice. No node ends,
`/readyz` keeps answering, and what the attack may cost (files, memory, lines of the log) is bounded.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.nodes import QUICK_SESSIONS, QuorateNodes, eventually
from tests.support.wire_load import (
    CREATE,
    GET_DATA,
    SET_DATA,
    Connection,
    LoadError,
    buffer,
    create_body,
    frame,
    read_body,
    set_body,
)

pytestmark = pytest.mark.alone

DEADLINE_S = 30.0
MIB = 1 << 20
#: what an attack may add to a node's memory
GROWTH_BYTES_MAX = 300 * 10**6
ATTACKERS = 40
SMALL_SEGMENTS: dict[str, dict[str, object]] = {
    "limits": QUICK_SESSIONS["limits"] | {"frame_bytes_max": MIB // 2},
    "raft": {"batch_bytes_max": MIB // 2, "segment_bytes_max": MIB},
}
_MULTI_READ = 22
_ADD_WATCH = 106
_EXISTS = 3


class Neighbours:
    """A client at every node that reads and writes all the time and must not notice anything."""

    def __init__(self, nodes: QuorateNodes) -> None:
        self._nodes = nodes
        self._stop = threading.Event()
        self.errors: list[str] = []
        self.rounds = dict.fromkeys(nodes.node_ids, 0)
        self._threads = [
            threading.Thread(target=self._work, args=(node_id,), daemon=True) for node_id in nodes.node_ids
        ]
        for thread in self._threads:
            thread.start()
        self.wait_for_rounds()

    def _work(self, node_id: int) -> None:
        try:
            with Connection(self._nodes.host(node_id), timeout_s=10.0) as connection:
                path = f"/neighbour-{node_id}"
                connection.ensure(path)
                while not self._stop.is_set():
                    for op, body in ((SET_DATA, set_body(path, bytes(100))), (GET_DATA, read_body(path))):
                        error, _, _ = connection.call(op, body)
                        if error:
                            raise LoadError(f"error {error}")
                    self.rounds[node_id] += 1
        except (OSError, LoadError) as problem:
            self.errors.append(f"client at node {node_id}: {problem!r}")

    def wait_for_rounds(self, count: int = 5) -> None:
        """Wait until every one of them went round a few more times."""
        before = dict(self.rounds)
        eventually(
            lambda: self.errors or all(self.rounds[each] >= before[each] + count for each in self.rounds),
            DEADLINE_S,
            "the neighbours are served",
        )
        assert self.errors == []

    def finish(self) -> None:
        """End their sessions; raises what they noticed."""
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        assert self.errors == []


@contextlib.contextmanager
def unharmed(nodes: QuorateNodes) -> Iterator[Neighbours]:
    """What is attacked within: afterwards the same processes are ready, and the neighbours went on."""
    pids = {node_id: nodes.pid(node_id) for node_id in nodes.node_ids}
    neighbours = Neighbours(nodes)
    yield neighbours
    neighbours.wait_for_rounds()
    neighbours.finish()
    assert {node_id: nodes.pid(node_id) for node_id in nodes.node_ids if nodes.running(node_id)} == pids
    nodes.wait_ready()
    for node in nodes.nodes.values():
        assert "Traceback" not in node.output_path.read_text(errors="replace")


def handshake(timeout_ms: int = 20_000, padding: int = 0) -> bytes:
    request = struct.pack(">iqiq", 0, 0, timeout_ms, 0) + buffer(bytes(16)) + b"\x00" + bytes(padding)
    return struct.pack(">i", len(request)) + request


class Attackers(contextlib.ExitStack):
    """Sockets to a node that all end with the test."""

    def connect(self, nodes: QuorateNodes, node_id: int, first: bytes = b"") -> socket.socket:
        """Open one more connection and send its first bytes; it may be closed or left waiting."""
        made = self.enter_context(socket.socket())
        made.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            made.connect(("127.0.0.1", nodes.nodes[node_id].client_port))
        if first:
            made.setblocking(True)
            made.settimeout(DEADLINE_S)
            made.sendall(first)
        return made


def output(nodes: QuorateNodes, node_id: int = 1) -> str:
    return nodes.nodes[node_id].output_path.read_text(errors="replace")


def write_segments(writer: Connection, mebibytes: int) -> None:
    """Write so much that the journal of every node begins new segments."""
    writer.ensure("/filled")
    count = 4 * mebibytes
    frames = [frame(xid, SET_DATA, set_body("/filled", bytes(MIB // 4))) for xid in range(1, count + 1)]
    writer.pipelined(frames, window=16)
    writer.sync()


# -- open files ----------------------------------------------------------------------------------------------


@pytest.fixture
def few_files(request: pytest.FixtureRequest) -> Iterator[QuorateNodes]:
    """Three nodes that may have few files open, and whose journals begin a segment every MiB."""
    limit, limits = request.param
    settings = SMALL_SEGMENTS | {"limits": SMALL_SEGMENTS["limits"] | limits}
    arguments = ("-m", "tests.support.few_files_node", "serve")
    with QuorateNodes(
        settings=settings, environment={"OPEN_FILES": str(limit)}, arguments=arguments
    ) as nodes:
        yield nodes


@pytest.mark.parametrize("few_files", [(1024, {})], indirect=True)
def test_a_thousand_idle_sessions_leave_files_for_the_journal(few_files: QuorateNodes) -> None:
    assert "at most 1024 files and sockets may be open, 8192 are wanted" in output(few_files)
    with unharmed(few_files), Connection(few_files.host(2)) as writer, Attackers() as attackers:
        for node_id in few_files.node_ids:
            for _ in range(1000):
                attackers.connect(few_files, node_id, handshake())
        write_segments(writer, 16)
        for node_id in few_files.node_ids:
            assert "client port: at most 512 connections may be open" in output(few_files, node_id)
            assert few_files.get(node_id, "/livez")[0] == 200
    with Connection(few_files.host(1)) as late:
        late.sync()


@pytest.mark.parametrize("few_files", [(200, {"connections_max": 10_000})], indirect=True)
def test_a_node_without_a_file_left_sheds_idle_clients_and_goes_on(few_files: QuorateNodes) -> None:
    with unharmed(few_files), Connection(few_files.host(2)) as writer, Attackers() as attackers:
        for _ in range(400):
            attackers.connect(few_files, 1)
        eventually(lambda: "no file is left to open" in output(few_files), DEADLINE_S)
        write_segments(writer, 8)
        eventually(lambda: few_files.ready(1), DEADLINE_S, "the admin port has a file")


# -- memory --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[QuorateNodes]:
    """Three nodes with default limits, but for larger requests: the worst case that an operator may want."""
    limits = QUICK_SESSIONS["limits"] | {"frame_bytes_max": 4 * MIB}
    with QuorateNodes(settings={**QUICK_SESSIONS, "limits": limits}) as nodes:
        with Connection(nodes.host(1)) as connection:
            connection.ensure("/watched")
            assert connection.call(CREATE, create_body("/large", bytes(MIB)))[0] == 0
        yield nodes


def memory(nodes: QuorateNodes, field: str) -> int:
    """Bytes of node 1: VmRSS now, or VmHWM, the most since `forget_peak`."""
    text = Path(f"/proc/{nodes.pid(1)}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


def forget_peak(nodes: QuorateNodes) -> None:
    Path(f"/proc/{nodes.pid(1)}/clear_refs").write_text("5")


def send_until_closed(attacker: socket.socket, *parts: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for part in parts:
            attacker.sendall(part)


def unfinished_frames(nodes: QuorateNodes, attackers: Attackers) -> None:
    for _ in range(ATTACKERS):
        attacker = attackers.connect(nodes, 1, handshake())
        send_until_closed(attacker, struct.pack(">iii", 4 * MIB, 1, CREATE), bytes(4 * MIB - 100))


def unread_replies(nodes: QuorateNodes, attackers: Attackers) -> None:
    reads = b"".join(struct.pack(">i?i", GET_DATA, False, -1) + read_body("/large") for _ in range(28))
    request = frame(1, _MULTI_READ, reads + struct.pack(">i?i", -1, True, -1))
    for _ in range(ATTACKERS):
        send_until_closed(attackers.connect(nodes, 1, handshake()), request)


def watches(nodes: QuorateNodes, attackers: Attackers) -> None:
    """Watches on missing paths, of 8 KB each."""
    for number in range(ATTACKERS):
        attacker = attackers.connect(nodes, 1, handshake())
        attacker.settimeout(DEADLINE_S)
        tail = "/" + "x" * 200
        frames = [
            frame(1, _EXISTS, read_body(f"/{number}-{each}{tail * 39}", watch=True)) for each in range(900)
        ]
        send_until_closed(attacker, *frames)


def recursive_watches(nodes: QuorateNodes, attackers: Attackers) -> None:
    """Recursive watches on paths of many segments, each of which costs more than its bytes."""
    for number in range(ATTACKERS):
        attacker = attackers.connect(nodes, 1, handshake())
        frames = [
            frame(1, _ADD_WATCH, buffer(f"/{number}-{each}{'/s' * 250}".encode()) + struct.pack(">i", 1))
            for each in range(200)
        ]
        send_until_closed(attacker, *frames)


ATTACKS = {
    "unfinished frames": (unfinished_frames, "received_bytes_total_max"),
    "replies that are not read": (unread_replies, "unread_bytes_total_max"),
    "watches": (watches, "watch_bytes_total_max"),
    "recursive watches": (recursive_watches, "watch_bytes_total_max"),
}


@pytest.mark.parametrize(("attack", "budget"), ATTACKS.values(), ids=ATTACKS.keys())
def test_forty_clients_cannot_fill_the_memory_of_a_node(
    cluster: QuorateNodes, attack: Callable[[QuorateNodes, Attackers], None], budget: str
) -> None:
    told = output(cluster).count(budget)
    with unharmed(cluster) as neighbours:
        forget_peak(cluster)
        before = memory(cluster, "VmRSS")
        with Attackers() as attackers:
            attack(cluster, attackers)
            neighbours.wait_for_rounds()
            eventually(lambda: output(cluster).count(f"({budget} = ") > told, DEADLINE_S)
            grown = memory(cluster, "VmHWM") - before
        assert grown <= GROWTH_BYTES_MAX, f"{grown / 1e6:.0f} MB"


def test_a_handshake_of_more_than_a_kibibyte_is_refused(cluster: QuorateNodes) -> None:
    with unharmed(cluster), Attackers() as attackers:
        longest = attackers.connect(cluster, 1, handshake(padding=1024 - 45))
        assert len(longest.recv(100)) >= 40
        attacker = attackers.connect(cluster, 1, handshake(padding=1024)[:20])
        # Sooner than a handshake that never ends would be.
        attacker.settimeout(3.0)
        assert attacker.recv(1) == b""


# -- the rest ------------------------------------------------------------------------------------------------


def test_requests_that_mean_nothing_do_not_fill_the_log(cluster: QuorateNodes) -> None:
    size = cluster.nodes[1].output_path.stat().st_size
    count = 20_000
    with unharmed(cluster):
        with Connection(cluster.host(1)) as attacker:
            frames = [frame(xid, CREATE, b"") for xid in range(1, count + 1)]
            attacker.pipelined(frames, window=200, allowed_errors=(-5,))

        def refused() -> int:
            text = cluster.nodes[1].output_path.read_bytes()[size:].decode()
            return sum(int(number) for number in re.findall(r"refused (\d+) requests", text))

        eventually(lambda: refused() == count, DEADLINE_S, "every refused request is counted")
    assert cluster.nodes[1].output_path.stat().st_size - size < 20_000


def test_sighup_does_not_end_a_node(cluster: QuorateNodes) -> None:
    with unharmed(cluster):
        os.kill(cluster.pid(1), signal.SIGHUP)
        eventually(lambda: "SIGHUP received" in output(cluster), DEADLINE_S)


def test_what_a_node_writes_is_its_owners_alone(cluster: QuorateNodes) -> None:
    cluster.take_snapshot(1)
    for path in cluster.nodes[1].data_dir.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"
    assert list(cluster.nodes[1].data_dir.rglob("*.snapshot"))
