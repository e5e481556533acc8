"""What is durable when something is told to anybody, seen from outside: system calls of real processes.

One strace follows all three nodes while clients of the leader and of a follower write, and while leadership
is handed over. tests/support/fsync_audit.py proves the order of fsyncs and sends; a run of nodes that
acknowledge first shows that it would find a wrong one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.fsync_audit import Audit, AuditedNode, FsyncAudit, marker
from tests.support.nodes import QUICK_SESSIONS, QuorateNodes
from tests.support.syscall_trace import SyscallTrace, TraceError, read_events
from tests.support.wire_load import CREATE, Connection, create_body, frame

WRITES = 300
#: Small segments, so that the audit sees new ones.
SIZE_BYTES = 256 * 1024
SETTINGS: dict[str, dict[str, object]] = {
    "raft": {"segment_bytes_max": SIZE_BYTES, "batch_bytes_max": SIZE_BYTES},
    "limits": {**QUICK_SESSIONS["limits"], "frame_bytes_max": SIZE_BYTES},
}


class Clients:
    """Writes with markers, and which reply acknowledges which."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._count = 0

    def write(self, host: str, count: int, window: int) -> None:
        """Create nodes with at most `window` unanswered."""
        frames = []
        with Connection(host) as connection:
            port = int(connection.socket.getsockname()[1])
            for xid in range(1, count + 1):
                self._count += 1
                value = marker(self._count) + b"-" * 1000
                frames.append(frame(xid, CREATE, create_body(f"/n{self._count}", value)))
                self.acknowledged[port, xid] = marker(self._count)
            connection.pipelined(frames, window)


def audit(folder: Path, arguments: Sequence[str]) -> Audit:
    """Trace three nodes under writes and a change of leadership, and check the trace."""
    trace = folder / "trace"
    clients = Clients()
    with QuorateNodes(folder=folder / "nodes", settings=SETTINGS, arguments=arguments) as nodes:
        nodes.one_digest()
        with SyscallTrace([nodes.pid(node_id) for node_id in nodes.node_ids], trace):
            checker = FsyncAudit(
                {
                    node.node_id: AuditedNode(
                        node.node_id, node.data_dir / "journal", node.client_port, node.peer_port
                    )
                    for node in nodes.nodes.values()
                }
            )
            leader = nodes.leader()
            follower, other = (node_id for node_id in nodes.node_ids if node_id != leader)
            clients.write(nodes.host(leader), WRITES, 1)
            clients.write(nodes.host(follower), WRITES, 16)
            nodes.stop(leader)
            nodes.wait_ready(follower, other)
            clients.write(nodes.host(other), WRITES, 16)
        return checker.run(trace, clients.acknowledged)


def test_nothing_is_told_before_it_is_durable(tmp_path: Path) -> None:
    found = audit(tmp_path, ("-m", "quorum", "serve"))
    assert not found.violations, "\n".join(found.violations[:20])
    assert found.checked["client reply"] == 3 * WRITES
    # The run counts only if the trace held what is to be proven.
    for what, least in (("fdatasync", 300), ("acknowledgement", 300), ("commit index", 300), ("vote", 1)):
        assert found.checked[what] >= least, f"{what}: {found.checked}"


def test_the_audit_finds_acknowledgements_before_the_fsync(tmp_path: Path) -> None:
    command = ("-m", "tests.support.watched_node", "--break", "acknowledge-before-fsync", "--", "serve")
    found = audit(tmp_path, command)
    for what in ("client reply", "acknowledgement", "vote", "term", "commit index"):
        assert any(f": {what}: " in line for line in found.violations), f"{what}: not found"


def test_a_call_that_had_not_returned_when_the_tracing_ended_is_one_without_a_result(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    path = "".join(f"\\x{byte:02x}" for byte in b"/j/durable")
    begun = f'7  pwritev2(17<{path}>, [{{iov_base="\\x0f", iov_len=1}}], 1, 32, 0'
    trace.write_text(f"{begun}) = 1\n{begun} <detached ...>\n")
    whole, returned, open_ = read_events(trace)
    assert (whole.call.target, whole.call.offset, returned.call.result) == ("/j/durable", 32, 1)
    assert (open_.entered, open_.call.target, open_.call.offset) == (True, "/j/durable", 32)
    assert (open_.call.result, open_.call.written) == (None, b"\x0f")


def test_a_machine_that_forbids_tracing_is_named(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        # A process that is traced already is refused as one is without the permission.
        with (
            SyscallTrace([sleeper.pid], tmp_path / "first"),
            pytest.raises(TraceError, match=r"(?s)not permitted.*CAP_SYS_PTRACE"),
            SyscallTrace([sleeper.pid], tmp_path / "second"),
        ):
            pass
    finally:
        sleeper.communicate()
