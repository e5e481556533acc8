"""Three writer processes beside an ensemble, and what its nodes hold in the end.

One process of tests.support.recorded_writes per node, each with a folder and a record of its own. The writers
go on through any kill; what they recorded is compared with `final_values` by recorded_writes.check.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.support.nodes import System, clean_environment, eventually
from tests.support.recorded_writes import Final, History, Plan
from tests.support.wire_load import GET_DATA, Connection, decode_get, frame, read_body

PROGRESS_DEADLINE_S = 60.0
NO_NODE = -101


class WriterFleet:
    """Writer processes and their records."""

    def __init__(
        self,
        nodes: System,
        folder: Path,
        seed: int,
        *,
        name: str = "writer",
        paths_max: int = 3000,
        window: int = 64,
        value_bytes: int = 100,
        check_nodes: Callable[[], None] = lambda: None,
    ) -> None:
        """Start one writer per node; all nodes must be ready.

        Args:
            nodes: where they write.
            folder: gets the records.
            seed: of their choices.
            name: of the records and of the folders of paths; new for every fleet of one ensemble.
            paths_max: paths per writer; it sets the values of existing ones then.
            window: writes in flight per writer.
            value_bytes: of random data in each value.
            check_nodes: raises when a node is not as it should be; asked in every wait.
        """
        self._nodes = nodes
        self._check_nodes = check_nodes
        self.records: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for number, node_id in enumerate(nodes.node_ids):
            path = f"/{name}-{number}"
            with Connection(nodes.host(node_id)) as connection:
                connection.ensure(path)
            record = folder / f"{name}-{number}.jsonl"
            plan = Plan(
                nodes.hosts_from(node_id).split(","),
                path,
                str(record),
                paths_max=paths_max,
                window=window,
                value_bytes=value_bytes,
                seed=seed * 10 + number,
            )
            self.records.append(record)
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.support.recorded_writes", json.dumps(asdict(plan))],
                    env=clean_environment(),
                    stdout=subprocess.DEVNULL,
                )
            )

    def recorded_bytes(self) -> int:
        """How much is recorded so far.

        Raises:
            RuntimeError: a writer ended by itself.
        """
        self._check_nodes()
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"a writer ended with exit code {process.returncode}")
        return sum(record.stat().st_size if record.exists() else 0 for record in self.records)

    def wait_for_progress(self, growth_bytes: int) -> None:
        """Wait until the records have grown by so much: writes are acknowledged again."""
        before = self.recorded_bytes()
        eventually(
            lambda: self.recorded_bytes() >= before + growth_bytes,
            PROGRESS_DEADLINE_S,
            "writes are acknowledged",
        )

    def finish(self) -> History:
        """Let the writers finish what is in flight and read their records."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            if process.wait(PROGRESS_DEADLINE_S):
                raise RuntimeError(f"a writer ended with exit code {process.returncode}")
        return History.read(self.records)

    def final_values(self, history: History) -> dict[str, dict[str, Final]]:
        """Read every path of the history from every node: {node: {path: what it holds}}."""
        wanted = sorted(history.paths)
        return {
            f"node {node_id}": read_all(self._nodes.host(node_id), wanted) for node_id in self._nodes.node_ids
        }

    def close(self) -> None:
        """End writers that are still there."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def read_all(host: str, paths: list[str]) -> dict[str, Final]:
    """What one node holds at each path, after it applied everything committed before."""
    found: dict[str, Final] = {}

    def keep(index: int, _zxid: int, body: bytes) -> None:
        if body:
            value, stat = decode_get(body)
            found[paths[index]] = Final(value.decode("ascii"), stat.version, stat.czxid, stat.mzxid)

    frames = [frame(number, GET_DATA, read_body(path)) for number, path in enumerate(paths, start=1)]
    with Connection(host) as connection:
        connection.sync()
        connection.pipelined(frames, 256, keep, allowed_errors=(0, NO_NODE))
    return found
