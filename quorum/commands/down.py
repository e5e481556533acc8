"""`quorate down`: stops the supervisor of a data directory and waits until it and its nodes have gone."""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

from quorum.errors import DataDirError, QuorateError
from quorum.layout import Lock, process_start

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
    lock = Lock(data_dir.absolute())
    if not lock.held():
        print(f"nothing runs on {data_dir}")
        return 0
    holder = lock.holder()
    if holder is None:
        raise DataDirError(
            f"{data_dir} is held by a process that did not say who it is",
            "try again; it may be starting or stopping",
        )
    os.kill(holder["pid"], signal.SIGTERM)
    deadline = time.monotonic() + DEADLINE_S
    while lock.held() or process_start(holder["pid"]) == holder["started"]:
        if time.monotonic() > deadline:
            raise QuorateError(
                f"process {holder['pid']} has not stopped within {DEADLINE_S:g} s",
                f"see {data_dir}/up.log; a second `quorate down` kills its nodes",
            )
        time.sleep(POLL_S)
    print(f"stopped what ran on {data_dir}")
    return 0
