"""Writers that outrun snapshots wait for them: the log since the last one stays within its bound."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support.nodes import QUICK_SESSIONS, QuorateNodes, eventually
from tests.support.wire_load import Connection, create_body, set_body

CREATE, SET_DATA = 1, 5
KIB, MIB = 1024, 1024 * 1024
BOUND_BYTES, BATCH_BYTES, SEGMENT_BYTES = 4 * MIB, MIB, MIB
WRITERS, WRITES = 4, 200
VALUE = bytes(100 * KIB)
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[QuorateNodes]:
    raft = {
        "journal_bytes_max": BOUND_BYTES,
        "batch_bytes_max": BATCH_BYTES,
        "segment_bytes_max": SEGMENT_BYTES,
    }
    with QuorateNodes(nodes=1, settings={**QUICK_SESSIONS, "raft": raft}) as running:
        yield running


def overwrite(host: str, path: str, acknowledged: list[str]) -> None:
    with Connection(host) as client:
        client.call(CREATE, create_body(path, VALUE))
        for _ in range(WRITES):
            assert client.call(SET_DATA, set_body(path, VALUE))[0] == 0
            acknowledged.append(path)


def uncovered_bytes(nodes: QuorateNodes, node_id: int) -> int:
    """Return how much log no snapshot of a node covers."""
    metrics = nodes.get(node_id, "/metrics")[1].decode().splitlines()
    [line] = [each for each in metrics if each.startswith("quorate_snapshot_log_bytes ")]
    return int(float(line.split()[1]))


def journal_bytes(nodes: QuorateNodes) -> int:
    """Return the size of the largest journal."""
    folders = [node.data_dir / "journal" for node in nodes.nodes.values()]
    return max(sum(each.stat().st_size for each in folder.glob("*")) for folder in folders)


def test_writers_wait_for_snapshots_and_every_write_is_acknowledged(nodes: QuorateNodes) -> None:
    acknowledged: list[str] = []
    writers = [
        threading.Thread(target=overwrite, args=(nodes.host(1), f"/w{number}", acknowledged))
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    while any(writer.is_alive() for writer in writers):
        seen.append(uncovered_bytes(nodes, 1))
    assert len(acknowledged) == WRITERS * WRITES
    assert max(seen) <= BOUND_BYTES + BATCH_BYTES
    # Of what two snapshots leave, the older one is needed as well.
    kept_bytes_max = 2 * BOUND_BYTES + BATCH_BYTES + 2 * SEGMENT_BYTES
    eventually(lambda: journal_bytes(nodes) <= kept_bytes_max, DEADLINE_S, "the journals are compacted")
