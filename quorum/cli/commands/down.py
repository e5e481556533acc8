"""`quorate down`: stops the supervisor of a data directory and waits until it and its processes have gone."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from pathlib import Path

from quorum.errors import DataDirError, QuorateError
from quorum.launcher.files import user_of

HELP = "stop what `quorate up` started"
DESCRIPTION = "Stop the cluster of a data directory cleanly and wait until all of its processes have ended."
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
    """
    data_dir: Path = arguments.data_dir
    if not data_dir.is_dir():
        raise DataDirError(f"{data_dir} is no data directory", "name the one of `quorate up` with --data-dir")
    deadline = time.monotonic() + DEADLINE_S
    supervisor = user_of(data_dir)
    if supervisor == "?":
        problem = f"{data_dir} is held by a process that did not say its id"
        raise DataDirError(problem, "try again; it may be starting or stopping")
    if supervisor is not None:
        # It may have ended just now, which was the aim.
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(supervisor), signal.SIGTERM)
    ran = supervisor is not None
    # Those of a supervisor that was killed stop by themselves, but it takes them a while.
    while users := _users(data_dir):
        ran = True
        if users.get("up") not in (None, supervisor):
            print(f"stopped what ran on {data_dir}; another `quorate up` was started there meanwhile")
            return 0
        if time.monotonic() > deadline:
            named = ", ".join(f"{name} (process {pid})" for name, pid in users.items())
            raise QuorateError(
                f"of {data_dir} there still runs, after {DEADLINE_S:g} s, {named}",
                "see its log; a second `quorate down` kills what `up` started; what was started by hand is "
                "stopped with kill and its process id, what hangs with kill -9",
            )
        time.sleep(POLL_S)
    print(f"stopped what ran on {data_dir}" if ran else f"nothing runs on {data_dir}")
    return 0


def _users(data_dir: Path) -> dict[str, str]:
    """{process, as up or node-1: its id} of all that use the directory."""
    folders = {"up": data_dir} | {path.parent.name: path for path in data_dir.glob("*-[1-9]/data")}
    users = {name: user_of(folder) for name, folder in folders.items()}
    return {name: pid for name, pid in users.items() if pid is not None}
