"""`quorate up --chaos` and `quorate chaos` with real processes: a leader is cut off, and comes back."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes import clean_environment, eventually, hold_port

DEADLINE_S = 60.0
NODES = 3
#: toxiproxy's own, three of clients, six between nodes
PROXY_PORTS = 1 + NODES + NODES * (NODES - 1)


def hold_run(held: contextlib.ExitStack, count: int) -> int:
    """Reserve consecutive ports; returns the first."""
    while True:
        with contextlib.ExitStack() as attempt:
            holder, first = hold_port()
            attempt.callback(holder.close)
            try:
                for port in range(first + 1, first + count):
                    neighbour = attempt.enter_context(socket.socket())
                    neighbour.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    neighbour.bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            held.push(attempt.pop_all())
            return first


@pytest.fixture
def options() -> Iterator[list[str]]:
    with contextlib.ExitStack() as held:
        first = [f"--{key}-port={hold_run(held, NODES)}" for key in ("client", "peer", "admin")]
        yield [*first, f"--chaos-port={hold_run(held, PROXY_PORTS)}", "--brokers=0", f"--nodes={NODES}"]


def quorate(data_dir: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "quorum", *words, f"--data-dir={data_dir}"],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_leader_is_isolated_and_healed(tmp_path: Path, options: list[str]) -> None:
    data = tmp_path / "data"
    try:
        assert "ready" in quorate(data, "up", "--chaos", "--detach", *options)
        listed = quorate(data, "chaos", "list")
        assert len(listed.splitlines()) == PROXY_PORTS
        told = quorate(data, "chaos", "isolate", "leader")
        assert "nothing passes 4 links" in told
        leader = told.split(" | ")[0]

        def another_leads() -> bool:
            return quorate(data, "chaos", "slow", "leader", "--latency", "1ms").split()[0] != leader

        eventually(another_leads, DEADLINE_S, "another node leads")
        assert "timeout-upstream" in quorate(data, "chaos", "list")
        quorate(data, "chaos", "heal")
        assert "-upstream" not in quorate(data, "chaos", "list")
    finally:
        quorate(data, "down")
    api = json.loads((data / "chaos.json").read_text())["api"]
    port = int(api.rpartition(":")[2])

    def serves() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    eventually(lambda: not serves(), DEADLINE_S, "toxiproxy has ended with the cluster")
