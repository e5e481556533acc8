"""`quorate down`: stops the supervisor of a data directory and waits until it and its nodes have gone."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from pathlib import Path

from quorum.errors import DataDirError, QuorateError
from quorum.launcher.layout import NODES_MAX
from quorum.launcher.up_lock import Lock, process_start, user_of

HELP = "stop a quorum that `quorate up` started"
DESCRIPTION = "Stop the quorum of a data directory cleanly and wait until all of its processes have ended."
EXAMPLES = """\
examples:
  quorate down
  quorate down --data-dir /var/lib/quorate
"""
DEADLINE_S = 60.0
POLL_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="as given to `quorate up` (default: ./data)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Stop it.

    Returns:
        0, also if nothing ran there.

    Raises:
        DataDirError: there is no such directory, or its holder cannot be told for sure.
        QuorateError: it did not stop in time.
    """
    data_dir: Path = arguments.data_dir
    if not data_dir.is_dir():
        raise DataDirError(f"{data_dir} is no data directory", "name the one of `quorate up` with --data-dir")
    deadline = time.monotonic() + DEADLINE_S
    lock = Lock(data_dir.absolute())
    ran = _stop_supervisor(data_dir, lock, deadline)
    # Of a supervisor that was killed: they stop by themselves, but it takes them a while.
    while nodes := _running_nodes(data_dir):
        ran = True
        if lock.held():
            print(f"stopped what ran on {data_dir}; another `quorate up` was started there meanwhile")
            return 0
        if time.monotonic() > deadline:
            named = ", ".join(f"node {node_id} (process {pid})" for node_id, pid in nodes.items())
            raise QuorateError(
                f"of {data_dir} there still runs, after {DEADLINE_S:g} s, {named}",
                "see its node.log; what `quorate serve` started is stopped with kill and its process id, "
                "what hangs with kill -9",
            )
        time.sleep(POLL_S)
    print(f"stopped what ran on {data_dir}" if ran else f"nothing runs on {data_dir}")
    return 0


def _stop_supervisor(data_dir: Path, lock: Lock, deadline: float) -> bool:
    """Ask the supervisor to stop and wait until it has; False if there is none."""
    if not lock.held():
        return False
    holder = lock.holder()
    if holder is None:
        raise DataDirError(
            f"{data_dir} is held by a process that did not say who it is",
            "try again; it may be starting or stopping",
        )
    # It may have ended just now, which was the aim.
    with contextlib.suppress(ProcessLookupError):
        os.kill(holder["pid"], signal.SIGTERM)
    # Not the lock: another start may have taken it at once.
    while process_start(holder["pid"]) == holder["started"]:
        if time.monotonic() > deadline:
            raise QuorateError(
                f"process {holder['pid']} has not stopped within {DEADLINE_S:g} s",
                f"see {data_dir}/up.log; a second `quorate down` kills its nodes",
            )
        time.sleep(POLL_S)
    return True


def _running_nodes(data_dir: Path) -> dict[int, str]:
    """{node id: the process that uses its data directory}."""
    users = {node_id: user_of(data_dir / f"node-{node_id}" / "data") for node_id in range(1, NODES_MAX + 1)}
    return {node_id: pid for node_id, pid in users.items() if pid is not None}
