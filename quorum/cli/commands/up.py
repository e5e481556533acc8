"""`quorate up`: a local quorum as supervised processes, in the foreground or detached.

Detached, the same command runs again as a process of a session of its own and reports through a pipe whether
it came up, so that there is one way to start and one place for every check.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
from pathlib import Path

from quorum.errors import (
    DataDirError,
    NodeStoppedError,
    QuorateError,
    UsageError,
    remedy_for_os,
    shown,
    told_by_os,
)
from quorum.launcher.child import PROGRAM, child_environment
from quorum.launcher.layout import (
    DEFAULT_NODES,
    DEFAULT_PORTS,
    HOST,
    Layout,
    check_ports_free,
    make_data_dir,
    plan,
    write,
)
from quorum.launcher.up_lock import Lock
from quorum.platform.terminal import Console, styled, table

HELP = "start a local quorum and keep it running"
DESCRIPTION = """\
Start a quorum of local processes, show where it listens, and keep it running: a node that dies is started
again. Ctrl-C stops all of it cleanly. Starting again on the same data directory resumes it. Node i listens on
each first port + i - 1.

It is ready when a majority of the nodes is, and says which others are not, why, and what to do. A node whose
data directory is lost is not started until `quorate members replace ID` has given its old disk up; then it
joins with an empty one by itself."""
EXAMPLES = """\
examples:
  quorate up                                   three nodes on 2181-2183
  quorate up --nodes 1 --data-dir /tmp/one
  quorate up --detach && quorate status && quorate down
"""
READY_DEADLINE_S = 120
#: for what the started process says when that has passed
REPORT_DEADLINE_S = READY_DEADLINE_S + 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument(
        "--nodes",
        type=_number,
        metavar="N",
        help=f"how many nodes (default: {DEFAULT_NODES}, or as many as there are)",
    )
    parser.add_argument(
        "--brokers", type=_number, default=0, metavar="N", help="how many brokers (default: 0)"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="where everything is kept (default: ./data)",
    )
    purposes = {"client": "ZooKeeper clients", "peer": "the other nodes", "admin": "HTTP"}
    for key, default in DEFAULT_PORTS.items():
        parser.add_argument(
            f"--{key}-port",
            type=_number,
            metavar="PORT",
            help=f"first port for {purposes[key]} (default: {default}, or as before)",
        )
    parser.add_argument(
        "--broker-port", type=_number, metavar="PORT", help="first port of the brokers (default: 9092)"
    )
    parser.add_argument("--detach", action="store_true", help="return when ready; `quorate down` stops it")
    # How a detached start tells the command that the user typed what became of it.
    parser.add_argument("--report-fd", type=int, help=argparse.SUPPRESS)


def _number(given: str) -> int:
    """Read a whole number.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not given.isascii() or not given.removeprefix("-").isdigit():
        raise argparse.ArgumentTypeError(f"{shown(given)} is no whole number")
    return int(given)


def run(arguments: argparse.Namespace) -> int:
    """Start, and in the foreground run until a signal.

    Raises:
        UsageError, DataDirError, AddressInUseError: before anything is started.
        NodeStoppedError: no node could start.
    """
    if arguments.brokers or arguments.broker_port is not None:
        given = (
            f"--brokers {arguments.brokers}"
            if arguments.brokers
            else f"--broker-port {arguments.broker_port}"
        )
        raise UsageError(
            f"{given}: this version has no brokers, only the quorum", "leave it out, or give --brokers 0"
        )
    if arguments.detach:
        return _detach(arguments)
    if arguments.report_fd is None:
        _run_here(arguments, None)
        return 0
    try:
        try:
            _run_here(arguments, arguments.report_fd)
        except OSError as error:
            told = told_by_os(error, f"a file below {arguments.data_dir}")
            raise DataDirError(told, remedy_for_os(error)) from error
    except QuorateError as error:
        usage = isinstance(error, UsageError)
        if not _report(arguments.report_fd, error=error.message, remedy=error.remedy, usage=usage):
            raise
        # Told by the command that waits. The log may belong to another start, which was quicker.
        return 2 if usage else 1
    return 0


def _run_here(arguments: argparse.Namespace, report_fd: int | None) -> None:
    from quorum.launcher.supervisor import StartReport, Supervisor

    ports = {key: getattr(arguments, f"{key}_port") for key in DEFAULT_PORTS}
    data_dir: Path = arguments.data_dir.absolute()
    # What is given wrong is refused before anything is made.
    plan(data_dir, arguments.nodes, ports)
    make_data_dir(data_dir)
    lock = Lock(data_dir)
    lock.acquire(detached=report_fd is not None)
    try:
        # Another start may have been the first since.
        layout = plan(data_dir, arguments.nodes, ports)
        check_ports_free(layout)
        write(layout)
        console = Console(sys.stdout)
        _show(layout, console)
        supervisor = Supervisor(layout, console)

        def ready(start: StartReport) -> None:
            console.say(f"{start.summary}: {start.hosts}", "yellow" if start.missing else "green")
            stories = (*start.missing, *start.strangers)
            for story in stories:
                console.say(story)
            if report_fd is None:
                return
            if not _report(report_fd, ready=start.summary, all=not start.missing, stories=stories):
                console.say("who started this was ended before it was ready: all is stopped")
                supervisor.stop()

        deadline_s = math.inf if report_fd is None else READY_DEADLINE_S
        asyncio.run(supervisor.run(ready, deadline_s=deadline_s))
    finally:
        lock.release()


def _show(layout: Layout, console: Console) -> None:
    rows = [
        [node.node_id, f"{HOST}:{node.client}", f"{HOST}:{node.peer}", node.admin_url, node.folder]
        for node in layout.nodes
    ]
    header, *lines = table(["NODE", "CLIENTS", "PEERS", "ADMIN", "FOLDER"], rows)
    console.say(header, "bold")
    for line in lines:
        console.say(line)


def _detach(arguments: argparse.Namespace) -> int:

    data_dir: Path = arguments.data_dir.absolute()
    make_data_dir(data_dir)
    # The log belongs to the one that runs: a refusal must not stand in it.
    Lock(data_dir).refuse_if_held()
    log_file = data_dir / "up.log"
    read_end, write_end = os.pipe()
    ports = {key: getattr(arguments, f"{key}_port") for key in DEFAULT_PORTS}
    options = [f"--{key}-port={port}" for key, port in ports.items() if port is not None]
    if arguments.nodes is not None:
        options.append(f"--nodes={arguments.nodes}")
    command = (*PROGRAM, "up", "--data-dir", str(data_dir), "--report-fd", str(write_end))
    with log_file.open("ab") as output:
        child = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(write_end,),
            env=child_environment(),
            start_new_session=True,
        )
    os.close(write_end)
    try:
        report = _await_report(read_end)
    except BaseException:
        # Ctrl-C while it comes up, or a start that takes too long: what was started must not stay behind
        child.terminate()
        child.wait()
        raise
    finally:
        os.close(read_end)
    if "ready" not in report:
        child.wait()
        kind = UsageError if report.get("usage") else QuorateError
        raise kind(
            str(report.get("error", "it ended without a word")),
            str(report.get("remedy") or f"see {log_file}"),
        )
    child.returncode = 0  # it lives on; the object must not warn that it does
    _show(plan(data_dir, None, dict.fromkeys(DEFAULT_PORTS)), Console(sys.stdout))
    stories = report.get("stories")
    summary = styled(str(report["ready"]), "green" if report.get("all") else "yellow", sys.stdout)
    print(f"{summary}; quorate down --data-dir {arguments.data_dir} stops it")
    for story in stories if isinstance(stories, list) else ():
        print(story)
    return 0


def _report(report_fd: int, **facts: object) -> bool:
    """Tell the waiting command, once; False if it has gone."""
    try:
        os.write(report_fd, (json.dumps(facts) + "\n").encode())
    except BrokenPipeError:
        return False
    return True


def _await_report(read_end: int) -> dict[str, object]:
    """Wait for the one line of a detached start; {} if it ended without one."""
    import select

    chunks = b""
    while not chunks.endswith(b"\n"):
        readable, _, _ = select.select([read_end], [], [], REPORT_DEADLINE_S)
        if not readable:
            raise NodeStoppedError(
                f"not ready within {REPORT_DEADLINE_S} s", "look at the node.log of each node"
            )
        chunk = os.read(read_end, 65536)
        if not chunk:
            return {}
        chunks += chunk
    facts: dict[str, object] = json.loads(chunks)
    return facts
