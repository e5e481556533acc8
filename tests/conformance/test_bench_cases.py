"""Every case of the comparison works, at a tiny size, against Quorate and a real ZooKeeper.

No time is asserted. etcd's turn is `tests/bench/test_etcd_cases.py`, which `make bench` runs, because its
servers come with what only benchmarks need.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from tests.bench import peers
from tests.bench.cases import TINY
from tests.support.nodes import System
from tests.support.wire_load import Connection, Job, LoadError, LoadInterruptedError, run_jobs


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_case_measures_both_systems(tmp_path: Path) -> None:
    lines, picture = peers.run(tmp_path, list(peers.CASES), ["zookeeper"], 1, TINY, warm_up=False)
    rows = [row for cases in peers.CASES.values() for case in cases for row in case.rows if row.compared]
    for row in rows:
        shown = [line.split(" | ")[1:3] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == 2, f"{row.name}: once with its medians, once with every round"
        assert "–" not in (*shown[0], *shown[1]), f"{row.name}: {shown}"
        assert row.name in picture


def test_a_state_of_another_version_ends_the_load(shared_nodes: System) -> None:
    host = shared_nodes.host(1)
    with Connection(host) as connection:
        for path in ("/guarded", "/guarded/fence", "/guarded/n0000000", "/guarded/n0000001"):
            connection.ensure(path)
    assert run_jobs([Job(host, "states", "/guarded", 2, 1, version=0)])[0].count == 2
    with pytest.raises(LoadError, match="multi 0 failed") as failed:
        run_jobs([Job(host, "states", "/guarded", 2, 1, version=0)])
    assert not isinstance(failed.value, LoadInterruptedError)


def test_a_server_that_ends_a_load_is_told_from_a_wrong_reply() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closing = threading.Thread(target=lambda: listener.accept()[0].close())
        closing.start()
        with pytest.raises(LoadInterruptedError, match="Connection"):
            run_jobs([Job(f"127.0.0.1:{listener.getsockname()[1]}", "read", "/none", 1)])
        closing.join(10.0)
